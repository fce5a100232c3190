/* disk_watch.h -- which file operation of the agent does not return. A thread that sleeps in the kernel, because a
 * file system does not answer, ignores SIGKILL, so the agent's process cannot end. From the slots, the guardian reads
 * the path of the operation that hangs.
 *
 * Each user of the disk has one slot, in memory that agent and guardian share. */
#ifndef LAUNCHER_OUTPUT_DISK_WATCH_H
#define LAUNCHER_OUTPUT_DISK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { DISK_PATH_MAX = 1024, DISK_HUNG_MS = 1000 };

/* One thread at a time uses a slot. */
enum disk_user { DISK_MAIN, DISK_FILES, DISK_EVENTS, DISK_FLIGHTS, DISK_USERS };

/* Share the slots with processes that are forked later. Without this call each process has its own slots. */
void disk_watch_share(void);

/* Mark the begin and end of an operation on `path`; a longer path is cut. */
void disk_begin(enum disk_user user, const char *path);
void disk_end(enum disk_user user);

/* Return true and copy the path if an operation has lasted for `ms`. `path` may be NULL. */
bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX]);

/* Record that the agent exits although an operation hangs, because the agent has no other work. The guardian reads
 * this record. */
void disk_watch_leave(void);
bool disk_watch_left(void);

/* --- work that may hang ------------------------------------------------------------------------------------ */

/* These functions run work that may hang, such as access to a file server that does not answer, on a separate thread.
 * The caller waits for a limited time. */

/* If `run` returns in time, the caller owns `user` again. */
struct aside {
    void (*run)(void *user);     /* on the thread */
    void (*release)(void *user); /* called on the thread if `run` was too late */
    void *user;
};

/* Call `run` on a thread. Return true if `run` has returned within `limit_ms`. Return false if `run` is late; the
 * thread then owns `user`. If no thread can be created, `run` is called here, without a limit. */
bool aside_run(const struct aside *work, int limit_ms);

#endif
