/* still_worker.c -- a libddp worker that makes 3 steps. Then one rank stops, loops, dies or becomes slow.
 *
 *     still_worker stop 1      after step 3 rank 1 stops itself (SIGSTOP), and continues at SIGCONT
 *     still_worker loop 1      after step 3 rank 1 computes without end, outside of any call
 *     still_worker die 1       after step 3 rank 1 is killed
 *     still_worker go 0        no fault; ends after step 3
 *     still_worker slow 1      makes steps of 200 ms without end; steps of rank 1 take $SLOWER percent longer */
#include "ddp/ddp.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, STEP_MS = 200 };

static void stand_still(const char *how)
{
    volatile unsigned turns = 0;
    if (strcmp(how, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(how, "die") == 0)
        raise(SIGKILL);
    while (strcmp(how, "loop") == 0)
        turns++;
}

static ddp_status step(ddp_ctx *ctx, uint64_t number)
{
    float x[16] = { 1 };
    ddp_status status = ddp_all_reduce(ddp_world(ctx), x, x, 16, DDP_F32, DDP_SUM, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_progress(ctx, number);
    return status;
}

/* Make steps until one fails. Before each step, sleep for the time in which a real rank would compute. */
static ddp_status make_steps(ddp_ctx *ctx, bool is_slow)
{
    const char *slower = getenv("SLOWER");
    const int more = is_slow && slower != NULL ? atoi(slower) : 0;
    ddp_status status = DDP_OK;
    for (uint64_t i = STEPS + 1; status == DDP_OK; i++) {
        poll(NULL, 0, STEP_MS * (100 + more) / 100);
        status = step(ctx, i);
    }
    return status;
}

static int give_up(ddp_status status)
{
    fprintf(stderr, "%s\n", ddp_last_error());
    return ddp_exit_code(status);
}

int main(int argc, char **argv)
{
    ddp_ctx *ctx;
    ddp_status status = ddp_init_from_env(NULL, &ctx);
    if (argc != 3 || status != DDP_OK)
        return give_up(status);
    for (uint64_t i = 1; i <= STEPS && status == DDP_OK; i++)
        status = step(ctx, i);
    if (ddp_rank(ctx) == 0)
        printf("store %s:%s\n", getenv("MASTER_ADDR"), getenv("MASTER_PORT"));
    printf("rank %d has made %d steps\n", ddp_rank(ctx), STEPS);
    fflush(stdout);
    if (ddp_rank(ctx) == atoi(argv[2]))
        stand_still(argv[1]);
    if (status == DDP_OK && strcmp(argv[1], "slow") == 0)
        status = make_steps(ctx, ddp_rank(ctx) == atoi(argv[2]));
    if (status == DDP_OK)
        status = step(ctx, STEPS + 1);
    if (status != DDP_OK) {
        const int code = give_up(status);
        ddp_finalize(ctx);
        return code;
    }
    return ddp_exit_code(ddp_finalize(ctx));
}
