/* Tests of the layer between the loop and the hub. This layer finds a client by its id in constant time, queues
 * replies, writes lines of the log, and admits clients. */
#include "base/log.h"
#include "server/clients.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(idmap, a_number_finds_its_pointer_until_it_is_given_back)
{
    struct idmap map = { 0 };
    int a, b;
    uint64_t first = idmap_store(&map, &a), second = idmap_store(&map, &b);
    cr_assert_neq(first, 0);
    cr_assert_neq(first, second);
    cr_assert_eq(idmap_get(&map, first), &a);
    cr_assert_eq(idmap_get(&map, second), &b);
    idmap_remove(&map, first);
    cr_assert_null(idmap_get(&map, first));
    cr_assert_eq(map.count, 1);
    idmap_free(&map);
}

Test(idmap, an_old_number_does_not_find_the_next_user_of_its_slot)
{
    struct idmap map = { 0 };
    int a, b;
    uint64_t old = idmap_store(&map, &a);
    idmap_remove(&map, old);
    idmap_remove(&map, old);
    uint64_t young = idmap_store(&map, &b);
    cr_assert_neq(old, young);
    cr_assert_null(idmap_get(&map, old));
    cr_assert_eq(idmap_get(&map, young), &b);
    cr_assert_null(idmap_get(&map, 0));
    cr_assert_null(idmap_get(&map, UINT64_MAX));
    idmap_free(&map);
}

Test(idmap, grows_and_walks_over_everything)
{
    enum { MANY = 5000 };
    static char things[MANY];
    static uint64_t numbers[MANY];
    struct idmap map = { 0 };
    size_t seen = 0;
    for (int i = 0; i < MANY; i++)
        numbers[i] = idmap_store(&map, &things[i]);
    for (int i = 0; i < MANY; i += 2)
        idmap_remove(&map, numbers[i]);
    for (size_t i = 0; idmap_next(&map, &i) != NULL;)
        seen++;
    cr_assert_eq(seen, MANY / 2);
    for (int i = 1; i < MANY; i += 2)
        cr_assert_eq(idmap_get(&map, numbers[i]), &things[i]);
    idmap_free(&map);
}

/* --- replies -------------------------------------------------------------------------------------------------- */

/* Tests of the queue: order, no lost byte, and exact limits. */

static struct replies replies;

/* Replies that were sent, each as "id:bytes ". */
static char sent[REPLIES_BYTES + REPLIES_MAX * 32];

static void note(void *user, conn_id to, struct slice bytes)
{
    char *text = user;
    const size_t len = strlen(text);
    snprintf(text + len, sizeof(sent) - len, "%d:%.*s ", (int)to, (int)bytes.len, (const char *)bytes.data);
}

static void fresh(void)
{
    replies = (struct replies){ 0 };
    sent[0] = '\0';
}

TestSuite(replies, .init = fresh);

Test(replies, go_out_in_their_order_once)
{
    cr_assert(replies_store(&replies, 7, slice_str("one")));
    cr_assert(replies_store(&replies, 9, slice_str("two")));
    cr_assert(replies_store(&replies, 7, slice_str("three")));
    replies_flush(&replies, note, sent);
    replies_flush(&replies, note, sent);
    cr_assert_str_eq(sent, "7:one 9:two 7:three ");
}

Test(replies, take_so_many_and_no_more)
{
    for (int i = 0; i < REPLIES_MAX; i++)
        cr_assert(replies_store(&replies, 1, slice_str("x")), "reply %d", i);
    cr_assert_not(replies_store(&replies, 1, slice_str("x")));
    replies_flush(&replies, note, sent);
    cr_assert_eq(strlen(sent), REPLIES_MAX * strlen("1:x "));
    cr_assert(replies_store(&replies, 1, slice_str("x")), "there is room again");
}

Test(replies, take_so_many_bytes_and_no_more)
{
    static char bytes[REPLIES_BYTES + 1];
    memset(bytes, 'b', sizeof(bytes));
    cr_assert_not(replies_store(&replies, 1, slice_of(bytes, sizeof(bytes))));
    cr_assert(replies_store(&replies, 1, slice_of(bytes, REPLIES_BYTES - 1)));
    cr_assert_not(replies_store(&replies, 2, slice_str("cd")));
    cr_assert(replies_store(&replies, 2, slice_str("c")));
    cr_assert(replies_store(&replies, 3, slice_of(NULL, 0)), "nothing needs no room");
    replies_flush(&replies, note, sent);
    cr_assert_eq(strlen(sent), strlen("1: 2: 3: ") + REPLIES_BYTES);
    cr_assert_str_eq(sent + strlen("1:") + REPLIES_BYTES - 2, "b 2:c 3: ");
}

/* --- gate ----------------------------------------------------------------------------------------------------- */

