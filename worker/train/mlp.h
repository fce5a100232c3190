/* mlp.h -- the model of the Fashion-MNIST tutorials: 784 -> 200 -> 200 -> 10, cross-entropy on top.
 *
 *     mlp      linear, ReLU, linear, ReLU, linear
 *     seqnet   linear, sigmoid, linear, log_softmax, linear      (the tutorial's)
 *
 * All parameters lie in one array, tensor after tensor, weights as [out][in] like torch's nn.Linear.
 * Gradients go wherever the caller wants them: six pointers, e.g. into a reducer's buckets. */
#ifndef TRAIN_MLP_H
#define TRAIN_MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MLP_INPUT = 784, MLP_HIDDEN = 200, MLP_CLASSES = 10, MLP_LAYERS = 3 };

/* name, elements */
#define MLP_TENSOR_LIST(X)                    \
    X("lin1.weight", MLP_HIDDEN *MLP_INPUT)   \
    X("lin1.bias", MLP_HIDDEN)                \
    X("lin2.weight", MLP_HIDDEN *MLP_HIDDEN)  \
    X("lin2.bias", MLP_HIDDEN)                \
    X("lin3.weight", MLP_CLASSES *MLP_HIDDEN) \
    X("lin3.bias", MLP_CLASSES)

#define X(name, count) +1
enum { MLP_TENSORS = MLP_TENSOR_LIST(X) };
#undef X
#define X(name, count) +(count)
enum { MLP_PARAMS = MLP_TENSOR_LIST(X) };
#undef X

struct mlp_tensor {
    const char *name;
    size_t count;
};
extern const struct mlp_tensor mlp_tensors[MLP_TENSORS];

enum mlp_model { MLP_RELU, MLP_SEQNET, MLP_MODELS };
extern const char *const mlp_model_name[MLP_MODELS + 1]; /* as in --model; ends with NULL */

struct mlp {
    enum mlp_model model;
    float *params;              /* MLP_PARAMS of them, ours */
    float *tensor[MLP_TENSORS]; /* views into params */
    size_t max_rows;
    float *out[MLP_LAYERS];   /* what each layer gave last, behind its activation; the last are the logits */
    float *delta[MLP_LAYERS]; /* gradients of the same */
};

/* False when memory is short; nothing is to be freed then. `max_rows` bounds every later batch. */
bool mlp_init(struct mlp *mlp, enum mlp_model model, size_t max_rows);
void mlp_free(struct mlp *mlp);

/* Where each tensor begins in a flat array of MLP_PARAMS elements. */
void mlp_views(float *flat, float *tensor[MLP_TENSORS]);

/* Fill the parameters as torch.manual_seed(seed) and nn.Linear would, but for the last bit of some: uniform
 * in +-1/sqrt(inputs). */
void mlp_seed(struct mlp *mlp, uint64_t seed);

/* Logits of `rows` inputs, rows x MLP_CLASSES; valid until the next call. */
const float *mlp_forward(struct mlp *mlp, const float *x, size_t rows);

/* After mlp_forward with the same rows: the sum of the losses of the rows whose weight is not 0, and, kept
 * inside for mlp_backward, the gradient of sum(weight[i] * loss[i]). */
double mlp_loss(struct mlp *mlp, const uint8_t *labels, const float *weight, size_t rows);

/* After mlp_loss with the same rows: overwrite the six gradients. */
void mlp_backward(struct mlp *mlp, const float *x, size_t rows, float *const grad[MLP_TENSORS]);

/* FNV-1a 64 over the bytes of all parameters in order. */
uint64_t mlp_hash(const struct mlp *mlp);

#endif
