/* disk_watch.h -- detects which file operation of the agent hangs. If a file system does not answer, a thread that
 * uses this file system sleeps in the kernel, and not even SIGKILL ends the agent. So the guardian reads and reports
 * the path of the operation. */
#ifndef LAUNCHER_OUTPUT_DISK_WATCH_H
#define LAUNCHER_OUTPUT_DISK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DISK_PATH_MAX = 1024, /* bytes of a path, including the NUL */
    DISK_HUNG_MS = 1000   /* an operation that lasts this long counts as hanging */
};

/* The parts of the agent that use a disk. Each part has one slot, with the path and the start time of its current
 * operation. Only one thread at a time may record an operation of the same part. */
enum disk_user { DISK_MAIN, DISK_FILES, DISK_EVENTS, DISK_FLIGHTS, DISK_USERS };

/* Share the slots with processes that this process forks later, so that agent and guardian use the same memory. Without
 * this call each process has its own slots. */
void disk_watch_share(void);

/* Record the start and the end of an operation on `path`. A path longer than DISK_PATH_MAX is cut. */
void disk_begin(enum disk_user user, const char *path);
void disk_end(enum disk_user user);

/* Return true if an operation has lasted at least `ms` milliseconds, and copy the path of the operation. `path` may be
 * NULL. */
bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX]);

/* Record that the agent exits although an operation hangs or a process cannot be killed. `is_stuck` is true if a
 * process of the job, or a thread of the agent, may be impossible to kill. From then on disk_watch_left returns true
 * and stores `is_stuck`, also in the guardian. */
void disk_watch_leave(bool is_stuck);
bool disk_watch_left(bool *is_stuck);

#endif
