/* A rank of PyTorch's gives up waiting for the others of a group and ends: when that is told, and with what reason. */
#include "torch_case.h"

TestSuite(torch_left, .init = set_up, .fini = tear_down);

/* As ddprun tells it; the last word of the node brings the verdict. */
static void rank_0_fails(const char *how)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"op\":\"failed\",\"round\":1,\"rank\":0,%s,\"words\":\"exit 1\"}", how);
    say(json);
    sim_say(&sim, NODE, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1}");
}

static void expect_given_up(const char *how, bool is_told)
{
    rank_0_fails(how);
    const char *text = told();
    cr_expect_eq(strstr(text, "SETUP_GIVEN_UP") != NULL, is_told, "%s", text);
    cr_expect(!is_told ||
                  strstr(text,
                         "rank 0 (n0, pid 100) gave up init_process_group after 12.0 s of waiting for rank "
                         "1's Gloo address; rank 1: never connected; its process was started (n0, pid "
                         "101)") != NULL,
              "%s", text);
}

static void rank_0_waits(uint64_t until_ms)
{
    client(RANK0, 0, 100);
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, until_ms);
    (void)told();
}

/* torch 1.13 says nothing: its connection ends. */
Test(torch_left, who_gave_up_is_told_with_whom_it_has_waited_for)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", true);
}

/* torch 2.x takes its wait back, and shows the error first. */
Test(torch_left, who_takes_its_wait_back_and_goes_has_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    sim_at(&sim, 40000);
    expect_given_up("\"exit_code\":1", true);
}

/* The node is faster than the end of the connection. */
Test(torch_left, who_gave_up_may_still_be_connected)
{
    rank_0_waits(12000);
    expect_given_up("\"exit_code\":1", true);
}

static void expect_barrier(const char *words)
{
    sim_at(&sim, 9000);
    (void)told();
    sim_disconnect(&sim, RANK0);
    rank_0_fails("\"exit_code\":1");
    const char *text = told();
    cr_expect(
        strstr(text,
               "gave up init_process_group after 9.0 s of waiting for the other ranks in the barrier of "
               "init_process_group; ") != NULL &&
            strstr(text, words) != NULL,
        "'%s' is not in: %s", words, text);
}

Test(torch_left, the_barrier_of_torch_1_is_given_up_as_well)
{
    client(RANK0, 0, 100);
    add(RANK0, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    expect_barrier("1 of the 2 ranks of this job have come");
}

/* Nobody is missing where two launches have counted. */
Test(torch_left, who_gave_up_a_barrier_of_too_many_is_told_how_many)
{
    four_count();
    expect_barrier("4 have been counted there, and this job has 2 ranks: two launches use this store, or");
}

/* Its end is the verdict. Bytes for a closed connection fail the test, see sim_hub.c. */
Test(torch_left, a_node_that_has_gone_is_told_nothing)
{
    rank_0_waits(12000);
    say("{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"words\":\"exit 1\"}");
    sim_disconnect(&sim, NODE);
    cr_expect_str_eq(told(), "");
    expect_operator("why", "SETUP_GIVEN_UP");
}

Test(torch_left, who_is_killed_has_not_given_up)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"signal\":9", false);
}

Test(torch_left, who_waited_for_a_moment_only_has_not_given_up)
{
    rank_0_waits(900);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* The second try is answered; what it fails of later is something else. */
Test(torch_left, who_waits_again_and_goes_on_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    wait_for(RANK0, ADDRESS "1");
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* As when the program begins init_process_group anew after it has failed: now rank 1 is there. */
static void rank_0_tries_again(conn_id conn)
{
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    set(conn, ADDRESS "0");
    wait_for(conn, ADDRESS "1");
}

Test(torch_left, who_finds_the_others_at_once_when_it_waits_again_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    rank_0_tries_again(RANK0);
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* Whose word about the second connection may come when that has found everything. */
Test(torch_left, who_tries_again_on_another_connection_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_client(&sim, OTHER0);
    rank_0_tries_again(OTHER0);
    say("{\"op\":\"vouch\",\"conn\":22,\"rank\":0,\"pid\":100}");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, OTHER0);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

Test(torch_left, who_tries_again_after_its_connection_has_ended_has_not_given_up)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    sim_at(&sim, 13000);
    client(OTHER0, 0, 100);
    rank_0_tries_again(OTHER0);
    expect_given_up("\"exit_code\":1", false);
}

/* That key is the program's own, and it has come together with the others before. */
Test(torch_left, who_waits_for_a_key_of_its_own_gives_up_no_group)
{
    rank_0_waits(5000);
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    wait_for(RANK0, "/mine");
    sim_at(&sim, 12000);
    sim_feed(&sim, RANK0, "0c");
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

Test(torch_left, who_went_on_for_long_without_the_others_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_at(&sim, 30000);
    (void)told();
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}
