/* flight_page.h -- how a worker finds its page of flight.h: the value of DDPRUN_PAGE. Pure.
 *
 *     4711:9:1:52713:3      descriptor 9 of process 4711, which is file 52713 of device 1; page 3 of it
 *
 * A memory file without a name leaves nothing behind, whoever is killed; it is opened as /proc/4711/fd/9. Device and inode say
 * whether that is still the file that was meant. */
#ifndef BASE_FLIGHT_PAGE_H
#define BASE_FLIGHT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flight_page {
    int pid, fd;
    uint64_t device, inode, index;
};

enum { FLIGHT_PAGE_TEXT = 128 };

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page);

/* False when `text` is none; *page is undefined then. */
bool flight_page_parse(const char *text, struct flight_page *page);

#endif
