/* Test how messages of the store are decoded into structs, also if members are missing or have the wrong type. The
 * store may have another version, so no message may stop an agent. */
#include "net/messages.c"
#include "net/store_link.c"

#include "report/exit_text.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct heard_round round_;
static struct heard_verdict verdict;
static struct heard_waiting waiting;
static struct failure cause;

static bool round_of(const char *text)
{
    cJSON *json = cJSON_Parse(text);
    const bool ok = decode_round(json, 2, &round_);
    cJSON_Delete(json);
    return ok;
}

static bool verdict_of(const char *text)
{
    cJSON *json = cJSON_Parse(text);
    struct message_verdict m;
    message_read_verdict(json, &m);
    const bool ok = decode_verdict(&m, &verdict);
    cJSON_Delete(json);
    return ok;
}

static void on_stop(void *user, const struct failure *why)
{
    (void)user;
    cause = *why;
}

static void stop_of(const char *text)
{
    cJSON *json = cJSON_Parse(text);
    struct message_stop m;
    message_read_stop(json, &m);
    struct store_link link = { .options.calls.stop = on_stop };
    link.round = (int)m.round;
    push_stop(&link, json);
    cJSON_Delete(json);
}

static void waiting_of(const char *text)
{
    cJSON *json = cJSON_Parse(text);
    decode_waiting(json, &waiting);
    cJSON_Delete(json);
}

Test(net_messages, stacks_in_a_verdict_are_a_list)
{
    cr_assert(verdict_of("{\"next\":\"finish\",\"stacks\":{\"does\":\"running\"}}"));
    cr_expect_null(verdict.stacks);
    cr_assert(verdict_of("{\"next\":\"finish\",\"stacks\":[]}"));
    cr_expect_not_null(verdict.stacks);
}

#define ROUND                                                                                                \
    "\"round\":3,\"attempt\":2,\"restarts\":1,\"node_rank\":1,\"nnodes\":2,\"first_rank\":4,\"world_size\":" \
    "12"

Test(net_messages, a_store_of_rank_0)
{
    cr_assert(round_of(
        "{" ROUND
        ",\"nodes\":[{\"node_rank\":0,\"addr\":\"10.0.0.2\",\"own\":\"10.1.0.2\",\"store_port\":4711},"
        "{\"node_rank\":1,\"store_port\":65536},{\"node_rank\":2,\"store_port\":-1}]}"));
    cr_expect_eq(round_.nodes[0].store_port, 4711);
    cr_expect_str_eq(round_.nodes[0].own, "10.1.0.2");
    cr_expect_str_eq(round_.nodes[1].own, "");
    cr_expect_eq(round_.nodes[1].store_port, 0, "no port has that number");
    cr_expect_eq(round_.nodes[2].store_port, 0);
}

Test(net_messages, a_round)
{
    cr_assert(round_of("{" ROUND ",\"nodes\":[{\"node_rank\":0,\"host\":\"n0\",\"nproc\":4},"
                       "{\"node_rank\":1,\"host\":\"n1\",\"nproc\":8}]}"));
    cr_expect_eq(round_.round, 3);
    cr_expect_eq(round_.attempt, 2);
    cr_expect_eq(round_.restarts, 1);
    cr_expect_eq(round_.first_rank, 4);
    cr_expect_eq(round_.n_nodes, 2);
    cr_expect_str_eq(round_.nodes[1].host, "n1");
    cr_expect_eq(round_.nodes[1].nproc, 8);
    cr_expect(round_.role_rank == 4 && round_.role_size == 12, "one role is all");
    cr_assert(round_of("{" ROUND ",\"role_rank\":2,\"role_size\":6}"));
    cr_expect(round_.role_rank == 2 && round_.role_size == 6);
    cr_expect_not(round_of("{" ROUND ",\"role_rank\":6,\"role_size\":6}"));
}

