/* Flight records side by side: one case each, and the expected difference. */
#include "ctl/flight.h"

#include "ctl/tables.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DUMPS = 8 };

static struct flight_dump dumps[DUMPS];
static size_t n;
static struct buf text;

static void done(void)
{
    for (size_t i = 0; i < n; i++)
        flight_dump_free(&dumps[i]);
    buf_free(&text);
    n = 0;
}

TestSuite(flight_compare, .fini = done);

/* The record of `rank` of four, with these entries. */
static void give(int rank, const char *entries)
{
    char json[4096];
    struct ddp_err err = { 0 };
    snprintf(
        json, sizeof(json),
        "{\"format\":\"ddp-flight\",\"rank\":%d,\"world_size\":4,\"pid\":%d,\"host\":\"n1\",\"job\":\"j\","
        "\"attempt\":0,\"step\":3,\"time_ns\":9000000000,\"why\":\"SIGUSR1\",\"entries\":[%s]}",
        rank, 70 + rank, entries);
    cr_assert_eq(flight_dump_read(&dumps[n++], slice_str(json), &err), DDP_OK, "%s", err.msg);
}

#define CALL(seq, name, size, state)                                                                 \
    "{\"collective_seq_id\":" #seq ",\"profiling_name\":\"cpu:" name "\",\"input_sizes\":[[" #size   \
    "]],\"input_dtypes\":[\"f32\"],\"reduce_op\":\"sum\",\"root\":0,\"time_created_ns\":1000000000," \
    "\"state\":\"" state "\"}"

/* Return the comparison as text. */
static const char *compare(void)
{
    cJSON *answer = flight_compare(dumps, n);
    text.len = 0;
    cr_assert(ctl_format_flight(answer, &text) && buf_append(&text, "", 1));
    cJSON_Delete(answer);
    return (const char *)text.data;
}

static void expect(const char *words)
{
    const char *said = compare();
    cr_expect(strstr(said, words) != NULL, "'%s' is not in:\n%s", words, said);
}

Test(flight_compare, a_rank_that_has_not_come_is_behind)
{
    for (int rank = 3; rank >= 0; rank--)
        give(rank, rank == 2 ? CALL(4, "all_reduce", 8, "completed")
                             : CALL(4, "all_reduce", 8, "completed") "," CALL(5, "all_reduce", 8, "started"));
    expect("behind    rank 2; ranks 0-1,3 reached all_reduce #5 (f32 x 8, sum)\n");
    expect("   2  n1     72     3  all_reduce #4 (f32 x 8, sum)  completed  ");
    expect("   3  n1     73     3  all_reduce #5 (f32 x 8, sum)  started    8.0 s  SIGUSR1\n");
}

Test(flight_compare, where_they_part_is_the_first_call_that_differs)
{
    give(0, CALL(4, "all_reduce", 8, "completed") "," CALL(5, "all_reduce", 8, "failed"));
    give(1, CALL(4, "all_reduce", 8, "completed") "," CALL(5, "broadcast", 8, "failed"));
    give(2, CALL(4, "all_reduce", 8, "completed") "," CALL(5, "all_reduce", 8, "failed"));
    give(3, CALL(4, "all_reduce", 8, "completed") "," CALL(5, "all_reduce", 9,
                                                           "failed") "," CALL(6, "barrier", 9, "failed"));
    expect("differ    ranks 0,2 called all_reduce #5 (f32 x 8, sum); rank 1 called broadcast #5 (f32 x 8, "
           "sum); rank 3 "
           "called all_reduce #5 (f32 x 9, sum)\n");
}

Test(flight_compare, records_that_begin_later_are_compared_where_they_can)
{
    give(0, CALL(1, "init", 0, "completed"));
    give(1, CALL(5, "all_reduce", 8, "started"));
    give(2, CALL(5, "all_reduce", 9, "started"));
    expect(
        "differ    rank 1 called all_reduce #5 (f32 x 8, sum); rank 2 called all_reduce #5 (f32 x 9, sum)\n");
    expect("behind    rank 0; ranks 1-2 reached all_reduce #5 ");
    expect("missing   no record of rank 3\n");
}

Test(flight_compare, all_at_one_place_is_said_so)
{
    for (int rank = 0; rank < 4; rank++)
        give(rank, CALL(5, "all_reduce", 8, "started"));
    expect("behind    none: all reached all_reduce #5 (f32 x 8, sum)\n");
    cr_expect_null(strstr(compare(), "missing"));
}

Test(flight_compare, a_record_without_calls_is_one)
{
    give(0, "");
    expect("behind    none of the ranks with a record: rank 0 reached no call\n");
    expect("missing   no record of ranks 1-3; look there first\n");
}

static void expect_refused(const char *json, const char *words)
{
    struct flight_dump d;
    struct ddp_err err = { 0 };
    cr_expect_eq(flight_dump_read(&d, slice_str(json), &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, words) != NULL, "%s", err.msg);
}

Test(flight_compare, what_is_no_record_is_refused)
{
    expect_refused("", "offset 0 of 0: it is not JSON");
    expect_refused("{\"rank\":[4,", "of 11: it is not JSON; was the file cut off?");
    expect_refused("[]", "no flight record");
    expect_refused("{\"format\":\"ddp-flight\"}", "rank -1 of a world of 0");
    expect_refused("{\"format\":\"ddp-flight\",\"rank\":4,\"world_size\":4}", "rank 4 of a world of 4");
    expect_refused("{\"format\":\"ddp-flight\",\"rank\":1e300,\"world_size\":4}", "rank -1");
}

/* Numbers and texts of any kind make no harm. */
Test(flight_compare, strange_entries_are_taken_for_what_they_are)
{
    give(0,
         "7,null,{},{\"collective_seq_id\":-1,\"profiling_name\":5,\"input_sizes\":[[1e308]],\"root\":1e99}");
    give(1, "{\"collective_seq_id\":1e19,\"profiling_name\":\""
            "0123456789012345678901234567890123456789"
            "\"}");
    cr_expect_not_null(compare());
}
