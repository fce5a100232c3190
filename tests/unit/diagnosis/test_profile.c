/* Tests of the search for a slow rank, on simulated jobs: each rank computes, then all ranks wait for the slowest
 * rank. The clock is simulated, so the shares of time are exact. */
#include "diagnosis/profile.h"
#include "diagnosis/text.h"
#include "snapshot_case.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, SLOW = 2, MINUTE = 60000 / PROFILE_EVERY_MS, SEEDS = 40 };

struct job {
    uint64_t random;
    double step_ms, noise; /* step_ms: duration of a step; noise: largest random deviation of a rank's time,
                            * as a fraction of step_ms */
    double extra;          /* additional time of rank SLOW, as a fraction of step_ms */
    double start_ms, compute_ms[RANKS], end_ms;
    uint64_t steps;
};

#define JOB(seed, ms, varies, slower)                                           \
    (struct job)                                                                \
    {                                                                           \
        .random = (seed), .step_ms = (ms), .noise = (varies), .extra = (slower) \
    }

static double uniform(struct job *j)
{
    j->random = j->random * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(j->random >> 11) / (double)(1ull << 53);
}

/* Begin the next step. The collective itself takes a thirtieth of a step. */
static void next_step(struct job *j)
{
    double longest = 0;
    j->start_ms = j->end_ms;
    for (int i = 0; i < RANKS; i++) {
        const double varies = 1 + j->noise * (2 * uniform(j) - 1);
        j->compute_ms[i] = j->step_ms * (varies + (i == SLOW ? j->extra : 0));
        longest = j->compute_ms[i] > longest ? j->compute_ms[i] : longest;
    }
    j->end_ms = j->start_ms + longest + j->step_ms / 30;
    j->steps++;
}

static cJSON *row_of(int rank, bool waits, bool is_extra)
{
    char text[512];
    snprintf(
        text, sizeof(text),
        "{\"frames\":[%s{\"function\":\"%s\",\"file\":\"%s\",\"line\":%d,\"user\":true}],\"threads\":[{"
        "\"rank\":%d,"
        "\"pid\":%d,\"main\":true,\"does\":\"running\"}]}",
        waits ? "{\"function\":\"all_reduce\",\"file\":\"torch/distributed/distributed_c10d.py\",\"line\":9},"
              : "",
        waits      ? "step"
        : is_extra ? "augment"
                   : "forward",
        is_extra ? "data.py" : "train.py", is_extra ? 41 : 88, rank, 70 + rank);
    cJSON *row = cJSON_Parse(text);
    cr_assert_not_null(row, "%s", text);
    return row;
}

static const struct snapshot_rank no_steps[RANKS];

/* Take one sample at `at_ms`. Each rank is read a few milliseconds after the previous rank. */
static bool sample(struct job *j, struct profile *p, double at_ms)
{
    cJSON *rows = cJSON_CreateArray();
    while (j->end_ms <= at_ms)
        next_step(j);
    for (int i = 0; i < RANKS; i++) {
        const double in_step = at_ms + 3 * uniform(j) - j->start_ms;
        cJSON_AddItemToArray(rows, row_of(i, in_step >= j->compute_ms[i], i == SLOW && in_step > j->step_ms));
    }
    const bool news = profile_add(p, rows, no_steps, j->steps);
    cJSON_Delete(rows);
    return news;
}

/* Return the number of the sample that has found a slow rank. Return 0 if none of the `n` samples has found a slow
 * rank. */
static uint32_t run(struct job job, struct profile *p, uint32_t n)
{
    uint32_t found = 0;
    cr_assert(profile_begin(p, RANKS));
    for (uint32_t i = 1; i <= n && found == 0; i++)
        if (sample(&job, p, 1000 + i * (double)PROFILE_EVERY_MS))
            found = i;
    return found;
}

/* Work.wait() of PyTorch is a C function without a Python frame. A rank that sleeps in Work.wait() waits for other
 * ranks. A rank that sleeps in threading.py does not wait for other ranks. */
