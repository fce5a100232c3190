/* kernels.cu -- all kernels of kernels.h, as one module. The type of values is said when it is compiled: -DVALUE_F32, -DVALUE_BF16
 * or -DVALUE_F16.
 *
 * They are written in what CUDA and C have in common. So tests/fake/ compiles the same files for the CPU, where threads of a block
 * are fibers (tests/fake/shim.h), and every kernel is compared with its layer in worker/train/layers/ on machines without a GPU. */
#include "train/cuda/kernels.h"

#include "value.cu"

#include "activations.cu"
#include "attention.cu"
#include "attention_tiles.cu"
#include "batch_norm.cu"
#include "conv.cu"
#include "cross_entropy.cu"
#include "embedding.cu"
#include "layer_norm.cu"
#include "pictures.cu"
#include "sums.cu"
#include "update.cu"
