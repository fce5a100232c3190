/* program_see.h -- look at a program that could not be started. */
#ifndef LAUNCHER_PROGRAM_SEE_H
#define LAUNCHER_PROGRAM_SEE_H

#include "report/program_look.h"

/* `path` as it was given to execve, or as the user named it when no search found it. */
void program_see(const char *path, struct program_look *look);

/* The same for a file that Python was to run. */
void program_see_script(const char *path, struct program_look *look);

#endif
