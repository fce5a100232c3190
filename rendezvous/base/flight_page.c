/* flight_page.c -- see flight_page.h. */
#include "base/flight_page.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page)
{
    snprintf(out, FLIGHT_PAGE_TEXT, "%d:%d:%" PRIu64 ":%" PRIu64 ":%" PRIu64, page->pid, page->fd,
             page->device, page->inode, page->index);
}

/* Digits and then `end`. What is too large for the largest number is not what was printed, and will not be found. */
static bool take(const char **at, char end, uint64_t most, uint64_t *out)
{
    char *rest;
    if (**at < '0' || **at > '9')
        return false;
    *out = strtoull(*at, &rest, 10);
    if (*rest != end || *out > most)
        return false;
    *at = rest + (end != '\0');
    return true;
}

bool flight_page_parse(const char *text, struct flight_page *page)
{
    uint64_t pid, fd;
    if (!take(&text, ':', INT_MAX, &pid) || !take(&text, ':', INT_MAX, &fd) ||
        !take(&text, ':', UINT64_MAX, &page->device) || !take(&text, ':', UINT64_MAX, &page->inode) ||
        !take(&text, '\0', INT_MAX, &page->index))
        return false;
    page->pid = (int)pid;
    page->fd = (int)fd;
    return true;
}
