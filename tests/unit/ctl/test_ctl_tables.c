/* Tests of ddpctl's tables for the store's answers, character by character. The answers are texts in the test, so
 * that also answers of other versions can be tested. */
#include "ctl/tables.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void expect_text(bool (*format)(const cJSON *answer, struct buf *out), const char *json,
                        const char *expected)
{
    struct buf out = { 0 };
    cJSON *answer = cJSON_Parse(json);
    cr_assert_not_null(answer, "%s", json);
    cr_assert(format(answer, &out));
    cr_assert(buf_append(&out, "", 1));
    cr_assert_str_eq((const char *)out.data, expected);
    cJSON_Delete(answer);
    buf_free(&out);
}

Test(ctl_format, a_job_shows_what_is_known_of_each_rank)
{
    expect_text(
        ctl_format_status,
        "{\"ok\":true,\"job\":\"demo\",\"attempt\":1,\"world_size\":3,\"keys\":12,\"bytes\":1536,"
        "\"max_bytes\":1073741824,"
        "\"connections\":4,\"waiters\":1,\"barriers\":1,\"counters\":{\"requests\":7,\"closed_by_us\":2,"
        "\"refused_no_fd\":3,\"accept_overflows\":0,\"new_one\":1},\"members\":["
        "{\"rank\":0,\"state\":\"connected\",\"host\":\"n1\",\"pid\":77,\"silent_ms\":1234,\"waits_"
        "for\":\"key '/x'\",\"proc\":\"D\",\"cpu\":0,\"wchan\":\"nfs_wait_bit\"},"
        "{\"rank\":1,\"state\":\"exited\",\"host\":\"node-2\",\"pid\":4242,\"exit_code\":1},"
        "{\"rank\":2,\"state\":\"never_connected\",\"proc\":\"R\",\"cpu\":99,\"step\":7,\"call\":\"all_"
        "reduce "
        "#9\",\"beat_ms\":2000}]}",
        "job       demo, attempt 1, world size 3\n"
        "store     12 keys, 1.5 KiB of 1.0 GiB; 4 connections, 1 waiting; 1 open barrier\n"
        "counters  requests 7, connections closed by the store 2, shortages of file descriptors 3, "
        "new_one 1\n"
        "\n"
        "RANK  STATE          HOST     PID  LAST HEARD  DOES            STEP  MOVED  END     WAITS FOR\n"
        "   0  connected      n1        77       1.2 s  D nfs_wait_bit     -      -  -       key '/x'\n"
        "   1  exited         node-2  4242           -  -                  -      -  exit 1  -\n"
        "   2  not connected  -          -           -  R 99 %             7  2.0 s  -       all_reduce "
        "#9\n");
}

Test(ctl_format, the_nodes_stand_above_the_ranks)
{
    expect_text(
        ctl_format_status,
        "{\"job\":\"j\",\"attempt\":1,\"world_size\":4,\"state\":\"running\",\"round\":2,\"restarts\":1,"
        "\"nodes\":[{\"node_rank\":0,\"host\":\"n0\",\"addr\":\"10.0.0.1\",\"pid\":7,\"nproc\":2,"
        "\"state\":\"running\",\"joined_ms\":60000,\"heard_ms\":300}],\"members\":[]}",
        "job       j, attempt 1, world size 4\n"
        "state     running, 1 restart\n"
        "store     0 keys, 0 bytes; 0 connections, 0 waiting; 0 open barriers\n"
        "\n"
        "NODE  HOST  ADDRESS   PID  WORKERS  STATE    JOINED  LAST BEAT\n"
        "   0  n0    10.0.0.1    7        2  running  60.0 s     300 ms\n");
}

Test(ctl_format, two_cut_lists_have_one_note)
{
    expect_text(ctl_format_status,
                "{\"job\":\"j\",\"attempt\":0,\"world_size\":2,\"nodes\":[{\"node_rank\":0}],"
                "\"members\":[{\"rank\":0}],\"cut\":true}",
                "job       j, attempt 0, world size 2\n"
                "store     0 keys, 0 bytes; 0 connections, 0 waiting; 0 open barriers\n"
                "\n"
                "NODE  HOST  ADDRESS  PID  WORKERS  STATE  JOINED  LAST BEAT\n"
                "   0  -     -          -        -  -           -          -\n"
                "\n"
                "RANK  STATE  HOST  PID  LAST HEARD  DOES  STEP  MOVED  END  WAITS FOR\n"
                "   0  -      -       -           -  -        -      -  -    -\n"
                "... this list is incomplete, because the store has more entries\n");
}

Test(ctl_format, why_is_in_the_store_s_own_words)
{
    expect_text(ctl_format_why, "{\"ok\":true,\"text\":\"job 'j': all is well\",\"findings\":[]}",
                "job 'j': all is well\n");
    expect_text(ctl_format_why, "{\"ok\":true}", "the store reports no reason\n");
}

