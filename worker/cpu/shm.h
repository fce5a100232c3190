/* shm.h -- the shared memory of the ranks of one host: segments without a name, the control page with the slots, and
 * the blocks of ddp_shared_alloc. Segments have no name, because the kernel then frees their memory when the last
 * process ends. */
#ifndef WORKER_CPU_SHM_H
#define WORKER_CPU_SHM_H

#include "core/bootstrap.h"
#include "core/call.h"
#include "ddp/error.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The unit of segment sizes: a page on most machines. On machines with larger pages, the parts of two ranks may
 * share a page. */
enum { SEGMENT_PAGE = 4096 };

/* A piece of shared memory. One rank creates a memory file (memfd) and publishes its pid and the descriptor's number.
 * The other ranks open /proc/<pid>/fd/<descriptor> and map the same pages. The struct owns the mapping and the
 * descriptor, which region_close or meeting_close closes. */
struct segment {
    void *base;
    size_t bytes;
    int fd; /* -1 after segment_hide, or for private memory */
};

/* Another process finds a segment at /proc/<pid>/fd/<fd>. `device` and `inode` show whether the file at this path is
 * the segment, because the kernel may have reused the pid. */
struct segment_offer {
    int32_t pid, fd;
    uint64_t device, inode;
};

/* Create a segment of `bytes` zeros that other processes may attach. Allocate all pages at once, so that a lack of
 * memory is an error at the start, not a SIGBUS in a later step. Seal the size, so that no rank can shrink the
 * file while other ranks use it. The caller later closes the segment. Return DDP_ERR_NOMEM or DDP_ERR_IO after a
 * failure. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err);

/* Create a private segment, for a world of one. */
ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err);

/* Fill `offer` for a segment that this rank has created. Call this function before segment_hide. */
ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err);

/* Map the segment that `offer` describes. Return DDP_ERR_CORRUPT if the segment is not a sealed memory file of
 * exactly `bytes` bytes. */
ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err);

/* Close the descriptor and keep the mapping. Call this function after all ranks have attached. */
void segment_hide(struct segment *segment);

/* --- the control page ------------------------------------------------------------------------------------- */

/* The page that all ranks of a host share, and its layout. In this file, barrier.h and host_collectives.h, `rank` is
 * the rank on this host, and `world` is the number of ranks on this host. Exception: shm_rank.rank is the rank in the
 * group. Error texts contain ranks of the group.
 *
 *     the page   arrivals | phase, sleepers | abort | offer | rank 0 | rank 1 | ...
 *     after it   slots of rank 0, slots of rank 1, ...
 *
 * Writers of the fields:
 *
 *     arrivals, sleepers    every rank
 *     rank 0, rank 1 ...    that rank, but rank 0 writes the members pid and rank before any other rank attaches
 *     phase                 the last rank to arrive
 *     abort                 the first rank to give up
 *     offer, host name      rank 0
 *
 * Fields with different writers are in separate cache lines. The atomic fields order the accesses to all others. Every
 * rank computes the layout, so a wrong number in the page causes no access outside the segment. */

/* Maximum number of ranks on one host. Arrays of this size fit on the stack. Each rank also needs one descriptor (a
 * pidfd) for every other rank, and the number of descriptors of a process is limited. */
enum { SHM_WORLD_MAX = 1024 };

/* The place of a call's buffer: private memory, or `offset` bytes after the start of the rank's block in `region`. */
struct shm_place {
    int32_t region; /* -1 for private memory */
    uint64_t offset;
};

/* The mark: a description of a rank's call. A rank writes its mark before it arrives at a barrier. Other ranks read
 * the mark after that barrier. */
struct shm_mark {
    uint64_t seq;     /* sequence number of the call */
    struct call call; /* its pointers are valid only in the process that wrote the mark */
    struct shm_place in, out;
};

struct shm_rank {
    _Alignas(PART_LINE) _Atomic uint32_t arrived; /* number of barriers that this rank has entered */
    int32_t pid, rank;        /* pid, and rank in the group; written by the creator of the page */
    int32_t made, mapped;     /* for shared_alloc: status of creating the segment; status of mapping it */
    struct shm_mark marks[2]; /* marks of the last even-numbered call and the last odd-numbered call */
};

struct shm_control {
    _Alignas(PART_LINE) _Atomic uint64_t arrivals; /* number of arrivals of all ranks */
    _Alignas(PART_LINE) _Atomic uint32_t phase;    /* futex: number of finished phases */
    _Atomic uint32_t sleepers;                     /* number of ranks that sleep on `phase` */

