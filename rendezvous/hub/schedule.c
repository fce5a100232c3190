/* schedule.c -- see schedule.h. This file decides when to check, and monitor.c decides what to report. Checks are rare,
 * because a check reads the whole job. The times of the checks are in struct job (`watch`). */
#include "hub/schedule.h"

#include "base/text.h"
#include "hub/session.h"
#include "job/rendezvous.h"

enum {
    EARLY_MS = 500,  /* ranks that begin to wait within this time (ms) share one report */
    APART_MS = 1000, /* minimum time between two checks, because each check reads the whole job */
};

const struct schedule_row schedule[SITUATIONS] = {
#define X(name, first, again, factor, about) { first, again, factor },
    SCHEDULE(X)
#undef X
};

static uint64_t first_ms(enum situation situation)
{
    return schedule[situation].first_ms;
}

/* Return true if the job waits for nodes and has a node that can receive a report. */
static bool is_gathering(const struct rdzv_facts *facts)
{
    return facts->state == RDZV_GATHERING && facts->nodes > 0;
}

/* Return the earlier of two times, where 0 means "never". Return UINT64_MAX if both are 0. */
static uint64_t earlier_set(uint64_t a, uint64_t b)
{
    const uint64_t x = a != 0 ? a : UINT64_MAX, y = b != 0 ? b : UINT64_MAX;
    return x < y ? x : y;
}

/* Return the time of the next check, or UINT64_MAX if no check is needed. While a job waits for nodes, there is a check
 * every few seconds. While all ranks make progress, there is no check. The time may be less than APART_MS after the
 * last check. */
static uint64_t wanted_at(const struct schedule_state *w, const struct rdzv_facts *facts)
{
    if (w->compares || w->trouble)
        return 0;
    if (!is_gathering(facts))
        return earlier_set(earlier_set(w->spare_ms, w->torch_ms), earlier_set(w->still_ms, w->stopped_ms));
    return w->waits ? w->check_ms : 0;
}

/* Return true if a check at `at_ms` would be too soon after the last check. A problem that a rank has reported is
 * checked at once, because such a rank often exits soon, and its exit ends the round. */
static bool must_rest(const struct schedule_state *w, uint64_t at_ms)
{
    return w->checked_ms != 0 && at_ms < w->checked_ms + APART_MS && !w->trouble;
}

/* Return when the next check or sample is due. */
uint64_t schedule_deadline(const struct job *job)
{
    struct rdzv_facts facts;
    if (job->rdzv == NULL)
        return UINT64_MAX;
    rdzv_facts(job->rdzv, &facts);
    const uint64_t at_ms = wanted_at(&job->watch, &facts), free_ms = job->watch.checked_ms + APART_MS;
    const uint64_t hang_ms = job->hang.fresh != NULL || job->hang.is_over || job->profile.has_news
                                 ? job->hub->now_ms
                                 : hang_watch_deadline(&job->hang.watch);
    const uint64_t profile_ms = job->profile.due_ms != 0 ? job->profile.due_ms : UINT64_MAX;
    const uint64_t sample_ms = hang_ms < profile_ms ? hang_ms : profile_ms;
    if (at_ms == UINT64_MAX)
        return sample_ms;
    const uint64_t check_ms = must_rest(&job->watch, at_ms) ? free_ms : at_ms;
    return check_ms < sample_ms ? check_ms : sample_ms;
}

/* Begin a wait, and give it a new number. Each node then gets a full report again, because the node's reported_wait is
 * the number of an earlier wait. */
static void begin_wait(struct schedule_state *w, uint64_t check_ms)
{
    w->waits = true;
    w->check_ms = check_ms;
    w->wait++;
    w->n_reported = 0;
}

/* Return true if there was a round, and too few nodes remain for another round. */
static bool is_short(const struct rdzv_facts *facts)
{
    return facts->round > 0 && facts->waiting + facts->returning < facts->min;
}

/* Begin a wait for nodes. Do nothing if a wait is in progress. The time until the first check counts from the moment at
 * which the rendezvous began to gather nodes. */
static void begin_to_wait(struct schedule_state *w, const struct rdzv_facts *facts)
{
    if (!w->waits)
        begin_wait(w, facts->since_ms + (is_short(facts) ? first_ms(SITUATION_NODES_LEFT)
                                                         : first_ms(SITUATION_NODES_MISSING)));
}

/* Cancel the check of PyTorch's ranks. */
static void forget_torch(struct schedule_state *w)
{
    w->torch_ms = 0;
    w->torch_surplus = false;
}

/* Return true if the check for ranks without progress is due. Three conditions must be true: the time of the check is
 * reached, a round runs, and a rank is in a collective or a barrier. If the time of the check is reached, or if no
 * round runs, clear this time. */
