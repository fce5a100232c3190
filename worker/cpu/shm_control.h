/* shm_control.h -- the page that all ranks of a host share, and how it is laid out.
 *
 * Here and in everything that stands on it "rank" is the number among the ranks of this host, and "world" how many
 * they are: on one host the same as in the group. Only messages use the world's numbers.
 *
 * It holds what a barrier needs (how many have arrived, which phase it is), what each rank is doing (so
 * that a difference is found, and a late rank can be named), and one place for the reason why the job is
 * over. Behind it lie the slots through which private memory travels. Every rank computes the layout from
 * the world size; nothing in the page is ever used as a size. A world of one has the same page in memory
 * of its own.
 *
 *     page 0   arrivals | phase, sleepers | abort | offer | rank 0 | rank 1 | ...
 *     page 1   slots of rank 0, slots of rank 1, ...
 *
 * Who writes what: everybody adds to `arrivals` and `sleepers`; the last to arrive writes `phase`; the
 * first to give up writes the abort words; rank 0 writes `offer` and, before anybody else is there, pids
 * and host; a rank writes its own entry. Each of these has cache lines of its own, so that ranks do not
 * disturb each other. Plain fields are handed over by the atomics around them. */
#ifndef WORKER_SHM_CONTROL_H
#define WORKER_SHM_CONTROL_H

#include "core/call.h"
#include "cpu/part.h"
#include "cpu/shm_segment.h"

#include <stdatomic.h>

/* Ranks on one host. The limit keeps arrays on the stack and the number of descriptors in bounds. */
enum { SHM_WORLD_MAX = 1024 };

/* Where a buffer of a call lies: in block `region` of shared memory at `offset`, or nowhere that others
 * can see. */
struct shm_place {
    int32_t region; /* -1 = private memory */
    uint64_t offset;
};

/* What a rank is doing. Written by the rank itself before it arrives, read by others after. */
struct shm_mark {
    uint64_t seq;
    struct call call; /* its pointers mean nothing to others */
    struct shm_place in, out;
};

struct shm_rank {
    _Alignas(PART_LINE) _Atomic uint32_t arrived; /* phases this rank has arrived at */
    int32_t pid, rank;        /* filled in by the maker of the page; the rank is that in the world */
    int32_t made, mapped;     /* shared_alloc: ddp_status of its two steps */
    struct shm_mark marks[2]; /* of calls with even and odd numbers */
};

struct shm_control {
    _Alignas(PART_LINE) _Atomic uint64_t
        arrivals; /* of all ranks, ever: the one that makes it world * phases is last */
    _Alignas(PART_LINE) _Atomic uint32_t phase; /* futex: phases that are over */
    _Atomic uint32_t sleepers;                  /* ranks that sleep on `phase` and must be woken */

    _Alignas(PART_LINE) _Atomic uint32_t abort_claimed; /* 1: somebody writes the reason */
    _Atomic uint32_t abort_ready;                       /* 1: the reason is there, the job is over */
    int32_t abort_code;
    char abort_words[sizeof(((struct ddp_err *)0)->msg)];

    char host[64];              /* for messages; written by the maker of the page */
    struct segment_offer offer; /* the first rank's new block in shared_alloc */
    struct shm_rank ranks[];
};

/* Bytes of the page and of one slot of one rank for a world of `world` ranks. A rank has SHM_SLOTS slots:
 * two to give and two to take, so that one may be filled while the other is read. */
enum { SHM_SLOTS = 4 };
size_t shm_control_bytes(int world);
size_t shm_slot_bytes(int world);
size_t shm_total_bytes(int world);

/* Slot `which` (0, 1 = give; 2, 3 = take) of `rank`. */
void *shm_slot(struct shm_control *control, int world, int rank, unsigned which);

/* The mark of `rank` for call number `seq`, and that of the last call it has begun. */
const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq);
const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank);

/* Break off: the first reason wins, all sleepers wake. Any thread, any process. False: somebody was first. Who has
 * claimed it must publish words, and may take a moment to find better ones. */
bool shm_abort_claim(struct shm_control *control);
void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words);

/* Has somebody broken off? DDP_OK, or the code and words of the one who did. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err);

#endif
