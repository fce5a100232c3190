/* Tests that compare the flight records of several ranks. Each test has one case and the expected difference. */
#include "record/flight_dump.h"

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

/* Add the record of `rank` of four ranks, with these entries. */
static void give(int rank, const char *entries)
{
    char json[4096];
    struct ddp_err err = { 0 };
    snprintf(
        json, sizeof(json),
        "{\"format\":\"ddp-flight\",\"rank\":%d,\"world_size\":4,\"pid\":%d,\"host\":\"n1\",\"job\":\"j\","
        "\"attempt\":0,\"step\":3,\"time_ns\":9000000000,\"why\":\"SIGUSR1\",\"entries\":[%s]}",
        rank, 70 + rank, entries);
    cr_assert_eq(flight_dump_read(&dumps[n++], "flight_0.json", slice_str(json), &err), DDP_OK, "%s",
                 err.msg);
}

#define CALL(seq, name, size, state)                                                                     \
    "{\"process_group\":[\"0\",\"world\"],\"collective_seq_id\":" #seq ",\"profiling_name\":\"cpu:" name \
    "\",\"input_sizes\":[[" #size                                                                        \
    "]],\"input_dtypes\":[\"f32\"],\"reduce_op\":\"sum\",\"root\":0,\"time_created_ns\":1000000000,"     \
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
    expect("behind    none; all ranks reached all_reduce #5 (f32 x 8, sum)\n");
    cr_expect_null(strstr(compare(), "missing"));
}

Test(flight_compare, a_record_without_calls_is_one)
{
    give(0, "");
    expect("behind    unknown; the records contain no call in the group of all ranks\n");
    expect("missing   no record of ranks 1-3; check these ranks first\n");
    for (int rank = 1; rank < 4; rank++)
        give(rank, "");
    expect("behind    unknown; the records contain no call in the group of all ranks\n");
}

Test(flight_compare, all_missing_ranks_of_a_large_job_are_listed)
{
    struct ddp_err err = { 0 };
    cr_assert_eq(
        flight_dump_read(&dumps[n++], "flight_0.json",
                         slice_str("{\"format\":\"ddp-flight\",\"rank\":0,\"world_size\":2000,\"job\":"
                                   "\"j\",\"entries\":[]}"),
                         &err),
        DDP_OK, "%s", err.msg);
    expect("missing   no record of ranks 1-1999; ");
}

static void expect_refused(const char *json, const char *words)
{
    struct flight_dump d;
    struct ddp_err err = { 0 };
    cr_expect_eq(flight_dump_read(&d, "flight_0.json", slice_str(json), &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, words) != NULL, "%s", err.msg);
}

Test(flight_compare, what_is_no_record_is_refused)
{
    expect_refused("", "offset 0 of 0: invalid JSON");
    expect_refused("{\"rank\":[4,", "of 11: invalid JSON: the file may be truncated");
    expect_refused("import os", "not a flight record: neither JSON nor a pickle");
    expect_refused("[]", "not a flight record");
    expect_refused("{\"format\":\"ddp-flight\"}", "rank: -1, with world size 0");
    expect_refused("{\"format\":\"ddp-flight\",\"rank\":4,\"world_size\":4}", "rank: 4, with world size 4");
    expect_refused("{\"format\":\"ddp-flight\",\"rank\":1e300,\"world_size\":4}", "rank: -1");
}

/* Numbers and texts of any kind must do no harm. */
Test(flight_compare, strange_entries_are_taken_for_what_they_are)
{
    give(0,
         "7,null,{},{\"collective_seq_id\":-1,\"profiling_name\":5,\"input_sizes\":[[1e308]],\"root\":1e99}");
    give(1, "{\"collective_seq_id\":1e19,\"profiling_name\":\""
            "0123456789012345678901234567890123456789"
            "\"}");
    cr_expect_not_null(compare());
}

/* --- PyTorch's records ---------------------------------------------------------------------------------- */

/* Read a record below tests/data/flight. */
static void give_file(const char *name)
{
    char path[128], bytes[8192];
    struct ddp_err err = { 0 };
    snprintf(path, sizeof(path), "tests/data/flight/%s", name);
    FILE *file = fopen(path, "re");
    cr_assert(file != NULL, "%s", path);
    const size_t len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    cr_assert_eq(flight_dump_read(&dumps[n++], path, slice_of(bytes, len), &err), DDP_OK, "%s", err.msg);
}

