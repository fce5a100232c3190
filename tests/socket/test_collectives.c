/* Tests of every collective with real processes. The tests use all types and operations, different sizes and roots, and
 * private and shared memory. All values must be exact. ranks.h has the comparisons. */
#include "core/collective_check.c"
#include "core/comm_thread.h"
#include "core/context.h"
#include "ddp/store.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void all_types(struct rank *me)
{
    trials_of_all_types(me, 1);
}

Test(collectives, two_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(2, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, three_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(3, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, four_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(4, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, seven_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(7, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, a_world_of_one_needs_no_one, .timeout = 180)
{
    ranks_all_well(1, all_types, RANKS_PLAIN_STORE, NULL);
    ranks_all_well(1, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, three_ranks_move_large_counts, .timeout = 180)
{
    ranks_all_well(3, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, four_ranks_move_large_counts, .timeout = 180)
{
    ranks_all_well(4, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

/* Average noise over all ranks, once in private memory and once in shared memory. The bits of the result depend on the
 * order of the additions. The bits must be the same for both kinds of memory. */
static void sum_noise(struct rank *me)
{
    enum { N = 70001 };
    struct trial_room room = room_open(me, N * 4);
    uint64_t hash[2] = { 0xcbf29ce484222325u, 0xcbf29ce484222325u };
    float *const in[2] = { (float *)room.private_in, room.shared_in };

    for (int memory = 0; memory < 2; memory++) {
        srand((unsigned)me->rank + 1);
        for (int i = 0; i < N; i++)
            in[memory][i] = (float)rand() / (float)(1 + rand() % 1000);
        rank_expect_ok(
            me, ddp_all_reduce(ddp_world(room.ctx), in[memory], in[memory], N, DDP_F32, DDP_AVG, NULL, NULL));
        hash[memory] = trial_hash(hash[memory], in[memory], N * 4);
    }
    rank_expect(me, hash[0] == hash[1], "the way through memory changes the bits");
    me->value = hash[0];
    room_close(&room);
}

Test(collectives, equal_runs_give_equal_bits_on_every_rank, .timeout = 180)
{
    uint64_t first = 0;
    for (int run = 0; run < 3; run++) {
        struct ranks ranks = ranks_run(4, sum_noise, RANKS_PLAIN_STORE, NULL);
        ranks_expect_ok(&ranks);
        if (run == 0)
            first = ranks.rank[0].value;
        for (int r = 0; r < 4; r++)
            cr_assert_eq(ranks.rank[r].value, first, "run %d rank %d", run, r);
        ranks_free(&ranks);
    }
}

static void refuse(struct rank *me, ddp_status status, const char *part)
{
    rank_expect(me, status == DDP_ERR_ARG && strstr(ddp_last_error(), part) != NULL,
                "%s expected, got %s: %s", part, ddp_status_name(status), ddp_last_error());
}

/* Pass a wrong argument. The error is detected before any other rank is involved, so the job continues. */
static void wrong_arguments(struct rank *me)
{
    float x[8] = { 0 }, one = 1;
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_group *g = ddp_world(ctx);

    refuse(me, ddp_all_reduce(g, NULL, x, 1, DDP_F32, DDP_SUM, NULL, NULL), "`in` is NULL");
    refuse(me, ddp_all_reduce(g, x, NULL, 1, DDP_F32, DDP_SUM, NULL, NULL), "`out` is NULL");
    refuse(me, ddp_all_reduce(g, x, x + 1, 4, DDP_F32, DDP_SUM, NULL, NULL), "overlap");
    refuse(me, ddp_all_reduce(g, x, x, 1, (ddp_dtype)40, DDP_SUM, NULL, NULL), "dtype=40");
    refuse(me, ddp_all_reduce(g, x, x, 1, DDP_F32, (ddp_op)9, NULL, NULL), "op=9");
    refuse(me, ddp_broadcast(g, x, 1, DDP_F32, me->world, NULL, NULL), "expected a rank");
    refuse(me, ddp_broadcast(g, x, SIZE_MAX / 4, DDP_F32, 0, NULL, NULL),
           "do not fit into the address space");
    refuse(me, ddp_shared_free(g, x), "was not returned by ddp_shared_alloc");
    rank_expect_ok(me, ddp_all_reduce(g, &one, &one, 1, DDP_F32, DDP_SUM, NULL, NULL));
    rank_expect(me, one == (float)me->world, "the job goes on");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, wrong_arguments_are_refused_and_harm_nobody, .timeout = 180)
{
    ranks_all_well(2, wrong_arguments, RANKS_PLAIN_STORE, NULL);
}

static void work_handles(struct rank *me)
{
    int32_t x = me->rank + 1;
    ddp_work *work = NULL;
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), &x, &x, 1, DDP_I32, DDP_SUM, NULL, &work));
    rank_expect(me, work != NULL, "there is a handle");
    rank_expect_ok(me, ddp_work_wait(work));
    rank_expect(me, x == me->world * (me->world + 1) / 2, "x is %d", x);
    ddp_work_free(work);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, a_work_handle_is_waited_for_and_freed, .timeout = 180)
{
    ranks_all_well(3, work_handles, RANKS_PLAIN_STORE, NULL);
}

/* Join three times. With a ddprun store and with a foreign store, the keys of one join do not disturb the next join. */
static void three_contexts(struct rank *me)
{
    for (int round = 0; round < 3; round++) {
        int32_t x = me->rank + round;
        ddp_ctx *ctx = rank_init(me, NULL);
        rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), &x, &x, 1, DDP_I32, DDP_MAX, NULL, NULL));
        rank_expect(me, x == me->world - 1 + round, "round %d: x is %d", round, x);
        rank_expect_ok(me, ddp_finalize(ctx));
    }
}

Test(collectives, a_process_may_meet_the_others_again, .timeout = 180)
{
    ranks_all_well(3, three_contexts, RANKS_PLAIN_STORE, NULL);
    ranks_all_well(3, three_contexts, RANKS_DDPRUN_STORE, NULL);
}

/* LATER_THAN_SLACK_US is longer than SLACK_MS of core/bootstrap.c. SLACK_MS is the extra time for which the other ranks
 * wait for an error report of rank 0. */
enum { LATER_THAN_SLACK_US = 700000 };

static void wait_as_long_as_can_be_said(struct rank *me)
{
    ddp_options options = DDP_OPTIONS_INIT;
    options.init_timeout_ms = options.step_timeout_ms = UINT32_MAX;
    if (me->rank == 0)
        usleep(LATER_THAN_SLACK_US);
    ddp_ctx *ctx = rank_init(me, &options);
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), UINT32_MAX));
    rank_expect_ok(me, ddp_barrier_named(ctx, "all", UINT32_MAX));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, the_longest_time_out_is_long, .timeout = 180)
{
    ranks_all_well(2, wait_as_long_as_can_be_said, RANKS_PLAIN_STORE, NULL);
}

