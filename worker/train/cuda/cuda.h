/* cuda.h -- `train` on a GPU: the compute of compute.h that launches our own kernels (kernels.h) and cuBLASLt's products.
 *
 * Everything of NVIDIA's is loaded at run time: libcudart, libcuda, libcublasLt; the kernels from train_kernels.TYPE.fatbin beside the
 * program, or in ../share/ddprun, or in the directory DDP_TRAIN_KERNELS. */
#ifndef TRAIN_CUDA_CUDA_H
#define TRAIN_CUDA_CUDA_H

#include "train/compute.h"

/* Can `train` compute on a GPU here, and of how many? DDP_ERR_UNSUPPORTED says what is missing. Takes none. */
ddp_status cuda_available(int precision, int *count, struct ddp_err *err);

/* Device `device` for this thread; `precision` is one of train_options.h. *out is yours, for its `close`. */
ddp_status cuda_open(int device, int precision, struct compute **out, struct ddp_err *err);

#endif
