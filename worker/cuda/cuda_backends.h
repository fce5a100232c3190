/* cuda_backends.h -- the backends in libddp_cuda. */
#ifndef CUDA_BACKENDS_H
#define CUDA_BACKENDS_H

#include "core/backend.h"

extern const struct comm_ops nccl_comm_ops, staged_comm_ops;

#endif
