/* decimal.c -- see decimal.h.
 *
 * Not strtoll: the bytes have no final NUL, the blanks would depend on the locale, and errno has no
 * business in a module that only computes. */
#include "store/decimal.h"

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The limit differs by one between the signs, so it is chosen before the first digit; comparing with
 * (limit - digit) / 10 keeps the product from ever overflowing. */
bool decimal_parse(struct slice text, int64_t *value)
{
    const char *p = text.data, *end = p + text.len;
    while (p < end && is_blank(*p))
        p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    uint64_t limit = (uint64_t)INT64_MAX + negative, sum = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (sum > (limit - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *value = (int64_t)(negative ? 0 - sum : sum);
    return p > digits;
}

/* Written from the end of the room, where the last digit goes; the magnitude is unsigned, since INT64_MIN
 * has none. */
struct slice decimal_print(int64_t value, char *text)
{
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *end = text + DECIMAL_MAX, *p = end;
    do
        *--p = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0)
        *--p = '-';
    return slice_of(p, (size_t)(end - p));
}
