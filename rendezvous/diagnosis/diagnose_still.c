/* diagnose_still.c -- who stands still while others wait for it in a collective or a barrier. See diagnose.h.
 *
 * Collectives of libddp pass the store by, but each worker notes in memory that it shares with its agent how far it is, and beats
 * tell it on. Ranks in a call are at a place where all come together; one that is not there, and does not move, is what they wait
 * for. Which finding fits is decided by position alone; what its process does meanwhile is told along with it, for it decides
 * what a user does about it. */
#include "diagnosis/diagnose_words.h"

#include <stdio.h>

enum { STILL_MS = 3000, BUSY_PERCENT = 5, UNKNOWN_FACTOR = 3 };

static bool waits(const struct rank_facts *f)
{
    return f->has_steps && f->call[0] != '\0' && !f->exited;
}

/* The call that most have come to: with calls that are only posted, ranks are several of them apart. */
static const struct rank_facts *furthest(const struct snapshot *s, uint64_t least_ms)
{
    const struct rank_facts *most = NULL;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct rank_facts *f = &s->ranks[i];
        if (waits(f) && f->still_ms >= least_ms && (most == NULL || f->call_seq > most->call_seq))
            most = f;
    }
    return most;
}

static bool is_at(const struct rank_facts *f, const struct rank_facts *most)
{
    return waits(f) && f->call_seq == most->call_seq;
}

/* One whose node is lost is told by what is known of the node. */
static bool is_behind(const struct rank_facts *f, const struct rank_facts *most, uint64_t least_ms)
{
    if (!f->has_steps || f->node_lost || is_at(f, most))
        return false;
    return f->exited || (f->still_ms >= least_ms && (!waits(f) || f->call_seq < most->call_seq));
}

uint64_t diagnose_still_waits(const struct snapshot *s)
{
    const struct rank_facts *most = furthest(s, 1);
    return most != NULL ? most->still_ms : 0;
}

bool diagnose_stands_still(const struct snapshot *s, uint64_t least_ms)
{
    const struct rank_facts *most = furthest(s, least_ms);
    for (uint32_t i = 0; most != NULL && i < s->n_ranks; i++)
        if (is_behind(&s->ranks[i], most, least_ms))
            return true;
    return false;
}

/* --- barriers ------------------------------------------------------------------------------------------- */

uint64_t diagnose_barrier_waits(const struct snapshot *s)
{
    uint64_t longest_ms = 0;
    for (uint32_t i = 0; i < s->n_waits; i++)
        if (s->waits[i].is_barrier && s->waits[i].for_ms > longest_ms)
            longest_ms = s->waits[i].for_ms;
    return longest_ms;
}

/* Who moves may be on the way; of a rank that tells no steps it is not known, so it is given more time. */
static bool stays_away(const struct rank_facts *f, const struct snapshot_wait *place, uint64_t least_ms)
{
    const bool stopped = f->proc_state == 'T' || f->proc_state == 't';
    if (waits_in(f, place))
        return false;
    if (stopped || f->exited || f->waits.for_ms >= least_ms)
        return true;
    return f->has_steps ? f->still_ms >= least_ms : place->for_ms >= UNKNOWN_FACTOR * least_ms;
}

bool diagnose_barrier_hangs(const struct snapshot *s, uint64_t least_ms)
{
    const struct snapshot_wait *place = main_wait(s);
    if (place == NULL || !place->is_barrier || place->for_ms < least_ms)
        return false;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (stays_away(&s->ranks[i], place, least_ms))
            return true;
    return false;
}

/* --- words ---------------------------------------------------------------------------------------------- */

static const char *does(words out, const struct rank_facts *f)
{
    words in = "";
    if (f->wchan != NULL)
        snprintf(in, sizeof(in), " in %.64s", f->wchan);
    if (f->proc_state == 'T' || f->proc_state == 't')
        snprintf(out, WORDS_LEN, "is stopped (state T)");
    else if (f->proc_state == 'D')
        snprintf(out, WORDS_LEN, "hangs in the kernel (state D%.80s)", in);
    else if (f->proc_state != 0 && f->cpu_percent >= BUSY_PERCENT)
        snprintf(out, WORDS_LEN, "computes (%d %% CPU)", f->cpu_percent);
    else if (f->proc_state == 'S')
        snprintf(out, WORDS_LEN, "sleeps%.80s", in);
    else
        snprintf(out, WORDS_LEN, "is seen by no agent");
    return out;
}

/* "rank 3 (n1, pid 77)" */
static const char *who_is(words out, const struct rank_facts *f)
{
    if (f->host != NULL)
        snprintf(out, WORDS_LEN, "rank %u (%.100s, pid %d)", f->rank, f->host, f->pid);
    else
        snprintf(out, WORDS_LEN, "rank %u", f->rank);
    return out;
}

/* Where it was last: in an older call, or behind a step. */
static const char *last(words out, const struct rank_facts *f)
{
    out[0] = '\0';
    if (waits(f))
        snprintf(out, WORDS_LEN, " (it is in %.24s #%llu)", f->call, (unsigned long long)f->call_seq);
    else if (f->step >= 0)
        snprintf(out, WORDS_LEN, " (the last one was %lld)", (long long)f->step);
    return out;
}

static uint32_t count_at(const struct snapshot *s, const struct rank_facts *most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        n += is_at(&s->ranks[i], most);
    return n;
}

static void tell(struct finding *slot, const struct snapshot *s, const struct rank_facts *f,
                 const struct rank_facts *most)
{
    words who, time, step, others, call, what, pid = "PID";
    const uint32_t n = count_at(s, most);
    snprintf(others, sizeof(others), "%u %s", n, n == 1 ? "other waits" : "others wait");
    if (f->pid > 0)
        number(pid, (uint64_t)f->pid);
    snprintf(call, sizeof(call), "%.24s #%llu", most->call, (unsigned long long)most->call_seq);
    finding_make(slot, FINDING_RANK_STANDS_STILL, who_is(who, f), "time", duration(time, f->still_ms), "last",
                 last(step, f), "others", others, "call", call, "does", does(what, f), "pid", pid, NULL);
}

/* The end of a process needs no more words than it has elsewhere. */
void diagnose_still(struct diagnosis *d, const struct snapshot *s)
{
    const uint64_t least_ms = s->is_final ? 1 : STILL_MS;
    const struct rank_facts *most = furthest(s, least_ms);
    for (uint32_t i = 0; most != NULL && i < s->n_ranks; i++) {
        const struct rank_facts *f = &s->ranks[i];
        if (!is_behind(f, most, least_ms))
            continue;
        struct finding *slot =
            diagnosis_slot(d, f->exited ? diagnose_rank_code(f) : FINDING_RANK_STANDS_STILL);
        if (slot != NULL && f->exited)
            diagnose_rank(f, slot);
        else if (slot != NULL)
            tell(slot, s, f, most);
    }
}
