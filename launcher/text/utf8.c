/* utf8.c -- see utf8.h. The table of the Unicode standard (3-7) in code: only the second byte's range depends on the
 * first. */
#include "text/utf8.h"

/* How many bytes a sequence has that begins with `first`, 0 when none does. */
static size_t length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

size_t utf8_sequence(const uint8_t *p, size_t len)
{
    uint8_t low = 0x80, high = 0xbf; /* what the second byte may be */
    size_t need = length_of(p[0]);
    if (need <= 1)
        return need;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (len < need || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

/* The first byte says the length in its leading ones; below them it has the highest bits. */
uint32_t utf8_code(const uint8_t *p, size_t len)
{
    static const uint8_t masks[] = { 0x7f, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t code = p[0] & masks[len];
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}
