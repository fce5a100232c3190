/* start_words.h -- why a program could not be started, and what helps: two sentences made of execve's errno and of what
 * program_look.h saw. */
#ifndef LAUNCHER_START_WORDS_H
#define LAUNCHER_START_WORDS_H

#include "base/buf.h"
#include "report/program_look.h"

struct start_failure {
    int error;           /* of execve, of the search, or of fork */
    const char *program; /* as the user wrote it: that is what will be corrected */
    const char *path;    /* PATH of the worker, NULL = not set */
    const struct program_look *look;
};

/* "./train: no such file". False when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* "chmod +x ./train"; nothing is appended where nothing is known to help. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif
