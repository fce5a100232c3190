/* status.c -- see status.h. In a large job those who wait for others are not shown: the one that does not wait is
 * what the user looks for. */
#include "report/status.h"

#include "agent/failure.h"

#include "base/text.h"

#include <cjson/cJSON.h>

/* --- what is known of one worker ------------------------------------------------------------------------ */

/* What the store says of a rank; NULL when it says nothing. */
static const cJSON *member_of(const struct status_facts *f, int rank)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, cJSON_GetObjectItemCaseSensitive(f->answer, "members"))
    {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(member, "rank");
        if (cJSON_IsNumber(number) && number->valuedouble == rank)
            return member;
    }
    return NULL;
}

static const char *text_of(const cJSON *member, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(member, name));
    return text != NULL ? text : "";
}

static bool is_running(const struct status_facts *f, int local_rank)
{
    return agent_worker(f->agent, local_rank)->verdict == WORKER_ALIVE;
}

/* ", has waited in all_reduce #5 for 3.7 s, behind step 3" */
static bool put_steps(const cJSON *member, struct buf *out)
{
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(member, "step");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(member, "beat_ms");
    const char *call = text_of(member, "call");
    bool ok = call[0] != '\0' ? buf_printf(out, ", has waited in %s for ", call)
                              : buf_printf(out, ", has been in no collective for ");
    ok = ok && text_put_ms(out, cJSON_IsNumber(ms) ? (uint64_t)ms->valuedouble : 0);
    return ok && (!cJSON_IsNumber(step) || buf_printf(out, ", behind step %.0f", step->valuedouble));
}

/* ", waits for barrier 'x'", or whatever else the store has noticed. */
static bool put_store(const struct status_facts *f, int rank, struct buf *out)
{
    const cJSON *member = member_of(f, rank);
    const cJSON *silent = cJSON_GetObjectItemCaseSensitive(member, "silent_ms");
    const char *waits = text_of(member, "waits_for"), *state = text_of(member, "state");
    if (waits[0] != '\0')
        return buf_printf(out, ", waits for %s", waits);
    if (cJSON_HasObjectItem(member, "beat_ms"))
        return put_steps(member, out);
    if (strcmp(state, "disconnected") == 0)
        return buf_printf(out, ", has closed its connection to the store");
    if (strcmp(state, "connected") != 0 || !cJSON_IsNumber(silent))
        return true;
    return buf_printf(out, ", was last heard by the store ") &&
           text_put_ms(out, (uint64_t)silent->valuedouble) && buf_printf(out, " ago");
}

/* Two states of a process need somebody's help. */
static bool put_state(char state, int pid, struct buf *out)
{
    if (state == 'T')
        return buf_printf(out, ", is stopped: kill -CONT %d lets it go on", pid);
    return state != 'D' || buf_printf(out, ", hangs in the kernel (state D; see /proc/%d/wchan)", pid);
}

static bool put_worker(const struct status_facts *f, int i, struct buf *out)
{
    const struct agent_worker *w = agent_worker(f->agent, i);
    const int rank = f->plan->workers[i].rank;
    char how[ENDING_MAX];
    if (is_running(f, i))
        return buf_printf(out, "rank %d (pid %d) runs for ", rank, w->pid) &&
               text_put_ms(out, f->now_ms - w->started_ms) && put_state(f->states[i], w->pid, out) &&
               put_store(f, rank, out);
    ending_text(how, w);
    bool ok = buf_printf(out, "rank %d: %s", rank, how);
    if (w->verdict == WORKER_PENDING || w->verdict == WORKER_NOT_STARTED)
        return ok;
    return ok && buf_printf(out, " after ") && text_put_ms(out, w->ended_ms - w->started_ms);
}

/* --- which lines ---------------------------------------------------------------------------------------- */

static bool is_shown(const struct status_facts *f, int local_rank)
{
    if (f->plan->nproc <= STATUS_LINES_MAX)
        return true;
    const cJSON *member = member_of(f, f->plan->workers[local_rank].rank);
    return text_of(member, "waits_for")[0] == '\0' && text_of(member, "call")[0] == '\0';
}

/* Local rank of the n-th worker that is shown; nproc when there are not so many. */
static int nth_shown(const struct status_facts *f, int n)
{
    int i = 0;
    for (; i < f->plan->nproc; i++)
        if (is_shown(f, i) && n-- == 0)
            break;
    return i;
}

static int count(const struct status_facts *f, bool (*is)(const struct status_facts *f, int local_rank))
{
    int n = 0;
    for (int i = 0; i < f->plan->nproc; i++)
        n += is(f, i);
    return n;
}

/* A job that hangs is the usual reason to ask, and a store that does not answer a usual reason to hang. */
static bool put_headline(const struct status_facts *f, struct buf *out)
{
    return text_put_ms(out, f->now_ms - f->started_ms) &&
           buf_printf(out, " after the start: job %s, %d of %d workers run%s", f->plan->job,
                      count(f, is_running), f->plan->nproc,
                      f->answer == NULL ? "; the store does not answer" : "");
}

/* The last line tells how many were left out, and never when none was. */
bool status_line(const struct status_facts *f, int i, struct buf *out)
{
    const int shown = count(f, is_shown);
    const int lines = shown < STATUS_LINES_MAX ? shown : STATUS_LINES_MAX;
    if (i == 0)
        return put_headline(f, out);
    if (i <= lines)
        return put_worker(f, nth_shown(f, i - 1), out);
    if (i > lines + 1 || lines == f->plan->nproc)
        return false;
    return buf_printf(out, "%d more, of whom %d wait for others; 'ddpctl status' shows all",
                      f->plan->nproc - lines, f->plan->nproc - shown);
}
