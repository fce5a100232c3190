/* libraries.h -- what of NVIDIA's must be loaded, and the file with the kernels. */
#ifndef TRAIN_CUDA_LIBRARIES_H
#define TRAIN_CUDA_LIBRARIES_H

#include "train/cuda/device.h"

/* Load libcuda, libcudart and libcublasLt; *count = GPUs that there are. They stay loaded. */
ddp_status libraries_open(struct cuda *c, int *count, struct ddp_err *err);

/* The file for a precision, and a zero behind it; *image is yours to free. */
ddp_status libraries_kernels(int precision, char **image, struct ddp_err *err);

#endif
