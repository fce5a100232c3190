/* Tests of hang_watch: when it suspects and reports a hang of the job. The clock is simulated. */
#include "hub/hang_watch.h"

#include <criterion/criterion.h>

/* Record a sample about a rank that has not run since the previous sample. */
static bool sampled(struct hang_watch *w, uint64_t digest, bool is_certain, uint64_t now_ms)
{
    return hang_watch_sampled(w, (struct hang_verdict){ .digest = digest, .is_certain = is_certain }, now_ms);
}

enum { T = 1000000, S = 1000, VERDICT = 7 };

static struct hang_watch w;

static void begin(void)
{
    w = (struct hang_watch){ 0 };
    hang_watch_begin(&w, T);
}

TestSuite(hang_watch, .init = begin);

/* Report a sign of progress each `every` ms until `until`. */
static void move(uint64_t from, uint64_t until, uint64_t every)
{
    for (uint64_t at = from; at <= until; at += every)
        hang_watch_moved(&w, 0, at);
}

/* Take all samples that are due until `until`. Each sample except the first has the verdict `verdict`. Return the time
 * of the report, or 0 if no sample was reported. */
static uint64_t report_at(uint64_t verdict, uint64_t until)
{
    int samples = 0;
    for (uint64_t at = w.moved_ms; at <= until; at += 100)
        if (hang_watch_due(&w, at) && sampled(&w, samples++ == 0 ? 0 : verdict, true, at))
            return at;
    return 0;
}

Test(hang_watch, silence_is_reported_within_15_s_of_the_limit_and_not_before_12)
{
    move(T, T + 60 * S, S);
    const uint64_t at = report_at(VERDICT, T + 1000 * S);
    cr_expect_geq(at, T + 60 * S + HANG_LEAST_MS + 12 * S);
    cr_expect_leq(at, T + 60 * S + HANG_LEAST_MS + 15 * S);
    cr_expect_eq(hang_watch_deadline(&w), UINT64_MAX, "and once");
}

Test(hang_watch, five_times_the_longest_pause_is_waited)
{
    move(T, T + 60 * S, 20 * S);
    cr_expect_eq(hang_watch_deadline(&w), T + 60 * S + 100 * S);
}

/* A program loads for a minute without progress. In this minute the watch raises several suspicions, with a longer
 * pause after each. When a process joins a group, the pause is reset, so the first report is not late. */
Test(hang_watch, a_slow_start_does_not_delay_the_first_report)
{
    w.limit_ms = 5 * S;
    hang_watch_begin(&w, T);
    cr_assert_eq(report_at(0, T + 60 * S), 0);
    cr_assert_gt(w.in_vain, 2);
    cr_assert(hang_watch_joined(&w, T + 60 * S));
    const uint64_t at = report_at(VERDICT, T + 100 * S);
    cr_expect(at >= T + 77 * S && at <= T + 80 * S, "%llu ms", (unsigned long long)(at - T));
}

Test(hang_watch, only_suspicions_that_compared_samples_count_as_compared)
{
    move(T, T + 60 * S, S);
    hang_watch_skip(&w, T + 90 * S);
    cr_expect(w.in_vain == 1 && w.compared == 0);
    cr_assert_eq(report_at(0, T + 200 * S), 0);
    cr_expect(w.compared > 0 && w.compared < w.in_vain, "%u of %u", w.compared, w.in_vain);
    hang_watch_moved(&w, 0, T + 201 * S);
    cr_expect_eq(w.compared, 0);
    cr_assert_eq(report_at(0, T + 2000 * S), 0);
    cr_expect_gt(w.compared, 0);
    hang_watch_begin(&w, T + 2001 * S);
    cr_expect_eq(w.compared, 0);
}

Test(hang_watch, a_later_group_does_not_end_a_suspicion)
{
    move(T, T + 60 * S, S);
    cr_expect_not(hang_watch_joined(&w, T + 80 * S));
    cr_expect_eq(w.moved_ms, T + 60 * S);
}

Test(hang_watch, a_pause_of_40_s_of_a_job_that_made_none_before_is_no_hang)
{
    move(T, T + 60 * S, S);
    cr_expect_eq(report_at(VERDICT, T + 101 * S), 0);
    hang_watch_moved(&w, 500, T + 101 * S);
    cr_expect_eq(hang_watch_deadline(&w), T + 100500 + 5 * 40500);
}

