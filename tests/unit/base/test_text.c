/* Tests of the conversion of days since 1970 to dates. The conversion is our own, so it is compared with known days,
 * and every day with its next one. */
#include "base/text.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdbool.h>

static void expect_day(uint64_t day, int year, int month, int of_month)
{
    const struct date d = date_of(day);
    cr_expect(d.year == year && d.month == month && d.day == of_month, "day %llu is %d-%d-%d",
              (unsigned long long)day, d.year, d.month, d.day);
}

Test(text, days_that_are_easy_to_get_wrong)
{
    expect_day(0, 1970, 1, 1);
    expect_day(58, 1970, 2, 28);
    expect_day(59, 1970, 3, 1);
    expect_day(11016, 2000, 2, 29);
    expect_day(11017, 2000, 3, 1);
    expect_day(19782, 2024, 2, 29);
    expect_day(20088, 2024, 12, 31);
    expect_day(47540, 2100, 2, 28);
    expect_day(47541, 2100, 3, 1);
}

Test(text, every_day_is_the_next_one)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    struct date before = date_of(0);
    for (uint64_t day = 1; day <= 146097; day++) {
        const struct date d = date_of(day);
        const bool leap = before.year % 4 == 0 && (before.year % 100 != 0 || before.year % 400 == 0);
        const int last = days[before.month - 1] + (before.month == 2 && leap);
        if (before.day < last)
            cr_assert(d.day == before.day + 1 && d.month == before.month && d.year == before.year);
        else
            cr_assert(d.day == 1 && d.month == before.month % 12 + 1 &&
                      d.year == before.year + (before.month == 12));
        before = d;
    }
}

/* --- json ----------------------------------------------------------------------------------------------------- */

/* Expect that the whole number `value` in JSON is printed as `expected`. */
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

Test(hash, is_fnv_1a_in_any_number_of_pieces)
{
    cr_expect_eq(hash_bytes(HASH_START, "", 0), UINT64_C(0xcbf29ce484222325));
    cr_expect_eq(hash_bytes(HASH_START, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    cr_expect_eq(hash_bytes(hash_bytes(HASH_START, "foo", 3), "bar", 3), UINT64_C(0x85944171f73967e8));
}
