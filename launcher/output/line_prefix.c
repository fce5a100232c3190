/* line_prefix.c -- see line_prefix.h.
 *
 * Numbers become text here and not in prefix.c, which need not know
 * whether a rank is one number or a set of them. */
#include "output/line_prefix.h"

#include <stdio.h>

enum { RANKS_MAX = 200, NUMBER_MAX = 12, SEVERAL_COLOUR = 1 /* bold */ };

/* Ranks on this node have local ranks from 0 on, and ranks from `base` on. */
struct numbered {
    const struct rank_set *local_ranks;
    int base;
};

static int rank_at(const void *user, int i)
{
    const struct numbered *n = user;
    return rank_set_has(n->local_ranks, i) ? n->base + i : -1;
}

/* "3", or "0,2-5", and a NUL. */
static bool put_ranks(const struct line_origin *from, int base, struct buf *out)
{
    const struct numbered n = { from->ranks, base };
    bool ok = from->ranks != NULL ? rank_set_print_each(rank_at, &n, from->ranks->limit, RANKS_MAX, out)
                                  : buf_printf(out, "%d", base + from->local_rank);
    return ok && buf_append(out, "", 1);
}

/* The template's other fields are put in here, those of the ranks are in `values` already. */
static bool put_prefix(const struct plan *plan, const struct line_origin *from, struct prefix_values *values,
                       int colour, struct buf *out)
{
    char pid[NUMBER_MAX], attempt[NUMBER_MAX], time[PREFIX_TIME_MAX], elapsed[PREFIX_TIME_MAX];
    snprintf(pid, sizeof(pid), "%d", from->pid);
    snprintf(attempt, sizeof(attempt), "%d", plan->attempt);
    prefix_time(time, from->at.unix_us);
    prefix_elapsed(elapsed, from->at.since_us);
    values->of[PREFIX_HOST] = values->of[PREFIX_HOSTNAME] = plan->facts->host;
    values->of[PREFIX_ROLE_NAME] = plan->cli->role;
    values->of[PREFIX_PID] = from->pid != 0 && from->ranks == NULL ? pid : NULL;
    values->of[PREFIX_STREAM] = from->which == STD_OUT ? "stdout" : "stderr";
    values->of[PREFIX_JOB] = plan->job;
    values->of[PREFIX_ATTEMPT] = attempt;
    values->of[PREFIX_TIME] = time;
    values->of[PREFIX_ELAPSED] = elapsed;
    return prefix_render(&plan->line_prefix, values, colour, out);
}

static int colour_of(const struct plan *plan, const struct line_origin *from)
{
    return from->ranks != NULL ? SEVERAL_COLOUR : prefix_colour(plan->workers[from->local_rank].rank);
}

bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out)
{
    struct buf rank = { 0 }, local_rank = { 0 };
    bool ok = put_ranks(from, plan->workers[0].rank, &rank) && put_ranks(from, 0, &local_rank);
    struct prefix_values values = { 0 };
    const bool prefix =
        from->ranks != NULL ? plan->prefix : plan_stream_has_prefix(plan, from->local_rank, from->which);
    if (ok) {
        values.of[PREFIX_RANK] = (const char *)rank.data;
        values.of[PREFIX_LOCAL_RANK] = (const char *)local_rank.data;
        if (from->ranks != NULL && !(plan->prefix && plan->line_prefix.ranked))
            ok = buf_printf(out, "[%s] ", values.of[PREFIX_RANK]);
        if (prefix)
            ok =
                ok && put_prefix(plan, from, &values, colour ? colour_of(plan, from) : PREFIX_NO_COLOUR, out);
    }
    buf_free(&rank);
    buf_free(&local_rank);
    return ok;
}
