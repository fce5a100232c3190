/* report_attempts.c -- see report_attempts.h.
 *
 *     before   attempt 0: rank 1: exit 7, 2.5 s after its start, at step 100
 *     restart  none: the attempts come no further than step 100 (--max_no_progress)
 *     left     rank 0 (n1, pid 4002) ended with 0 while rank 1 waited for it at barrier 'epoch-3' [RANK_LEFT_EARLY]
 *     alive    pid 4711 (rank 1, python3) cannot be killed: state D in nfs_wait
 *
 * The latest failed attempt is the report's headline and has no line here. Lines have limits like everything in the
 * report: the earliest attempts are in the JSON. */
#include "report/report_attempts.h"

#include "agent/ending.h"
#include "report/report_cause.h"
#include "tables/text.h"

#include "diagnosis/findings.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { ATTEMPTS_SHOWN = 4, STUCK_SHOWN = 4 };

bool attempt_words(const struct agent_worker *cause, const struct worker_evidence *evidence, struct buf *out)
{
    char text[ENDING_MAX];
    ending_text(text, cause);
    bool ok = cause->verdict == WORKER_NOT_STARTED ? buf_printf(out, "%s", text)
                                                   : end_headline(cause, evidence, out);
    return ok && buf_append(out, "", 1);
}

/* Why there is no further attempt; nothing is appended when there is nothing to explain. */
static bool no_restart_words(const struct report *r, struct buf *out)
{
    const struct agent *agent = r->agent;
    const int max = agent_max_restarts(agent);
    switch (agent_no_restart(agent)) {
    case RESTART_ALLOWED:
        return true;
    case NO_RESTART_USED_UP:
        return buf_printf(out, "%s of --max_restarts=%d %s used up",
                          max == 1 ? "the restart" : "all restarts", max, max == 1 ? "is" : "are");
    case NO_RESTART_CANNOT_START:
        return buf_printf(out, "what cannot be executed now cannot be executed the next time");
    case NO_RESTART_USAGE:
        return buf_printf(
            out,
            "exit %d within %d s of the start is taken for a usage error, which would only repeat itself",
            r->elsewhere != NULL ? r->elsewhere->exit_code : cause_worker(r)->exit_code,
            AGENT_USAGE_MS / 1000);
    case NO_RESTART_IMPORT:
        return buf_printf(
            out, "the same import error ended every rank within %d s of the start and would do so again",
            AGENT_USAGE_MS / 1000);
    case NO_RESTART_NO_PROGRESS:
        return buf_printf(out, "the attempts come no further than step %lld (--max_no_progress)",
                          (long long)r->best_step);
    case NO_RESTART_STOPPED:
        return buf_printf(out, "the user asked to stop");
    case NO_RESTART_UNKILLABLE:
        return buf_printf(out, "a process of the failed attempt cannot be killed");
    case NO_RESTART_NOT_READY:
        return buf_printf(out, "the next attempt could not be made ready, as said above");
    case NO_RESTART_TOO_FEW_NODES:
        return buf_printf(out, "too few nodes are left, or joined again in time (--nnodes, %s)",
                          r->plan->meeting.join_knob);
    case NO_RESTART_STORE_LOST:
        return buf_printf(out, "the store of the job is gone");
    }
    return true;
}

/* --- lines ---------------------------------------------------------------------------------------------- */

static double seconds(uint64_t from_ms, uint64_t to_ms)
{
    return (double)(to_ms - from_ms) / 1000.0;
}

/* "rank 1", with its host when there are several; "" when no worker failed but a whole node is gone. */
static void put_who(const struct report *r, const struct failed_attempt *a, char *out, size_t size)
{
    out[0] = '\0';
    if (a->rank >= 0 && r->plan->nnodes > 1)
        snprintf(out, size, "rank %d on %.100s: ", a->rank, a->host);
    else if (a->rank >= 0)
        snprintf(out, size, "rank %d: ", a->rank);
}

/* Times count from the worker's own start: "2 s after its start" tells a crash at the beginning from one in training. */
static void put_attempt(const struct report *r, struct rows *rows, const char *label,
                        const struct failed_attempt *a)
{
    char who[128], time[TIME_TEXT_MAX], after[TIME_TEXT_MAX + 20] = "", step[40] = "";
    put_who(r, a, who, sizeof(who));
    if (a->verdict != WORKER_NOT_STARTED)
        snprintf(after, sizeof(after), ", %s after %s start",
                 words_time(time, a->failed_ms - a->worker_started_ms), a->rank < 0 ? "the" : "its");
    if (a->step >= 0)
        snprintf(step, sizeof(step), ", at step %lld", (long long)a->step);
    rows_printf(rows, label, "attempt %d: %s%s%s%s", a->attempt, who, a->words, after, step);
}

/* Those before the one that the headline tells of; all of them when the last attempt did not fail. */
static void put_attempts(const struct report *r, struct rows *rows)
{
    size_t n = r->n_failed, first = 0;
    if (n > 0 && (cause_first(r) >= 0 || r->elsewhere != NULL))
        n--;
    if (n > ATTEMPTS_SHOWN) {
        first = n - ATTEMPTS_SHOWN;
        rows_printf(rows, "before", "%zu earlier attempt%s failed, too", first, first == 1 ? "" : "s");
    }
    for (size_t i = first; i < n; i++)
        put_attempt(r, rows, i == 0 ? "before" : "", &r->failed[i]);
}

/* Said whenever restarts were asked for and there is none: without it a user waits for one. */
static void put_no_restart(const struct report *r, struct rows *rows)
{
    struct buf words = { 0 };
    rows->ok = rows->ok && no_restart_words(r, &words);
    if (words.len > 0)
        rows_printf(rows, "restart", "none: %.*s", (int)words.len, (const char *)words.data);
    buf_free(&words);
}

/* The function it hangs in names the culprit: nfs_..., nvidia_..., __refrigerator. */
static void put_stuck(struct rows *rows, const char *label, const struct stuck *s)
{
    char rank[32] = "";
    if (s->rank >= 0)
        snprintf(rank, sizeof(rank), "rank %d, ", s->rank);
    rows_printf(rows, label, "pid %d (%s%s) cannot be killed: state %c%s%s", s->pid, rank, s->name, s->state,
                s->where[0] != '\0' ? " in " : "", s->where);
}

static void put_left(const struct report *r, struct rows *rows)
{
    struct buf text = { 0 };
    rows->ok = rows->ok && cause_put_left(r, &text);
    rows_printf(rows, "left", "%.*s", (int)text.len, (const char *)text.data);
    buf_free(&text);
}

void report_attempts(const struct report *r, struct rows *rows)
{
    put_attempts(r, rows);
    put_no_restart(r, rows);
    if (cause_has_left(r, FINDING_RANK_LEFT_EARLY) && !cause_is_left_waiting(r))
        put_left(r, rows);
    for (size_t i = 0; i < r->n_stuck && i < STUCK_SHOWN; i++)
        put_stuck(rows, i == 0 ? "alive" : "", &r->stuck[i]);
    if (r->n_stuck > 0)
        rows_printf(rows, "",
                    "it dies when the call it hangs in returns; if that never happens, only a reboot helps");
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

/* As the workers' own members in report_json.c, where they have the same meaning. */
static bool add_attempt(cJSON *array, const struct report *r, const struct failed_attempt *a)
{
    cJSON *o = json_add_object(array);
    bool ok = o != NULL && json_add_number(o, "attempt", a->attempt) && json_add_number(o, "rank", a->rank) &&
              json_add_number(o, "local_rank", a->local_rank) &&
              json_add_number(o, "node_rank", a->node_rank) && json_add_text(o, "host", a->host) &&
              json_add_text(o, "verdict", verdict_name(a->verdict)) && json_add_text(o, "ending", a->words) &&
              json_add_number(o, "exit_code", a->exit_code) &&
              json_add_number(o, "started_s", seconds(r->started_ms, a->started_ms)) &&
              json_add_number(o, "failed_s", seconds(r->started_ms, a->failed_ms)) &&
              json_add_number(o, "ended_s", seconds(r->started_ms, a->ended_ms));
    return ok && (a->step < 0 ? json_add_null(o, "step") : json_add_number(o, "step", (double)a->step));
}

static bool add_stuck(cJSON *array, const struct stuck *s)
{
    const char state[2] = { s->state, '\0' };
    cJSON *o = json_add_object(array);
    return o != NULL && json_add_number(o, "pid", s->pid) &&
           (s->rank < 0 ? json_add_null(o, "rank") : json_add_number(o, "rank", s->rank)) &&
           json_add_text(o, "name", s->name) && json_add_text(o, "state", state) &&
           json_add_text(o, "wchan", s->where[0] != '\0' ? s->where : NULL);
}

/* The same words as in the text, so that a search finds both. */
static bool add_no_restart(cJSON *o, const struct report *r)
{
    struct buf words = { 0 };
    bool some = agent_no_restart(r->agent) != RESTART_ALLOWED;
    bool ok = no_restart_words(r, &words) && (some ? json_add_bytes(o, "not_restarted", buf_slice(&words))
                                                   : json_add_text(o, "not_restarted", NULL));
    buf_free(&words);
    return ok;
}

/* Both arrays are always there, empty for most jobs: a reader need not ask whether they exist. */
bool report_attempts_json(const struct report *r, struct cJSON *o)
{
    const char *left = r->left_waiting != NULL && r->left_waiting[0] != '\0' ? r->left_waiting : NULL;
    cJSON *attempts = cJSON_CreateArray(), *stuck = cJSON_CreateArray();
    bool ok = json_add(o, "failed_attempts", attempts);
    ok = json_add(o, "unkillable", stuck) && ok;
    for (size_t i = 0; i < r->n_failed && ok; i++)
        ok = add_attempt(attempts, r, &r->failed[i]);
    for (size_t i = 0; i < r->n_stuck && ok; i++)
        ok = add_stuck(stuck, &r->stuck[i]);
    return ok && json_add_number(o, "max_restarts", agent_max_restarts(r->agent)) && add_no_restart(o, r) &&
           json_add_text(o, "left_waiting", left) &&
           json_add_text(o, "left_waiting_code", left != NULL ? finding_code_name(r->left_code) : NULL);
}
