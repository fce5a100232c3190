/* flight_pages.c -- see flight_pages.h.
 *
 * Sealed, so that a worker cannot make it smaller while we read. Pages that no worker touches cost nothing. */
#include "node/flight_pages.h"

#include "base/flight.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool seal(int fd, size_t bytes)
{
    return ftruncate(fd, (off_t)bytes) == 0 &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Takes `fd`, whatever happens. */
static void map(struct rank_pages *pages, int fd, int n)
{
    void *base = mmap(NULL, (size_t)n * FLIGHT_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED)
        *pages = (struct rank_pages){ .n = n, .fd = fd, .base = base };
    else
        close(fd);
}

void rank_pages_open(struct rank_pages *pages, int n)
{
    *pages = (struct rank_pages){ 0 };
    const int fd = n > 0 ? memfd_create("ddprun-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (fd >= 0 && seal(fd, (size_t)n * FLIGHT_PAGE_BYTES))
        map(pages, fd, n);
    else if (fd >= 0)
        close(fd);
}

void rank_pages_share(const struct rank_pages *pages, struct rank_pages *out)
{
    *out = (struct rank_pages){ 0 };
    const int fd = pages->n > 0 ? fcntl(pages->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        map(out, fd, pages->n);
}

void rank_pages_close(struct rank_pages *pages)
{
    if (pages->n == 0)
        return;
    munmap(pages->base, (size_t)pages->n * FLIGHT_PAGE_BYTES);
    close(pages->fd);
    *pages = (struct rank_pages){ 0 };
}

struct flight_page rank_pages_first(const struct rank_pages *pages)
{
    struct flight_page page = { 0 };
    struct stat st;
    if (pages->n == 0 || fstat(pages->fd, &st) != 0)
        return page;
    page.pid = (int)getpid();
    page.fd = pages->fd;
    page.device = st.st_dev;
    page.inode = st.st_ino;
    return page;
}

const struct flight *rank_page(const struct rank_pages *pages, int i)
{
    if (i >= pages->n)
        return NULL;
    const struct flight *f =
        (const struct flight *)(const void *)((const char *)pages->base + (size_t)i * FLIGHT_PAGE_BYTES);
    return flight_is_used(f) ? f : NULL;
}

/* --- its file ------------------------------------------------------------------------------------------- */

/* Beside the file first, so that half a record is never found under its name. */
static bool write_record(const struct flight *f, const char *path, const char *temporary, const char *why)
{
    const bool ok = flight_file_write(f, temporary, why) && rename(temporary, path) == 0;
    if (!ok)
        unlink(temporary);
    return ok;
}

/* What lies there may be of an earlier run. */
bool rank_page_keep(const struct rank_pages *pages, int i, const char *path, const char *why)
{
    char temporary[PATH_MAX];
    const struct flight *f = rank_page(pages, i);
    if (f == NULL || snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= PATH_MAX)
        return false;
    return (flight_is_kept(f) && access(path, F_OK) == 0) || write_record(f, path, temporary, why);
}
