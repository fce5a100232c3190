/* kernels_f16.c -- the GPU kernels for the type f16, compiled for the CPU: see shim.h. The type is a macro, so each
 * type needs a separate file. */
#define VALUE_F16
#include "shim.h"

#include "train/cuda/kernels.cu"

SHIM_MODULE(f16)