/* PyTorch 2.15 on Gloo wrote these files with torch._C._distributed_c10d._dump_fr_trace_file. Ranks 0 and 2 call
 * all_reduce in step(), and rank 1 calls broadcast in evaluate(). Before that, ranks 0 and 2 have a barrier in a
 * separate group. */
Test(flight_compare, pickles_of_pytorch_name_call_and_line)
{
    give_file("gloo_rank_2");
    give_file("gloo_rank_0");
    give_file("gloo_rank_1");
    expect("world size 3\n");
    expect("differ    ranks 0,2 called all_reduce #4 (Float x 64) in step (train.py:14); rank 1 called "
           "broadcast #4 (Float x 8) in "
           "evaluate (train.py:11)\n");
    expect("   1  broadcast #4 (Float x 8)    scheduled  evaluate (train.py:11)\n");
    expect("behind    none\n");
    cr_expect_null(strstr(compare(), "all ranks reached"));
}

Test(flight_compare, a_name_with_a_newline_stays_on_its_line)
{
    for (int rank = 0; rank < 4; rank++)
        give(rank, CALL(5, "all\\nreduce", 8, "started"));
    expect("all ranks reached all?reduce #5");
    cr_expect_null(strstr(compare(), "all\nreduce"));
}

/* The comparison has a stack for each side of a difference. The text shows the user's frames, and JSON shows all
 * frames. */
Test(flight_compare, each_side_shows_its_stack)
{
    give_file("gloo_rank_0");
    give_file("gloo_rank_1");
    give_file("gloo_rank_2");
    expect("\nranks 0,2 in all_reduce #4 (Float x 64)\n  > step  train.py:14\n  > <module>  train.py:27\n"
           "\nrank 1 in broadcast #4 (Float x 8)\n  > evaluate  train.py:11\n  > <module>  train.py:25\n"
           "\nRANK");
    cJSON *answer = flight_compare(dumps, n);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "ranks"), 1);
    const cJSON *side = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "sides"), 1);
    cr_expect(cJSON_Compare(cJSON_GetObjectItem(row, "stack"), cJSON_GetObjectItem(side, "stack"), true));
    const cJSON *frame = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "stack"), 2);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "stack")), 4);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(frame, "function")), "evaluate");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(frame, "file")), "/home/me/train.py");
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(frame, "line")), 11);
    cr_expect(cJSON_IsTrue(cJSON_GetObjectItem(frame, "user")));
    cr_expect(cJSON_IsFalse(cJSON_GetObjectItem(
        row->child != NULL ? cJSON_GetArrayItem(cJSON_GetObjectItem(row, "stack"), 0) : NULL, "user")));
    cJSON_Delete(answer);
}

Test(flight_compare, json_of_pytorch)
{
    give_file("gloo_rank_0.json");
    give_file("gloo_rank_1.json");
    expect("differ    rank 0 called all_reduce #4 (Float x 64); rank 1 called broadcast #4 (Float x 8)\n");
    expect("missing   no record of rank 2; check these ranks first\n");
}

/* An entry of NCCL's recorder, as PyTorch documents it. */
#define NCCL(group, desc, seq, name, size, when, p2p)                                                     \
    "{\"process_group\":[\"" group "\",\"" desc "\"],\"collective_seq_id\":" #seq                         \
    ",\"profiling_name\":\"nccl:" name "\",\"input_sizes\":[[" size "]],\"input_dtypes\":[\"BFloat16\"]," \
    "\"time_created_ns\":" #when ",\"state\":\"started\",\"retired\":false,\"is_p2p\":" p2p               \
    ",\"frames\":[{\"name\":\"all_reduce\",\"filename\":\"/v/lib/python3.12/site-packages/torch/a.py\","  \
    "\"line\":1},{\"name\":\"fit\",\"filename\":\"/home/me/fit.py\",\"line\":" #seq "}]}"
#define WORLD(seq, name, size, when) NCCL("0", "default_pg", seq, name, size, when, "false")
#define PIPE(seq, name, size, when)  NCCL("7", "pipeline", seq, name, size, when, "false")

