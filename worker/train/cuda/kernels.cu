/* kernels.cu -- all kernels of kernels.h, in one module. The compiler option -DVALUE_F32, -DVALUE_BF16 or -DVALUE_F16
 * selects the type of values.
 *
 * The kernels use only the common part of CUDA and C. So tests/fake/ compiles the same files for the CPU, where the
 * threads of a block are fibers (tests/fake/shim.h). With this build, tests on machines without a GPU compare every
 * kernel with its layer in worker/train/layers/. */
#include "train/cuda/kernels.h"

#include "value.cu"

#include "activations.cu"
#include "attention.cu"
#include "attention_tiles.cu"
#include "batch_norm.cu"
#include "cross_entropy.cu"
#include "embedding.cu"
#include "layer_norm.cu"
#include "pictures.cu"
#include "sums.cu"
#include "update.cu"
