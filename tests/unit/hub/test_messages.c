/* Tests of the table of control messages: encoding, decoding, and the documentation that is printed from the table.
 * Versions 0.1.x work together, so a message must keep its members. */
#include "hub/messages.h"
#include "tests/prog/table_pages.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static struct ddp_err err;

static void expect_text(cJSON *o, const char *text)
{
    char *printed = cJSON_PrintUnformatted(o);
    cr_assert_str_eq(printed, text);
    cJSON_free(printed);
    cJSON_Delete(o);
}

/* Expect an error that begins with `name` and contains `limit`. */
static void expect_refused(enum message_id id, const char *json, const char *name, const char *limit)
{
    union message m;
    cJSON *o = cJSON_Parse(json);
    cr_assert_not(message_decode(id, o, &m, &err), "%s", json);
    cr_assert(strncmp(err.msg, name, strlen(name)) == 0 && strstr(err.msg, limit) != NULL, "%s", err.msg);
    cJSON_Delete(o);
}

/* --- encode --------------------------------------------------------------------------------------------------- */

Test(messages, members_without_a_value_are_not_sent)
{
    expect_text(message_encode_leave(&(struct message_leave){ .signal = 15, .round = MESSAGE_NONE }),
                "{\"op\":\"leave\",\"signal\":15}");
    expect_text(message_encode_who(&(struct message_who){ .conn = 7, .peer = "a", .store = "b" }),
                "{\"push\":\"who\",\"conn\":7,\"peer\":\"a\",\"store\":\"b\"}");
    expect_text(message_encode_exit(&(struct message_exit){ .first = 1, .max = MESSAGE_NONE, .rank0 = 2 }),
                "{\"first\":1,\"rank0\":2}");
}

Test(messages, a_limit_and_an_object_are_sent_as_null)
{
    expect_text(message_encode_stop(&(struct message_stop){ .round = 2, .why = "grow" }),
                "{\"push\":\"stop\",\"round\":2,\"why\":\"grow\",\"cause\":null}");
    cJSON *o =
        message_encode_waiting(&(struct message_waiting){ .state = "running", .left_ms = MESSAGE_NONE });
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(o, "left_ms")));
    cr_assert_null(cJSON_GetObjectItem(o, "nodes"));
    cJSON_Delete(o);
}

Test(messages, numbers_are_whole_beyond_what_a_double_prints)
{
    expect_text(message_encode_vouch(&(struct message_vouch){ .conn = 9007199254740991, .rank = -1 }),
                "{\"op\":\"vouch\",\"conn\":9007199254740991,\"rank\":-1,\"pid\":0,\"round\":0}");
}

/* --- decode --------------------------------------------------------------------------------------------------- */

Test(messages, what_is_wrong_is_named)
{
    expect_refused(MESSAGE_DONE, "{}", "\"round\"", "missing");
    expect_refused(MESSAGE_DONE, "{\"round\":null}", "\"round\"", "missing");
    expect_refused(MESSAGE_DONE, "{\"round\":-1}", "\"round\"", " 4294967295");
    expect_refused(MESSAGE_DONE, "{\"round\":1.5}", "\"round\"", " 4294967295");
    expect_refused(MESSAGE_DONE, "{\"round\":\"1\"}", "\"round\"", " 4294967295");
    expect_refused(MESSAGE_LEAVE, "{\"by\":7}", "\"by\"", " 4096 bytes");
    expect_refused(MESSAGE_STOPPED, "{\"max_code\":256,\"round\":1}", "\"max_code\"", " 255");
}

Test(messages, what_is_missing_has_the_value_of_its_row)
{
    struct message_failed m;
    cJSON *o = cJSON_Parse("{\"rank\":3,\"round\":1,\"stderr\":7,\"victim\":1}");
    cr_assert(message_decode(MESSAGE_FAILED, o, &m, &err), "%s", err.msg);
    cr_assert(m.object == o && m.rank == 3 && m.local_rank == -1 && m.exit_code == 0);
    cr_assert_str_eq(m.words, "");
    cr_assert_null(m.stderr, "no list");
    cr_assert_not(m.victim, "a number is not true");
    cJSON_Delete(o);
}

/* A launcher never rejects a push. The launcher reads an invalid exit code as a failure, not as success. */
Test(messages, a_push_is_read_whatever_it_holds)
{
    struct message_exit m;
    struct message_round round;
    cJSON *o = cJSON_Parse(
        "{\"first\":256,\"max\":\"x\",\"rank0\":0,\"round\":1e300,\"node_rank\":[],\"nodes\":{}}");
    message_read_exit(o, &m);
    cr_assert(m.first == 125 && m.max == 125 && m.rank0 == 0);
    message_read_round(o, &round);
    cr_assert(round.round == -1 && round.node_rank == -1 && round.nodes == NULL);
    message_read_round(NULL, &round);
    cr_assert_eq(round.world_size, -1);
    cJSON_Delete(o);
}

Test(messages, calls_and_pushes_are_found_by_their_names)
{
#define X(ID, name, words, class, what) words,
    static const char *const names[] = { MESSAGES(X) };
#undef X
    for (int id = 0; id < MESSAGE_COUNT; id++) {
        const enum message_class class = message_class((enum message_id)id);
        const bool is_call = class <= MESSAGE_IS_CALL;
        if (is_call)
            cr_assert_eq((int)message_find_call(names[id]), id);
        if (class == MESSAGE_IS_PUSH)
            cr_assert_eq((int)message_find_push(names[id]), id);
    }
    cr_assert_eq(message_find_call("round"), MESSAGE_COUNT);
    cr_assert_eq(message_find_push("join"), MESSAGE_COUNT);
}

/* --- printed -------------------------------------------------------------------------------------------------- */

static void expect_printed(const char *path, bool (*print)(struct buf *out))
{
    struct buf page = { 0 }, table = { 0 };
    char chunk[4096];
    FILE *in = fopen(path, "r");
    if (in == NULL)
        cr_skip_test("skipped, because it is not run from the top folder");
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), in)) > 0;)
        cr_assert(buf_append(&page, chunk, n));
    fclose(in);
    cr_assert(buf_append(&page, "", 1) && print(&table) && buf_append(&table, "", 1));
    cr_assert_not_null(strstr((char *)page.data, (char *)table.data), "%s: run `make protocol`", path);
    buf_free(&page);
    buf_free(&table);
}

Test(messages, the_page_and_the_dictionary_are_what_the_rows_say)
{
    expect_printed("docs/protocol.md", page_of_messages);
    expect_printed("tests/fuzz/messages.dict", page_of_dictionary);
}