Test(net_messages, a_round_that_makes_no_sense_is_none)
{
    static const char *const wrong[] = {
        "{}",
        "[]",
        "{\"round\":0,\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_size\":"
        "1}",
        "{\"round\":1,\"attempt\":0,\"node_rank\":1,\"nnodes\":1,\"first_rank\":0,\"world_size\":"
        "1}",
        "{\"round\":1,\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":1,\"world_size\":"
        "1}",
        "{\"round\":1,\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_size\":"
        "1}", /* this node has node rank 2 */
        "{\"round\":1,\"attempt\":0,\"node_rank\":0,\"nnodes\":2,\"first_rank\":2,\"world_size\":"
        "3}",
        "{\"round\":1,\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_size\":"
        "1e300}",
        "{\"round\":\"1\",\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_"
        "size\":1}",
        "{\"round\":1,\"attempt\":-1,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_"
        "size\":1}",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_not(round_of(wrong[i]), "%s", wrong[i]);
}

/* A message with long lists or names comes from a job of thousands of nodes, or from a broken store. */
Test(net_messages, long_lists_and_names_are_cut)
{
    char text[64 * 1024] = "{" ROUND ",\"nodes\":[", host[300];
    memset(host, 'n', sizeof(host));
    host[sizeof(host) - 1] = '\0';
    for (int i = 0; i < 150; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "{\"host\":\"%s\"},", host);
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "{},");
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "{}]}");
    cr_assert(round_of(text));
    cr_expect_eq(round_.n_nodes, HEARD_NODES_MAX);
    cr_expect_eq(strlen(round_.nodes[0].host), HEARD_NAME_MAX - 1);
    cr_expect_eq(round_.nodes[200].node_rank, -1);
}

/* Each invalid byte becomes three bytes of UTF-8. The store rejects texts that are too long. */
Test(net_messages, a_text_of_invalid_bytes_is_cut_and_not_rejected)
{
    struct failure sent = { .rank = 5 };
    const size_t most = sizeof(sent.gpu_users) - 1;
    memset(sent.gpu_users, 0xff, most);
    cJSON *o = message_encode_failure(MESSAGE_FAILED, &sent);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, "gpu_users"));
    cr_assert_not_null(text);
    cr_expect_eq(strlen(text), most / 3 * 3);
    cr_expect_eq(strncmp(text, "\xef\xbf\xbd", 3), 0);
    cJSON_Delete(o);
}

/* The name of a user may contain any bytes. A text of a broken agent may be too long. */
Test(net_messages, the_users_of_a_gpu_are_encoded_and_decoded)
{
    char text[400], users[200];
    struct failure sent = { .rank = 5, .gpu = "1", .gpu_users = "pid 7 (user \xff, 1 GiB)" }, got;
    cJSON *o = message_encode_failure(MESSAGE_EXPLAIN, &sent);
    message_decode_failure(o, &got);
    cr_expect_str_eq(got.gpu, "1");
    cr_expect_str_eq(got.gpu_users, "pid 7 (user \xef\xbf\xbd, 1 GiB)");
    cJSON_Delete(o);
    sent = (struct failure){ .rank = 5 };
    o = message_encode_failure(MESSAGE_EXPLAIN, &sent);
    cr_expect_null(cJSON_GetObjectItem(o, "gpu_users"));
    cJSON_Delete(o);
    memset(users, 'u', sizeof(users));
    snprintf(text, sizeof(text), "{\"rank\":5,\"gpu\":1,\"gpu_users\":\"%.*s\"}", (int)sizeof(users), users);
    o = cJSON_Parse(text);
    message_decode_failure(o, &got);
    cr_expect_str_eq(got.gpu, "");
    cr_expect_eq(strlen(got.gpu_users), sizeof(got.gpu_users) - 1);
    cJSON_Delete(o);
}

Test(net_messages, a_stop_with_its_cause)
{
    stop_of(
        "{\"round\":3,\"why\":\"failed\",\"cause\":{\"node_rank\":1,\"host\":\"n1\",\"rank\":5,\"local_"
        "rank\":1,"
        "\"pid\":77,\"signal\":9,\"after_ms\":2500,\"words\":\"out of memory (SIGKILL)\",\"log\":\"logs/a\","
        "\"peak_rss\":1288490189,\"gpu\":\"1\",\"gpu_users\":\"pid 4242 (user ann, 31 GiB)\","
        "\"stderr\":[\"one\",\"two\"]}}");
    cr_expect_str_eq(cause.why, "failed");
    cr_expect_eq(cause.rank, 5);
    cr_expect_eq(cause.pid, 77);
    cr_expect_eq(cause.after_ms, 2500);
    cr_expect_eq(cause.peak_rss, 1288490189);
    cr_expect_str_eq(cause.gpu, "1");
    cr_expect_str_eq(cause.gpu_users, "pid 4242 (user ann, 31 GiB)");
    cr_expect_eq(cause.n_lines, 2);
    cr_expect_str_eq(cause.lines[1], "two");
    cr_expect_eq(failure_code(&cause), 128 + 9);
}