Test(profile, a_rank_that_sleeps_in_a_c_function_of_the_program_waits)
{
    static const char *const rows[] = {
        "{\"frames\":[{\"function\":\"step\",\"file\":\"train.py\",\"line\":9,\"user\":true}],\"threads\":["
        "{\"rank\":0,\"pid\":70,\"main\":true,\"does\":\"sleeping in futex\"},"
        "{\"rank\":1,\"pid\":71,\"main\":true,\"does\":\"running\"}]}",
        "{\"frames\":[{\"function\":\"wait\",\"file\":\"threading.py\",\"line\":9},"
        "{\"function\":\"step\",\"file\":\"train.py\",\"line\":9,\"user\":true}],\"threads\":["
        "{\"rank\":2,\"pid\":72,\"main\":true,\"does\":\"sleeping in futex\"}]}",
        "{\"frames\":[{\"function\":\"_sync_params\",\"file\":\"torch/distributed/optim/"
        "zero.py\",\"line\":9},"
        "{\"function\":\"step\",\"file\":\"train.py\",\"line\":9,\"user\":true}],\"threads\":["
        "{\"rank\":3,\"pid\":73,\"main\":true,\"does\":\"sleeping in futex\"}]}"
    };
    struct profile p = { 0 };
    cJSON *sample = cJSON_CreateArray();
    for (size_t i = 0; i < LEN(rows); i++)
        cJSON_AddItemToArray(sample, cJSON_Parse(rows[i]));
    cr_assert(profile_begin(&p, RANKS));
    (void)profile_add(&p, sample, no_steps, 1);
    for (uint32_t i = 0; i < RANKS; i++)
        cr_expect(p.ranks[i].seen == 1 && (p.ranks[i].waits == 1) == (i == 0 || i == 3), "rank %u", i);
    cJSON_Delete(sample);
    profile_free(&p);
}

Test(profile, a_rank_that_is_20_percent_slower_is_found_within_a_minute)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct profile p = { 0 };
        const uint32_t found = run(JOB(seed, 300 + 7.0 * (double)seed, 0.05, 0.2), &p, MINUTE);
        cr_expect(found > 0, "seed %d", (int)seed);
        for (uint32_t i = 0; i < RANKS; i++)
            cr_expect_eq(p.ranks[i].is_slow, found > 0 && i == SLOW, "seed %d, rank %u", (int)seed, i);
        profile_free(&p);
    }
}

Test(profile, equal_ranks_give_no_report_in_ten_minutes)
{
    static const double noises[] = { 0.02, 0.1, 0.5 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct profile p = { 0 };
        const struct job job = JOB(seed, 40 + 60.0 * (double)seed, noises[seed % LEN(noises)], 0);
        cr_expect_eq(run(job, &p, 10 * MINUTE), 0, "seed %d", (int)seed);
        profile_free(&p);
    }
}

/* Rank 0 writes a checkpoint. The other ranks wait for rank 0 only this one time, so this wait is no evidence that rank
 * 0 is slow. */
Test(profile, one_long_wait_is_no_evidence)
{
    struct profile p = { 0 };
    cr_assert(profile_begin(&p, RANKS));
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < RANKS; i++)
        cJSON_AddItemToArray(rows, row_of(i, i != 0, false));
    for (int i = 0; i < MINUTE; i++)
        cr_expect_not(profile_add(&p, rows, no_steps, 7));
    cJSON_Delete(rows);
    cr_expect_eq(p.ranks[1].waits, MINUTE);
    profile_free(&p);
}

/* Ranks of libddp report the collective that they are in, and have no frames. */
Test(profile, steps_of_libddp_count_as_stacks_do)
{
    struct profile p = { 0 };
    struct snapshot_rank facts[RANKS] = { 0 };
    bool found = false;
    cr_assert(profile_begin(&p, RANKS));
    for (int i = 0; i < MINUTE && !found; i++) {
        for (int rank = 0; rank < RANKS; rank++)
            facts[rank] = (struct snapshot_rank){ .has_steps = true,
                                                  .step = i,
                                                  .call = rank == SLOW || i % 3 != 0 ? "" : "all_reduce" };
        found = profile_add(&p, NULL, facts, 0);
    }
    cr_expect(found && p.ranks[SLOW].is_slow && !p.ranks[0].is_slow);
    profile_free(&p);
}

/* Rank 1 imports its libraries for longer than the other ranks. These ranks wait for rank 1 in the first collective. */
Test(profile, samples_of_imports_are_left_out)
{
    static const char importing[] =
        "{\"frames\":[{\"function\":\"<module>\",\"file\":\"torch/nn/modules/module.py\",\"line\":9},"
        "{\"function\":\"_find_and_load\",\"file\":\"<frozen importlib._bootstrap>\",\"line\":1176},"
        "{\"function\":\"<module>\",\"file\":\"train.py\",\"line\":3,\"user\":true}],\"threads\":[{\"rank\":"
        "1,"
        "\"pid\":71,\"main\":true,\"does\":\"running\"}]}";
    struct job job = JOB(3, 400, 0.05, 0.2);
    struct profile p = { 0 };
    cr_assert(profile_begin(&p, RANKS));
    for (uint64_t at = 0; at < MINUTE; at++) {
        cJSON *rows = cJSON_CreateArray();
        for (int i = 0; i < RANKS; i++)
            cJSON_AddItemToArray(rows, i == 1 ? cJSON_Parse(importing) : row_of(i, true, false));
        cr_expect_not(profile_add(&p, rows, no_steps, at));
        cJSON_Delete(rows);
    }
    cr_expect_eq(p.samples, 0);
    for (int at = 1; at <= MINUTE; at++)
        (void)sample(&job, &p, at * (double)PROFILE_EVERY_MS);
    for (uint32_t i = 0; i < RANKS; i++) {
        cr_expect_eq(p.ranks[i].is_slow, i == SLOW, "rank %u", i);
        cr_expect_eq(p.ranks[i].seen, MINUTE, "rank %u", i);
    }
    profile_free(&p);
}

