/* pretend_gpu.h -- ranks with GPUs on a machine that has none: tests/fake/fake_gpu.h. */
#ifndef TESTS_LIB_PRETEND_GPU_H
#define TESTS_LIB_PRETEND_GPU_H

#include "ddp/ddp.h"

/* In a rank, before ddp_init_from_env: this process finds the fake runtime and NCCL, and the libddp_cuda of this build. */
void pretend_gpu(void);

/* Options for backend "nccl" on device LOCAL_RANK, and for "cpu" on it. */
extern const ddp_options nccl_options, staged_options;

#endif
