/* sampler.h -- the samples of this rank, as chosen by torch's DistributedSampler.
 *
 * The samples are listed in the order 0 to n - 1. With SHUFFLE, their order is torch's randperm(n) from an mt19937
 * with the seed `seed` + epoch. The ranks get the samples in turn.
 *
 * To make the length of the list a multiple of the world size, samples from the beginning are repeated at the end. With
 * DROP_LAST, the end of the list is cut off instead. With NO_PAD, for evaluation, the list does not change: each sample
 * occurs exactly once over all ranks. Some ranks may then get one sample less.
 *
 * The functions only compute: they use no file, thread or clock. The algorithm is that of PyTorch's files
 * torch/utils/data/distributed.py and TensorFactories.cpp (randperm_cpu). From 214,748,364 samples on (UINT32_MAX /
 * 20), torch shuffles with 64-bit numbers, so its order differs from the order of these functions. */
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

/* Create a sampler of n samples (1 to 2^31 - 1). Return DDP_ERR_ARG for an invalid number or flag. The caller owns
 * *out. */
DDP_API ddp_status ddp_sampler_create(uint64_t n, int world_size, int rank, uint64_t seed, unsigned flags,
                                      ddp_sampler **out, struct ddp_err *err);
DDP_API void ddp_sampler_free(ddp_sampler *sampler);

/* Begin epoch `epoch`. Call this function before each epoch. */
DDP_API void ddp_sampler_set_epoch(ddp_sampler *sampler, uint64_t epoch);

/* Begin epoch `epoch` after its first `done` samples, counted over all ranks. The remaining samples of the epoch are a
 * new list, which is distributed as usual. This list is cut, or padded with samples from the beginning of the epoch. If
 * the world size is unchanged and `done` is a multiple of the world size, the epoch continues exactly as before. With
 * another world size, each remaining sample still occurs once, apart from padding and cutting. If `done` is the whole
 * epoch or more, no sample is left. */
DDP_API void ddp_sampler_resume(ddp_sampler *sampler, uint64_t epoch, uint64_t done);

/* Return the number of samples of this rank in the epoch, or, after ddp_sampler_resume, in the rest of the epoch. */
DDP_API uint64_t ddp_sampler_len(const ddp_sampler *sampler);

/* Return 1 and the next sample in *index, or 0 at the end of the epoch. *is_pad (may be NULL) becomes 1 if the sample
 * is padding. */
DDP_API int ddp_sampler_next(ddp_sampler *sampler, uint64_t *index, int *is_pad);

#ifdef __cplusplus
}
#endif
#endif