static bool still_is_due(struct job *job, const struct rdzv_facts *facts)
{
    struct schedule_state *w = &job->watch;
    const bool runs = facts->state == RDZV_RUNNING, due = w->still_ms != 0 && w->still_ms <= job->hub->now_ms;
    const bool waits = w->calls || job->barriers.open_count > 0;
    if (due || !runs) {
        w->still_ms = 0;
        w->calls = false;
    }
    return runs && due && waits;
}

/* Return the checks that are due now, and clear their times. A job that gathers nodes has other checks than a job that
 * runs. Also clear the times of checks that the job does not need now, because these times are from an earlier
 * round. */
static struct schedule_due due_now(struct job *job, const struct rdzv_facts *facts)
{
    struct schedule_state *w = &job->watch;
    const uint64_t now_ms = job->hub->now_ms;
    struct schedule_due due = { .compares = w->compares,
                                .trouble = w->trouble,
                                .spares = w->spare_ms != 0 && w->spare_ms <= now_ms };
    w->compares = w->trouble = false;
    if (due.spares)
        w->spare_ms = 0;
    if (!is_gathering(facts)) {
        w->waits = false;
        due.torch = facts->state == RDZV_RUNNING && w->torch_ms != 0 && w->torch_ms <= now_ms;
        if (due.torch || facts->state != RDZV_RUNNING)
            forget_torch(w);
        due.still = still_is_due(job, facts);
        due.stopped = facts->state == RDZV_RUNNING && w->stopped_ms != 0 && w->stopped_ms <= now_ms;
        if (due.stopped || facts->state != RDZV_RUNNING)
            w->stopped_ms = 0;
        return due;
    }
    w->still_ms = w->stopped_ms = 0;
    forget_torch(w);
    begin_to_wait(w, facts);
    due.is_final = facts->deadline_ms <= now_ms;
    due.nodes = due.is_final || now_ms >= w->check_ms;
    if (due.nodes)
        w->check_ms = now_ms + schedule[SITUATION_NODES_MISSING].again_ms;
    return due;
}

/* Return the checks that are due. The final check is not delayed by APART_MS, because the job fails in the same call of
 * hub_tick(). */
struct schedule_due schedule_due(struct job *job)
{
    struct rdzv_facts facts;
    struct schedule_state *w = &job->watch;
    const uint64_t now_ms = job->hub->now_ms;
    if (job->rdzv == NULL)
        return (struct schedule_due){ 0 };
    rdzv_facts(job->rdzv, &facts);
    if (must_rest(w, now_ms) && !(is_gathering(&facts) && facts.deadline_ms <= now_ms))
        return (struct schedule_due){ 0 };
    struct schedule_due due = due_now(job, &facts);
    due.any = due.compares || due.trouble || due.spares || due.torch || due.still || due.stopped || due.nodes;
    if (due.any)
        w->checked_ms = now_ms;
    return due;
}

/* Schedule the comparison of the nodes. It runs later, because its report must follow the push `round`. */
void schedule_round(struct job *job)
{
    job->watch.compares = true;
}

void schedule_trouble(struct job *job)
{
    job->watch.trouble = true;
}

/* Schedule a report about nodes that have joined as spares. The report follows one second after the first of these
 * nodes has joined. So nodes that join together share one report. */
void schedule_spare(struct job *job)
{
    if (job->watch.spare_ms == 0)
        job->watch.spare_ms = job->hub->now_ms + first_ms(SITUATION_NODE_LATE);
}

/* Schedule a check in 200 ms. If an earlier check is already scheduled, keep the earlier check. The delay of 200 ms
 * exists because several nodes often fail together. One report then contains all of these nodes. */
void schedule_hurry(struct job *job)
{
    struct schedule_state *w = &job->watch;
    const uint64_t soon_ms = job->hub->now_ms + first_ms(SITUATION_NODES_LEFT);
    if (!w->waits)
        begin_wait(w, soon_ms);
    else if (w->check_ms > soon_ms)
        w->check_ms = soon_ms;
}

/* --- PyTorch's ranks ------------------------------------------------------------------------------------ */

/* Schedule a check at `at_ms`. If an earlier check is already scheduled, keep the earlier check. */
static void check_torch(struct schedule_state *w, uint64_t at_ms)
{
    w->torch_ms = earlier_set(w->torch_ms, at_ms);
}

/* Schedule a check of PyTorch's ranks. If `has_surplus`, check early, because a group may have too many members. Also
 * check early if a process of the round has ended, because the other ranks would wait for this process forever. */
