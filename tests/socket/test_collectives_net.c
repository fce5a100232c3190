/* Collectives between hosts. This machine plays several hosts (DDP_TEST_HOST), which are connected over loopback. The
 * values must be exact, with the same bits as on one host. Ranks must report an error when a rank of another host dies,
 * hangs or makes a different call. */
#include "core/half.h"
#include "job.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Return the hosts of the ranks. Each letter is the name of one rank's host. In "aab", ranks 0 and 1 are on host a, and
 * rank 2 is on host b. */
static const char *hosts_of(const struct rank *me)
{
    return me->user;
}

static void go_to_host(const struct rank *me)
{
    const char name[] = { hosts_of(me)[me->rank], '\0' };
    setenv("DDP_TEST_HOST", name, 1);
}

static struct ranks run_on(const char *hosts, rank_main main)
{
    return ranks_run((int)strlen(hosts), main, RANKS_PLAIN_STORE, hosts);
}

static void expect_all_well(const char *hosts, rank_main main)
{
    struct ranks ranks = run_on(hosts, main);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

/* --- values --------------------------------------------------------------------------------------------- */

static void all_types(struct rank *me)
{
    go_to_host(me);
    /* With more than two ranks, run every third trial. The numbers of sizes and of kinds of memory are not multiples of
     * 3, so each size occurs with each kind of memory. */
    trials_of_all_types(me, me->world > 2 ? 3 : 1);
}

static void large_counts(struct rank *me)
{
    go_to_host(me);
    trials_of_large_counts(me);
}

Test(collectives_net, two_hosts_with_one_rank_each, .timeout = 120)
{
    expect_all_well("ab", all_types);
    expect_all_well("ab", large_counts);
}

Test(collectives_net, two_hosts_with_two_ranks_each, .timeout = 120)
{
    expect_all_well("aabb", all_types);
}

Test(collectives_net, two_hosts_with_two_ranks_each_move_large_counts, .timeout = 120)
{
    expect_all_well("aabb", large_counts);
}

/* Only a limited number of ranks of each host have connections to other hosts: one rank for each lane (cpu/net_plan.h).
 * Here one host has more ranks than lanes, so its last ranks have no such connection. */
Test(collectives_net, six_ranks_and_one, .timeout = 120)
{
    expect_all_well("abbbbbb", all_types);
}

Test(collectives_net, two_uneven_hosts, .timeout = 120)
{
    expect_all_well("aaab", all_types);
    expect_all_well("abbbb", large_counts);
}

Test(collectives_net, three_uneven_hosts, .timeout = 120)
{
    expect_all_well("aabccc", all_types);
}

Test(collectives_net, three_uneven_hosts_move_large_counts, .timeout = 120)
{
    expect_all_well("aabcc", large_counts);
}

Test(collectives_net, four_hosts, .timeout = 120)
{
    expect_all_well("aabbccd", all_types);
}

Test(collectives_net, four_hosts_move_large_counts, .timeout = 120)
{
    expect_all_well("abcd", large_counts);
}

Test(collectives_net, ranks_of_a_host_need_not_be_neighbours, .timeout = 120)
{
    expect_all_well("abab", all_types);
}

Test(collectives_net, ranks_of_a_host_that_are_no_neighbours_move_large_counts, .timeout = 120)
{
    expect_all_well("abcab", large_counts);
}

/* --- the same bits -------------------------------------------------------------------------------------- */

/* Return a hash of the results of an all-reduce and a reduce-scatter. The bits of these results depend on the order in
 * which the values are combined. */
static uint64_t hash_of(const struct trial_room *room, ddp_dtype dtype, ddp_op op, size_t n)
{
    struct rank *me = room->me;
    uint64_t hash = 0xcbf29ce484222325u;

    srand((unsigned)me->rank + 1);
    for (size_t i = 0; i < n; i++)
        one_value_store(room->private_in, i, dtype,
                        dtype == DDP_F32 || dtype == DDP_F64 ? 0.5 + (double)rand() / RAND_MAX
                                                             : 0.5 + rand() % 0x400 * 0x1p-11);
    rank_expect_ok(me, ddp_all_reduce(ddp_world(room->ctx), room->private_in, room->private_out, n, dtype, op,
                                      NULL, NULL));
    hash = trial_hash(hash, room->private_out, n * ddp_dtype_size(dtype));
    rank_expect_ok(me, ddp_reduce_scatter(ddp_world(room->ctx), room->private_in, room->private_out,
                                          n / (size_t)me->world, dtype, op, NULL, NULL));
    rank_expect_ok(me, ddp_all_gather(ddp_world(room->ctx), room->private_out, room->shared_out,
                                      n / (size_t)me->world, dtype, NULL, NULL));
    return trial_hash(hash, room->shared_out,
                      n / (size_t)me->world * (size_t)me->world * ddp_dtype_size(dtype));
}

static void hash_everything(struct rank *me)
{
    static const size_t sizes[] = { 63, 70001 };
    static const ddp_dtype rounded[] = { DDP_F32, DDP_F64, DDP_F16, DDP_BF16 };
    static const ddp_op rounding[] = { DDP_SUM, DDP_AVG, DDP_PROD };
    if (me->user != NULL)
        go_to_host(me);
    struct trial_room room = room_open(me, 70001 * 8);
    for (int dtype = 0; dtype < 4; dtype++)
        for (int op = 0; op < 3; op++)
            for (int s = 0; s < 2; s++)
                me->value = me->value * 31 + hash_of(&room, rounded[dtype], rounding[op], sizes[s]);
    room_close(&room);
}

static uint64_t hash_on(const char *hosts, int world)
{
    struct ranks ranks = ranks_run(world, hash_everything, RANKS_PLAIN_STORE, hosts);
    uint64_t hash = ranks.rank[0].value;
    ranks_expect_ok(&ranks);
    for (int r = 1; r < world; r++)
        cr_assert_eq(ranks.rank[r].value, hash, "rank %d on %s", r, hosts != NULL ? hosts : "one host");
    ranks_free(&ranks);
    return hash;
}

static void expect_bits_of_one_host(const char *const *list)
{
    int world = (int)strlen(list[0]);
    uint64_t one = hash_on(NULL, world);
    for (; *list != NULL; list++)
        cr_assert_eq(hash_on(*list, world), one, "%s", *list);
}

Test(collectives_net, three_and_four_ranks_have_the_bits_of_one_host, .timeout = 120)
{
    expect_bits_of_one_host((const char *const[]){ "aab", "abc", NULL });
    expect_bits_of_one_host((const char *const[]){ "aabb", "abbb", "abba", NULL });
}

Test(collectives_net, five_and_six_ranks_have_the_bits_of_one_host, .timeout = 120)
{
    expect_bits_of_one_host((const char *const[]){ "aabbb", "abacd", NULL });
    expect_bits_of_one_host((const char *const[]){ "aaabbb", "aabbcc", NULL });
}

/* --- problems ------------------------------------------------------------------------------------------- */

enum { N = 100000 };

static float buffer[N];

static ddp_status all_reduce(ddp_ctx *ctx, size_t n)
{
    return ddp_all_reduce(ddp_world(ctx), buffer, buffer, n, DDP_F32, DDP_SUM, NULL, NULL);
}

static ddp_ctx *init_and_warm_up(struct rank *me, const ddp_options *options)
{
    go_to_host(me);
    ddp_ctx *ctx = rank_init(me, options);
    rank_expect_ok(me, all_reduce(ctx, N));
    return ctx;
}

/* Keep the error of the call; a second call must return the same error, and finalize must not wait. */
static void keep_and_ask_again(struct rank *me, ddp_ctx *ctx, ddp_status status)
{
    rank_keep(me, status);
    if (status == DDP_OK)
        return;
    ddp_status again = all_reduce(ctx, 1);
    rank_expect(me, again == status && strcmp(ddp_last_error(), me->words) == 0, "then: %s; now: %s",
                me->words, ddp_last_error());
    again = ddp_finalize(ctx);
    rank_expect(me, again == status, "finalize: %s", ddp_status_name(again));
}

static void expect_told(const struct ranks *run, int but, ddp_status status, const char *const parts[])
{
    for (int r = 0; r < run->n; r++)
        if (r != but)
            ranks_expect_error(run, r, status, parts);
}

/* Expect the same text on all ranks except rank `but`. The first words of each text name the rank that reports, and
 * are not compared. */
static void expect_same_words(const struct ranks *run, int but)
{
    const char *first = NULL;
    for (int r = 0; r < run->n; r++) {
        const char *words = strstr(run->rank[r].words, ": ");
        if (r == but)
            continue;
        if (first == NULL)
            first = words;
        cr_assert_str_eq(words, first);
    }
}

static void die(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    if (me->rank == 2)
        raise(SIGKILL);
    keep_and_ask_again(me, ctx, all_reduce(ctx, N));
}

Test(collectives_net, a_death_on_another_host_is_told_to_all, .timeout = 120)
{
    char who[64];
    struct ranks run = run_on("aabb", die);
    snprintf(who, sizeof(who), "(pid %d on b", run.rank[2].pid);
    expect_told(&run, 2, DDP_ERR_PEER_LOST, (const char *const[]){ who, "has ended", NULL });
    expect_same_words(&run, 2);
    ranks_free(&run);
}

Test(collectives_net, a_death_is_told_to_ranks_alone_on_their_hosts, .timeout = 120)
{
    struct ranks run = run_on("abcd", die);
    expect_told(
        &run, 2, DDP_ERR_PEER_LOST,
        (const char *const[]){ "rank 2 (pid ", "has ended", "in all_reduce #3 (f32 x 100000, sum)", NULL });
    ranks_free(&run);
}

/* Kill rank 0 while the other ranks wait in a barrier. In a barrier, only the first rank of each host exchanges data
 * with other hosts. */
static void die_in_a_barrier(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    if (me->rank == 0)
        raise(SIGKILL);
    keep_and_ask_again(me, ctx, ddp_barrier(ddp_world(ctx), 0));
}

Test(collectives_net, a_death_ends_a_barrier, .timeout = 120)
{
    struct ranks run = run_on("abbb", die_in_a_barrier);
    expect_told(&run, 0, DDP_ERR_PEER_LOST, (const char *const[]){ "rank 0 (pid ", NULL });
    ranks_free(&run);
}

static void stop_for_a_while(struct rank *me)
{
    ddp_options options = DDP_OPTIONS_INIT;
    options.step_timeout_ms = 2000;
    ddp_ctx *ctx = init_and_warm_up(me, &options);
    if (me->rank == 2)
        raise(SIGSTOP);
    else
        job_until_state((me - me->rank + 2)->pid, 'T');
    ddp_status status = all_reduce(ctx, N);
    if (me->rank == 0)
        kill((me + 2)->pid, SIGCONT);
    keep_and_ask_again(me, ctx, status);
}

Test(collectives_net, a_stopped_rank_is_named_by_its_own_host_to_all, .timeout = 120)
{
    struct ranks run = run_on("aabb", stop_for_a_while);
    expect_told(&run, -1, DDP_ERR_TIMEOUT, (const char *const[]){ "rank 2 (pid ", "is stopped", NULL });
    ranks_free(&run);
}

Test(collectives_net, a_stopped_rank_alone_on_its_host_is_named, .timeout = 120)
{
    struct ranks run = run_on("aab", stop_for_a_while);
    expect_told(&run, -1, DDP_ERR_TIMEOUT,
                (const char *const[]){ "waited 2 s", "all_reduce #3 (f32 x 100000, sum)", "rank 2 (pid ",
                                       "this call", NULL });
    ranks_free(&run);
}

static void call_something_else(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    if (me->rank >= 2)
        rank_keep(me, ddp_broadcast(ddp_world(ctx), buffer, 10, DDP_F32, 1, NULL, NULL));
    else
        keep_and_ask_again(me, ctx, all_reduce(ctx, 5));
}

Test(collectives_net, different_calls_on_two_hosts_are_both_named_on_every_rank, .timeout = 120)
{
    struct ranks run = run_on("aabb", call_something_else);
    expect_told(&run, -1, DDP_ERR_MISMATCH,
                (const char *const[]){ "rank 0 called all_reduce #3 (f32 x 5, sum)",
                                       "rank 2 called broadcast #3 (f32 x 10, root 1)", NULL });
    ranks_free(&run);
}

static void different_sizes(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    rank_keep(me, all_reduce(ctx, me->rank >= 2 ? 70000 : 70001));
}

Test(collectives_net, different_sizes_on_two_hosts_are_both_named, .timeout = 120)
{
    struct ranks run = run_on("aabb", different_sizes);
    expect_told(&run, -1, DDP_ERR_MISMATCH,
                (const char *const[]){ "(f32 x 70001, sum)", "(f32 x 70000, sum)", NULL });
    ranks_free(&run);
}

static void different_blocks(struct rank *me)
{
    void *block;
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    rank_keep(me, ddp_shared_alloc(ddp_world(ctx), me->rank >= 2 ? 4096 : 8192, &block));
}

Test(collectives_net, different_shared_blocks_on_two_hosts_are_both_named, .timeout = 120)
{
    struct ranks run = run_on("aabb", different_blocks);
    expect_told(
        &run, -1, DDP_ERR_MISMATCH,
        (const char *const[]){ "shared_alloc #3 (8192 bytes)", "shared_alloc #3 (4096 bytes)", NULL });
    ranks_free(&run);
}

static void abort_the_job(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    if (me->rank == 1)
        ddp_abort(ctx, 7, "loss is \"nan\"");
    rank_keep(me, all_reduce(ctx, N));
    ddp_finalize(ctx);
}

Test(collectives_net, abort_frees_all_hosts_with_the_reason, .timeout = 120)
{
    struct ranks run = run_on("aabb", abort_the_job);
    expect_told(&run, -1, DDP_ERR_ABORTED, (const char *const[]){ "rank 1 gave", "loss is \"nan\"", NULL });
    ranks_free(&run);
}

/* Join and leave many times. A host that has left after finalize must never look like a dead host, and must not leave
 * a descriptor open. */
static void finalize_at_once(struct rank *me)
{
    int before = rank_open_files();
    for (int i = 0; i < 10; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        setenv("TORCHELASTIC_RUN_ID", id, 1);
        rank_expect_ok(me, ddp_finalize(init_and_warm_up(me, NULL)));
    }
    rank_expect(me, rank_open_files() == before, "%d descriptors are left open", rank_open_files() - before);
}

Test(collectives_net, leaving_after_finalize_is_not_dying, .timeout = 120)
{
    struct ranks run = run_on("aabcc", finalize_at_once);
    ranks_expect_ok(&run);
    ranks_free(&run);
}

/* Count the keys that remain in the store after the start. Several hosts must leave as many keys as one host. */
static void count_keys(struct rank *me)
{
    int64_t keys = 0;
    ddp_ctx *ctx = init_and_warm_up(me, NULL);
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), 0));
    rank_expect_ok(me, ddp_store_num_keys(ddp_context_store(ctx), &keys, NULL));
    me->value = (uint64_t)keys;
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives_net, nothing_of_the_start_stays_in_the_store, .timeout = 120)
{
    struct ranks one = run_on("aaaa", count_keys), many = run_on("aabc", count_keys);
    ranks_expect_ok(&one);
    ranks_expect_ok(&many);
    cr_assert_eq(one.rank[0].value, many.rank[0].value);
    ranks_free(&one);
    ranks_free(&many);
}

