/* Tests of --version as text and as JSON. Nodes compare versions before they join, so the numbers and the text must
 * agree. */
#include "base/options.h"

#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>

Test(version, numbers_and_text_agree)
{
    char text[64];
    snprintf(text, sizeof(text), "%d.%d.%d", DDP_VERSION_MAJOR, DDP_VERSION_MINOR, DDP_VERSION_PATCH);
    cr_assert_str_eq(DDP_VERSION, text);
}

Test(version, only_the_third_number_may_differ)
{
    static const char *const same[][2] = {
        { "0.1.0", "0.1.0" }, { "0.1.0", "0.1.12" }, { "1.10.0", "1.10.3-rc1" }, { "1.2", "1.2.7" }
    };
    static const char *const other[][2] = { { "0.1.0", "0.2.0" },  { "0.1.0", "1.1.0" },
                                            { "0.1.0", "0.10.0" }, { "0.10.0", "0.1.0" },
                                            { "1", "1.0" },        { "", "0.1.0" } };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        cr_expect(version_matches(same[i][0], same[i][1]), "%s and %s", same[i][0], same[i][1]);
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        cr_expect_not(version_matches(other[i][0], other[i][1]), "%s and %s", other[i][0], other[i][1]);
}

Test(version, the_text_begins_with_program_and_version)
{
    struct buf out = { 0 };
    cr_assert(version_print(&out, "prog", "abc123", false) && buf_append(&out, "", 1));
    const char *text = (const char *)out.data, *begin = "prog " DDP_VERSION " (commit abc123, ";
    cr_expect_eq(strncmp(text, begin, strlen(begin)), 0, "%s", text);
    buf_free(&out);
}

Test(version, the_json_has_the_same)
{
    static const char *const members[][2] = { { "name", "prog" },
                                              { "version", DDP_VERSION },
                                              { "commit", "abc123" } };
    struct buf out = { 0 };
    cr_assert(version_print(&out, "prog", "abc123", true) && buf_append(&out, "", 1));
    cJSON *o = cJSON_Parse((const char *)out.data);
    for (size_t i = 0; i < 3; i++)
        cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, members[i][0])), members[i][1]);
    cr_expect_not_null(cJSON_GetStringValue(cJSON_GetObjectItem(o, "architecture")));
    cr_expect_not_null(strpbrk(cJSON_GetStringValue(cJSON_GetObjectItem(o, "libc")), "gm"));
    cJSON_Delete(o);
    buf_free(&out);
}
