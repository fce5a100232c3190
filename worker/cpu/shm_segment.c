/* shm_segment.c -- see shm_segment.h.
 *
 * Why not shm_open: its names stay in /dev/shm when all ranks are killed before somebody unlinks them.
 * Why not a descriptor sent through a Unix socket: that needs a socket with a name or an inherited one,
 * so it would not work under torchrun or by hand. /proc/<pid>/fd works wherever the ranks may watch each
 * other, which they must anyway. */
#include "cpu/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static ddp_status map(struct segment *s, size_t bytes, int fd, int flags, struct ddp_err *err)
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
static ddp_status furnish(int fd, size_t bytes, struct ddp_err *err)
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
    ddp_status status = furnish(fd, bytes, err);
    if (status == DDP_OK)
        status = map(out, bytes, fd, MAP_SHARED, err);
    if (status != DDP_OK)
        close(fd);
    return status;
}

ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err)
{
    *out = (struct segment){ .fd = -1 };
    return map(out, bytes, -1, MAP_PRIVATE | MAP_ANONYMOUS, err);
}

ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err)
{
    struct stat st;
    if (fstat(segment->fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "fstat of shared memory: %s", strerror(errno));
    *offer = (struct segment_offer){ getpid(), segment->fd, st.st_dev, st.st_ino };
    return DDP_OK;
}

/* Is it the very file that was offered, of the size that everybody computes for himself, unable to
 * shrink, and this user's? Another user could change it while we use it. */
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
        status = map(out, bytes, fd, MAP_SHARED, err);
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
