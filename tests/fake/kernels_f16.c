/* kernels_f16.c -- the module of type f16, for the CPU: see shim.h. */
#define VALUE_F16
#include "shim.h"

#include "train/cuda/kernels.cu"

SHIM_MODULE(f16)
