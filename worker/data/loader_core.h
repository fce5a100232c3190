/* loader_core.h -- what ddp/loader.h decides: which samples a batch has, which slot it lies in, when it may be made. Pure;
 * loader.c has the threads and holds a mutex around each call that changes something.
 *
 * Batch k lies in slot k % slots. Up to `ahead` batches are made before they are asked for, and the last `held` that were
 * handed out stay as they are; so there are ahead + held slots, and batch k may be made once batch k - slots is given back.
 *
 *     given back | held by the program | made ahead, or being made | not begun
 *                ^ released            ^ given                     ^ taken             ^ total
 */
#ifndef WORKER_DATA_LOADER_CORE_H
#define WORKER_DATA_LOADER_CORE_H

#include "ddp/loader.h"
#include "ddp/sampler.h"

#include <stdbool.h>

struct loader_core {
    ddp_loader_options options; /* every 0 that stands for something is replaced by it */
    ddp_sampler **sampler;      /* ours, one per stream */
    size_t slots, slot_bytes, array_at[DDP_LOADER_ARRAYS]; /* where an array begins in its slot */
    uint64_t epoch, total, released, given, taken;
};

/* DDP_ERR_ARG, _LIMIT, _NOMEM; nothing is to be closed then. No epoch is begun. */
ddp_status loader_core_open(struct loader_core *core, const ddp_loader_options *options, struct ddp_err *err);
void loader_core_close(struct loader_core *core);

void loader_core_start(struct loader_core *core, uint64_t epoch, uint64_t done);

/* No batch is begun any more. */
void loader_core_stop(struct loader_core *core);

/* The program asks for one more batch and so gives one back: its number, or false at the end. The number stays the same until
 * loader_core_give. */
bool loader_core_ask(struct loader_core *core, uint64_t *number);
void loader_core_give(struct loader_core *core);

/* May a batch be begun? Then its number. Every batch is drawn right after it is taken: samplers go on. */
bool loader_core_take(struct loader_core *core, uint64_t *number);
void loader_core_draw(struct loader_core *core, uint64_t number, uint64_t *index, unsigned char *is_pad,
                      ddp_batch *batch);

/* What `fill` is told of row `row`. Reads only. */
ddp_loader_row loader_core_row(const struct loader_core *core, const ddp_batch *batch, size_t row);

#endif
