/* test_store_link.c -- the agent's connection, against a real store on a free port. */
#include "ddp/store.h"
#include "link_case.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

TestSuite(store_link, .timeout = 120);

/* What the store says of a rank to an operator: its "state". */
static bool state_is(int rank, const char *state)
{
    struct ddp_err err;
    struct ddp_store *store;
    char *text = NULL;
    const ddp_store_options options = { .size = sizeof(options), .role = "ctl", .rank = -1 };
    cr_assert_eq(ddp_store_connect("127.0.0.1", store_server_port(server), &options, &store, &err), DDP_OK,
                 "%s", err.msg);
    cr_assert_eq(ddp_store_control(store, "{\"op\":\"status\"}", 5000, &text, &err), DDP_OK, "%s", err.msg);
    cJSON *json = cJSON_Parse(text);
    const cJSON *member = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "members"), rank);
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(member, "state");
    const bool is = cJSON_IsString(found) && strcmp(found->valuestring, state) == 0;
    cJSON_Delete(json);
    free(text);
    ddp_store_close(store);
    return is;
}

static void until_state(int rank, const char *state)
{
    for (struct patience p = { 0 }; !state_is(rank, state); work_ms(5))
        cr_assert(patience_left(&p), "rank %d does not become %s", rank, state);
}

Test(store_link, the_job_is_told_and_then_its_workers, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_mention(link_, encode_started(1, 1, 4711, "n1"));
    until_state(1, "never_connected");
    store_link_tell(link_, encode_exited(1, 4711, 0, 9, false));
    until_state(1, "exited");
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect_eq(ready, 1);
}

/* What is asked for before the connection stands is not forgotten. */
Test(store_link, early_words_go_out_later, .init = start_server, .fini = close_all)
{
    plan.meeting.nnodes_min = plan.meeting.nnodes_max = 2;
    plan.meeting.node_rank = 1;
    open_link(store_server_port(server));
    store_link_tell(link_, encode_leave(15, "the user"));
    until(&judged);
    cr_expect_eq(ready, 0);
    cr_expect_not(verdict.what.restart);
    cr_expect_eq(verdict.what.exit_first, 128 + 15);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, heartbeats_go_on, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    work_ms(2300);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, a_port_where_nobody_listens_is_lost, .init = start_server, .fini = close_all)
{
    open_link(1);
    until(&lost);
    cr_expect_eq(ready, 0);
    cr_expect_not_null(strstr(why_lost, "refused"), "%s", why_lost);
}

Test(store_link, a_store_that_goes_away_is_lost_once, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_server_stop(server);
    server = NULL;
    until(&lost);
    work_ms(50);
    cr_expect_eq(lost, 1);
}

Test(store_link, closing_before_the_connection_stands_is_fine, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    cr_expect_eq(ready + lost, 0);
}

/* --- attempts ------------------------------------------------------------------------------------------- */

static struct ddp_store *connect_as(const char *role, int rank, int attempt)
{
    struct ddp_err err;
    struct ddp_store *store;
    const ddp_store_options options = { .size = sizeof(options),
                                        .role = role,
                                        .job = "myjob",
                                        .rank = rank,
                                        .world_size = 2,
                                        .attempt = attempt };
    cr_assert_eq(ddp_store_connect("127.0.0.1", store_server_port(server), &options, &store, &err), DDP_OK,
                 "%s", err.msg);
    return store;
}

static void set(struct ddp_store *store, const char *key, const char *value)
{
    struct ddp_err err;
    cr_assert_eq(ddp_store_set(store, key, value, strlen(value), &err), DDP_OK, "%s", err.msg);
}

static bool has(struct ddp_store *store, const char *key)
{
    struct ddp_err err;
    int all = 0;
    cr_assert_eq(ddp_store_check(store, &key, 1, &all, &err), DDP_OK, "%s", err.msg);
    return all;
}

static const struct failure failure = { .rank = 1,
                                        .local_rank = 1,
                                        .pid = 4711,
                                        .exit_code = 7,
                                        .words = "exit 7",
                                        .n_lines = 1,
                                        .lines = { "last words" } };

Test(store_link, the_round_is_told_with_the_join, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    cr_expect_eq(joined, 1);
    cr_expect_eq(heard.round, 1);
    cr_expect_eq(heard.attempt, 0);
    cr_expect_eq(heard.nnodes, 1);
    cr_expect_eq(heard.world_size, 2);
    cr_expect_eq(heard.n_nodes, 1);
    cr_expect_str_eq(heard.nodes[0].host, "n1");
}

Test(store_link, a_failure_is_judged_and_the_next_round_has_no_old_keys, .init = start_server,
     .fini = close_all)
{
    cli.max_restarts = 1;
    open_link(store_server_port(server));
    until(&ready);
    struct ddp_store *worker = connect_as(NULL, -1, 0);
    set(worker, "old", "x");
    set(worker, "ddprun/progress/0", "99");
    set(worker, "ddprun/progress/1", "100");
    set(worker, "ddprun/progress/7", "many");
    cr_assert(has(worker, "ddprun/progress/7")); /* SET has no answer, this one comes after all of them */
    ddp_store_close(worker);
    store_link_tell(link_, encode_failure(MESSAGE_FAILED, &failure));
    store_link_tell(link_, encode_failure(MESSAGE_EXPLAIN, &failure));
    store_link_tell(link_, encode_stopped(false, 7, -1));
    until(&judged);
    cr_expect(verdict.what.restart);
    cr_expect_eq(verdict.step, 100, "the rank that came furthest counts");
    cr_expect_eq(verdict.cause.rank, 1);
    cr_expect_str_eq(verdict.cause.words, "exit 7");
    cr_expect_str_eq(verdict.cause.lines[0], "last words");
    ready = 0;
    store_link_join(link_);
    until(&ready);
    cr_expect_eq(heard.attempt, 1);
    worker = connect_as("worker", 1, 1);
    cr_expect_not(has(worker, "old"));
    ddp_store_close(worker);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

/* It crossed the store's own word about the end of the round. */
Test(store_link, a_message_about_an_old_round_changes_nothing, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_tell(link_, encode_done());
    until(&judged);
    store_link_tell(link_, encode_stopped(false, 0, -1));
    work_ms(100);
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect_eq(verdict.what.exit_first, 0);
}

Test(store_link, a_node_that_does_not_fit_is_refused_with_the_reason, .init = start_server, .fini = close_all)
{
    plan.meeting.node_rank = 3;
    open_link(store_server_port(server));
    until(&refused);
    cr_expect_not_null(strstr(why_refused, "NODE_RANK_TOO_HIGH: "), "%s", why_refused);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, who_ends_with_0_while_another_waits_is_told, .init = start_server, .fini = close_all)
{
    struct ddp_err err;
    open_link(store_server_port(server));
    until(&ready);
    store_link_mention(link_, encode_started(0, 0, 4711, "n1"));
    store_link_tell(link_, encode_exited(0, 4711, 0, 0, false));
    work_ms(100);
    cr_expect_eq(left, 0, "nobody waits for it");
    struct ddp_store *worker = connect_as("worker", 1, 0);
    cr_expect_eq(ddp_store_barrier(worker, "b", NULL, 0, 5000, &err), DDP_ERR_PEER_LOST, "%s", err.msg);
    until(&left);
    cr_expect_not_null(strstr(left_words,
                              "rank 0 (n1, pid 4711) ended with 0 while rank 1 waited for it at barrier "
                              "'b'  [RANK_LEFT_EARLY]\n  try    "),
                       "%s", left_words);
    ddp_store_close(worker);
}
