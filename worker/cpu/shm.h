/* shm.h -- the shared memory of the ranks of one host: segments without a name, the control page with the slots, and
 * the blocks of ddp_shared_alloc.
 *
 * One rank creates a memory file (memfd) and sends its pid and the descriptor's number to the other ranks. The other
 * ranks open /proc/<pid>/fd/<descriptor> and map the same pages. The file has no name that must be removed: when the
 * last process ends, for any reason, the memory is freed. The creator reserves all pages at once, so a lack of memory
 * is an error here and not a SIGBUS in the middle of a step. The creator seals the size, so no rank can shrink the
 * file while other ranks use it. */
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

/* The unit of segments: a page on most machines. With larger pages two ranks' parts may share a page, which is only
 * slower. */
enum { SEGMENT_PAGE = 4096 };

struct segment {
    void *base;
    size_t bytes;
    int fd; /* -1 after segment_hide, or for private memory */
};

/* The place where another process finds a segment. `device` and `inode` verify the segment, because a pid may be
 * reused. */
struct segment_offer {
    int32_t pid, fd;
    uint64_t device, inode;
};

/* Create a segment of `bytes` zeros that other processes may attach. The owner closes the segment with segment_close.
 * Return DDP_ERR_NOMEM or DDP_ERR_IO after a failure. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err);

/* Create private memory instead, for a world of one. */
ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err);

/* Fill `offer` for a segment of this rank, before segment_hide. */
ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err);

/* Map the segment that `offer` describes. Return DDP_ERR_CORRUPT if the segment is not a sealed memory file of
 * exactly `bytes` bytes. */
ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err);

/* Close the descriptor after all ranks have attached. The mapping stays. */
void segment_hide(struct segment *segment);

/* --- the control page ------------------------------------------------------------------------------------- */

/* The page that all ranks of a host share, and its layout.
 *
 * In this file and in all files that use this file, "rank" is the number among the ranks of this host, and "world" is
 * the number of these ranks. On one host both are the same as in the group. Only texts use the group's ranks.
 *
 * The page has the state of the barrier (arrivals, phase), the call of each rank (to detect a difference and to name
 * a late rank), and one place for the reason why the job is over. The slots, through which ranks pass values of
 * private memory, follow the page. Every rank computes the layout from the world size. No function uses a number in
 * the page as a size. A world of one has the same page in private memory.
 *
 *     page 0   arrivals | phase, sleepers | abort | offer | rank 0 | rank 1 | ...
 *     page 1   slots of rank 0, slots of rank 1, ...
 *
 * Every rank adds to `arrivals` and `sleepers`, and writes its own entry. The last rank to arrive writes `phase`. The
 * first rank to give up writes the abort text. Rank 0 writes `offer`. Rank 0 also writes the pids and the host,
 * before any other rank attaches. Fields with different writers have separate cache lines, so that ranks do not
 * disturb each other. The atomics order the accesses to the plain fields. */

/* Maximum number of ranks on one host, so that arrays fit on the stack and descriptors stay below their limit. */
enum { SHM_WORLD_MAX = 1024 };

/* The place of a call's buffer: in shared memory at `offset` of block `region`, or in private memory. */
struct shm_place {
    int32_t region; /* -1 = private memory */
    uint64_t offset;
};

/* The description of a rank's call. The rank writes its mark before it arrives at a barrier, and other ranks read the
 * mark afterwards. */
struct shm_mark {
    uint64_t seq;
    struct call call; /* its pointers are valid only in the rank itself */
    struct shm_place in, out;
};

struct shm_rank {
    _Alignas(PART_LINE) _Atomic uint32_t arrived; /* number of phases that this rank has arrived at */
    int32_t pid, rank;        /* written by the creator of the page; `rank` is the rank in the group */
    int32_t made, mapped;     /* shared_alloc: the ddp_status of creating, of mapping */
    struct shm_mark marks[2]; /* marks of calls with even and odd numbers */
};

struct shm_control {
    _Alignas(PART_LINE) _Atomic uint64_t
        arrivals; /* sum over all ranks; the last arrival of a phase makes the sum a multiple of world */
    _Alignas(PART_LINE) _Atomic uint32_t phase; /* futex: number of finished phases */
    _Atomic uint32_t sleepers;                  /* number of ranks that sleep on `phase` */

