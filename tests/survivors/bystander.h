/* bystander.h -- a second job of the same user. A trial with another job must not affect this second job.
 *
 * A pidfd watches each process of the second job. Each of these processes prints a line at every signal that can be
 * caught. */
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

/* Start the second job with the launcher of `t`. Return false if the job did not start; `why` then has its output. */
bool bystander_open(struct bystander *b, const struct trial *t, char *why, size_t size);

/* Return NULL if no process of the second job has ended, none of its workers has got a signal, and its output is open.
 * Otherwise return what has happened, as a static text. Messages of the launcher in the output are ignored. */
const char *bystander_harm(struct bystander *b);

void bystander_close(struct bystander *b);

#endif