void schedule_torch(struct job *job, bool has_surplus)
{
    const uint64_t after_ms =
        job->watch.torch_ended ? first_ms(SITUATION_TORCH_ENDED) : first_ms(SITUATION_TORCH_WAITS);
    check_torch(&job->watch, job->hub->now_ms + (has_surplus ? first_ms(SITUATION_TORCH_SURPLUS) : after_ms));
    job->watch.torch_surplus |= has_surplus;
}

void schedule_torch_exit(struct job *job)
{
    job->watch.torch_ended = true;
    if (job->watch.torch_ms != 0)
        check_torch(&job->watch, job->hub->now_ms + first_ms(SITUATION_TORCH_ENDED));
}

/* Return how long PyTorch's ranks must wait before a report. This time is shorter if a process of the round has ended,
 * because this process will never arrive. */
uint64_t schedule_torch_limit(const struct schedule_state *w)
{
    return (w->torch_ended ? first_ms(SITUATION_TORCH_ENDED) : first_ms(SITUATION_TORCH_WAITS)) - EARLY_MS;
}

/* Record the result of a check. The first report of a wait contains all findings, and later reports contain only new
 * findings. The wait ends when no rank waits. If a wait is still too short for a report, check again when it is long
 * enough. */
void schedule_torch_seen(struct job *job, uint64_t waited_ms, bool report)
{
    struct schedule_state *w = &job->watch;
    const uint64_t limit_ms = schedule_torch_limit(w);
    if (report && !w->torch_reported) {
        w->wait++;
        w->n_reported = 0;
    }
    w->torch_reported = report || (w->torch_reported && waited_ms > 0);
    forget_torch(w);
    if (w->torch_reported)
        check_torch(w, job->hub->now_ms + schedule[SITUATION_TORCH_WAITS].again_ms);
    else if (waited_ms > 0)
        check_torch(w, job->hub->now_ms +
                           (waited_ms < limit_ms ? limit_ms - waited_ms : first_ms(SITUATION_TORCH_ENDED)));
}

/* --- collectives ---------------------------------------------------------------------------------------- */

void schedule_barrier(struct job *job)
{
    struct schedule_state *w = &job->watch;
    if (w->still_ms == 0)
        w->still_ms = job->hub->now_ms + first_ms(SITUATION_STANDS_STILL);
}

/* Schedule one check for all ranks that are stopped within a short time. */
void schedule_stopped(struct job *job)
{
    if (job->watch.stopped_ms == 0)
        job->watch.stopped_ms = job->hub->now_ms + first_ms(SITUATION_RANK_STOPPED);
}

/* Mark the reported hang as over, because the stopped rank runs again. But do nothing if the hang watch has reported a
 * verdict, because only progress ends such a hang. */
void schedule_continued(struct job *job)
{
    if (job->hang.is_reported && !job->hang.watch.is_reported)
        job->hang.is_over = true;
}

void schedule_call(struct job *job)
{
    schedule_barrier(job);
    job->watch.calls = true;
}

/* Return the time until the next check. A reported wait is checked regularly. A wait that is too short for a report is
 * checked soon after it becomes long enough. The longer any other wait is, the less often it is checked. */
static uint64_t still_again(bool is_reported, uint64_t waited_ms)
{
    if (is_reported)
        return schedule[SITUATION_STANDS_STILL].again_ms;
    return waited_ms < first_ms(SITUATION_STANDS_STILL)
               ? first_ms(SITUATION_STANDS_STILL) - waited_ms + EARLY_MS
               : waited_ms / 5;
}

/* Return true if the wait is shorter than `usual_factor` times the longest wait that has ended in this round. If the
 * wait has already been reported, return false in any case, so that later checks also report changed findings. */
bool schedule_is_usual(const struct schedule_state *w, uint64_t waited_ms)
{
    return !w->still_reported &&
           waited_ms < schedule[SITUATION_STANDS_STILL].usual_factor * w->usual.longest_ms;
}

bool schedule_knows(const struct schedule_state *w, uint64_t digest)
{
    for (uint32_t i = 0; i < w->usual.n_known && i < DIAGNOSIS_MAX; i++)
        if (w->usual.known[i] == digest)
            return true;
    return false;
}

void schedule_learn(struct schedule_state *w, uint64_t digest)
{
    if (!schedule_knows(w, digest))
        w->usual.known[w->usual.n_known++ % DIAGNOSIS_MAX] = digest;
}

/* Update the longest wait that ended by itself. usual->since_ms is the start of a long wait that an earlier check has
 * found. This wait has ended if there is no long wait now, or if the present wait began later. A check notices the end
 * late, so the measured time may be too long. */
