/* Tests the templates from which the prefix of each line is made. Templates come from users of torchrun, so both of
 * its forms of a field must work. */
#include "tables/prefix.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct prefix_values values = { .of = { [PREFIX_HOST] = "n1",
                                                     [PREFIX_HOSTNAME] = "n1",
                                                     [PREFIX_RANK] = "11",
                                                     [PREFIX_LOCAL_RANK] = "3",
                                                     [PREFIX_ROLE_NAME] = "default",
                                                     [PREFIX_PID] = NULL,
                                                     [PREFIX_STREAM] = "stdout",
                                                     [PREFIX_JOB] = "evil\033]0;\n",
                                                     [PREFIX_ATTEMPT] = "0",
                                                     [PREFIX_TIME] = "T",
                                                     [PREFIX_ELAPSED] = "1.5" } };

static const char *rendered(const char *template, int colour)
{
    static char text[512];
    struct prefix p = { 0 };
    struct buf out = { 0 };
    struct ddp_err err;
    cr_assert_eq(prefix_add(&p, template, &err), DDP_OK, "%s", err.msg);
    cr_assert(prefix_render(&p, &values, colour, &out) && buf_append(&out, "", 1));
    memcpy(text, out.data, out.len);
    buf_free(&out);
    return text;
}

Test(prefix, fields_are_replaced_in_both_of_torchruns_forms)
{
    cr_expect_str_eq(rendered("[${rank}] ", 0), "[11] ");
    cr_expect_str_eq(rendered("[${role_name}${local_rank}]:", 0), "[default3]:");
    cr_expect_str_eq(rendered("$hostname:$rank ", 0), "n1:11 ");
    cr_expect_str_eq(rendered("$time ${elapsed}s ${host}.${stream}.${attempt} ", 0), "T 1.5s n1.stdout.0 ");
    cr_expect_str_eq(rendered("plain", 0), "plain");
    cr_expect_str_eq(rendered("", 36), "");
}

Test(prefix, other_dollars_are_text)
{
    cr_expect_str_eq(rendered("$$rank $5-$ $", 0), "$rank $5-$ $");
}

Test(prefix, what_is_not_known_yet_is_a_dash_and_values_cannot_escape)
{
    cr_expect_str_eq(rendered("${pid} ", 0), "- ");
    cr_expect_str_eq(rendered("${job}", 0), "evil?]0;?");
}

Test(prefix, colour_ends_before_the_blanks)
{
    cr_expect_str_eq(rendered("[${rank}]  ", 36), "\033[36m[11]\033[0m  ");
    cr_expect_neq(prefix_colour(0), prefix_colour(1));
}

static void refused(const char *template, const char *because)
{
    struct prefix p = { 0 };
    struct ddp_err err;
    cr_assert_eq(prefix_add(&p, template, &err), DDP_ERR_ARG, "'%s'", template);
    cr_expect_not_null(strstr(err.msg, because), "%s", err.msg);
}

Test(prefix, wrong_templates_are_refused_with_a_list_of_all_fields)
{
    refused("[${rnak}] ", "unknown field 'rnak'");
    refused("[${rnak}] ", "'host', 'hostname', 'rank', 'local_rank', 'role_name', 'pid', 'stream', 'job', "
                          "'attempt', 'time' or 'elapsed'");
    refused("$gpu", "unknown field 'gpu'");
    refused("${}", "unknown field ''");
    refused("[${rank] ", "closing brace");
    refused("${", "closing brace");
    refused("two\nlines", "control characters");
    refused("\033[31m", "control characters");
    refused("$a$b", "unknown field 'a'");
    refused("$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank.$rank."
            "$rank",
            "more than");
}

Test(prefix, only_templates_with_a_time_are_timed)
{
    struct prefix p = { 0 };
    cr_assert_eq(prefix_add(&p, "[${rank}] ", NULL), DDP_OK);
    cr_expect_not(p.timed);
    cr_assert_eq(prefix_add(&p, "${elapsed}", NULL), DDP_OK);
    cr_expect(p.timed);
    cr_expect_eq(p.n, 4);
}

Test(prefix, time_is_utc_to_the_microsecond)
{
    static const struct {
        uint64_t unix_s;
        const char *text;
    } days[] = {
        { 0, "1970-01-01T00:00:00.000042Z" },          { 68169599, "1972-02-28T23:59:59.000042Z" },
        { 68169600, "1972-02-29T00:00:00.000042Z" },   { 951782400, "2000-02-29T00:00:00.000042Z" },
        { 951868800, "2000-03-01T00:00:00.000042Z" },  { 1795278240, "2026-11-21T16:24:00.000042Z" },
        { 1798761599, "2026-12-31T23:59:59.000042Z" }, { 4107542400, "2100-03-01T00:00:00.000042Z" }
    };
    char text[PREFIX_TIME_MAX];
    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
        prefix_time(text, days[i].unix_s * 1000000 + 42);
        cr_expect_str_eq(text, days[i].text);
    }
    prefix_elapsed(text, 12345678);
    cr_expect_str_eq(text, "12.345678");
}