/* Tests with DDPRUN_DEBUG=detail: if the next calls of the ranks differ, all ranks get an error before the call. */

static void make(void)
{
    setenv("DDPRUN_DEBUG", "detail", 1);
}

static void done(void)
{
    unsetenv("DDPRUN_DEBUG");
}

TestSuite(collective_check, .init = make, .fini = done, .timeout = 120);

static ddp_status all_reduce(ddp_ctx *ctx, size_t n)
{
    static float x[64];
    return ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
}

/* Make twenty calls, and expect that fewer than twelve keys remain in the store. */
static void go_well(struct rank *me)
{
    int64_t keys = 0;
    void *block;
    ddp_ctx *ctx = rank_init(me, NULL);
    for (int i = 0; i < 20; i++)
        rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), 64, &block));
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), 0));
    rank_expect_ok(me, ddp_store_num_keys(ddp_context_store(ctx), &keys, NULL));
    rank_expect(me, keys < 12, "%lld keys", (long long)keys);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collective_check, calls_that_agree_go_on)
{
    struct ranks run = ranks_run(3, go_well, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&run);
    ranks_free(&run);
}

/* Return the number of the keys of the calls 1 to 20 that remain in the store. */
static int records_left(const struct rank *me, const char *prefix)
{
    static const char *const whats[] = { "first", "count", "go" };
    char key[KEY];
    const char *const keys[] = { key };
    ddp_store *store = NULL;
    int n = 0, exists = 1;
    ddp_store_connect("127.0.0.1", me->port, NULL, &store, NULL);
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof(key), "%s/detail/%d/%s", prefix, i / 3 + 1, whats[i % 3]);
        n += ddp_store_check(store, keys, 1, &exists, NULL) != DDP_OK || exists;
    }
    ddp_store_close(store);
    return n;
}

/* Put each rank on its own host. ddp_shared_alloc then makes calls between hosts, which are counted but not compared.
 * Afterwards, open a second context, which uses the same keys. The first calls of both contexts have the same number,
 * but differ. So a record that the first context has left could cause a mismatch. */
static void allocate_between_hosts(struct rank *me)
{
    const char host[] = { (char)('a' + me->rank), '\0' };
    char prefix[CTX_PREFIX];
    void *block;
    setenv("DDP_TEST_HOST", host, 1);
    ddp_ctx *ctx = rank_init(me, NULL);
    snprintf(prefix, sizeof(prefix), "%s", ctx->prefix);
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), 64, &block));
    rank_expect(me, ctx->world.comm->seq > 3, "no call between hosts");
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect_ok(me, ddp_finalize(ctx));
    rank_expect(me, me->rank != 0 || records_left(me, prefix) == 0, "%d keys", records_left(me, prefix));
    ctx = rank_init(me, NULL);
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), 0));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collective_check, calls_between_hosts_leave_no_old_records)
{
    ranks_all_well(2, allocate_between_hosts, RANKS_DDPRUN_STORE, NULL);
}