/* The five causes are a worker that exits with a code, a start that fails with an errno, a user's signal, a lost node,
 * and no failure. */
Test(net_messages, the_code_of_a_cause)
{
    stop_of("{\"why\":\"failed\",\"cause\":{\"rank\":0,\"exit_code\":7}}");
    cr_expect_eq(failure_code(&cause), 7);
    stop_of("{\"why\":\"failed\",\"cause\":{\"rank\":0,\"error\":2}}");
    cr_expect_eq(failure_code(&cause), 127);
    stop_of("{\"why\":\"node_left\",\"cause\":{\"node_rank\":0,\"signal\":15}}");
    cr_expect_eq(failure_code(&cause), 128 + 15);
    stop_of("{\"why\":\"node_lost\",\"cause\":{\"node_rank\":0}}");
    cr_expect_eq(failure_code(&cause), 125);
    stop_of("{\"why\":\"grow\",\"cause\":null}");
    cr_expect_eq(failure_code(&cause), 0);
    cr_expect_eq(cause.node_rank, -1);
    cr_expect_eq(cause.rank, -1);
}

Test(net_messages, a_verdict_to_begin_again)
{
    cr_assert(verdict_of(
        "{\"round\":3,\"why\":\"failed\",\"next\":\"restart\",\"backoff_ms\":2000,\"attempt\":3,"
        "\"no_restart\":\"\",\"step\":100,\"best_step\":120,\"exit\":{\"first\":7,\"max\":9,\"rank0\":0}}"));
    cr_expect(verdict.what.restart);
    cr_expect_eq(verdict.what.backoff_ms, 2000);
    cr_expect_eq(verdict.attempt, 3);
    cr_expect_eq(verdict.step, 100);
    cr_expect_eq(verdict.best, 120);
    cr_expect_eq(verdict.what.no_restart, NO_RESTART_NONE);
}

Test(net_messages, a_verdict_to_end_says_why_and_with_what)
{
    static const struct {
        const char *word;
        enum no_restart why;
    } cases[] = { { "used_up", NO_RESTART_USED_UP },
                  { "cannot_start", NO_RESTART_CANNOT_START },
                  { "usage", NO_RESTART_USAGE },
                  { "import", NO_RESTART_IMPORT },
                  { "no_progress", NO_RESTART_NO_PROGRESS },
                  { "stopped", NO_RESTART_STOPPED },
                  { "unkillable", NO_RESTART_UNKILLABLE },
                  { "too_few_nodes", NO_RESTART_TOO_FEW_NODES },
                  { "not_ready", NO_RESTART_NOT_READY },
                  { "newer store", NO_RESTART_NONE } };
    char text[256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"next\":\"finish\",\"no_restart\":\"%s\",\"exit\":{\"first\":7,\"max\":9,\"rank0\":0}}",
                 cases[i].word);
        cr_assert(verdict_of(text));
        cr_expect_not(verdict.what.restart);
        cr_expect_eq(verdict.what.no_restart, cases[i].why, "%s", cases[i].word);
        cr_expect_eq(verdict.what.exit_first, 7);
        cr_expect_eq(verdict.what.exit_max, 9);
        cr_expect_eq(verdict.what.exit_rank0, 0);
    }
}

/* exit(256) would end with exit code 0. */
Test(net_messages, a_code_that_no_process_ends_with_is_no_success)
{
    cr_assert(verdict_of("{\"next\":\"finish\",\"exit\":{\"first\":256,\"max\":512,\"rank0\":-1}}"));
    cr_expect_eq(verdict.what.exit_first, 125);
    cr_expect_eq(verdict.what.exit_max, 125);
    cr_expect_eq(verdict.what.exit_rank0, 125);
    stop_of("{\"why\":\"failed\",\"cause\":{\"rank\":0,\"exit_code\":1024}}");
    cr_expect_eq(failure_code(&cause), 125);
}