Test(profile, the_finding_names_the_rank_the_shares_and_what_it_does_instead)
{
    struct profile p = { 0 };
    struct snapshot s = { RUNNING };
    struct snapshot_rank ranks[RANKS] = { 0 };
    struct diagnosis d = { 0 };
    ranks[SLOW] = (struct snapshot_rank){ .rank = SLOW, .host = "n1", .pid = 812 };
    s.ranks = ranks;
    s.n_ranks = RANKS;
    s.profile = &p;
    diagnose_slow(&d, &s);
    cr_expect_eq(d.n, 0, "a job without a profile");
    cr_assert(run(JOB(3, 400, 0.05, 0.2), &p, MINUTE) > 0);
    diagnose_slow(&d, &s);
    cr_assert_eq(d.n, 1);
    cr_expect_eq(d.list[0].code, FINDING_RANK_SLOW);
    cr_expect_str_eq(d.list[0].subject, "rank 2 (n1, pid 812)");
    cr_expect_not_null(strstr(d.list[0].sentence, " augment (data.py:41)"), "%s", d.list[0].sentence);
    cr_expect_not_null(strstr(d.list[0].sentence, " 32.0 s "), "%s", d.list[0].sentence);
    profile_free(&p);
}

/* A slow rank is reported once. When the rank has caught up, it is no longer shown. */
Test(profile, a_slow_rank_that_recovers_is_forgotten_after_two_windows)
{
    struct job job = JOB(6, 350, 0.05, 0.3);
    struct profile p = { 0 };
    int news = 0;
    cr_assert(profile_begin(&p, RANKS));
    for (uint32_t i = 1; i <= 4 * PROFILE_WINDOW; i++) {
        job.extra = i <= 2 * PROFILE_WINDOW ? 0.3 : 0;
        news += sample(&job, &p, 1000 + i * (double)PROFILE_EVERY_MS);
        cr_assert(i != 2 * PROFILE_WINDOW || p.ranks[SLOW].is_slow);
    }
    cr_expect_eq(news, 1);
    cr_expect_not(p.ranks[SLOW].is_slow);
    profile_free(&p);
}

Test(profile, all_windows_have_the_same_number_of_samples)
{
    struct job job = JOB(5, 350, 0.05, 0);
    struct profile p = { 0 };
    cr_assert(profile_begin(&p, RANKS));
    for (uint32_t i = 1; i <= 3 * PROFILE_WINDOW; i++) {
        sample(&job, &p, 1000 + i * (double)PROFILE_EVERY_MS);
        cr_assert_eq(p.samples, (i - 1) % PROFILE_WINDOW + 1);
        cr_assert_eq(p.ranks[SLOW].seen, p.samples);
    }
    profile_free(&p);
}

/* A rank that was as fast as the other ranks for a long time must not be hidden by its past. */
Test(profile, a_rank_that_becomes_slow_is_found)
{
    struct job job = JOB(5, 350, 0.05, 0);
    struct profile p = { 0 };
    bool found = false;
    cr_assert(profile_begin(&p, RANKS));
    for (uint32_t i = 1; i <= 40 * MINUTE && !found; i++) {
        job.extra = i > 31 * MINUTE ? 0.3 : 0;
        found = sample(&job, &p, 1000 + i * (double)PROFILE_EVERY_MS);
        cr_assert(!found || i > 31 * MINUTE);
    }
    cr_expect(found && p.ranks[SLOW].is_slow);
    profile_free(&p);
}

Test(profile, a_world_of_one_or_of_too_many_ranks)
{
    struct profile p = { 0 };
    const struct snapshot_rank one = { .has_steps = true, .call = "all_reduce" };
    cr_assert(profile_begin(&p, 1));
    for (int i = 0; i < MINUTE; i++)
        cr_expect_not(profile_add(&p, NULL, &one, (uint64_t)i));
    profile_free(&p);
    cr_expect_not(profile_begin(&p, PROFILE_RANKS_MAX + 1));
    cr_expect_not(profile_begin(&p, 0));
}
