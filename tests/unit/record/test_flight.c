/* Tests of a rank's flight recorder in memory: which calls are kept, how the calls are printed, and the effect of
 * damaged memory. Other processes read this memory while the rank writes, so a reader must accept any bytes. */
#include "record/flight.h"

#include "base/buf.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct flight *flight;
static struct buf text;
static cJSON *json;

static void make(void)
{
    flight = calloc(1, sizeof(*flight));
    flight->rank = 3;
    flight->world_size = 4;
    flight->wall_ns = 1000;
    strcpy(flight->host, "n1");
    strcpy(flight->backend, "cpu");
    strcpy(flight->kinds[0], "all_reduce");
    strcpy(flight->kinds[7], "barrier");
    strcpy(flight->dtypes[0], "f32");
    strcpy(flight->ops[1], "avg");
}

static void done(void)
{
    free(flight);
    buf_free(&text);
    cJSON_Delete(json);
}

TestSuite(flight, .init = make, .fini = done);

static struct flight_op *call(uint64_t seq, unsigned kind, uint64_t at_ns)
{
    const struct flight_begin begin = { .seq = seq,
                                        .kind = kind,
                                        .n = 100,
                                        .bytes = 400,
                                        .op = 1,
                                        .now_ns = at_ns,
                                        .timeout_ms = 2000,
                                        .bucket = -1,
                                        .state = FLIGHT_STARTED };
    return flight_add(flight, &begin);
}

static bool add(void *user, const char *bytes, size_t len)
{
    return buf_append(user, bytes, len);
}

/* Return the record as JSON. The JSON must be valid for any content of the memory. */
static const cJSON *print(const char *why)
{
    text.len = 0;
    cr_assert(flight_json(flight, why, 9000, add, &text) && buf_append(&text, "", 1));
    cJSON_Delete(json);
    json = cJSON_Parse((const char *)text.data);
    cr_assert_not_null(json, "%s", (const char *)text.data);
    return json;
}

static const cJSON *entry(int i)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItem(json, "entries"), i);
}

static double number(const cJSON *of, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(of, name);
    cr_assert(cJSON_IsNumber(item), "%s in %s", name, (const char *)text.data);
    return item->valuedouble;
}

static const char *word(const cJSON *of, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(of, name));
}

Test(flight, a_call_is_told_with_its_times)
{
    atomic_store(&flight->step, 7);
    flight_finish(flight, call(17, 0, 5000), FLIGHT_COMPLETED, 1505000);
    call(18, 7, 1600000);
    print("time is up");
    cr_expect_str_eq(word(json, "why"), "time is up");
    cr_expect_eq(number(json, "rank"), 3);
    cr_expect_eq(number(json, "step"), 6);
    cr_expect_str_eq(word(entry(0), "profiling_name"), "cpu:all_reduce");
    cr_expect_str_eq(word(entry(0), "state"), "completed");
    cr_expect_str_eq(word(entry(0), "reduce_op"), "avg");
    cr_expect_eq(number(entry(0), "collective_seq_id"), 17);
    cr_expect_eq(number(entry(0), "bytes"), 400);
    cr_expect_eq(number(entry(0), "duration_ms"), 1.5);
    cr_expect_eq(number(entry(0), "time_created_ns"), 6000);
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(entry(0), "bucket")));
    cr_expect_str_eq(word(entry(1), "state"), "started");
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(entry(1), "duration_ms")));
    const cJSON *status = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "pg_status"), "0");
    cr_expect_eq(number(status, "last_started_collective"), 18);
    cr_expect_eq(number(status, "last_completed_collective"), 17);
}

Test(flight, the_last_1024_are_kept_in_their_order)
{
    for (uint64_t i = 1; i <= 3000; i++)
        flight_finish(flight, call(i, 0, i), FLIGHT_COMPLETED, i + 1);
    print("");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "entries")), FLIGHT_OPS);
    cr_expect_eq(number(entry(0), "collective_seq_id"), 3000 - FLIGHT_OPS + 1);
    cr_expect_eq(number(entry(FLIGHT_OPS - 1), "collective_seq_id"), 3000);
}

/* In an asynchronous backend, a call may complete after later calls have begun. */
Test(flight, the_head_tells_of_the_latest_call_only)
{
    struct flight_op *first = call(1, 0, 10), *second = call(2, 7, 20);
    flight_finish(flight, first, FLIGHT_COMPLETED, 30);
    cr_expect_eq(atomic_load(&flight->call), flight_call(2, 7, FLIGHT_STARTED));
    flight_finish(flight, second, FLIGHT_FAILED, 40);
    cr_expect_eq(flight_state(atomic_load(&flight->call)), FLIGHT_FAILED);
}

Test(flight, what_was_kept_is_old_after_the_next_call)
{
    cr_expect_not(flight_is_kept(flight));
    flight_note_kept(flight);
    cr_expect_not(flight_is_kept(flight), "there is nothing to keep");
    struct flight_op *op = call(1, 0, 10);
    flight_note_kept(flight);
    cr_expect(flight_is_kept(flight));
    flight_finish(flight, op, FLIGHT_COMPLETED, 20);
    cr_expect_not(flight_is_kept(flight));
}

/* The launcher prints the memory in which a worker has recorded its calls. A faulty worker can write any bytes to this
 * memory. */
Test(flight, damaged_memory_is_printed_as_what_it_is)
{
    memset((void *)flight, 0xff, sizeof(*flight));
    print("\"quoted\"\n\\");
    cr_expect_str_eq(word(json, "why"), "?quoted???");
    for (size_t i = 0; i < sizeof(*flight); i++)
        ((unsigned char *)flight)[i] = (unsigned char)(i * 167 + i / 251);
    print("");
}

static bool refuse(void *user, const char *bytes, size_t len)
{
    (void)bytes, (void)len;
    return ++*(int *)user < 2;
}

Test(flight, a_full_disk_ends_it)
{
    int pieces = 0;
    for (uint64_t i = 1; i <= FLIGHT_OPS; i++)
        call(i, 0, i);
    cr_expect_not(flight_json(flight, "", 0, refuse, &pieces));
    cr_expect_eq(pieces, 2);
}

Test(flight, files_are_named_by_rank)
{
    char path[64], small[8];
    cr_expect(flight_path(path, sizeof(path), "/logs", 12) && strcmp(path, "/logs/flight_12.json") == 0);
    cr_expect(flight_path(path, sizeof(path), "/logs/", 0) && strcmp(path, "/logs/flight_0.json") == 0);
    cr_expect(flight_path(path, sizeof(path), "a%r/b%r.json", 7) && strcmp(path, "a7/b7.json") == 0);
    cr_expect_not(flight_path(small, sizeof(small), "/logs", 1));
}

Test(flight, a_page_is_found_by_its_text)
{
    const struct flight_page page = { 4711, 9, 1, 52713, 3 };
    struct flight_page back;
    char out[FLIGHT_PAGE_TEXT];
    flight_page_print(out, &page);
    cr_assert(flight_page_parse(out, &back));
    cr_expect(back.pid == 4711 && back.fd == 9 && back.device == 1 && back.inode == 52713 && back.index == 3);
    const char *const wrong[] = { "",           "1",          "1:2:3:4",   "1:2:3:4:",
                                  "1:2:3:4:5 ", "-1:2:3:4:5", "1:2:3:4:x", "9999999999:1:1:1:1" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        cr_expect_not(flight_page_parse(wrong[i], &back), "'%s'", wrong[i]);
}
