/* kernels_bf16.c -- the module of type bf16, for the CPU: see shim.h. */
#define VALUE_BF16
#include "shim.h"

#include "train/cuda/kernels.cu"

SHIM_MODULE(bf16)