static void give_nccl(int rank, const char *entries)
{
    char json[8192], file[64];
    struct ddp_err err = { 0 };
    snprintf(file, sizeof(file), "/tmp/nccl_trace_rank_%d", rank);
    snprintf(json, sizeof(json),
             "{\"version\":\"2.4\",\"pg_config\":{\"0\":{\"ranks\":\"[0, 1, 2, 3]\"},\"7\":{\"ranks\":\"[0, "
             "1]\"}},\"entries\":[%s]}",
             entries);
    cr_assert_eq(flight_dump_read(&dumps[n++], file, slice_str(json), &err), DDP_OK, "%s", err.msg);
}

/* If no call differs, the comparison shows the last call of each rank. The ranks that are behind come first. */
Test(flight_compare, a_rank_behind_shows_its_stack_first)
{
    give_nccl(0, WORLD(1, "all_reduce", "4", 10) "," WORLD(2, "all_reduce", "4", 20));
    give_nccl(1, WORLD(1, "all_reduce", "4", 10));
    give_nccl(2, WORLD(1, "all_reduce", "4", 10) "," WORLD(2, "all_reduce", "4", 20));
    expect("\nrank 1 in all_reduce #1 (BFloat16 x 4)\n  > fit  fit.py:1\n"
           "\nranks 0,2 in all_reduce #2 (BFloat16 x 4)\n  > fit  fit.py:2\n\nRANK");
}

/* Append an entry of group 0 with `frames` frames and a long path. The line of the innermost frame is `seq`. */
static void append_deep(struct buf *json, int seq, int frames)
{
    char path[400];
    memset(path, 'd', sizeof(path));
    snprintf(path + 390, sizeof(path) - 390, "/a.py");
    buf_printf(json, "%s{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":%d,\"frames\":[",
               seq > 1 ? "," : "", seq);
    for (int i = 0; i < frames; i++)
        buf_printf(json, "%s{\"name\":\"f%d\",\"filename\":\"%s\",\"line\":%d}", i > 0 ? "," : "", i, path,
                   i == 0 ? seq : 7);
    buf_printf(json, "]}");
}

/* A record keeps only few frames and few stacks. A long path loses its beginning. The stacks of the latest calls are
 * kept. */
Test(flight_compare, stacks_are_limited)
{
    struct buf json = { 0 };
    struct ddp_err err = { 0 };
    buf_printf(&json, "{\"version\":\"2.4\",\"entries\":[");
    for (int seq = 1; seq <= FLIGHT_STACKS_MAX + 3; seq++)
        append_deep(&json, seq, FLIGHT_FRAMES_MAX + 2);
    buf_printf(&json, "]}");
    cr_assert_eq(flight_dump_read(&dumps[n++], "x_0", buf_slice(&json), &err), DDP_OK, "%s", err.msg);
    buf_free(&json);
    cr_assert_eq(dumps[0].n_stacks, FLIGHT_STACKS_MAX);
    cr_expect_eq(dumps[0].stacks[0].hash, dumps[0].calls[dumps[0].n - 1].stack);
    const cJSON *frames = dumps[0].stacks[0].frames;
    const char *file = cJSON_GetStringValue(cJSON_GetObjectItem(frames->child, "file"));
    cr_expect_eq(cJSON_GetArraySize(frames), FLIGHT_FRAMES_MAX);
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(frames->child, "line")), FLIGHT_STACKS_MAX + 3);
    cr_expect_eq(strlen(file), 255);
    cr_expect_str_eq(file + 250, "/a.py");
    expect("  > f4  a.py:7\n    and 59 more\n\nRANK");
}

/* Frames of any kind must do no harm. Of several equal stacks, only one stack is kept. */
Test(flight_compare, strange_frames_are_harmless)
{
    give(0, "{\"collective_seq_id\":1,\"frames\":7},{\"collective_seq_id\":2,\"frames\":[5,null,[],"
            "{\"name\":[],\"filename\":\"<x>\",\"line\":1e300}]},{\"is_p2p\":true,\"frames\":[{}]},"
            "{\"collective_seq_id\":3,\"frames\":[{}]},{\"collective_seq_id\":4,\"frames\":[{}]}");
    cr_expect_eq(dumps[0].n, 4);
    cr_expect_eq(dumps[0].n_stacks, 2);
    cr_expect_eq(dumps[0].calls[0].stack, 0);
    cr_expect_not_null(compare());
}

