/* date.h -- the calendar by arithmetic: the C library's own reads files, and knows one time zone only. */
#ifndef BASE_DATE_H
#define BASE_DATE_H

#include <stdint.h>

struct date {
    int year, month, day; /* month and day from 1 */
};

/* The day that is `day` days after 1970-01-01. */
struct date date_of(uint64_t day);

#endif
