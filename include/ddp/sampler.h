/* sampler.h -- the samples of this rank, with the same numbers as torch's DistributedSampler.
 *
 * With SHUFFLE the order is torch's randperm(n) from an mt19937 seeded with seed + epoch. The list is padded with its
 * own beginning (or cut with DROP_LAST) to a multiple of the world size, and the ranks get its samples in turn.
 * NO_PAD is for evaluation: over all ranks each sample occurs exactly once, so the ranks' numbers of samples may
 * differ by one. Pure: no clock, no file, no thread. Source of algorithm and golden vectors: PyTorch
 * torch/utils/data/distributed.py and aten TensorFactories.cpp (randperm_cpu). */
#ifndef DDP_SAMPLER_H
#define DDP_SAMPLER_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DDP_SAMPLER_SHUFFLE = 1, DDP_SAMPLER_DROP_LAST = 2, DDP_SAMPLER_NO_PAD = 4 };

typedef struct ddp_sampler ddp_sampler;

/* Create a sampler of n samples (1 .. 2^31 - 1). DDP_ERR_ARG for invalid sizes or flags. The caller owns *out. */
DDP_API ddp_status ddp_sampler_create(uint64_t n, int world_size, int rank, uint64_t seed, unsigned flags,
                                      ddp_sampler **out, struct ddp_err *err);
DDP_API void ddp_sampler_free(ddp_sampler *sampler);

/* Begin epoch `epoch`. Call this before each epoch, as with torch. */
DDP_API void ddp_sampler_set_epoch(ddp_sampler *sampler, uint64_t epoch);

/* Begin epoch `epoch` after its first `done` samples, counted over all ranks. The rest of the epoch's order is
 * distributed, and padded or cut, like a whole list. With the same world size, and `done` a multiple of it, the epoch
 * continues exactly. With another world size, each sample of the rest still occurs once. If `done` is the whole epoch
 * or more (with padding), nothing is left. */
DDP_API void ddp_sampler_resume(ddp_sampler *sampler, uint64_t epoch, uint64_t done);

/* Return the number of this rank's samples in an epoch; after ddp_sampler_resume, in the rest of the epoch. */
DDP_API uint64_t ddp_sampler_len(const ddp_sampler *sampler);

/* Return 1 and the next sample in *index, or 0 at the end. *is_pad (may be NULL) becomes 1 if padding repeats the
 * sample. */
DDP_API int ddp_sampler_next(ddp_sampler *sampler, uint64_t *index, int *is_pad);

#ifdef __cplusplus
}
#endif
#endif
