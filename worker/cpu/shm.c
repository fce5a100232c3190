/* shm.c -- see shm.h.
 *
 * Why not shm_open: its names stay in /dev/shm when all ranks are killed before the names are unlinked. Why not a
 * descriptor sent through a Unix socket: that needs a socket with a name or an inherited one, so it would not work
 * under torchrun or by hand. /proc/<pid>/fd works wherever the ranks may watch each other, which they must anyway. */
#include "cpu/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static ddp_status map_segment(struct segment *s, size_t bytes, int fd, int flags, struct ddp_err *err)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return ddp_fail(err, DDP_ERR_NOMEM, "mapping %zu bytes of shared memory: %s", bytes, strerror(errno));
    /* Fewer TLB misses in big reductions where the system allows it; no harm where it does not. */
    madvise(base, bytes, MADV_HUGEPAGE);
    *s = (struct segment){ .base = base, .bytes = bytes, .fd = fd };
    return DDP_OK;
}

/* Size, pages and seals of a fresh memory file. Without posix_fallocate pages would come one by one at
 * first touch, and a full memory control group would kill the worker there with SIGBUS. F_SEAL_SEAL makes
 * the other seals final. */
static ddp_status fill_segment(int fd, size_t bytes, struct ddp_err *err)
{
    if (ftruncate(fd, (off_t)bytes) != 0)
        return ddp_fail(err, DDP_ERR_NOMEM, "shared memory of %zu bytes: %s", bytes, strerror(errno));
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    if (error != 0)
        return ddp_fail(err, DDP_ERR_NOMEM, "%zu bytes of shared memory are not available: %s", bytes,
                        strerror(error));
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return ddp_fail(err, DDP_ERR_IO, "sealing shared memory: %s", strerror(errno));
    return DDP_OK;
}

/* Close-on-exec: a program that a worker starts must not keep gradients alive. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err)
{
    *out = (struct segment){ .fd = -1 };
    int fd = memfd_create("ddp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "memfd_create: %s", strerror(errno));
    ddp_status status = fill_segment(fd, bytes, err);
    if (status == DDP_OK)
        status = map_segment(out, bytes, fd, MAP_SHARED, err);
    if (status != DDP_OK)
        close(fd);
    return status;
}

ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err)
{
    *out = (struct segment){ .fd = -1 };
    return map_segment(out, bytes, -1, MAP_PRIVATE | MAP_ANONYMOUS, err);
}

ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err)
{
    struct stat st;
    if (fstat(segment->fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "fstat of shared memory: %s", strerror(errno));
    *offer = (struct segment_offer){ getpid(), segment->fd, st.st_dev, st.st_ino };
    return DDP_OK;
}

/* Is it the very file that was offered, of the size that every rank computes, unable to shrink, and this user's?
 * Another user could change it while we use it. */
static ddp_status recognise(int fd, const struct segment_offer *offer, size_t bytes, struct ddp_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "fstat of shared memory: %s", strerror(errno));
    int seals = fcntl(fd, F_GET_SEALS);
    if (st.st_dev != offer->device || st.st_ino != offer->inode || st.st_size != (off_t)bytes || seals < 0 ||
        (seals & SEALS) != SEALS)
        return ddp_fail(
            err, DDP_ERR_CORRUPT,
            "descriptor %d of pid %d is not the shared memory that was offered (%lld bytes, %zu were "
            "expected)",
            offer->fd, offer->pid, (long long)st.st_size, bytes);
    if (st.st_uid != geteuid())
        return ddp_fail(
            err, DDP_ERR_CORRUPT,
            "the shared memory of pid %d belongs to uid %u, and this rank is uid %u: all ranks must "
            "run as the same user",
            offer->pid, (unsigned)st.st_uid, (unsigned)geteuid());
    return DDP_OK;
}

ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err)
{
    char path[64];
    *out = (struct segment){ .fd = -1 };
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", offer->pid, offer->fd);
    /* O_NONBLOCK: should the descriptor be something else by now, a pipe say, opening it must not hang. */
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "opening shared memory %s: %s (all ranks must run as the same user)",
                        path, strerror(errno));
    ddp_status status = recognise(fd, offer, bytes, err);
    if (status == DDP_OK)
        status = map_segment(out, bytes, fd, MAP_SHARED, err);
    close(fd);
    out->fd = -1;
    return status;
}

void segment_hide(struct segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    segment->fd = -1;
}

/* A zeroed segment (base NULL) was never made or is closed already. */
void segment_close(struct segment *segment)
{
    if (segment->base == NULL)
        return;
    segment_hide(segment);
    munmap(segment->base, segment->bytes);
    segment->base = NULL;
}

/* --- the control page ------------------------------------------------------------------------------------- */