Test(hang_watch, a_verdict_that_changes_is_none_and_is_tried_again_later)
{
    move(T, T + 60 * S, S);
    const uint64_t first = T + 90 * S;
    cr_expect(hang_watch_due(&w, first) && !sampled(&w, 0, true, first));
    cr_expect(hang_watch_due(&w, first + HANG_APART_MS) && !sampled(&w, 1, true, first + HANG_APART_MS));
    uint64_t at = 0;
    for (int i = 2; i <= 3; i++) {
        at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at) && !sampled(&w, (uint64_t)i, true, at));
    }
    cr_expect_eq(hang_watch_deadline(&w), at + HANG_LEAST_MS);
}

/* A hint is reported once. Later samples may still find a verdict that is certain. */
Test(hang_watch, a_hint_is_reported_once_and_does_not_end_the_search)
{
    move(T, T + 60 * S, S);
    int hints = 0;
    for (int i = 0; i < 8; i++) { /* two suspicions; each repeats its third sample */
        const uint64_t at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at));
        hints += sampled(&w, i % 4 == 0 ? 0 : 7, false, at);
        cr_expect(i < 2 || hang_watch_compares(&w));
    }
    cr_expect_eq(hints, 1);
    for (int i = 0; i < 3; i++) {
        const uint64_t at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at) && sampled(&w, i == 0 ? 0 : 8, true, at) == (i == 2));
    }
}

/* From the third sample on, flight records are compared, too, so the third verdict may differ from the second. */
Test(hang_watch, a_verdict_that_changes_once_is_reported_with_the_fourth_sample_within_15_s)
{
    move(T, T + 60 * S, S);
    const uint64_t first = T + 90 * S;
    uint64_t at = first;
    for (int i = 0; i <= 3; i++) {
        at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at) && sampled(&w, i < 2 ? (uint64_t)i : 2, true, at) == (i == 3));
    }
    cr_expect_lt(at - first, 14 * S);
}

/* On an overloaded host, the third sample lacks stacks or records. */
Test(hang_watch, an_incomplete_third_sample_is_taken_again_once)
{
    for (int certain = 0; certain <= 1; certain++) {
        begin();
        move(T, T + 60 * S, S);
        const uint64_t first = hang_watch_deadline(&w);
        uint64_t at = first;
        for (int i = 0; i < 4; i++) {
            at = hang_watch_deadline(&w);
            cr_expect_eq(w.retries, i == 3);
            const uint64_t digest = i == 0 || (i == 2 && certain) ? 0 : VERDICT;
            cr_expect(hang_watch_due(&w, at) && sampled(&w, digest, certain || i != 2, at) == (i == 3), "%d",
                      i);
        }
        cr_expect_lt(at - first, 14 * S);
    }
    begin();
    move(T, T + 60 * S, S);
    for (int i = 0; i < 4; i++) {
        const uint64_t at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at) && !sampled(&w, i == 1 ? VERDICT : 0, true, at));
    }
    cr_expect_eq(w.samples, 0, "the suspicion has ended");
}

/* A rank that wakes between samples may compute in small steps, or receive a file. */
Test(hang_watch, a_rank_that_wakes_between_the_samples_needs_eight_samples)
{
    move(T, T + 60 * S, S);
    const uint64_t first = hang_watch_deadline(&w);
    for (int i = 0; i < 8; i++) {
        const uint64_t at = hang_watch_deadline(&w);
        const struct hang_verdict verdict = { .digest = i == 0 ? 0 : 7, .is_certain = true, .wakes = i > 0 };
        cr_expect_eq(at, first + (uint64_t)i * HANG_APART_MS);
        cr_expect(hang_watch_due(&w, at) && hang_watch_sampled(&w, verdict, at) == (i == 7), "%d", i);
    }
}

Test(hang_watch, a_rank_that_has_fallen_asleep_for_good_is_reported_at_once)
{
    move(T, T + 60 * S, S);
    for (int i = 0; i < 5; i++) {
        const uint64_t at = hang_watch_deadline(&w);
        const struct hang_verdict verdict = { .digest = i == 0 ? 0 : 7, .is_certain = true, .wakes = i < 4 };
        cr_expect(hang_watch_due(&w, at) && hang_watch_sampled(&w, verdict, at) == (i == 4), "%d", i);
    }
}