/* Rank 1 lacks a call of the small group. As a consequence, the members of this group lack the next call of the
 * world. */
Test(flight_compare, the_group_that_waits_longest_is_named)
{
    give_nccl(0, WORLD(1, "all_reduce", "4", 10) "," PIPE(1, "broadcast", "2", 20) "," PIPE(2, "broadcast",
                                                                                            "2", 30));
    give_nccl(1, WORLD(1, "all_reduce", "4", 10) "," PIPE(1, "broadcast", "2", 20));
    give_nccl(2, WORLD(1, "all_reduce", "4", 10) "," WORLD(2, "all_reduce", "4", 40));
    give_nccl(3, WORLD(1, "all_reduce", "4", 10) "," WORLD(2, "all_reduce", "4", 40));
    expect("behind    rank 1; rank 0 reached broadcast #2 of group 7 (BFloat16 x 2)\n");
    expect("   2  all_reduce #2 (BFloat16 x 4)            started  fit (fit.py:2)\n");
}

Test(flight_compare, sizes_count_where_they_must_be_equal)
{
    give_nccl(0, WORLD(1, "all_to_all", "4", 10) "," WORLD(2, "all_reduce", "2, 3", 20));
    give_nccl(1, WORLD(1, "all_to_all", "5", 10) "," WORLD(2, "all_reduce", "6", 20));
    cr_expect(strstr(compare(), "differ") == NULL);
    give_nccl(2, WORLD(1, "all_to_all", "6", 10) "," WORLD(2, "all_reduce", "7", 20));
    expect("differ    ranks 0-1 called all_reduce #2 (BFloat16 x 6) in fit (fit.py:2); rank 2 called "
           "all_reduce #2 (BFloat16 x 7)");
}

#define GATHER(name, out)                                                                               \
    "{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":1,\"profiling_name\":\"nccl:" name \
    "\",\"input_sizes\":[[4]],\"input_dtypes\":[\"Float\"],\"output_sizes\":[" out                      \
    "],\"time_created_ns\":10,\"state\":\"started\"}"

/* Outputs of all_gather must have equal sizes on all ranks, but their shapes may differ. A record may have no
 * outputs. */
Test(flight_compare, outputs_of_an_all_gather_are_of_equal_size)
{
    give(0, GATHER("all_gather", "[2,4]"));
    give(1, GATHER("all_gather", "[4],[4]"));
    give(2, GATHER("all_gather", ""));
    cr_expect(strstr(compare(), "differ") == NULL);
    give(3, GATHER("all_gather", "[4],[5]"));
    expect("differ    ranks 0-1 called all_gather #1 (Float x 4, output x 8); rank 2 called all_gather #1 "
           "(Float x 4); rank 3 called all_gather #1 (Float x 4, output x 9)\n");
}

/* In a gather, only the root has outputs. */
Test(flight_compare, outputs_of_other_calls_may_differ)
{
    static const char *const names[] = { GATHER("gather", "[4],[4]"), GATHER("gather", "[4]"),
                                         GATHER("reduce_scatter", "[4],[4]"),
                                         GATHER("reduce_scatter", "[4]") };
    for (int i = 0; i < 4; i += 2) {
        give(0, names[i]);
        give(1, names[i + 1]);
        cr_expect(strstr(compare(), "differ") == NULL, "%s", compare());
        done();
    }
}

/* Two kinds of entries need not be the same on all ranks. A send or a receive concerns only two ranks. A coalesced call
 * has several entries with one number. */
Test(flight_compare, entries_that_ranks_need_not_share)
{
    give_nccl(0, NCCL("0", "default_pg", 1, "send", "4", 5,
                      "true") "," WORLD(1, "all_reduce", "4", 10) "," WORLD(1, "all_reduce", "8", 10));
    give_nccl(1, WORLD(1, "all_reduce", "4", 10));
    expect(
        "behind    none of the ranks that have a record; ranks 0-1 reached all_reduce #1 (BFloat16 x 4)\n");
    cr_expect(strstr(compare(), "differ") == NULL);
}

