/* From facts to sentences, and the small helpers that print foreign bytes. */
#include "store/store.h"
#include "diagnosis/diagnosis.h"
#include "job/members.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

static void expect(struct rank_facts facts, const char *sentence, const char *json)
{
    struct finding finding;
    char expected[512];
    snprintf(expected, sizeof(expected), "rank 3: %s", sentence);
    diagnose_rank(&facts, &finding);
    cr_assert_str_eq(finding.sentence, expected);
    cJSON *o = diagnose_json(&facts);
    char *printed = cJSON_PrintUnformatted(o);
    cr_assert_str_eq(printed, json);
    cJSON_free(printed);
    cJSON_Delete(o);
}

#define N1 .rank = 3, .host = "n1", .pid = 77

Test(diagnose, a_rank_that_nobody_has_heard_of)
{
    expect((struct rank_facts){ .rank = 3 }, "never connected", "{\"rank\":3,\"state\":\"never_connected\"}");
}

Test(diagnose, a_process_that_has_not_connected)
{
    expect((struct rank_facts){ N1, .started = true },
           "never connected; its process was started (n1, pid 77)",
           "{\"rank\":3,\"state\":\"never_connected\",\"host\":\"n1\",\"pid\":77}");
}

Test(diagnose, a_rank_that_is_busy)
{
    expect((struct rank_facts){ N1, .met = true, .connected = true, .silent_ms = 1250 },
           "connected (n1, pid 77), but has not come; last heard 1.2 s ago",
           "{\"rank\":3,\"state\":\"connected\",\"host\":\"n1\",\"pid\":77,\"silent_ms\":1250}");
}

Test(diagnose, a_rank_that_waits_elsewhere)
{
    expect(
        (struct rank_facts){ N1, .met = true, .connected = true, .silent_ms = 5,
                             .waits.name = slice_str("/x") },
        "connected (n1, pid 77), but waits for key '/x'; last heard 5 ms ago",
        "{\"rank\":3,\"state\":\"connected\",\"host\":\"n1\",\"pid\":77,\"silent_ms\":5,\"waits_for\":\"key "
        "'/x'\"}");
}

Test(diagnose, a_rank_that_has_closed_its_connection)
{
    expect((struct rank_facts){ .rank = 3, .pid = 77, .met = true, .silent_ms = 180000 },
           "was connected (pid 77), but has closed its connection; last heard 3 min ago",
           "{\"rank\":3,\"state\":\"disconnected\",\"pid\":77,\"silent_ms\":180000}");
}

Test(diagnose, a_rank_that_has_exited)
{
    expect((struct rank_facts){ N1, .started = true, .exited = true, .exit_code = 1 },
           "has exited with code 1 (n1, pid 77)",
           "{\"rank\":3,\"state\":\"exited\",\"host\":\"n1\",\"pid\":77,\"exit_code\":1}");
}

Test(diagnose, a_rank_that_was_killed)
{
    expect((struct rank_facts){ .rank = 3, .host = "n1", .exited = true, .signal = SIGSEGV },
           "was killed by signal 11, SIGSEGV (n1)",
           "{\"rank\":3,\"state\":\"exited\",\"host\":\"n1\",\"signal\":11}");
    expect((struct rank_facts){ .rank = 3, .exited = true, .signal = 64 }, "was killed by signal 64",
           "{\"rank\":3,\"state\":\"exited\",\"signal\":64}");
}

/* --- members ------------------------------------------------------------------------------------------------- */

Test(members, a_new_attempt_knows_nobody)
{
    struct quota quota = { .max = 1 << 20 };
    struct members m = { .quota = &quota };
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 0, 4 }, true));
    cr_assert(member_place(members_at(&m, 3), "n1", 77));
    cr_assert(member_place(members_at(&m, 3), "n2", 0));
    members_at(&m, 3)->exited = true;
    struct rank_facts facts = member_facts(&m, 3);
    cr_assert(facts.exited && facts.pid == 77);
    cr_assert_str_eq(facts.host, "n2");
    cr_assert_null(members_at(&m, 4));
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 1, 2 }, true));
    cr_assert_null(members_at(&m, 3));
    members_free(&m);
    cr_assert_eq(quota.used, 0);
}

Test(members, a_world_too_big_for_the_quota_changes_nothing)
{
    struct quota quota = { .max = 1000 };
    struct members m = { .quota = &quota };
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 0, 2 }, true));
    cr_assert_not(members_begin(&m, &(struct job_name){ "demo", 1, 100000 }, true));
    cr_assert(m.known && m.attempt == 0 && m.world_size == 2);
    members_free(&m);
}

/* --- text and decimal ---------------------------------------------------------------------------------------- */

static const char *shown(bool (*put)(struct buf *, struct slice, size_t), struct slice bytes, size_t max)
{
    static struct buf out;
    out.len = 0;
    cr_assert(put(&out, bytes, max) && buf_append(&out, "", 1));
    return (char *)out.data;
}

Test(text, foreign_bytes_are_made_harmless)
{
    cr_assert_str_eq(shown(text_put, slice_of("a\0\033[31m\xff", 8), 99), "a\\x00\\x1b[31m\\xff");
    cr_assert_str_eq(shown(text_put, slice_str("abcdef"), 3), "abc...");
    cr_assert_str_eq(shown(text_put, slice_str("%s"), 3), "%s");
    cr_assert_str_eq(shown(text_put_hex, slice_of("\0\xff", 2), 9), "00ff");
    cr_assert(text_is_plain(slice_str("plain ~")));
    cr_assert_not(text_is_plain(slice_of("\0", 1)));
}

static bool parses_to(const char *text, int64_t want)
{
    int64_t value;
    return decimal_parse(slice_str(text), &value) && value == want;
}

Test(decimal, reads_what_stoll_reads)
{
    cr_assert(parses_to("0", 0) && parses_to("-0", 0) && parses_to("+7", 7) &&
              parses_to(" \t\n\v\f\r-12ab", -12));
    cr_assert(parses_to("9223372036854775807", INT64_MAX) && parses_to("-9223372036854775808", INT64_MIN));
    cr_assert(parses_to("0000000000000000000000000000012", 12));
    int64_t value;
    const char *const bad[] = { "", "+", "- 1", "--1", "a", "9223372036854775808", "-9223372036854775809" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not(decimal_parse(slice_str(bad[i]), &value), "'%s'", bad[i]);
}

Test(decimal, what_it_prints_it_reads)
{
    const int64_t values[] = { 0, 1, -1, 10, -10, INT64_MAX, INT64_MIN };
    char room[DECIMAL_MAX];
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        int64_t back;
        cr_assert(decimal_parse(decimal_print(values[i], room), &back));
        cr_assert_eq(back, values[i]);
    }
}