Test(gate, one_line_in_a_second_and_a_count_of_the_rest)
{
    struct rate_limit gate = { 0 };
    unsigned left_out = 99;
    cr_assert(rate_limit_pass(&gate, 5000, &left_out));
    cr_assert_eq(left_out, 0);
    cr_assert_not(rate_limit_pass(&gate, 5000, &left_out));
    cr_assert_not(rate_limit_pass(&gate, 5999, &left_out));
    cr_assert(rate_limit_pass(&gate, 6000, &left_out));
    cr_assert_eq(left_out, 2);
    cr_assert(rate_limit_pass(&gate, 99999, &left_out));
    cr_assert_eq(left_out, 0);
}

/* --- admission ------------------------------------------------------------------------------------------------ */

/* Tests of the limits for the connections of each source. If a limit is reached, the oldest connection that has sent no
 * complete request is chosen to be closed. */

enum { MAX = 16, SELF = 1000, STRANGER = 1001, MANY = 64 };

static struct admission admission;
static struct admission_entry entry[MANY];

static struct admission_key address(uint8_t last)
{
    return (struct admission_key){ .address = { [10] = 0xff, [11] = 0xff, 10, 0, 0, last } };
}

static struct admission_key user(uint32_t uid)
{
    return (struct admission_key){ .is_uid = true, .uid = uid };
}

/* Open the connections `first`, `first` + 1, ... at 0 ms, until a connection is rejected. Return the number of opened
 * connections. */
static uint32_t fill(uint32_t first, struct admission_key key)
{
    uint32_t n = 0;
    while (first + n < MANY && admission_open(&admission, &entry[first + n], &key, 0) == ADMISSION_OK)
        n++;
    return n;
}

static void no_connections(void)
{
    admission_init(&admission, MAX, SELF);
}

static void close_all(void)
{
    for (int i = 0; i < MANY; i++)
        admission_close(&admission, &entry[i]);
    for (int i = 0; i < ADMISSION_BUCKETS; i++)
        cr_assert(LIST_EMPTY(&admission.bucket[i]));
    cr_assert(TAILQ_EMPTY(&admission.silent));
}

TestSuite(admission, .init = no_connections, .fini = close_all);

Test(admission, each_source_has_its_share)
{
    cr_assert_eq(fill(0, user(STRANGER)), MAX / 2);
    close_all();
    cr_assert_eq(fill(0, address(1)), MAX - MAX / 8);
}

/* All limited sources together have one limit. When this limit is reached, the user who runs the store can still
 * connect. */
Test(admission, all_limited_sources_have_a_share_together)
{
    const struct admission_key own = user(SELF), one = address(1), two = address(2), three = address(3);
    cr_assert_eq(admission_open(&admission, &entry[40], &own, 0), ADMISSION_OK);
    cr_assert_eq(fill(0, user(STRANGER)), MAX / 2);
    cr_assert_eq(fill(10, one), MAX - MAX / 8 - MAX / 2);
    cr_assert_eq(admission_open(&admission, &entry[20], &two, 0), ADMISSION_NEARLY_FULL);
    cr_assert_eq(fill(20, own), MAX - 1);
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_NEARLY_FULL, &two, 5000), &entry[0]);
    admission_close(&admission, &entry[0]);
    cr_assert_eq(admission_open(&admission, &entry[0], &two, 0), ADMISSION_OK);
    cr_assert_eq(admission_open(&admission, &entry[50], &three, 0), ADMISSION_NEARLY_FULL);
}

Test(admission, the_store_s_user_and_root_have_no_share)
{
    cr_assert_eq(fill(0, user(SELF)), MAX);
    cr_assert_eq(fill(20, user(0)), MAX);
}

Test(admission, shares_scale_with_the_descriptors)
{
    const struct admission_key key = address(1);
    admission.max = 65536;
    cr_assert_eq(admission_limit(&admission, &key), 57344);
    admission.max = 1;
    cr_assert_eq(admission_limit(&admission, &key), 1);
}

Test(admission, a_closed_connection_makes_room_once)
{
    const struct admission_key key = address(1);
    const uint32_t n = fill(0, key);
    admission_close(&admission, &entry[3]);
    admission_close(&admission, &entry[3]);
    cr_assert_eq(admission_open(&admission, &entry[3], &key, 0), ADMISSION_OK);
    cr_assert_eq(admission_open(&admission, &entry[n], &key, 0), ADMISSION_FULL);
}

Test(admission, the_oldest_silent_connection_goes_first)
{
    const struct admission_key one = address(1), two = address(2);
    admission_open(&admission, &entry[0], &one, 100);
    admission_open(&admission, &entry[1], &two, 200);
    admission_open(&admission, &entry[2], &two, 300);
    cr_assert_null(admission_oldest_silent(&admission, ADMISSION_OK, NULL, 100 + ADMISSION_SILENT_MS - 1));
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_OK, NULL, 100 + ADMISSION_SILENT_MS),
                 &entry[0]);
    cr_assert_null(admission_oldest_silent(&admission, ADMISSION_FULL, &two, 100 + ADMISSION_SILENT_MS));
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_FULL, &two, 5000), &entry[1]);
    admission_spoke(&admission, &entry[0]);
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_OK, NULL, 5000), &entry[1]);
    admission_close(&admission, &entry[1]);
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_OK, NULL, 5000), &entry[2]);
}
