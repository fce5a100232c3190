/* disk_watch.h -- which file operation of the agent hangs. If a file system does not answer, a thread that uses it
 * sleeps in the kernel and ignores SIGKILL. The agent's process then cannot end. The guardian reads the path of
 * the hanging operation from slots.
 *
 * Each user of the disk has one slot, in memory that agent and guardian share. */
#ifndef LAUNCHER_OUTPUT_DISK_WATCH_H
#define LAUNCHER_OUTPUT_DISK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { DISK_PATH_MAX = 1024, DISK_HUNG_MS = 1000 };

/* Users of the disk. One thread at a time uses a slot. */
enum disk_user { DISK_MAIN, DISK_FILES, DISK_EVENTS, DISK_FLIGHTS, DISK_USERS };

/* Share the slots with processes that are forked later. Otherwise each process has its own slots. */
void disk_watch_share(void);

/* Mark the begin and the end of an operation on `path`. A path longer than DISK_PATH_MAX is cut. */
void disk_begin(enum disk_user user, const char *path);
void disk_end(enum disk_user user);

/* Return true if an operation has lasted at least `ms`, and copy its path. `path` may be NULL. */
bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX]);

/* Record that the agent exits while an operation hangs. The guardian reads this with disk_watch_left. */
void disk_watch_leave(void);
bool disk_watch_left(void);

#endif