Test(ctl_format, a_store_without_a_job_says_so)
{
    expect_text(ctl_format_status,
                "{\"ok\":true,\"keys\":0,\"bytes\":0,\"connections\":1,\"waiters\":0,\"barriers\":0}",
                "job       none yet\n"
                "store     0 keys, 0 bytes; 1 connection, 0 waiting; 0 open barriers\n");
}

Test(ctl_format, a_killed_member_shows_the_signal)
{
    expect_text(ctl_format_status,
                "{\"job\":\"j\",\"attempt\":0,\"world_size\":1,\"members\":[{\"rank\":0,\"state\":\"killed\","
                "\"signal\":9}]}",
                "job       j, attempt 0, world size 1\n"
                "store     0 keys, 0 bytes; 0 connections, 0 waiting; 0 open barriers\n"
                "\n"
                "RANK  STATE   HOST  PID  LAST HEARD  DOES  STEP  MOVED  END       WAITS FOR\n"
                "   0  killed  -       -           -  -        -      -  signal 9  -\n");
}

Test(ctl_format, keys_stand_beside_sizes_and_values)
{
    expect_text(ctl_format_keys,
                "{\"keys\":[{\"key\":\"/a\",\"size\":2,\"value\":\"hi\"},{\"key\":\"/"
                "longer\",\"size\":128,\"hex\":\"00ff...\"},"
                "{\"key\":\"/empty\",\"size\":0,\"value\":\"\"}],\"cut\":true}",
                "KEY      SIZE  VALUE\n"
                "/a          2  hi\n"
                "/empty      0  -\n"
                "/longer   128  0x00ff...\n"
                "... this list is incomplete, because the store has more entries\n");
}

Test(ctl_format, waiters_show_who_waits_for_what_since_when)
{
    expect_text(
        ctl_format_waiters,
        "{\"waiters\":[{\"peer\":\"10.0.0.2:41234\",\"rank\":3,\"host\":\"n2\",\"pid\":9,\"op\":\"WAIT\","
        "\"keys\":[\"/a\",\"/b\"],\"since_ms\":61000},"
        "{\"peer\":\"[::1]:7\",\"pid\":5,\"owner\":\"sh (pid 5) on "
        "n1\",\"op\":\"WAIT\",\"keys\":[\"/c\"],\"more\":3,\"since_ms\":12}]}",
        "RANK  HOST  PID  PEER            OP     SINCE  WAITS FOR\n"
        "   3  n2      9  10.0.0.2:41234  WAIT  61.0 s  '/a', '/b'\n"
        "   -  -       5  [::1]:7         WAIT   12 ms  '/c', and 3 more; client: sh (pid 5) on n1\n");
}

Test(ctl_format, stacks_are_folded_and_missing_nodes_named)
{
    expect_text(
        ctl_format_stacks,
        "{\"stacks\":[{\"does\":\"running\",\"threads\":[{\"rank\":1,\"main\":true},{\"rank\":2,\"main\":"
        "true}]}],\"missing\":[{\"node_rank\":1,\"host\":\"n1\"}],\"cut\":true}",
        "ranks 1-2: running\n"
        "... and more; pass --rank=RANKS to print other ranks\n"
        "node 1 (n1) has not answered\n");
    expect_text(ctl_format_stacks, "{\"stacks\":[],\"missing\":[]}", "no worker runs\n");
}

Test(ctl_format, barriers_list_ranks_as_runs)
{
    expect_text(ctl_format_barriers,
                "{\"barriers\":[{\"name\":\"epoch-1\",\"arrived\":[0,1,2,5],\"missing\":[{\"rank\":3},{"
                "\"rank\":4},{\"rank\":7}],"
                "\"age_ms\":1500,\"left_ms\":58500}]}",
                "BARRIER    AGE  TIME LEFT  ARRIVED  MISSING\n"
                "epoch-1  1.5 s     58.5 s  0-2,5    3-4,7\n");
}

/* The store lists rows in any order, but two tables of the same job must look the same. */
Test(ctl_format, rows_are_sorted_by_their_first_column)
{
    expect_text(
        ctl_format_waiters,
        "{\"waiters\":[{\"op\":\"A\"},{\"rank\":10,\"op\":\"B\"},{\"op\":\"C\"},{\"rank\":9,\"op\":\"D\"}]}",
        "RANK  HOST  PID  PEER  OP  SINCE  WAITS FOR\n"
        "   9  -       -  -     D       -  -\n"
        "  10  -       -  -     B       -  -\n"
        "   -  -       -  -     A       -  -\n"
        "   -  -       -  -     C       -  -\n");
}

Test(ctl_format, ranks_that_are_none_do_no_harm)
{
    expect_text(ctl_format_barriers,
                "{\"barriers\":[{\"arrived\":[2147483647,1e99,-5,\"x\"],\"missing\":{}}]}",
                "BARRIER  AGE  TIME LEFT  ARRIVED      MISSING\n"
                "-          -          -  -1,-1,-1,-1  -\n");
}