/* A slot of 256 KiB stays in the second level cache between two ranks; with many ranks on a host all slots
 * together are held under 64 MiB. */
enum { SLOT_MOST = 256 << 10, SLOT_LEAST = 16 << 10, SLOTS_TOTAL = 64 << 20 };

/* Whole pages, so that the slots behind begin at a page. */
size_t shm_control_bytes(int world)
{
    size_t bytes = sizeof(struct shm_control) + (size_t)world * sizeof(struct shm_rank);
    return (bytes + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
}

size_t shm_slot_bytes(int world)
{
    size_t share = SLOTS_TOTAL / SHM_SLOTS / (size_t)world / SEGMENT_PAGE * SEGMENT_PAGE;
    return share > SLOT_MOST ? SLOT_MOST : share < SLOT_LEAST ? SLOT_LEAST : share;
}

size_t shm_total_bytes(int world)
{
    return shm_control_bytes(world) + (size_t)world * SHM_SLOTS * shm_slot_bytes(world);
}

void *shm_slot(struct shm_control *control, int world, int rank, unsigned which)
{
    size_t number = (size_t)rank * SHM_SLOTS + which;
    return (char *)control + shm_control_bytes(world) + number * shm_slot_bytes(world);
}

const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq)
{
    return &control->ranks[rank].marks[seq & 1];
}

const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank)
{
    const struct shm_mark *marks = control->ranks[rank].marks;
    return &marks[marks[1].seq > marks[0].seq];
}

/* Claim, write, publish: a reader that sees abort_ready sees whole words. Should the claimant die in
 * between, the others find it dead by themselves and return their own words. */
bool shm_abort_claim(struct shm_control *control)
{
    uint32_t nobody = 0;
    return atomic_compare_exchange_strong(&control->abort_claimed, &nobody, 1);
}

void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words)
{
    control->abort_code = code;
    snprintf(control->abort_words, sizeof(control->abort_words), "%s", words);
    atomic_store(&control->abort_ready, 1);
    futex_wake_all(&control->phase);
}

/* One load when all is well: every barrier of every call asks. The length is limited by ourselves, not by a NUL that
 * another rank has to write. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err)
{
    if (!atomic_load_explicit(&control->abort_ready, memory_order_acquire))
        return DDP_OK;
    return ddp_fail(err, (ddp_status)control->abort_code, "%.*s", (int)sizeof(control->abort_words) - 1,
                    control->abort_words);
}

/* --- blocks of ddp_shared_alloc --------------------------------------------------------------------------- */

/* Each block begins on a new page, and one more page lies between them: blocks that are exactly a power of two apart
 * would fight for the same places in the caches. */
enum { BETWEEN = SEGMENT_PAGE };

/* The lowest free number, found in the same way on every rank: all make and free regions in the same
 * order. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err)
{
    for (size_t i = 0; i < regions->count; i++) {
        if (regions->list[i].segment.base == NULL) {
            *number = (int32_t)i;
            return DDP_OK;
        }
    }
    struct region *list = realloc(regions->list, (regions->count + 1) * sizeof(*list));
    if (list == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for a table of %zu shared blocks", regions->count + 1);
    regions->list = list;
    *number = (int32_t)regions->count++;
    list[*number] = (struct region){ .segment = { .fd = -1 } };
    return DDP_OK;
}

size_t region_segment_bytes(size_t bytes, int world, size_t *stride)
{
    if (bytes > SIZE_MAX / 2 / (size_t)world - 2 * SEGMENT_PAGE - BETWEEN)
        return 0;
    *stride = (bytes + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE + BETWEEN;
    return *stride * (size_t)world;
}

/* A handful of regions at most (one for each reducer, some of the user's own), so they are just gone
 * through. Written without sums of addresses that could overflow. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes)
{
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *r = &regions->list[i];
        uintptr_t mine = (uintptr_t)r->segment.base + (size_t)regions->rank * r->stride,
                  at = (uintptr_t)block;
        if (r->segment.base != NULL && at >= mine && at - mine <= r->bytes && bytes <= r->bytes - (at - mine))
            return (struct shm_place){ (int32_t)i, at - mine };
    }
    return (struct shm_place){ -1, 0 };
}

void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes)
{
    if (place.region < 0 || (size_t)place.region >= regions->count)
        return NULL;
    const struct region *r = &regions->list[place.region];
    if (r->segment.base == NULL || place.offset > r->bytes || bytes > r->bytes - place.offset)
        return NULL;
    return (char *)r->segment.base + (size_t)rank * r->stride + place.offset;
}

void region_close(struct region *region)
{
    segment_close(&region->segment);
}

void regions_close(struct regions *regions)
{
    for (size_t i = 0; i < regions->count; i++)
        region_close(&regions->list[i]);
    free(regions->list);
    *regions = (struct regions){ 0 };
}
