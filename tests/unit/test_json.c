/* Whole numbers of JSON objects as they go out. */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>

static void expect_printed(int64_t value, const char *expected)
{
    cJSON *o = cJSON_CreateObject();
    json_add_integer(o, "n", value);
    char *text = cJSON_PrintUnformatted(o);
    cr_expect_str_eq(text, expected);
    cJSON_free(text);
    cJSON_Delete(o);
}

Test(json_integer, whole_numbers_are_printed_to_the_last_digit)
{
    expect_printed(0, "{\"n\":0}");
    expect_printed(-7, "{\"n\":-7}");
    expect_printed(INT64_MAX, "{\"n\":9223372036854775807}");
    expect_printed(INT64_MIN, "{\"n\":-9223372036854775808}");
}
