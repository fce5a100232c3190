/* disk_watch.h -- detects which file operation of the agent hangs. The guardian reports its path, because not even
 * SIGKILL ends an agent that waits for a file system. */
#ifndef LAUNCHER_OUTPUT_DISK_WATCH_H
#define LAUNCHER_OUTPUT_DISK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DISK_PATH_MAX = 1024, /* bytes of a path, including the NUL */
    DISK_HUNG_MS = 1000   /* an operation that lasts this long counts as hanging */
};

/* The parts of the agent that use a disk. Only one thread at a time may record an operation of a part. */
enum disk_user { DISK_MAIN, DISK_FILES, DISK_EVENTS, DISK_FLIGHTS, DISK_USERS };

/* Share the slots with processes that are forked later. Agent and guardian need this. */
void disk_watch_share(void);

/* Record the start and the end of an operation. A `path` longer than DISK_PATH_MAX is cut. */
void disk_begin(enum disk_user user, const char *path);
void disk_end(enum disk_user user);

/* Return true if an operation has lasted at least `ms` milliseconds, and copy its path. `path` may be NULL. */
bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX]);

/* Record that the agent exits although an operation hangs or a process cannot be killed. `is_stuck`: a process of the
 * job or a thread may be impossible to kill. disk_watch_left then returns true, also in the guardian. */
void disk_watch_leave(bool is_stuck);
bool disk_watch_left(bool *is_stuck);

#endif
