/* Tests of Philox4x32-10 against the known answers of its authors (Random123, kat_vectors), and of the sequences of
 * samples. */
#include "ddp/random.h"

#include <criterion/criterion.h>

Test(philox, gives_the_known_answers)
{
    const struct {
        uint32_t counter[4], key[2], expected[4];
    } rows[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ddp_philox random = { .at = 4 };
        for (int k = 0; k < 4; k++)
            random.counter[k] = rows[i].counter[k];
        for (int k = 0; k < 2; k++)
            random.key[k] = rows[i].key[k];
        for (int k = 0; k < 4; k++)
            cr_expect_eq(ddp_philox_next(&random), rows[i].expected[k], "row %zu, word %d", i, k);
    }
}

Test(philox, a_sample_has_the_same_sequence_each_time_and_no_other_has_it)
{
    const uint64_t at[][3] = { { 7, 3, 100 }, { 8, 3, 100 },          { 7, 4, 100 },
                               { 7, 3, 101 }, { 7ull << 32, 3, 100 }, { 7, 3, 100ull << 32 } };
    uint32_t first[6][8];
    for (int i = 0; i < 6; i++) {
        ddp_philox random, again;
        ddp_philox_seed(&random, at[i][0], at[i][1], at[i][2]);
        ddp_philox_seed(&again, at[i][0], at[i][1], at[i][2]);
        for (int k = 0; k < 8; k++) {
            first[i][k] = ddp_philox_next(&random);
            cr_expect_eq(first[i][k], ddp_philox_next(&again));
        }
    }
    for (int i = 0; i < 48; i++) {
        for (int k = 0; k < i; k++)
            cr_expect_neq(first[i / 8][i % 8], first[k / 8][k % 8]);
    }
}

Test(philox, uniform_numbers_are_in_0_to_1_and_spread_evenly)
{
    ddp_philox random;
    double sum = 0;
    ddp_philox_seed(&random, 1, 0, 0);
    for (int i = 0; i < 10000; i++) {
        float u = ddp_philox_uniform(&random);
        cr_assert(u >= 0 && u < 1);
        sum += (double)u;
    }
    cr_expect_float_eq(sum / 10000, 0.5, 0.02);
}
