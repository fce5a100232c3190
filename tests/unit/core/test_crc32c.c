/* Tests of CRC-32C against RFC 3720 (appendix B.4), with and without the processor's instruction. Checkpoints must
 * be readable on any machine, so both ways must give the same numbers. */
#include "core/crc32c.c"

#include <criterion/criterion.h>
#include <string.h>

typedef uint32_t crc_function(uint32_t crc, const void *data, size_t len);

static crc_function *const both[2] = { crc32c, crc32c_portable };

Test(crc32c, has_the_numbers_of_the_standard)
{
    uint8_t zeros[32] = { 0 }, ones[32], up[32];
    memset(ones, 0xff, sizeof(ones));
    for (int i = 0; i < 32; i++)
        up[i] = (uint8_t)i;
    for (int way = 0; way < 2; way++) {
        cr_expect_eq(both[way](0, "123456789", 9), 0xe3069283);
        cr_expect_eq(both[way](0, zeros, 32), 0x8a9136aa);
        cr_expect_eq(both[way](0, ones, 32), 0x62a8ab43);
        cr_expect_eq(both[way](0, up, 32), 0x46dd794e);
        cr_expect_eq(both[way](0, up, 0), 0);
    }
}

Test(crc32c, pieces_of_any_length_and_place_make_the_same)
{
    char text[100];
    for (int i = 0; i < 100; i++)
        text[i] = (char)(i * 37 + 11);
    for (size_t from = 0; from < 9; from++) {
        const uint32_t whole = crc32c_portable(0, text + from, 90);
        for (size_t cut = 0; cut <= 90; cut++) {
            for (int way = 0; way < 2; way++)
                cr_expect_eq(both[way](both[way](0, text + from, cut), text + from + cut, 90 - cut), whole);
        }
    }
}
