/* cause.c -- see cause.h. */
#include "agent/cause.h"

#include "agent/ending.h"

#include "ddp/error.h"

#include <string.h>

/* A lost node has no code to offer; 125 says that it was not the program. (125 as in `env`, `timeout` and
 * `docker run`: the launcher itself could not.) */
int cause_code(const struct cause *c)
{
    const struct agent_worker how = { .verdict = c->error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED,
                                      .exit_code = c->exit_code,
                                      .signal = c->signal,
                                      .error = c->error };
    if (strcmp(c->why, "node_lost") == 0 || strcmp(c->why, "timeout") == 0 || strcmp(c->why, "refused") == 0)
        return EXIT_CODE_DDPRUN;
    return ending_code(&how);
}

bool cause_is_victim(const struct cause *c)
{
    return c->rank >= 0 && c->victim;
}