#define IN_STATE(seq, state)                                                                                \
    "{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":" #seq                                 \
    ",\"profiling_name\":\"nccl:all_reduce\",\"input_sizes\":[[4]],\"input_dtypes\":[\"Float\"],\"state\":" \
    "\"" state "\"}"

/* Each of the latest groups has up to two open calls: its first call that is not completed, and its last call. */
Test(flight_compare, open_calls_are_those_that_peers_may_wait_for)
{
    const struct flight_entry *calls[FLIGHT_OPEN_MAX];
    give_nccl(0, IN_STATE(1, "completed") "," IN_STATE(2, "started") "," IN_STATE(
                     3, "scheduled") "," IN_STATE(4, "scheduled") "," PIPE(9, "broadcast", "2", 30));
    cr_assert_eq(flight_open_calls(&dumps[0], calls), 3);
    cr_expect_eq(calls[0]->seq, 2);
    cr_expect_eq(calls[1]->seq, 4);
    cr_expect_str_eq(calls[2]->name, "broadcast");
    give_nccl(1, "");
    cr_expect_eq(flight_open_calls(&dumps[1], calls), 0);
}

/* Ten other groups have later calls than the world. */
Test(flight_compare, the_last_call_of_the_world_is_always_open)
{
    const struct flight_entry *calls[FLIGHT_OPEN_MAX];
    struct buf json = { 0 };
    buf_printf(&json, "%s", WORLD(6, "all_reduce", "4", 10));
    for (int i = 1; i <= 10; i++)
        buf_printf(&json, ",{\"process_group\":[\"%d\",\"x\"],\"collective_seq_id\":1,\"state\":\"started\"}",
                   i);
    cr_assert(buf_append(&json, "", 1));
    give_nccl(0, (const char *)json.data);
    cr_assert_eq(flight_open_calls(&dumps[0], calls), FLIGHT_OPEN_MAX / 2);
    cr_expect_str_eq(calls[0]->group, "");
    cr_expect_eq(calls[0]->seq, 6);
    cr_expect_str_eq(calls[7]->group, "10");
    buf_free(&json);
}

Test(flight_compare, a_record_without_calls_of_the_world_is_not_behind)
{
    give_nccl(0, WORLD(4, "all_reduce", "4", 10));
    give_nccl(1, PIPE(1, "broadcast", "2", 30));
    expect("behind    none of the ranks that have a record; rank 0 reached all_reduce #4");
}

/* The last call of group 7 is completed in the only record that has it, so no rank waits in this call. Rank 0 waits for
 * rank 1 in the group of all ranks. */
Test(flight_compare, a_completed_call_is_not_where_ranks_wait)
{
#define DONE(seq)                                                         \
    "{\"process_group\":[\"7\",\"pipeline\"],\"collective_seq_id\":" #seq \
    ",\"profiling_name\":\"nccl:broadcast\",\"time_created_ns\":5,\"state\":\"completed\"}"
    give_nccl(0, DONE(1) "," DONE(2) "," WORLD(2, "all_reduce", "4", 10));
    give_nccl(1, DONE(1) "," WORLD(1, "all_reduce", "4", 10));
    expect("behind    rank 1; rank 0 reached all_reduce #2 (BFloat16 x 4)");
}

Test(flight_compare, a_call_is_half_started_if_one_rank_has_only_scheduled_it)
{
    give_nccl(0, IN_STATE(1, "completed") "," IN_STATE(2, "started") "," IN_STATE(3, "scheduled"));
    give_nccl(1, IN_STATE(1, "completed") "," IN_STATE(2, "started"));
    cr_expect_null(flight_half_started(dumps, n));
    give_nccl(2, IN_STATE(1, "completed") "," IN_STATE(2, "scheduled"));
    const struct flight_entry *call = flight_half_started(dumps, n);
    cr_assert_not_null(call);
    cr_expect_eq(call->seq, 2);
    cr_expect(flight_is_scheduled(&dumps[2], call) && !flight_is_scheduled(&dumps[1], call));
}

