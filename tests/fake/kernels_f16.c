/* kernels_f16.c -- the GPU kernels for f16, compiled for the CPU (shim.h). */
#define VALUE_F16
#include "shim.h"

#include "train/cuda/kernels.cu"

SHIM_MODULE(f16)