static void keep(struct rank *me, ddp_ctx *ctx, ddp_status status)
{
    rank_keep(me, status);
    ddp_finalize(ctx);
}

static void differ(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    if (me->rank == 1)
        keep(me, ctx, ddp_barrier(ddp_world(ctx), 0));
    else
        keep(me, ctx, all_reduce(ctx, 8));
}

Test(collective_check, both_calls_are_named_to_all)
{
    struct ranks run = ranks_run(3, differ, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH,
                           (const char *const[]){ "DDPRUN_DEBUG=detail: ranks disagree: rank ",
                                                  "all_reduce #2 (f32 x 8, sum)", "rank 1 called barrier #2",
                                                  NULL });
    ranks_free(&run);
}

/* Set check.what to a different text on each rank. In a program, the reducer sets it to the same text on all ranks. */
static void differ_in_purpose(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    snprintf(ctx->check.what, sizeof(ctx->check.what), "bucket %d of 2", me->rank);
    keep(me, ctx, all_reduce(ctx, 8));
}

Test(collective_check, what_a_call_is_for_must_be_the_same)
{
    struct ranks run = ranks_run(2, differ_in_purpose, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(
            &run, r, DDP_ERR_MISMATCH,
            (const char *const[]){ "ranks disagree: in all_reduce #2 (f32 x 8, sum), rank 0",
                                   "rank 0 passes bucket 0 of 2, but rank 1 passes bucket 1 of 2", NULL });
    ranks_free(&run);
}

static void differ_in_values(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect(me, ctx->check.before[0] != '\0', "nothing is known of the result");
    if (me->rank == 1)
        snprintf(ctx->check.before, sizeof(ctx->check.before), "all_reduce #2 gave 12345678");
    keep(me, ctx, all_reduce(ctx, 8));
}

Test(collective_check, results_must_be_the_same)
{
    struct ranks run = ranks_run(2, differ_in_values, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH,
                           (const char *const[]){ "have different values after a call",
                                                  "on rank 1 all_reduce #2 gave 12345678", NULL });
    ranks_free(&run);
}

static void die(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    if (me->rank == 1)
        raise(SIGKILL);
    keep(me, ctx, all_reduce(ctx, 8));
}

Test(collective_check, a_rank_that_dies_is_named_with_the_call_that_it_is_missed_in)
{
    struct ranks run = ranks_run(2, die, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&run, 0, DDP_ERR_PEER_LOST,
                       (const char *const[]){ "detail: before all_reduce #2 (f32 x 8, sum): rank 1 (pid ",
                                              "has ended; rank 0 last called init", NULL });
    ranks_free(&run);
}

/* Let rank 1, which has no time limit, arrive after rank 0 has given up. */
static void stay_away(struct rank *me)
{
    ddp_options options = DDP_OPTIONS_INIT;
    options.step_timeout_ms = 300;
    ddp_ctx *ctx = rank_init(me, &options);
    ddp_store *store = ddp_context_store(ctx);
    void *value = NULL;
    size_t len;
    if (me->rank == 1)
        rank_expect_ok(me, ddp_store_get(store, "given-up", 60000, &value, &len, NULL));
    const ddp_status status = all_reduce(ctx, 8);
    if (me->rank == 0)
        rank_expect_ok(me, ddp_store_set(store, "given-up", "1", 1, NULL));
    free(value);
    keep(me, ctx, status);
}

Test(collective_check, who_waits_in_vain_says_so_and_who_comes_late_is_told)
{
    struct ranks run = ranks_run(2, stay_away, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&run, r, DDP_ERR_TIMEOUT,
                           (const char *const[]){ "waited 0.3 s", "all_reduce #2", "1 of 2 arrived", NULL });
    ranks_free(&run);
}

static void expect_unknown(struct rank *me)
{
    ddp_ctx *ctx;
    setenv("DDPRUN_DEBUG", "loud", 1);
    rank_keep(me, ddp_init_from_env(NULL, &ctx));
}

Test(collective_check, an_unknown_word_is_refused)
{
    struct ranks run = ranks_run(1, expect_unknown, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&run, 0, DDP_ERR_ENV,
                       (const char *const[]){ "DDPRUN_DEBUG=loud: expected 'off' or 'detail'", NULL });
    ranks_free(&run);
}

static struct call_record said(int rank, const char *call, const char *what, const char *before)
{
    struct call_record s = { .rank = rank };
    snprintf(s.call, sizeof(s.call), "%s", call);
    snprintf(s.what, sizeof(s.what), "%s", what);
    snprintf(s.before, sizeof(s.before), "%s", before);
    return s;
}

Test(call_record, what_is_put_is_taken)
{
    char text[CHECK_TEXT];
    struct call_record back,
        s = said(7, "all_reduce #3 (f32 x 4, sum)", "bucket 1 of 2: a\nb and 0 more (0)", "");
    const size_t len = collective_check_encode(text, &s);
    cr_assert_eq(len, strlen(text));
    cr_assert(collective_check_decode(text, &back), "%s", text);
    cr_expect_eq(back.rank, 7);
    cr_expect_str_eq(back.call, s.call);
    cr_expect_str_eq(back.what, "bucket 1 of 2: a b and 0 more (0)");
    cr_expect_str_eq(back.before, "");
}

Test(call_record, the_longest_lines_fit)
{
    char text[CHECK_TEXT];
    struct call_record back, s = { .rank = 1048575 };
    memset(s.call, 'a', CHECK_LINE - 1);
    memset(s.what, 'b', CHECK_LINE - 1);
    memset(s.before, 'c', CHECK_LINE - 1);
    collective_check_encode(text, &s);
    cr_assert(collective_check_decode(text, &back));
    cr_expect_str_eq(back.before, s.before);
}

Test(call_record, what_is_cut_anywhere_is_none)
{
    char text[CHECK_TEXT];
    struct call_record back, s = said(0, "barrier #2", "x", "y");
    for (size_t cut = collective_check_encode(text, &s) - 2; cut > 0; cut--) {
        text[cut] = '\0';
        cr_expect_not(collective_check_decode(text, &back), "'%s'", text);
    }
    cr_expect_not(collective_check_decode("", &back));
    cr_expect_not(collective_check_decode("-1\na\nb\nc", &back));
    cr_expect_not(collective_check_decode("1\na\nb\nc\nd", &back));
}

static void expect(struct call_record a, struct call_record b, const char *words)
{
    struct ddp_err err = { 0 };
    cr_expect_eq(collective_check_compare(&a, &b, &err), DDP_ERR_MISMATCH);
    cr_expect_eq(strncmp(err.msg, words, strlen(words)), 0, "%s", err.msg); /* a remedy may follow */
}

Test(call_record, the_call_is_told_before_anything_else)
{
    expect(said(3, "barrier #2", "x", "y"), said(1, "broadcast #2 (f32 x 1, root 0)", "", ""),
           "ranks disagree: rank 1 called broadcast #2 (f32 x 1, root 0), rank 3 called barrier #2");
    expect(said(0, "all_reduce #9", "bucket 1", ""), said(1, "all_reduce #9", "", ""),
           "ranks disagree: in all_reduce #9, rank 0 passes bucket 1, but rank 1 passes unknown data");
    expect(
        said(0, "barrier #9", "", "all_reduce #8 gave 1"), said(1, "barrier #9", "", "all_reduce #8 gave 2"),
        "ranks have different values after a call (checksums): on rank 0 all_reduce #8 gave 1, on rank 1 "
        "all_reduce #8 gave 2; the program wrote into the buffer during the call, or the memory is faulty");
}

Test(call_record, the_same_is_the_same_whoever_says_it)
{
    struct ddp_err err;
    struct call_record a = said(0, "barrier #2", "x", "y"), b = said(9, "barrier #2", "x", "y");
    cr_expect_eq(collective_check_compare(&a, &b, &err), DDP_OK);
}

/* The communication thread runs jobs in order. comm_thread_drain waits for all jobs. */

enum { JOBS = 1000 };

static size_t jobs_done[JOBS], count;
static struct comm_thread *thread;

static void note(void *user, size_t what)
{
    (void)user;
    if (what % 100 == 0)
        usleep(100); /* let the thread that posts jobs get ahead from time to time */
    jobs_done[count++] = what;
    comm_thread_drain(thread); /* called from a job: must not wait for the job itself */
}

Test(comm_thread, runs_jobs_in_order_and_is_drained, .timeout = 30)
{
    static struct comm_job jobs[JOBS];
    struct ddp_err err;
    cr_assert_eq(comm_thread_open(&thread, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct comm_job){ .run = note, .what = i };
        comm_thread_post(thread, &jobs[i]);
        if (i % 250 == 0)
            comm_thread_drain(thread);
    }
    comm_thread_drain(thread);
    cr_assert_eq(count, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        cr_assert_eq(jobs_done[i], i);
    comm_thread_close(thread);
}

Test(comm_thread, none_at_all_is_drained_and_closed_at_once)
{
    comm_thread_drain(NULL);
    comm_thread_close(NULL);
}
