/* pretend_gpu.c -- see pretend_gpu.h. */
#include "pretend_gpu.h"

#include "run.h"

#include <stdlib.h>

const ddp_options nccl_options = { .size = sizeof(ddp_options), .device = DDP_DEVICE_LOCAL };
const ddp_options staged_options = { .size = sizeof(ddp_options),
                                     .backend = "cpu",
                                     .device = DDP_DEVICE_LOCAL };

void pretend_gpu(void)
{
    setenv("DDP_CUDA_LIBRARY", bin("libddp_cuda.so"), 1);
    setenv("DDP_CUDART_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_CUDA_DRIVER_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_CUBLASLT_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_TRAIN_KERNELS", bin("tests/fake"), 1);
    setenv("DDP_NCCL_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
}
