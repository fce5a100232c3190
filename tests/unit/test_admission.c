/* test_admission.c -- server/admission.h: the limit of each source, and the choice of the connection that is closed. */
#include "server/admission.h"

#include <criterion/criterion.h>

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

/* Open connections first, first + 1, ... at 0 ms until one is refused; their number. */
static uint32_t fill(uint32_t first, struct admission_key key)
{
    uint32_t n = 0;
    while (first + n < MANY && admission_open(&admission, &entry[first + n], &key, 0) == ADMISSION_OK)
        n++;
    return n;
}

static void fresh(void)
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

TestSuite(admission, .init = fresh, .fini = close_all);

Test(admission, each_source_has_its_share)
{
    cr_assert_eq(fill(0, user(STRANGER)), MAX / 2);
    close_all();
    cr_assert_eq(fill(0, address(1)), MAX - MAX / 8);
}

/* However many sources they are, the store's own user finds room. */
Test(admission, all_limited_sources_have_a_share_together)
{
    const struct admission_key own = user(SELF), one = address(1), two = address(2), three = address(3);
    cr_assert_eq(admission_open(&admission, &entry[40], &own, 0), ADMISSION_OK);
    cr_assert_eq(fill(0, user(STRANGER)), MAX / 2);
    cr_assert_eq(fill(10, one), MAX - MAX / 8 - MAX / 2);
    cr_assert_eq(admission_open(&admission, &entry[20], &two, 0), ADMISSION_CROWDED);
    cr_assert_eq(fill(20, own), MAX - 1);
    cr_assert_eq(admission_oldest_silent(&admission, ADMISSION_CROWDED, &two, 5000), &entry[0]);
    admission_close(&admission, &entry[0]);
    cr_assert_eq(admission_open(&admission, &entry[0], &two, 0), ADMISSION_OK);
    cr_assert_eq(admission_open(&admission, &entry[50], &three, 0), ADMISSION_CROWDED);
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