/* --- the start ------------------------------------------------------------------------------------------ */

static void init_with_short_time(struct rank *me, uint32_t ms)
{
    ddp_ctx *ctx = NULL;
    ddp_options options = DDP_OPTIONS_INIT;
    options.init_timeout_ms = ms;
    rank_keep(me, ddp_init_from_env(&options, &ctx));
    ddp_finalize(ctx);
}

static void choose_a_wrong_interface(struct rank *me)
{
    go_to_host(me);
    setenv("DDP_IFACE", me->rank == 1 ? "nosuch0" : "", 1);
    init_with_short_time(me, 5000);
}

Test(collectives_net, an_interface_that_is_not_there_is_an_error_on_all_hosts_that_lists_what_is,
     .timeout = 120)
{
    struct ranks run = run_on("ab", choose_a_wrong_interface);
    expect_told(&run, -1, DDP_ERR_ENV,
                (const char *const[]){ "DDP_IFACE=nosuch0", "one of", "lo (127.0.0.1)", NULL });
    ranks_free(&run);
}

static void choose_an_interface(struct rank *me)
{
    go_to_host(me);
    setenv("DDP_IFACE", me->rank == 1 ? "lo" : "127.0.0.1", 1);
    setenv("DDP_PORT_RANGE", "21100-21163", 1);
    init_with_short_time(me, 5000);
}