    _Alignas(PART_LINE) _Atomic uint32_t abort_claimed; /* 1 if a rank has begun to write the reason */
    _Atomic uint32_t abort_ready;                       /* 1 if the whole reason for the abort is written */
    int32_t abort_code;
    char abort_words[sizeof(((struct ddp_err *)0)->msg)];

    char host[64];              /* for error texts; written by the creator of the page */
    struct segment_offer offer; /* shared_alloc: place of the new segment */
    struct shm_rank ranks[];
};

/* Number of slots of a rank: two for its own values (give) and two for results (take); see host_collectives.c. In each
 * pair, one slot is written while the other slot is read. */
enum { SHM_SLOTS = 4 };

/* Return the size in bytes of the control page (shm_control_bytes) or of one slot (shm_slot_bytes), on a host with
 * `world` ranks. */
size_t shm_control_bytes(int world);
size_t shm_slot_bytes(int world);

/* Return slot `which` of `rank`. Slots 0 and 1 are for the rank's own values; slots 2 and 3 are for results. */
void *shm_slot(struct shm_control *control, int world, int rank, unsigned which);

/* Return the mark of `rank` for call number `seq`. Only the last two calls of a rank have marks. */
const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq);

/* Return the mark of the last call that `rank` has begun. */
const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank);

/* Claim the right to publish the abort text. Return false if another rank was first. If the result is true, the caller
 * must call shm_abort_publish, which wakes all sleepers. Between the two calls, the caller may ask other hosts for an
 * earlier reason. Any thread of any rank may call these functions. */
bool shm_abort_claim(struct shm_control *control);
void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words);

/* Return DDP_OK, or the code and text of the rank that has aborted. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err);

/* --- blocks of ddp_shared_alloc --------------------------------------------------------------------------- */

/* The blocks of ddp_shared_alloc. A region is one segment with a block of equal size for each rank. A region has the
 * same number on all ranks, because all ranks allocate and free regions together. */

struct region {
    struct segment segment; /* segment.base is NULL in an unused entry of the table */
    size_t stride;          /* bytes from the start of one rank's block to the next */
    size_t bytes;           /* requested size of a block */
};

/* The struct owns the list and the mappings, until regions_close. */
struct regions {
    struct region *list;
    size_t count;
    int rank, world;
};

/* Reserve a free number for a new region and store it in *number. Return DDP_ERR_NOMEM if memory is short. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err);

/* Return the size in bytes of a segment with `world` blocks of `bytes` bytes, gaps included. Set *stride to the
 * distance in bytes from block to block. Return 0 if the segment would be too large. */
size_t region_segment_bytes(size_t bytes, int world, size_t *stride);

/* Return the region and the offset of the address `block`, if `bytes` bytes from this address are in this rank's own
 * block of a region. Otherwise return {-1, 0}. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes);

/* Return the address of `place` in `rank`'s block. Return NULL if the place is private, or if `bytes` bytes do not fit
 * into the block. The place may come from a peer, so all its fields are checked. The region owns the memory. */
void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes);

void region_close(struct region *region);
void regions_close(struct regions *regions);

/* --- sleeping in shared memory, over futex(2) ------------------------------------------------------------ */

/* Sleep until *word differs from `seen`, a wake-up arrives, or `ms` milliseconds have passed. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t ms)
{
    struct timespec limit = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static inline void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- meeting ---------------------------------------------------------------------------------------------- */

enum { SHM_NONCE = 16 };

/* Result of meeting_join: which ranks share a host, and the control page of this host. */
struct meeting {
    struct segment segment;   /* owned: control page and slots, with pids and ranks filled in */
    uint16_t *host_of;        /* owned: host of each rank, numbered in the order of the hosts' lowest ranks */
    int hosts, host;          /* number of hosts; index of this host */
    int local_rank, locals;   /* local rank of this rank; number of ranks on this host */
    uint8_t nonce[SHM_NONCE]; /* random, equal on all ranks; identifies this run */
};

/* Determine through the store which ranks share a host (struct bootstrap_card), and map the control page of this host.
 * All ranks must call this function. After DDP_OK the caller closes *out with meeting_close. */
ddp_status meeting_join(const struct bootstrap *bootstrap, struct meeting *out, struct ddp_err *err);
void meeting_close(struct meeting *meeting);

/* Delete the keys that this rank has stored in meeting_join, and close the descriptor of the control page. Call this
 * function after all ranks have joined. */
ddp_status meeting_over(const struct bootstrap *bootstrap, struct meeting *meeting, struct ddp_err *err);

/* Report a failed start to the other ranks. For ranks that have not mapped the page yet, the page's creator publishes
 * the reason in the store. Ranks that have mapped the page read the reason in the page. */
void meeting_refuse(const struct bootstrap *bootstrap, const struct meeting *meeting,
                    const struct ddp_err *reason);

#endif