Test(net_messages, neither_again_nor_the_end_is_no_verdict)
{
    cr_expect_not(verdict_of("{}"));
    cr_expect_not(verdict_of("{\"next\":\"maybe\"}"));
    cr_expect(verdict_of("{\"next\":\"restart\",\"backoff_ms\":-1}"));
    cr_expect_eq(verdict.what.backoff_ms, 0);
}

Test(net_messages, who_is_waited_for)
{
    waiting_of("{\"joined\":2,\"min\":4,\"max\":4,\"left_ms\":899000,\"last_call_ms\":null,"
               "\"nodes\":[\"n0\",\"n3\"],\"missing\":[1,2],\"spare\":0}");
    cr_expect_eq(waiting.joined, 2);
    cr_expect_eq(waiting.left_ms, 899000);
    cr_expect_eq(waiting.last_call_ms, -1);
    cr_expect_str_eq(waiting.hosts, "n0, n3");
    cr_expect_str_eq(waiting.missing, "1, 2");
}

Test(net_messages, a_list_that_is_too_long_ends_in_dots)
{
    char text[16 * 1024] = "{\"missing\":[";
    for (int i = 0; i < 1000; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d,", i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "1000]}");
    waiting_of(text);
    cr_expect_lt(strlen(waiting.missing), sizeof(waiting.missing));
    cr_expect_str_eq(waiting.missing + strlen(waiting.missing) - 5, ", ...");
}

/* Join nine names of 50 bytes, a tenth name of `len` bytes, and `more` names of 1 byte. A write beyond the buffer would
 * change the byte after it. */
static const char *joined(int len, int more)
{
    static char out[HEARD_LIST_MAX + 1];
    char name[HEARD_NAME_MAX];
    cJSON *names = cJSON_CreateArray();
    memset(name, 'n', sizeof(name));
    for (int i = 0; i < 10 + more; i++) {
        const int bytes = i < 9 ? 50 : i == 9 ? len : 1;
        name[bytes] = '\0';
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
        name[bytes] = 'n';
    }
    out[HEARD_LIST_MAX] = '#';
    join_list(names, out, HEARD_LIST_MAX);
    cr_expect_eq(out[HEARD_LIST_MAX], '#', "%d and %d names", len, more);
    cJSON_Delete(names);
    return out;
}

/* The last ", ..." needs 5 bytes and a NUL, so names may use 506 of 512 bytes. Nine names use 466 bytes. */
Test(net_messages, a_list_that_just_fits_and_its_dots_stay_in_the_buffer)
{
    cr_expect_eq(strlen(joined(37, 0)), 505);
    cr_expect_eq(strlen(joined(38, 0)), 506);
    cr_expect_eq(joined(38, 0)[505], 'n', "no dots");
    cr_expect_eq(strlen(joined(38, 1)), 511);
    cr_expect_str_eq(joined(38, 1) + 505, "n, ...");
    for (int len = 36; len <= 40; len++)
        cr_expect_str_eq(strrchr(joined(len, 3), 'n') + 1, ", ...", "%d", len);
    cr_expect_eq(strlen(joined(39, 0)), 471, "the dots replace a name of 39 bytes");
}

Test(net_messages, who_is_not_done_yet)
{
    char names[HEARD_LIST_MAX];
    cJSON *status = cJSON_Parse("{\"nodes\":[{\"node_rank\":0,\"host\":\"n0\",\"state\":\"done\"},"
                                "{\"node_rank\":1,\"host\":\"n1\",\"state\":\"running\"},"
                                "{\"node_rank\":2,\"host\":\"n2\",\"state\":\"running\"},"
                                "{\"node_rank\":3,\"host\":\"n3\",\"state\":\"stopping\"},{}]}");
    decode_unfinished(status, 1, names);
    cr_expect_str_eq(names, "node 2 (n2), node 3 (n3)");
    decode_unfinished(NULL, 1, names);
    cr_expect_str_eq(names, "");
    cJSON_Delete(status);
}