Test(hang_watch, no_verdict_needs_no_third_sample_and_the_pauses_grow_up_to_5_minutes)
{
    move(T, T + 60 * S, S);
    uint64_t at = T + 60 * S, pause = HANG_LEAST_MS;
    for (int i = 0; i < 8; i++) {
        at = hang_watch_deadline(&w);
        cr_expect(hang_watch_due(&w, at) && !sampled(&w, 0, true, at));
        at += HANG_APART_MS;
        cr_expect(hang_watch_due(&w, at) && !sampled(&w, 0, true, at));
        cr_expect_eq(hang_watch_deadline(&w), at + (pause < HANG_AGAIN_MAX_MS ? pause : HANG_AGAIN_MAX_MS));
        pause *= 2;
    }
}

/* The samples of a job without signs of progress are 21 s apart, and the first sample is 30 s before the limit. So the
 * third sample and the report come 12 s after the limit, as in other jobs. */
Test(hang_watch, a_job_without_any_sign_gets_more_time_and_must_stand_still_for_longer)
{
    const uint64_t limit = T + HANG_QUIET_FACTOR * HANG_LEAST_MS;
    cr_expect_eq(hang_watch_deadline(&w), limit - 30 * S);
    cr_expect_eq(report_at(VERDICT, T + 1000 * S), limit + 12 * S);
}

Test(hang_watch, a_short_limit_counts_for_a_job_without_any_sign)
{
    w.limit_ms = 40 * S;
    hang_watch_begin(&w, T);
    cr_expect_eq(hang_watch_deadline(&w), T + 40 * S);
    cr_expect_eq(report_at(VERDICT, T + 1000 * S), T + 52 * S);
}

Test(hang_watch, the_start_of_the_program_is_no_pause)
{
    hang_watch_moved(&w, 0, T + 80 * S);
    cr_expect_eq(hang_watch_deadline(&w), T + 110 * S);
}

Test(hang_watch, a_given_limit_counts_for_all_jobs)
{
    w.limit_ms = 4 * S;
    hang_watch_begin(&w, T);
    cr_expect_eq(hang_watch_deadline(&w), T + 4 * S);
    move(T, T + 60 * S, 20 * S);
    cr_expect_eq(hang_watch_deadline(&w), T + 64 * S);
}

Test(hang_watch, off_is_never)
{
    w.is_off = true;
    hang_watch_begin(&w, T);
    move(T, T + 60 * S, S);
    cr_expect_eq(hang_watch_deadline(&w), UINT64_MAX);
    cr_expect(!hang_watch_due(&w, T + 1000 * S));
}

Test(hang_watch, a_sign_ends_a_reported_hang)
{
    move(T, T + 60 * S, S);
    const uint64_t at = report_at(VERDICT, T + 1000 * S);
    hang_watch_moved(&w, 0, at + S);
    cr_expect(!w.is_reported);
    cr_expect_neq(hang_watch_deadline(&w), UINT64_MAX);
}

Test(hang_watch, old_signs_change_nothing)
{
    move(T, T + 60 * S, S);
    hang_watch_moved(&w, 5 * S, T + 61 * S);
    cr_expect_eq(w.moved_ms, T + 60 * S);
    hang_watch_moved(&w, T, T + 61 * S);
    cr_expect_eq(w.moved_ms, T + 60 * S);
}

Test(hang_watch, without_a_round_nothing_is_due)
{
    move(T, T + 60 * S, S);
    hang_watch_end(&w);
    cr_expect_eq(hang_watch_deadline(&w), UINT64_MAX);
    hang_watch_moved(&w, 0, T + 70 * S);
    cr_expect_eq(hang_watch_deadline(&w), UINT64_MAX);
    cr_expect(!sampled(&w, VERDICT, true, T + 70 * S));
}

/* The test simulates a day. A line of output comes each second, an evaluation of 20 to 50 s each 5 minutes, and a
 * checkpoint of 40 s each half hour. In each pause, every sample except the first has the same verdict. */
Test(hang_watch, a_day_with_evaluations_and_checkpoints_is_no_hang)
{
    uint64_t at = T;
    uint32_t random = 1;
    for (int minute = 0; minute < 24 * 60; minute++) {
        for (int second = 0; second < 60; second++, at += S)
            hang_watch_moved(&w, 0, at);
        random = random * 1103515245 + 12345;
        uint64_t pause = minute % 5 == 4 ? 20 * S + random / 65536 % (minute < 10 ? 15 * S : 30 * S) : 0;
        pause = minute % 30 == 29 ? 40 * S : pause;
        int samples = 0;
        for (uint64_t end = at + pause; at < end; at += 100)
            if (hang_watch_due(&w, at))
                cr_assert(!sampled(&w, samples++ == 0 ? 0 : VERDICT, true, at), "minute %d", minute);
    }
}
