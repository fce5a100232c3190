/* program_file.h -- open the program that could not be started, as a file that may be anything.
 *
 * The first bytes of a file that may be anything. */
#ifndef LAUNCHER_REPORT_PROGRAM_FILE_H
#define LAUNCHER_REPORT_PROGRAM_FILE_H

#include "base/buf.h"
#include "report/spawn_error_text.h"

/* Up to `size` bytes, into `bytes`. Empty when the file is not there or cannot be read; never waits. */
struct slice file_head(const char *path, char *bytes, size_t size);

/* --- program see ------------------------------------------------------------------------------------------ */

/* Look at a program that could not be started. */

/* `path` as it was given to execve, or as the user named it when no search found it. */
void program_see(const char *path, struct program_look *look);

/* Look at `failed`, which could not be started, or the file `script` that Python was to run. False: there is nothing to look at. */
bool program_see_failed(const char *failed, const char *script, struct program_look *look);

#endif