Test(ctl_format, empty_lists_are_sentences)
{
    expect_text(ctl_format_keys, "{\"keys\":[]}", "no keys\n");
    expect_text(ctl_format_waiters, "{\"waiters\":[]}",
                "no client waits for a key or barrier of the store; 'ddpctl status' shows the ranks\n");
    expect_text(ctl_format_barriers, "{\"barriers\":[]}", "no barrier is open\n");
}

/* The answer may come from another version, or from a server that only resembles a store. */
Test(ctl_format, fields_of_unexpected_types_are_shown_as_nothing)
{
    expect_text(ctl_format_waiters,
                "{\"waiters\":[{\"peer\":7,\"rank\":\"x\",\"keys\":\"k\",\"since_ms\":-1},3]}",
                "RANK  HOST  PID  PEER  OP  SINCE  WAITS FOR\n"
                "   -  -       -  -     -       -  -\n"
                "   -  -       -  -     -       -  -\n");
    expect_text(ctl_format_keys, "{}", "no keys\n");
    expect_text(ctl_format_keys, "[]", "no keys\n");
}

Test(ctl_format, a_long_list_of_ranks_is_cut)
{
    char json[4096] = "{\"barriers\":[{\"name\":\"b\",\"arrived\":[";
    for (int rank = 0; rank < 200; rank += 2)
        snprintf(json + strlen(json), sizeof(json) - strlen(json), "%s%d", rank > 0 ? "," : "", rank);
    strcat(json, "]}]}");
    cJSON *answer = cJSON_Parse(json);
    struct buf out = { 0 };
    cr_assert(ctl_format_barriers(answer, &out) && buf_append(&out, "", 1));
    cr_assert_not_null(strstr((const char *)out.data, ",...  -\n"), "%s", out.data);
    cr_assert_lt(out.len, 200);
    cJSON_Delete(answer);
    buf_free(&out);
}

/* --- ctl jobs ------------------------------------------------------------------------------------------------- */

/* ddpctl without --addr chooses one of the user's jobs. */

static const struct ctl_job jobs[] = { { "alpha", "127.0.0.1:29500", 812, 3723000 },
                                       { "beta", "10.0.0.1:29400", 913, 59999 },
                                       { "alpha", "127.0.0.1:29500", 820, 1000 } };
static struct ddp_err err;
static const struct ctl_job *found;

static ddp_status choose(size_t n, const char *id, struct buf *list)
{
    const ddp_status status = ctl_jobs_choose(jobs, n, id, &found, list, &err);
    cr_assert(buf_append(list, "", 1));
    return status;
}

Test(ctl_jobs, one_job_is_used)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(1, NULL, &list), DDP_OK);
    cr_expect_str_eq(found->store, "127.0.0.1:29500");
    cr_expect_eq(list.len, 1);
    buf_free(&list);
}

Test(ctl_jobs, several_jobs_are_listed)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(3, NULL, &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "choose one with --addr or --job"), "%s", err.msg);
    cr_expect_not_null(strstr((char *)list.data, "127.0.0.1:29500               812    1:02:03  alpha\n"),
                       "%s", (char *)list.data);
    cr_expect_not_null(strstr((char *)list.data, "10.0.0.1:29400                913    0:00:59  beta\n"),
                       "%s", (char *)list.data);
    buf_free(&list);
}

Test(ctl_jobs, an_id_chooses_and_the_nodes_of_a_job_share_a_store)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(3, "beta", &list), DDP_OK);
    cr_expect_eq(found->pid, 913);
    cr_assert_eq(choose(3, "alpha", &list), DDP_OK);
    cr_expect_str_eq(found->store, "127.0.0.1:29500");
    buf_free(&list);
}

Test(ctl_jobs, two_jobs_of_one_store_are_told_apart_by_their_ids)
{
    static const struct ctl_job shared[] = { { "a", "10.0.0.1:29400", 812, 1000 },
                                             { "b", "10.0.0.1:29400", 913, 1000 } };
    struct buf list = { 0 };
    cr_assert_eq(ctl_jobs_choose(shared, 2, NULL, &found, &list, &err), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "choose one with --job"), "%s", err.msg);
    cr_assert(buf_append(&list, "", 1));
    cr_expect_not_null(strstr((char *)list.data, "  a\n"), "%s", (char *)list.data);
    cr_expect_not_null(strstr((char *)list.data, "  b\n"), "%s", (char *)list.data);
    cr_expect_eq(ctl_jobs_choose(shared, 2, "b", &found, &list, &err), DDP_OK);
    cr_expect_eq(found->pid, 913);
    buf_free(&list);
}

Test(ctl_jobs, without_a_job_the_user_reads_what_to_give)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(0, NULL, &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "store: you have no running job on this machine"), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "set --addr HOST:PORT (ddprun's default port is 29500"), "%s",
                       err.msg);
    cr_assert_eq(choose(3, "gamma", &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "--job=gamma: you have no such running job"), "%s", err.msg);
    buf_free(&list);
}
