/* date.c -- see date.h.
 *
 * Years begin in March here, so that the leap day is the last of its year; then 153 days are five months of
 * 31, 30, 31, 30, 31 days, from any multiple of five. Four centuries always have the same number of days. */
#include "base/date.h"

struct date date_of(uint64_t day)
{
    enum { TO_1970 = 719468, CENTURIES_4 = 146097, CENTURY = 36524, YEARS_4 = 1460, YEAR = 365 };
    uint64_t d = day + TO_1970, cycle = d / CENTURIES_4;
    d %= CENTURIES_4;
    uint64_t y = (d - d / YEARS_4 + d / CENTURY - d / (CENTURIES_4 - 1)) / YEAR;
    d -= YEAR * y + y / 4 - y / 100;
    uint64_t m = (5 * d + 2) / 153;
    struct date date = { .day = (int)(d - (153 * m + 2) / 5 + 1), .month = (int)(m < 10 ? m + 3 : m - 9) };
    date.year = (int)(y + 400 * cycle + (date.month <= 2));
    return date;
}
