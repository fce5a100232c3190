/* Tests of the lines of an event log. The schema describes every kind of line. */
#include "base/events.h"

#include "documents.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static void expect_line(const char *object, const char *more, const char *line)
{
    struct buf out = { 0 };
    bool ok = event_line(&out, slice_str(object), slice_str(more));
    cr_expect_eq(ok, line != NULL, "%s", object);
    cr_expect(out.len == (line != NULL ? strlen(line) : 0) &&
                  memcmp(out.data ? (char *)out.data : "", line ? line : "", out.len) == 0,
              "%s -> %.*s", object, (int)out.len, (char *)out.data);
    buf_free(&out);
}

Test(events, members_are_put_in_at_the_end)
{
    expect_line("{\"event\":\"join\"}", ",\"ms\":1", "{\"event\":\"join\",\"ms\":1}\n");
    expect_line("{\"event\":\"join\"}\n", "", "{\"event\":\"join\"}\n");
    expect_line("{\"words\":\"}\"}", ",\"n\":2", "{\"words\":\"}\",\"n\":2}\n");
}

Test(events, what_is_no_object_is_no_line)
{
    expect_line("", ",\"ms\":1", NULL);
    expect_line("{}", ",\"ms\":1", NULL);
    expect_line("[1,2]", ",\"ms\":1", NULL);
    expect_line("{\"event\":\"jo", ",\"ms\":1", NULL);
}

Test(events, texts_are_escaped)
{
    struct buf out = { 0 };
    cr_assert(event_add_text(&out, "host", "a\"b\\c\n\xff") && buf_append(&out, "", 1));
    cr_expect_str_eq((char *)out.data, ",\"host\":\"a\\\"b\\\\c\\u000a\\u00ff\"");
    buf_free(&out);
}

Test(events, times_are_utc_to_the_microsecond)
{
    char time[EVENT_TIME_MAX];
    event_time(time, 951782400000001);
    cr_expect_str_eq(time, "2000-02-29T00:00:00.000001Z");
}

Test(events, words_and_kinds_are_one_table)
{
    for (int kind = 0; kind < EVENT_N_KINDS; kind++)
        cr_expect_eq(event_kind_of(event_word((enum event_kind)kind)), kind);
    cr_expect_eq(event_kind_of("made_up"), EVENT_N_KINDS);
    cr_expect_str_eq(event_word(EVENT_N_KINDS), "?");
}

Test(events, the_schema_knows_every_kind_of_a_log)
{
    static const char *const words[] = {
#define X(name, word) word,
        EVENTS_OF_LOG(X)
#undef X
    };
    cJSON *schema = schema_of_events();
    const cJSON *kinds =
        cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(schema, "properties"), "event"), "enum");
    const int n = sizeof(words) / sizeof(words[0]);
    cr_assert_eq(cJSON_GetArraySize(kinds), n);
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int k = 0; k < n; k++)
            found = found || strcmp(cJSON_GetArrayItem(kinds, k)->valuestring, words[i]) == 0;
        cr_expect(found, "%s", words[i]);
    }
    cJSON_Delete(schema);
}
