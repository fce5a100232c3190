/* Numbers that find their pointer in constant time and never somebody else's. */
#include "server/clients.h"

#include <criterion/criterion.h>

Test(idmap, a_number_finds_its_pointer_until_it_is_given_back)
{
    struct idmap map = { 0 };
    int a, b;
    uint64_t first = idmap_put(&map, &a), second = idmap_put(&map, &b);
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
    uint64_t old = idmap_put(&map, &a);
    idmap_remove(&map, old);
    idmap_remove(&map, old);
    uint64_t young = idmap_put(&map, &b);
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
        numbers[i] = idmap_put(&map, &things[i]);
    for (int i = 0; i < MANY; i += 2)
        idmap_remove(&map, numbers[i]);
    for (size_t i = 0; idmap_next(&map, &i) != NULL;)
        seen++;
    cr_assert_eq(seen, MANY / 2);
    for (int i = 1; i < MANY; i += 2)
        cr_assert_eq(idmap_get(&map, numbers[i]), &things[i]);
    idmap_free(&map);
}
