/* shm_control.c -- see shm_control.h. */
#include "cpu/shm_control.h"

#include "cpu/futex.h"

#include <stdio.h>

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

/* One load when all is well: every barrier of every call asks. The length is limited by ourselves, not by
 * a NUL that somebody else has to write. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err)
{
    if (!atomic_load_explicit(&control->abort_ready, memory_order_acquire))
        return DDP_OK;
    return ddp_fail(err, (ddp_status)control->abort_code, "%.*s", (int)sizeof(control->abort_words) - 1,
                    control->abort_words);
}
