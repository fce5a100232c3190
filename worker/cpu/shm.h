/* shm.h -- the shared memory of the ranks of one host: segments without a name, the control page with the slots, and
 * the blocks of ddp_shared_alloc.
 *
 * One rank makes a memory file (memfd) and sends the others "pid, descriptor"; they open /proc/<pid>/fd/<descriptor>
 * and map the same pages. There is no name to clean up: when the last process ends, for whatever reason, the memory
 * is freed. The maker reserves all pages at once, so a lack of memory is an error here and not a SIGBUS in the middle
 * of a step, and seals the size, so no rank can shrink the file while others use it. */
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

/* The unit of segments, a page on most machines. On machines with larger pages, parts of two ranks may share one,
 * which only costs speed. */
enum { SEGMENT_PAGE = 4096 };

struct segment {
    void *base;
    size_t bytes;
    int fd; /* -1 once no rank needs to find it any more */
};

/* Where another process finds a segment, and how it verifies it, because a pid may be reused. */
struct segment_offer {
    int32_t pid, fd;
    uint64_t device, inode;
};

/* Make `bytes` zeroed bytes that others may attach. DDP_ERR_NOMEM or DDP_ERR_IO. Close with segment_close. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err);

/* The same for a world of one: private memory. */
ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err);

/* Fill `offer` for a segment of this rank that is not hidden. */
ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err);

/* Map what `offer` describes; it must be a sealed memory file of exactly `bytes` bytes, else
 * DDP_ERR_CORRUPT. */
ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err);

/* All ranks have attached: close the descriptor, the mapping stays. */
void segment_hide(struct segment *segment);

/* --- the control page ------------------------------------------------------------------------------------- */

/* The page that all ranks of a host share, and its layout.
 *
 * Here and in all files above it "rank" is the number among the ranks of this host, and "world" their number: on one
 * host the same as in the group. Only messages use the world's numbers.
 *
 * It has the state of the barrier (arrivals, phase), the call of each rank (to detect a difference and to name a late
 * rank), and one place for the reason why the job is over. After it come the slots through which private memory
 * travels. Every rank computes the layout from the world size; nothing in the page is ever used as a size. A world of
 * one has the same page in private memory.
 *
 *     page 0   arrivals | phase, sleepers | abort | offer | rank 0 | rank 1 | ...
 *     page 1   slots of rank 0, slots of rank 1, ...
 *
 * Writers: every rank adds to `arrivals` and `sleepers`; the last to arrive writes `phase`; the first to give up
 * writes the abort text; rank 0 writes `offer` and, before any other rank attaches, pids and host; a rank writes its
 * own entry. Each of these has separate cache lines, so that ranks do not disturb each other. Plain fields are handed
 * over by the atomics around them. */

/* Ranks on one host. The limit keeps arrays on the stack and the number of descriptors in bounds. */
enum { SHM_WORLD_MAX = 1024 };

/* Where a buffer of a call is: in block `region` of shared memory at `offset`, or in private memory. */
struct shm_place {
    int32_t region; /* -1 = private memory */
    uint64_t offset;
};

/* The call of a rank. Written by the rank itself before it arrives, read by others afterwards. */
struct shm_mark {
    uint64_t seq;
    struct call call; /* its pointers mean nothing to others */
    struct shm_place in, out;
};

struct shm_rank {
    _Alignas(PART_LINE) _Atomic uint32_t arrived; /* number of phases that this rank has arrived at */
    int32_t pid, rank;        /* filled in by the maker of the page; the rank is that in the world */
    int32_t made, mapped;     /* shared_alloc: ddp_status of its two steps */
    struct shm_mark marks[2]; /* marks of calls with even and odd numbers */
};

struct shm_control {
    _Alignas(PART_LINE) _Atomic uint64_t
        arrivals; /* total of all ranks; the arrival that makes it world * phases is the last */
    _Alignas(PART_LINE) _Atomic uint32_t phase; /* futex: number of finished phases */
    _Atomic uint32_t sleepers;                  /* ranks that sleep on `phase` and must be woken */

