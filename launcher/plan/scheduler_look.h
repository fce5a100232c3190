/* scheduler_look.h -- the one file that a scheduler's variables may point at. */
#ifndef LAUNCHER_SCHEDULER_LOOK_H
#define LAUNCHER_SCHEDULER_LOOK_H

/* The text of the file at `path`; yours to free. NULL: there is none, it cannot be read, it is no plain file, or it is longer
 * than SCHEDULER_FILE_MAX. A NULL path is allowed. */
char *scheduler_look(const char *path);

#endif