    _Alignas(PART_LINE) _Atomic uint32_t abort_claimed; /* 1: a rank is writing the reason */
    _Atomic uint32_t abort_ready;                       /* 1: the reason is complete, and the job is over */
    int32_t abort_code;
    char abort_words[sizeof(((struct ddp_err *)0)->msg)];

    char host[64];              /* for texts; written by the creator of the page */
    struct segment_offer offer; /* shared_alloc: the first rank's new block */
    struct shm_rank ranks[];
};

/* Return the bytes of the page, and of one slot of one rank, in a world of `world` ranks. A rank has SHM_SLOTS slots:
 * two to give and two to take, so that one slot can be filled while the other slot is read. */
enum { SHM_SLOTS = 4 };
size_t shm_control_bytes(int world);
size_t shm_slot_bytes(int world);

/* Return slot `which` (0, 1 = give; 2, 3 = take) of `rank`. */
void *shm_slot(struct shm_control *control, int world, int rank, unsigned which);

/* Return the mark of `rank` for call number `seq`, or for the last call that `rank` has begun. */
const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq);
const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank);

/* Claim the abort. Return false if another rank was first. The rank that has claimed the abort may take a moment to
 * find a better reason. Then that rank must publish a text, which wakes all sleepers. May run on any thread of any
 * rank. */
bool shm_abort_claim(struct shm_control *control);
void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words);

/* Return DDP_OK, or the code and text of the rank that has aborted. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err);

/* --- blocks of ddp_shared_alloc --------------------------------------------------------------------------- */

/* The blocks of ddp_shared_alloc: on every rank, memory at the same place of the same file.
 *
 * A region is one segment with a block of equal size for each rank. Regions have the same numbers on all ranks,
 * because allocation is a collective call. So "region 3, offset 512" is valid for every rank. */

struct region {
    struct segment segment; /* base NULL: this entry of the table is free */
    size_t stride;          /* bytes from one rank's block to the next */
    size_t bytes;           /* requested size of a block */
};

struct regions {
    struct region *list;
    size_t count;
    int rank, world;
};

/* Make room for one more region and set *number to its number. Return DDP_ERR_NOMEM if memory is short. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err);

/* Return the bytes of a segment with blocks of `bytes` for `world` ranks, gaps included. Return 0 if the segment
 * would be too large. */
size_t region_segment_bytes(size_t bytes, int world, size_t *stride);

/* Return the region and offset of `bytes` bytes at `block`, in this rank's own block. Return {-1, 0} for private
 * memory. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes);

/* Return the address of `rank`'s memory at `place`. Return NULL if the place is private, or not wholly inside a
 * block. The place may come from a peer and is not trusted. */
void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes);

void region_close(struct region *region);
void regions_close(struct regions *regions);

/* --- sleeping in shared memory, over futex(2) ------------------------------------------------------------ */

/* Sleep until *word is no longer `seen`, a wake-up arrives, or `ms` have passed. The caller checks which of the three
 * happened. */
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
    struct segment segment;   /* owned: control page and slots; pids and ranks are filled in */
    uint16_t *host_of;        /* owned: host of each rank; hosts are numbered by their lowest ranks */
    int hosts, host;          /* number of hosts, and this host */
    int local_rank, locals;   /* this rank's number on this host, and the number of ranks on this host */
    uint8_t nonce[SHM_NONCE]; /* random, equal on all ranks; identifies this run */
};

/* Join the ranks through the store; collective. After DDP_OK the caller closes *out with meeting_close when the page
 * is no longer needed. */
ddp_status meeting_join(const struct bootstrap *bootstrap, struct meeting *out, struct ddp_err *err);
void meeting_close(struct meeting *meeting);

/* Remove the keys and the descriptor that only the start needs, after all ranks have joined. */
ddp_status meeting_over(const struct bootstrap *bootstrap, struct meeting *meeting, struct ddp_err *err);

/* Give up before all ranks have the page. The page's creator publishes the reason for late ranks before it closes the
 * page. Ranks that have the page find the reason in the page. */
void meeting_refuse(const struct bootstrap *bootstrap, const struct meeting *meeting,
                    const struct ddp_err *reason);

#endif