static void measure(struct schedule_usual *usual, uint64_t waited_ms, uint64_t now_ms)
{
    const bool waits = waited_ms >= first_ms(SITUATION_STANDS_STILL);
    const uint64_t since_ms = waits ? now_ms - waited_ms : now_ms;
    if (usual->waits && since_ms >= usual->since_ms + first_ms(SITUATION_STANDS_STILL)) {
        if (since_ms - usual->since_ms > usual->longest_ms)
            usual->longest_ms = since_ms - usual->since_ms;
        usual->waits = false;
    }
    if (waits && !usual->waits)
        usual->since_ms = since_ms;
    usual->waits = waits || usual->waits;
}

/* Record the result of a check: the longest time that a rank has waited, and whether this wait is reported. The first
 * report of a wait is complete, and later reports contain only changes. A reported wait ends when `waited_ms` is too
 * short for a report. */
void schedule_still_seen(struct job *job, uint64_t waited_ms, bool report)
{
    struct schedule_state *w = &job->watch;
    measure(&w->usual, waited_ms, job->hub->now_ms);
    if (report && !w->still_reported) {
        w->wait++;
        w->n_reported = 0;
    }
    w->still_reported = report || (w->still_reported && waited_ms >= first_ms(SITUATION_STANDS_STILL));
    if (waited_ms == 0)
        return;
    w->still_ms = job->hub->now_ms + still_again(w->still_reported, waited_ms);
    w->calls = true;
}

/* --- hangs ------------------------------------------------------------------------------------------------ */

/* Drop all samples, because the job has made progress or its round has ended. */
static void drop_samples(struct job *job)
{
    struct job_hang *hang = &job->hang;
    cJSON **const all[] = { &hang->fresh,   &hang->fresh_calls, &hang->rows[0],
                            &hang->rows[1], &hang->calls[0],    &hang->calls[1] };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cJSON_Delete(*all[i]);
        *all[i] = NULL;
    }
    hang_history_free(hang->history);
    hang->history = NULL;
    job->sample.for_hang = false;
}

/* A hang is over if signs of progress still arrive HANG_OVER_MS after the first sign. This time is long, because ranks
 * that fail after a hang print lines, and these lines may look like progress. */
enum { HANG_OVER_MS = 10000 };

/* Handle a sign of progress. If the nodes got a finding about a hang, record the time of the first sign after the
 * finding. Then determine whether the hang is over. */
static void note_resumed(struct job_hang *hang, uint64_t now_ms)
{
    if (hang->is_reported && hang->resumed_ms == 0)
        hang->resumed_ms = now_ms;
    hang->is_over = hang->is_reported && now_ms - hang->resumed_ms >= HANG_OVER_MS;
}

/* Record progress. New keys of the store do not count as progress. A thread of a hung rank may set new keys, for
 * example a heartbeat with the time in the key. Such keys would hide the hang, because the store cannot detect which
 * thread of a process sets a key. A PyTorch barrier is a counter in a key, so it does not count as progress either. */
void schedule_moved(struct job *job, uint64_t ago_ms)
{
    if (!hang_watch_moved(&job->hang.watch, ago_ms, job->hub->now_ms))
        return;
    drop_samples(job);
    note_resumed(&job->hang, job->hub->now_ms);
}

void schedule_joined(struct job *job)
{
    if (hang_watch_joined(&job->hang.watch, job->hub->now_ms))
        drop_samples(job);
    if (job->watch.torch_reported)
        check_torch(&job->watch, job->hub->now_ms + first_ms(SITUATION_TORCH_SURPLUS));
}

/* Set the hang rules, and restart the watch for hangs. The caller does this before the first round, so no sign of
 * progress is lost. */
void schedule_hang_rules(struct job *job, uint64_t limit_ms, const char *action)
{
    const bool is_off = limit_ms == UINT64_MAX;
    job->hang.watch = (struct hang_watch){ .limit_ms = is_off ? 0 : limit_ms, .is_off = is_off };
    text_copy(job->hang.action, sizeof(job->hang.action), action);
}

void schedule_attempt(struct job *job, bool begins)
{
    drop_samples(job);
    job->hang.is_reported = job->hang.is_over = false;
    job->hang.resumed_ms = 0;
    profile_free(&job->profile.counts);
    job->profile.has_news = job->sample.for_profile = false;
    job->profile.due_ms = begins && job->profile.is_on ? job->hub->now_ms + PROFILE_EVERY_MS : 0;
    if (!begins) {
        hang_watch_end(&job->hang.watch);
        return;
    }
    hang_watch_begin(&job->hang.watch, job->hub->now_ms);
    job->watch.still_reported = job->watch.torch_reported = job->watch.torch_ended = false;
    job->watch.usual = (struct schedule_usual){ 0 };
}