    _Alignas(PART_LINE) _Atomic uint32_t abort_claimed; /* 1: a rank writes the reason */
    _Atomic uint32_t abort_ready;                       /* 1: the reason is complete, and the job is over */
    int32_t abort_code;
    char abort_words[sizeof(((struct ddp_err *)0)->msg)];

    char host[64];              /* for messages; written by the maker of the page */
    struct segment_offer offer; /* the first rank's new block in shared_alloc */
    struct shm_rank ranks[];
};

/* Return the bytes of the page, and of one slot of one rank, for a world of `world` ranks. A rank has SHM_SLOTS
 * slots: two to give and two to take, so that one may be filled while the other is read. */
enum { SHM_SLOTS = 4 };
size_t shm_control_bytes(int world);
size_t shm_slot_bytes(int world);

/* Return slot `which` (0, 1 = give; 2, 3 = take) of `rank`. */
void *shm_slot(struct shm_control *control, int world, int rank, unsigned which);

/* Return the mark of `rank` for call number `seq`, and that of the last call it has begun. */
const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq);
const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank);

/* Break off: the first reason wins, all sleepers wake. Any thread, any process. False: another rank was first. A rank
 * that has claimed it must publish the text, and may take a moment to find a better reason. */
bool shm_abort_claim(struct shm_control *control);
void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words);

/* DDP_OK, or the code and text of the rank that has aborted. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err);

/* --- blocks of ddp_shared_alloc --------------------------------------------------------------------------- */

/* The blocks of ddp_shared_alloc: memory at the same place of the same file on every rank.
 *
 * A region is one segment of world equal blocks; block r is rank r's. Regions have the same number on all
 * ranks, because making one is a collective call, so "region 3, offset 512" means something to a peer. */

struct region {
    struct segment segment; /* base NULL: a free place in the table */
    size_t stride;          /* distance from one rank's block to the next */
    size_t bytes;           /* requested size of a block */
};

struct regions {
    struct region *list;
    size_t count;
    int rank, world;
};

/* Make room for one more region, whose number is *number. DDP_ERR_NOMEM. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err);

/* Return the bytes of the segment for blocks of `bytes` for `world` ranks, with the gaps between them. 0 = too large. */
size_t region_segment_bytes(size_t bytes, int world, size_t *stride);

/* Return the region and offset of `block` of `bytes` bytes, in our own block. {-1, 0} for private memory. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes);

/* Return `rank`'s memory at `place`, or NULL when it is private or not wholly inside a block, because a peer's data
 * is not trusted. */
void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes);

void region_close(struct region *region);
void regions_close(struct regions *regions);

/* --- sleeping in shared memory, over futex(2) ------------------------------------------------------------ */

/* Return when *word is no longer `seen`, at a wake-up, or after `ms`; the caller checks which it was. */
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

/* Find out which ranks share a host, and open the control page of each host. */

enum { SHM_NONCE = 16 };

struct meeting {
    struct segment segment;   /* control page and slots, pids and ranks filled in */
    uint16_t *host_of;        /* host of each rank of the world; hosts are numbered by their lowest rank */
    int hosts, host;          /* number of hosts, and ours */
    int local_rank, locals;   /* our number among the ranks of this host, and their number */
    uint8_t nonce[SHM_NONCE]; /* random, the same on all ranks: identifies this run */
};

/* Collective, through the store. DDP_OK: close *out with shm_meeting_close when the page is no longer needed. */
ddp_status meeting_join(const struct bootstrap *bootstrap, struct meeting *out, struct ddp_err *err);
void meeting_close(struct meeting *meeting);

/* All ranks have met: remove what the start needed. */
ddp_status meeting_over(const struct bootstrap *bootstrap, struct meeting *meeting, struct ddp_err *err);

/* This rank gives up before all have the page. Its maker publishes the reason for late ranks before closing it; the
 * others find it in the page itself. */
void meeting_refuse(const struct bootstrap *bootstrap, const struct meeting *meeting,
                    const struct ddp_err *reason);

#endif
