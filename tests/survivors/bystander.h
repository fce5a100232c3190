/* bystander.h -- the second job of the same user, which the first must not affect.
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

/* Return NULL while all processes of the job live and have got no signal; otherwise return the fault as a static
 * text. Output of the job's launcher about itself does not count. */
const char *bystander_harm(struct bystander *b);

void bystander_close(struct bystander *b);

#endif