/* Read records of four ranks. The records have all members of PyTorch 2.15's format for NCCL. Ranks 0,1 and 2,3 are
 * data-parallel groups; ranks 0,2 and 1,3 are pipelines. No machine with GPUs recorded these records; PyTorch's
 * FlightRecorderDetail.hpp gives the format. Rank 1 hangs between two calls. Rank 0 waits for rank 1 in an all_reduce,
 * and rank 3 waits for rank 1 in a receive. Rank 2 waits for rank 3. */
static void give_pipelines(const char *ranks)
{
    char name[] = "nccl_rank_0";
    for (; *ranks != '\0'; ranks++) {
        name[sizeof(name) - 2] = *ranks;
        give_file(name);
    }
}

Test(flight_compare, records_of_nccl_name_the_rank_that_others_wait_for)
{
    give_pipelines("3120");
    expect("world size 4\n");
    expect("behind    rank 1; rank 0 reached all_reduce #2 of group 1 (BFloat16 x 64)\n");
    expect("waits     rank 3 in receive from rank 1 #2 of group 4 (BFloat16 x 4096) in forward (pipe.py:40); "
           "last call of rank 1: all_reduce #1 of group 1 (BFloat16 x 64)\n");
    expect("   3  receive from rank 1 #2 of group 4 (BFloat16 x 4096)  started    forward (pipe.py:40)\n");
    cr_expect_null(strstr(compare(), "differ"));
    cr_expect_null(strstr(compare(), "missing"));
    cr_expect_eq(dumps[0].n_p2p, 0, "the parts of a completed batch are completed");
}

Test(flight_compare, a_rank_of_nccl_without_a_record_is_missing)
{
    give_pipelines("023");
    expect("waits     rank 3 in receive from rank 1 #2 of group 4 (BFloat16 x 4096) in forward (pipe.py:40); "
           "last call of rank 1: unknown, no record\n");
    expect("missing   no record of rank 1");
}

/* Rank 0 sends what rank 1 receives, so both wait for the network. A receive that accepts any rank matches every
 * send. */
Test(flight_compare, sends_and_receives_that_match_are_no_wait_for_a_peer)
{
#define P2P(name, state)                                                                                  \
    "{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":0,\"p2p_seq_id\":3,\"is_p2p\":true," \
    "\"profiling_name\":\"nccl:" name                                                                     \
    "\",\"input_sizes\":[[4]],\"input_dtypes\":[\"Float\"],\"state\":\"" state "\"}"
    give_nccl(0, P2P("send 0->1", "started"));
    give_nccl(1, P2P("recv 1<-?", "started"));
    cr_expect_null(strstr(compare(), "waits"));
    give_nccl(2, P2P("send 2->1", "started"));
    give_nccl(3, P2P("send 3->2", "started"));
    expect("waits     rank 3 in send to rank 2 #3 (Float x 4); last call of rank 2: send to rank 1 #3 (Float "
           "x 4)\n");
    cr_expect_eq(strstr(compare(), "waits"), strstr(compare(), "waits     rank 3"));
}

/* A coalesced call has several entries. Only the last entry shows the progress of the call. */
Test(flight_compare, a_coalesced_call_has_the_progress_of_its_last_entry)
{
#define PART(name, state)                                                                               \
    "{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":1,\"profiling_name\":\"nccl:" name \
    "\","                                                                                               \
    "\"state\":\"" state "\"}"
    give_nccl(0, PART("all_reduce", "scheduled") "," PART("all_reduce", "scheduled") "," PART("coalesced",
                                                                                              "completed"));
    cr_assert_eq(dumps[0].n, 1);
    cr_expect_str_eq(dumps[0].calls[0].name, "all_reduce");
    cr_expect_str_eq(dumps[0].calls[0].state, "completed");
}

/* The tutorial "Flight Recorder for Debugging Stuck Jobs" of PyTorch (BSD 3-Clause) shows this entry, which two GPUs
 * recorded with version 2.5. Entries of earlier versions lack some members, and entries of later versions have more. */
