/* Named barriers and CONTROL through the client, against ddprun's own store in this process. */
#include "ddp/store.h"

#include "store_peers.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct ddp_err err;

TestSuite(store_barrier, .init = serve, .fini = serve_end, .timeout = 120);

static ddp_status connect_rank(int rank, int world_size, ddp_store **store)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = rank >= 0 ? "worker" : "ctl";
    options.job = "demo";
    options.rank = rank;
    options.world_size = world_size;
    return ddp_store_connect("127.0.0.1", served_port(), &options, store, &err);
}

static ddp_store *rank_of_2(int rank)
{
    ddp_store *store;
    cr_assert_eq(connect_rank(rank, 2, &store), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_dialect(store), 'D');
    return store;
}

/* One call on a thread of its own, with its outcome. */
struct caller {
    pthread_t thread;
    ddp_store *store;
    const char *name;
    uint32_t timeout_ms;
    ddp_status status;
    struct ddp_err err;
};

static void *join_main(void *arg)
{
    struct caller *c = arg;
    c->status = ddp_store_barrier(c->store, c->name, NULL, 0, c->timeout_ms, &c->err);
    return NULL;
}

static void *wait_main(void *arg)
{
    struct caller *c = arg;
    c->status = ddp_store_wait(c->store, &c->name, 1, c->timeout_ms, &c->err);
    return NULL;
}

static void call(struct caller *c, void *(*main)(void *))
{
    pthread_create(&c->thread, NULL, main, c);
}

static void ended(struct caller *c, ddp_status expected)
{
    pthread_join(c->thread, NULL);
    cr_assert_eq(c->status, expected, "%s: %s", c->name, c->err.msg);
}

static void expect_words(const struct ddp_err *e, const char *words)
{
    cr_assert_not_null(strstr(e->msg, words), "expected \"%s\" in \"%s\"", words, e->msg);
}

static char *control(ddp_store *store, const char *request)
{
    char *reply;
    cr_assert_eq(ddp_store_control(store, request, 0, &reply, &err), DDP_OK, "%s", err.msg);
    return reply;
}

/* Until the store knows what another thread asked of it: ask until `words` stand in the answer. */
static void until_answer(ddp_store *ctl, const char *request, const char *words)
{
    bool there = false;
    while (!there) {
        char *reply = control(ctl, request);
        there = strstr(reply, words) != NULL;
        free(reply);
    }
}

Test(store_barrier, opens_when_all_ranks_have_come)
{
    struct caller one = { .store = rank_of_2(1), .name = "start", .timeout_ms = 10000 };
    ddp_store *zero = rank_of_2(0);
    call(&one, join_main);
    cr_assert_eq(ddp_store_barrier(zero, "start", NULL, 0, 10000, &err), DDP_OK, "%s", err.msg);
    ended(&one, DDP_OK);
    ddp_store_close(zero);
    ddp_store_close(one.store);
}

Test(store_barrier, may_have_few_members)
{
    ddp_store *one = rank_of_2(1);
    const uint32_t alone[] = { 1 };
    cr_assert_eq(ddp_store_barrier(one, "alone", alone, 1, 10000, &err), DDP_OK, "%s", err.msg);
    ddp_store_close(one);
}

Test(store_barrier, names_who_never_came)
{
    ddp_store *zero = rank_of_2(0);
    cr_assert_eq(ddp_store_barrier(zero, "lonely", NULL, 0, 50, &err), DDP_ERR_TIMEOUT);
    cr_assert_eq(strncmp(err.msg, "barrier 'lonely' ", 17), 0, "%s", err.msg);
    expect_words(&err, "rank 1");
    expect_words(&err, "never connected");
    ddp_store_close(zero);
}

Test(store_barrier, names_what_the_missing_rank_waits_for_instead)
{
    ddp_store *zero = rank_of_2(0), *ctl;
    struct caller one = { .store = rank_of_2(1), .name = "batch", .timeout_ms = 10000 };
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    call(&one, wait_main);
    until_answer(ctl, "{\"op\":\"waiters\"}", "/batch");
    cr_assert_eq(ddp_store_barrier(zero, "end", NULL, 0, 50, &err), DDP_ERR_TIMEOUT);
    expect_words(&err, "rank 1");
    expect_words(&err, "key '/batch'");
    ddp_store_set(zero, "batch", "", 0, NULL);
    ended(&one, DDP_OK);
    ddp_store_close(zero);
    ddp_store_close(one.store);
    ddp_store_close(ctl);
}

Test(store_barrier, can_be_cancelled_from_outside)
{
    ddp_store *ctl;
    struct caller zero = { .store = rank_of_2(0), .name = "stuck", .timeout_ms = 10000 };
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    call(&zero, join_main);
    until_answer(ctl, "{\"op\":\"barriers\"}", "stuck");
    free(control(ctl, "{\"op\":\"barrier_cancel\",\"name\":\"stuck\"}"));
    ended(&zero, DDP_ERR_ABORTED);
    expect_words(&zero.err, "barrier 'stuck' ");
    ddp_store_close(zero.store);
    ddp_store_close(ctl);
}

Test(store_barrier, is_good_for_one_use)
{
    ddp_store *one = rank_of_2(1);
    const uint32_t alone[] = { 1 };
    cr_assert_eq(ddp_store_barrier(one, "once", alone, 1, 1000, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_barrier(one, "once", alone, 1, 1000, &err), DDP_ERR_MISMATCH);
    cr_assert_eq(ddp_store_add(one, "n", 1, NULL, &err), DDP_OK, "the connection is still good: %s", err.msg);
    ddp_store_close(one);
}

/* Who came first set the deadline; who wants to wait less leaves alone, and is still understood
 * afterwards. */
Test(store_barrier, can_be_left_early)
{
    ddp_store *ctl;
    struct caller zero = { .name = "slow", .timeout_ms = 8000 };
    ddp_store *one;
    cr_assert_eq(connect_rank(0, 3, &zero.store), DDP_OK, "%s", err.msg);
    cr_assert_eq(connect_rank(1, 3, &one), DDP_OK, "%s", err.msg);
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    call(&zero, join_main);
    until_answer(ctl, "{\"op\":\"barriers\"}", "slow");
    cr_assert_eq(ddp_store_barrier(one, "slow", NULL, 0, 20, &err), DDP_ERR_TIMEOUT, "%s", err.msg);
    cr_assert_eq(ddp_store_add(one, "n", 1, NULL, &err), DDP_OK, "%s", err.msg);
    free(control(ctl, "{\"op\":\"barrier_cancel\",\"name\":\"slow\"}"));
    ended(&zero, DDP_ERR_ABORTED);
    ddp_store_close(zero.store);
    ddp_store_close(one);
    ddp_store_close(ctl);
}

Test(store_barrier, needs_a_rank)
{
    ddp_store *ctl;
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_barrier(ctl, "b", NULL, 0, 50, &err), DDP_ERR_ARG);
    ddp_store_close(ctl);
}

Test(store_barrier, a_rank_outside_the_world_is_refused)
{
    ddp_store *zero = rank_of_2(0), *seven;
    cr_assert_eq(connect_rank(7, 2, &seven), DDP_ERR_MISMATCH, "%s", err.msg);
    cr_assert_null(seven);
    expect_words(&err, "refuses this worker");
    ddp_store_close(zero);
}

Test(store_barrier, control_says_no_in_words)
{
    ddp_store *ctl;
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    char *reply = control(ctl, "{\"op\":\"dance\"}");
    cr_assert_not_null(strstr(reply, "\"ok\":false"), "%s", reply);
    free(reply);
    ddp_store_close(ctl);
}
