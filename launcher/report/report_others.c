/* report_others.c -- see report_others.h.
 *
 * Nothing here is called a failure of its own: who ends milliseconds after the first, with a broken
 * connection or by our signal, is told with its time and its code, and the reader sees which came first.
 * Workers that ended alike are one sentence, with the earliest and the latest time. */
#include "report/report_others.h"

#include "agent/ending.h"
#include "report/report_cause.h"
#include "tables/rank_set.h"
#include "tables/text.h"

#include <signal.h>
#include <stdio.h>

/* A screen has some 24 rows, and the cause above needs most of them. */
enum { GROUPS_MAX = 6, RANKS_MAX = 60, SENTENCE_LINES = 3, AFTER_MAX = 2 * TIME_TEXT_MAX + 32 };

/* Ways of ending that are told alike. */
enum way { NEVER_STARTED, NOT_EXECUTED, RUNS_ON, FINE, STOPPED, KILLED, BY_ITSELF };

struct group {
    const struct report *r;
    const struct agent_worker *like;
};

/* A signal that goes out in a stop: then it was ours, since a worker that somebody else killed failed. */
static bool is_ours(const struct report *r, int sig)
{
    return sig == SIGTERM || sig == agent_stop_signal(r->agent);
}

/* A victim that ended by itself is told with what it said (its code), like a failure: only its place in time shows
 * that it came later. Of those that we stopped SIGKILL is told apart, because such a worker did not end in time
 * when it was asked. */
static enum way way_of(const struct report *r, const struct agent_worker *w)
{
    switch (w->verdict) {
    case WORKER_PENDING:
        return NEVER_STARTED;
    case WORKER_NOT_STARTED:
        return NOT_EXECUTED;
    case WORKER_ALIVE:
        return RUNS_ON;
    case WORKER_OK:
        return FINE;
    case WORKER_FAILED:
    case WORKER_VICTIM:
        return BY_ITSELF;
    case WORKER_CONSEQUENCE:
        break;
    }
    if (w->signal == SIGKILL)
        return KILLED;
    return w->signal != 0 && is_ours(r, w->signal) ? STOPPED : BY_ITSELF;
}

/* The one that the headline is about never is one of the others. */
static bool same_end(const struct group *g, const struct agent_worker *w)
{
    return w != cause_worker(g->r) && way_of(g->r, w) == way_of(g->r, g->like) &&
           w->exit_code == g->like->exit_code && w->signal == g->like->signal;
}

static int rank_in_group(const void *user, int local_rank)
{
    const struct group *g = user;
    return same_end(g, agent_worker(g->r->agent, local_rank)) ? g->r->plan->workers[local_rank].rank : -1;
}

/* " 3 ms later", " 3 ms to 1.2 s later", " at the same moment", " 0.4 s before" (of one that lost its peer); "" when nothing
 * failed that it could be later than. */
static void after_text(const struct group *g, char out[AFTER_MAX])
{
    const struct agent_worker *first = cause_worker(g->r);
    uint64_t from = UINT64_MAX, to = 0, before = 0;
    char a[TIME_TEXT_MAX], b[TIME_TEXT_MAX];
    out[0] = '\0';
    for (int i = 0; first != NULL && i < g->r->plan->nproc; i++) {
        const struct agent_worker *w = agent_worker(g->r->agent, i);
        uint64_t after = w->ended_ms > first->ended_ms ? w->ended_ms - first->ended_ms : 0;
        if (!same_end(g, w))
            continue;
        before = first->ended_ms > w->ended_ms + before ? first->ended_ms - w->ended_ms : before;
        from = after < from ? after : from;
        to = after > to ? after : to;
    }
    if (before > 0 && to == 0)
        snprintf(out, AFTER_MAX, " %s before", words_time(a, before));
    else if (first != NULL && to == 0)
        snprintf(out, AFTER_MAX, " at the same moment");
    else if (first != NULL && from == to)
        snprintf(out, AFTER_MAX, " %s later", words_time(a, to));
    else if (first != NULL)
        snprintf(out, AFTER_MAX, " %s to %s later", words_time(a, from), words_time(b, to));
}

/* Gaps are filled by tell(): "{s}" and "{was}" make one rank and many readable alike. */
static const char *const sentences[] = {
    [NEVER_STARTED] = "rank{s} {ranks} {was} never started",
    [NOT_EXECUTED] = "rank{s} {ranks} could not be started either",
    [RUNS_ON] = "rank{s} {ranks} cannot be killed, stuck in the kernel",
    [FINE] = "rank{s} {ranks} ended with 0",
    [STOPPED] = "rank{s} {ranks} {was} stopped by ddprun as a consequence ({signal})",
    [KILLED] = "rank{s} {ranks} {was} killed by ddprun as a consequence ({signal})",
    [BY_ITSELF] = "rank{s} {ranks} ended{after}{how}",
};

static void tell(const struct group *g, const char *ranks, struct rows *rows, const char *label)
{
    const bool one = strpbrk(ranks, ",-") == NULL;
    char name[ENDING_MAX], after[AFTER_MAX], ending[ENDING_MAX], how[ENDING_MAX + 8];
    struct buf text = { 0 };
    signal_name(name, g->like->signal);
    after_text(g, after);
    ending_text(ending, g->like);
    snprintf(how, sizeof(how), "%s%s", g->like->signal != 0 ? ", " : " with ", ending);
    const struct word words[] = {
        { "s", one ? "" : "s" }, { "ranks", ranks }, { "was", one ? "was" : "were" },
        { "signal", name },      { "after", after }, { "how", how }
    };
    rows->ok = rows->ok &&
               words_fill(&text, sentences[way_of(g->r, g->like)], words, sizeof(words) / sizeof(words[0]));
    rows_text(rows, label, buf_slice(&text), SENTENCE_LINES);
    buf_free(&text);
}

static bool is_told(const struct group *groups, size_t n, const struct agent_worker *w)
{
    for (size_t i = 0; i < n; i++)
        if (same_end(&groups[i], w))
            return true;
    return false;
}

static void tell_group(const struct group *g, struct rows *rows, const char *label)
{
    struct buf ranks = { 0 };
    if (rank_set_print_each(rank_in_group, g, g->r->plan->nproc, RANKS_MAX, &ranks) &&
        buf_append(&ranks, "", 1))
        tell(g, (const char *)ranks.data, rows, label);
    else
        rows->ok = false;
    buf_free(&ranks);
}

/* Groups come in the order of their lowest rank; more than a screen can hold are summed up. */
void report_others(const struct report *r, struct rows *rows)
{
    struct group groups[GROUPS_MAX];
    size_t n = 0;
    for (int i = 0; i < r->plan->nproc; i++) {
        const struct agent_worker *w = agent_worker(r->agent, i);
        if (w == cause_worker(r) || is_told(groups, n, w))
            continue;
        if (n == GROUPS_MAX) {
            rows_printf(rows, "", "the others ended in still other ways; see the log files or --json");
            return;
        }
        groups[n] = (struct group){ .r = r, .like = w };
        tell_group(&groups[n], rows, n == 0 ? "then" : "");
        n++;
    }
}