Test(collectives_net, an_interface_and_a_range_of_ports_are_used, .timeout = 120)
{
    struct ranks run = run_on("aab", choose_an_interface);
    expect_told(&run, -1, DDP_OK, (const char *const[]){ NULL });
    ranks_free(&run);
}

static void choose_no_port(struct rank *me)
{
    go_to_host(me);
    setenv("DDP_PORT_RANGE", "21100-", 1);
    init_with_short_time(me, 5000);
}

Test(collectives_net, a_range_of_ports_that_is_none_is_refused, .timeout = 120)
{
    struct ranks run = run_on("ab", choose_no_port);
    expect_told(&run, -1, DDP_ERR_ENV, (const char *const[]){ "DDP_PORT_RANGE=21100-", "LOW-HIGH", NULL });
    ranks_free(&run);
}

/* Start this rank with a short time limit. The last rank is missing, and the others detect this before any rank
 * connects. */
static void come_or_not(struct rank *me)
{
    go_to_host(me);
    init_with_short_time(me, 2000);
}

Test(collectives_net, a_rank_that_never_comes_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(3, come_or_not, RANKS_PLAIN_STORE | RANKS_SKIP_LAST, "abc");
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&run, r, DDP_ERR_TIMEOUT, (const char *const[]){ "rank 2", NULL });
    ranks_free(&run);
}
