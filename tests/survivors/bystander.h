/* bystander.h -- a second job of the same user. No trial may affect it. Its processes print each signal, and pidfds
 * show their ends. */
#ifndef TESTS_SURVIVORS_BYSTANDER_H
#define TESTS_SURVIVORS_BYSTANDER_H

#include "trial.h"

#include <stddef.h>
#include <sys/types.h>

enum { BYSTANDERS_MAX = 32 };

struct bystander {
    pid_t launcher;
    int out;
    int pidfds[BYSTANDERS_MAX];
    size_t count;
};

/* Start the second job with `t`'s launcher. On failure, return false, and its output in `why`. */
bool bystander_open(struct bystander *b, const struct trial *t, char *why, size_t size);

/* Return what has happened to the second job (an end or a signal) as a static text, or NULL. */
const char *bystander_harm(struct bystander *b);

void bystander_close(struct bystander *b);

#endif
