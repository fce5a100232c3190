/* plan.c -- the plan itself, see plan.h: its texts, its end, and what is asked about it. Who decides what stands in it is in
 * plan_parts.h. */
#include "plan/plan_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plan_text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

void plan_note(struct plan *plan, const char *fmt, ...)
{
    va_list ap;
    int i = 0;
    while (i < PLAN_NOTES_MAX && plan->notes[i] != NULL)
        i++;
    if (i == PLAN_NOTES_MAX)
        return;
    va_start(ap, fmt);
    if (vasprintf(&plan->notes[i], fmt, ap) < 0)
        plan->notes[i] = NULL;
    va_end(ap);
}

void plan_output_free(struct plan_worker *w)
{
    free(w->log_dir);
    free(w->out.file);
    free(w->err.file);
    free(w->error_file);
    w->log_dir = w->out.file = w->err.file = w->error_file = NULL;
}

void plan_free(struct plan *plan)
{
    for (int r = 0; plan->workers != NULL && r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        free(w->argv);
        free(w->visible);
        rank_set_free(&w->cpus);
        plan_output_free(w);
    }
    for (int i = 0; i < PLAN_NOTES_MAX; i++)
        free(plan->notes[i]);
    env_base_free(&plan->env);
    free(plan->filtered[0]);
    free(plan->filtered[1]);
    free(plan->stop_signals);
    free(plan->timer_file);
    free(plan->flight);
    free(plan->gpus);
    free(plan->workers);
    free(plan->log_root);
    free(plan->job);
    *plan = (struct plan){ 0 };
}

/* --- questions ------------------------------------------------------------------------------------------ */

/* By rank in the job, unlike the options about output, which are torchrun's and count on this node. */
bool plan_gets_input(const struct plan *plan, int local_rank)
{
    const struct cli_input *input = &plan->cli->input;
    return input->all || rank_set_has(&input->ranks, plan->workers[local_rank].rank);
}

/* no-color.org's rule: the variable counts when it is not empty, whatever it says. */
bool plan_wants_colour(const struct plan *plan)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    const char *no_color = env_find(plan->facts->environ_block, "NO_COLOR");
    return (term == NULL || strcmp(term, "dumb") != 0) && (no_color == NULL || *no_color == '\0');
}

void plan_offer_port(struct plan *plan, int port)
{
    plan->offered_port = port;
    if (plan->settled)
        plan->rank0_port = port;
}

struct plan_round plan_same_round(const struct plan *plan, int attempt)
{
    return (struct plan_round){ .attempt = attempt,
                                .restarts = attempt,
                                .node_rank = plan->node_rank,
                                .nnodes = plan->nnodes,
                                .first_rank = plan->node_rank * plan->nproc,
                                .world_size = plan->world_size,
                                .role_rank = plan->node_rank * plan->nproc,
                                .role_size = plan->world_size,
                                .rank0_port = plan->rank0_port };
}