Test(flight_compare, records_of_all_versions_are_read)
{
    static const char *const added[][2] = {
        { "2.0", "" },
        { "2.1", "\"is_p2p\":false," },
        { "2.5", "\"is_p2p\":false,\"timeout_ms\":600000,\"retired\":true," },
        { "2.9", "\"is_p2p\":false,\"timeout_ms\":600000,\"retired\":true,\"thread_id\":\"1\"," },
        { "2.10", "\"is_p2p\":false,\"timeout_ms\":600000,\"retired\":true,\"thread_id\":\"1\",\"thread_"
                  "name\":\"p\"," },
        { "2.15", "\"is_p2p\":false,\"retired\":true,\"stack_id\":4,\"new\":{\"x\":[null]}," },
    };
    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++) {
        char json[2048];
        struct ddp_err err = { 0 };
        struct flight_dump d;
        snprintf(
            json, sizeof(json),
            "{\"version\":\"%s\",\"pg_config\":{\"0\":{\"name\":\"0\",\"desc\":\"default_pg\",\"ranks\":\"[0,"
            " "
            "1]\"}},\"pg_status\":{\"0\":{\"last_enqueued_collective\":2,\"last_started_collective\":-1,"
            "\"last_completed_collective\":2}},\"entries\":[{\"frames\":[{\"name\":\"test_short_pickle\","
            "\"filename\":\"pytorch/test/distributed/test_c10d_nccl.py\",\"line\":3647}],\"record_id\":0,"
            "\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":1,\"p2p_seq_id\":0,"
            "\"op_id\":1,\"profiling_name\":\"nccl:all_reduce\",\"time_created_ns\":1724779239936775119,"
            "\"input_sizes\":[[3,4]],\"input_dtypes\":[\"Float\"],\"output_sizes\":[[3,4]],"
            "\"output_dtypes\":[\"Float\"],%s\"state\":\"completed\",\"time_discovered_started_ns\":null,"
            "\"time_discovered_completed_ns\":1724779239975811724}]}",
            added[i][0], added[i][1]);
        cr_assert_eq(flight_dump_read(&d, "nccl_trace_rank_1", slice_str(json), &err), DDP_OK, "%s %s",
                     added[i][0], err.msg);
        cr_expect_eq(d.world_size, 2);
        cr_assert_eq(d.n, 1);
        cr_expect_str_eq(d.calls[0].name, "all_reduce");
        cr_expect_eq(d.calls[0].n, 12);
        cr_expect_str_eq(d.calls[0].state, "completed");
        cr_expect_str_eq(d.calls[0].place, "test_short_pickle (test_c10d_nccl.py:3647)");
        flight_dump_free(&d);
    }
}

/* If a rank has made no call, PyTorch's JSON lacks the member "entries". */
Test(flight_compare, json_of_pytorch_without_calls)
{
    static const char json[] = "{\"version\":\"2.10\",\"pg_config\":{},\"pg_status\":{}}";
    struct ddp_err err = { 0 };
    cr_assert_eq(flight_dump_read(&dumps[n++], "x_0", slice_str(json), &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(dumps[0].n, 0);
}

Test(flight_compare, a_record_of_pytorch_needs_its_rank)
{
    static const char json[] = "{\"version\":\"2.10\",\"entries\":[]}";
    struct ddp_err err = { 0 };
    struct flight_dump d;
    cr_expect_eq(flight_dump_read(&d, "dump.json", slice_str(json), &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "the file's name must end with the rank") != NULL, "%s", err.msg);
    cr_expect_eq(flight_dump_read(&d, "logs/attempt_0/flight_torch_12", slice_str(json), &err), DDP_OK);
    cr_expect_eq(d.rank, 12);
    flight_dump_free(&d);
    static const struct {
        const char *file;
        int rank;
    } names[] = {
        { "logs.2/llama3.1_rank_7", 7 },
        { "llama3.1_rank_5.json", 5 },
        { "flight_torch_12.json.1", 12 },
        { "flight_3.json.old", 3 },
        { "4.json", 4 },
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cr_assert_eq(flight_dump_read(&d, names[i].file, slice_str(json), &err), DDP_OK, "%s: %s",
                     names[i].file, err.msg);
        cr_expect_eq(d.rank, names[i].rank, "%s: %d", names[i].file, d.rank);
        flight_dump_free(&d);
    }
    cr_expect_eq(flight_dump_read(&d, "dump.json.1", slice_str(json), &err), DDP_ERR_CORRUPT);
}
