/* The pauses between tries to reach a store: they grow, they differ, they end. */
#include "client/call.h"

#include <criterion/criterion.h>

Test(client_pause, grows_from_milliseconds_to_seconds)
{
    cr_assert_leq(client_pause_ms(0, 0), 20);
    for (unsigned round = 1; round < 12; round++)
        cr_assert_gt(client_pause_ms(round, 0), client_pause_ms(round - 1, 0));
    cr_assert_eq(client_pause_ms(12, 0), client_pause_ms(1000000, 0));
}

/* Never more than half away from the plain pause, whatever the luck. */
Test(client_pause, is_spread_by_luck)
{
    const uint32_t lucks[] = { 0, 1, 999, 2000, 2001, 123456789, UINT32_MAX };
    for (unsigned round = 0; round < 20; round++) {
        const uint32_t least = client_pause_ms(round, 0);
        for (size_t i = 0; i < sizeof(lucks) / sizeof(*lucks); i++) {
            cr_assert_geq(client_pause_ms(round, lucks[i]), least);
            cr_assert_leq(client_pause_ms(round, lucks[i]), 3 * least + 1);
        }
    }
    cr_assert_neq(client_pause_ms(20, 5), client_pause_ms(20, 6));
}
