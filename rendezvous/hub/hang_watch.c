/* hang_watch.c -- see hang_watch.h. The caller requests the samples and compares their stacks; this file only counts
 * samples and compares digests of verdicts. So a test can check all times and limits without a job. */
#include "hub/hang_watch.h"

enum {
    SAMPLES = 3,       /* samples before a report, if the second and the third give the same verdict */
    SAMPLES_MAX = 4,   /* samples before a report, if the third sample changes the verdict */
    SAMPLES_WAKES = 8, /* number of samples before a report, if the rank sleeps in the last two samples but
                        * has run between them */
    DOUBLINGS_MAX = 8, /* maximum number of doublings of the pause, so that the pause cannot overflow */
};

/* Return the time without progress after which a suspicion begins, in ms. */
static uint64_t limit_of(const struct hang_watch *w)
{
    if (w->limit_ms > 0)
        return w->limit_ms;
    const uint64_t usual_ms = HANG_FACTOR * w->longest_ms;
    const uint64_t least_ms = w->has_signals ? HANG_LEAST_MS : HANG_QUIET_FACTOR * HANG_LEAST_MS;
    return usual_ms > least_ms ? usual_ms : least_ms;
}

/* Return the time from one sample to the next, in ms. Before the first sign of progress, the watch does not know when a
 * normal pause of the program began. For example, a checkpoint may begin just before the first sample. For this reason,
 * the samples are then further apart than usual, so that such a pause ends before the third sample. The third sample is
 * the earliest that can cause a report. If limit_of() is short, the samples are HANG_APART_MS apart as usual. */
static uint64_t apart_of(const struct hang_watch *w)
{
    return !w->has_signals && limit_of(w) > 2 * HANG_QUIET_APART_MS ? HANG_QUIET_APART_MS : HANG_APART_MS;
}

/* End the current suspicion. The next suspicion begins after limit_of() ms without progress. */
static void wait_for_limit(struct hang_watch *w)
{
    /* If the samples are further apart than HANG_APART_MS, begin the suspicion earlier, so that the report does not
     * come later than usual. */
    const uint64_t earlier_ms = (SAMPLES - 1) * (apart_of(w) - HANG_APART_MS);
    w->samples = w->in_vain = w->compared = 0;
    w->retries = w->retried = false;
    w->verdict = w->hint = 0;
    w->is_reported = false;
    w->due_ms = w->is_off ? 0 : w->moved_ms + limit_of(w) - earlier_ms;
}

void hang_watch_begin(struct hang_watch *w, uint64_t now_ms)
{
    *w = (struct hang_watch){
        .limit_ms = w->limit_ms, .is_off = w->is_off, .runs = true, .began_ms = now_ms, .moved_ms = now_ms
    };
    wait_for_limit(w);
}

void hang_watch_end(struct hang_watch *w)
{
    *w = (struct hang_watch){ .limit_ms = w->limit_ms, .is_off = w->is_off };
}

/* Record a sign of progress, and measure the longest pause between two signs. Ignore a sign that is older than the last
 * sign or the start of the round. The time before the first sign does not count as a pause, because the program is
 * starting. */
bool hang_watch_moved(struct hang_watch *w, uint64_t ago_ms, uint64_t now_ms)
{
    const uint64_t at_ms = ago_ms < now_ms ? now_ms - ago_ms : 0;
    /* Heartbeats of several nodes arrive late and in any order. So ignore a sign of progress that is older than the
     * last recorded sign. */
    if (!w->runs || at_ms < w->began_ms || (w->has_signals && at_ms <= w->moved_ms))
        return false;
    if (w->has_signals && at_ms - w->moved_ms > w->longest_ms)
        w->longest_ms = at_ms - w->moved_ms;
    w->has_signals = true;
    w->moved_ms = at_ms;
    wait_for_limit(w);
    return true;
}

bool hang_watch_joined(struct hang_watch *w, uint64_t now_ms)
{
    if (!w->runs || w->has_signals)
        return false;
    w->moved_ms = now_ms;
    wait_for_limit(w);
    return true;
}

uint64_t hang_watch_deadline(const struct hang_watch *w)
{
    return !w->runs || w->due_ms == 0 ? UINT64_MAX : w->due_ms;
}

bool hang_watch_due(struct hang_watch *w, uint64_t now_ms)
{
    if (hang_watch_deadline(w) > now_ms)
        return false;
    w->due_ms = now_ms + apart_of(w);
    return true;
}

/* End the suspicion without a verdict. The pause until the next suspicion doubles each time, up to
 * HANG_AGAIN_MAX_MS. */
void hang_watch_skip(struct hang_watch *w, uint64_t now_ms)
{
    uint64_t pause_ms = limit_of(w);
    for (uint32_t i = 0; i < w->in_vain && i < DOUBLINGS_MAX; i++)
        pause_ms *= 2;
    w->in_vain++;
    w->samples = 0;
    w->retries = w->retried = false;
    w->verdict = 0;
    w->due_ms = now_ms + (pause_ms < HANG_AGAIN_MAX_MS ? pause_ms : HANG_AGAIN_MAX_MS);
}

bool hang_watch_compares(const struct hang_watch *w)
{
    return w->samples >= 2 || w->hint != 0;
}

/* Count a sample. Do nothing if the hang was already reported. A verdict is the result of a comparison with the
 * previous sample, so the first sample has no verdict. The number of the sample and its verdict determine the next
 * step. The first matching row applies:
 *
 *     1st sample                                  take the 2nd sample
 *     2nd, has a verdict                          take the 3rd sample
 *     3rd, has another verdict than the 2nd       take the 4th sample after HANG_CONFIRM_MS
 *     3rd, no verdict or an uncertain verdict     repeat the 3rd sample after HANG_CONFIRM_MS, but only once
 *     3rd to 7th, same verdict, the rank wakes    take the next sample
 *     3rd to 8th, same verdict                    report the verdict
 *     all other cases                             end the suspicion
 *
 * A sample of an overloaded host may lack stacks or flight records, so the 3rd sample has a second try. The 4th sample
 * is needed because flight records are compared from the 3rd sample on, which may change the verdict.
 * Report an uncertain verdict only once, as a hint, and end the suspicion. */
bool hang_watch_sampled(struct hang_watch *w, struct hang_verdict verdict, uint64_t now_ms)
{
    const uint64_t digest = verdict.digest;
    if (!w->runs || w->is_reported)
        return false;
    const bool is_same = digest != 0 && digest == w->verdict;
    w->samples++;
    w->retries = w->samples == SAMPLES && !w->retried && (digest == 0 || (is_same && !verdict.is_certain));
    if (w->retries) {
        w->retried = true;
        w->samples--;
        w->due_ms = now_ms + HANG_CONFIRM_MS;
        return false;
    }
    w->verdict = digest;
    if (w->samples == 1 || (digest != 0 && w->samples < SAMPLES))
        return false;
    if (digest != 0 && !is_same && w->samples < SAMPLES_MAX) {
        w->due_ms = now_ms + HANG_CONFIRM_MS;
        return false;
    }
    if (is_same && verdict.wakes && w->samples < SAMPLES_WAKES)
        return false;
    if (!is_same || !verdict.is_certain) {
        const bool is_news = is_same && digest != w->hint;
        w->hint = is_same ? digest : w->hint;
        w->compared++;
        hang_watch_skip(w, now_ms);
        return is_news;
    }
    w->is_reported = true;
    w->due_ms = 0;
    return true;
}