static const char *first_of(const char *text)
{
    static char first[256];
    cJSON *json = cJSON_Parse(text);
    const enum finding_code code = decode_first_cause(json, first, sizeof(first));
    cr_expect_eq(code, strstr(first, "[NNODES_DIFFERS]") != NULL ? FINDING_NNODES_DIFFERS : FINDING_NONE,
                 "%s", first);
    cJSON_Delete(json);
    return first;
}

Test(net_messages, the_first_error_is_why)
{
    cr_expect_str_eq(first_of("{\"findings\":[{\"code\":\"NNODES_DIFFERS\",\"sentence\":\"3 there, 2 here\"},"
                              "{\"code\":\"NODE_REJECTED\",\"sentence\":\"x\"}]}"),
                     "3 there, 2 here  [NNODES_DIFFERS]");
    cr_expect_str_eq(first_of("{\"findings\":[{\"code\":\"SHM_SMALL\",\"sentence\":\"a warning\"},"
                              "{\"code\":\"NODE_MISSING\",\"sentence\":\"a count\"},"
                              "{\"code\":\"NNODES_DIFFERS\",\"sentence\":\"3 there, 2 here\"}]}"),
                     "3 there, 2 here  [NNODES_DIFFERS]", "hosts' warnings stand before it");
    cr_expect_str_eq(first_of("{\"findings\":[{\"code\":\"SHM_SMALL\",\"sentence\":\"a warning\"}]}"), "");
    cr_expect_str_eq(
        first_of("{\"findings\":[{\"code\":\"OF_TOMORROW\",\"grade\":\"error\",\"sentence\":\"x\"}]}"),
        "x  [OF_TOMORROW]");
    cr_expect_str_eq(
        first_of("{\"findings\":[{\"code\":\"OF_TOMORROW\",\"grade\":\"warning\",\"sentence\":\"x\"}]}"), "");
    cr_expect_str_eq(first_of("{\"findings\":[{\"code\":\"NODE_MISSING\",\"sentence\":\"x\"}]}"), "",
                     "the report counts by itself");
    cr_expect_str_eq(first_of("{\"findings\":[{\"code\":\"NPROC_UNEVEN\",\"sentence\":\"a note\"}]}"), "");
    cr_expect_str_eq(first_of("{\"findings\":[]}"), "");
    cr_expect_str_eq(first_of("{\"findings\":7}"), "");
}

Test(net_messages, findings_between_hosts_carry_no_control_characters)
{
    const struct news sent = { .host = "n1",
                               .code = "NO_ROUTE",
                               .sentence = "n1 reaches no \"x\"\n\033[2J",
                               .advice = "check it",
                               .ends = true };
    struct news got;
    struct buf line = { 0 };
    cr_assert(encode_news(&sent, &line));
    cr_expect_null(memchr(line.data, '\n', line.len));
    cr_assert(decode_news(buf_slice(&line), &got));
    cr_expect_str_eq(got.host, "n1");
    cr_expect_str_eq(got.code, "NO_ROUTE");
    cr_expect_str_eq(got.sentence, "n1 reaches no \"x\"??[2J");
    cr_expect_str_eq(got.advice, "check it");
    cr_expect(got.ends);
    buf_free(&line);
}

Test(net_messages, an_invalid_finding_of_another_host_is_dropped)
{
    struct news got;
    cr_expect_not(decode_news(slice_str("{\"host\":1}"), &got));
    cr_expect_not(decode_news(slice_str("{\"host\":\"n1\",\"code\":\"X\",\"sentence\":[]"), &got));
    cr_expect_not(decode_news(slice_str(""), &got));
}

/* Texts of the greatest length must still fit into one message of the socket. */
Test(net_messages, the_longest_finding_fits)
{
    struct news sent = { .ends = true };
    struct buf line = { 0 };
    memset(sent.host, '"', sizeof(sent.host) - 1);
    memset(sent.code, '"', sizeof(sent.code) - 1);
    memset(sent.sentence, '"', sizeof(sent.sentence) - 1);
    memset(sent.advice, '"', sizeof(sent.advice) - 1);
    cr_expect(encode_news(&sent, &line));
    buf_free(&line);
}
