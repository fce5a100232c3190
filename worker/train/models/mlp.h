/* mlp.h -- the model of the Fashion-MNIST tutorials: pixels -> 200 -> 200 -> classes, cross-entropy on top.
 *
 *     mlp      linear, ReLU, linear, ReLU, linear
 *     seqnet   linear, sigmoid, linear, log_softmax, linear      (the tutorial's) */
#ifndef TRAIN_MLP_H
#define TRAIN_MLP_H

#include "train/layers/activation.h"
#include "train/models/models.h"

enum { MLP_LAYERS = 3, MLP_HIDDEN = 200 };

struct mlp_config {
    const struct activation *after[MLP_LAYERS - 1]; /* the last layer: cross-entropy takes the logits */
};
extern const struct mlp_config mlp_relu, mlp_seqnet;

/* Parameters as torch.manual_seed(seed) and nn.Linear would draw them, but for the last bit of some: uniform in
 * +-1/sqrt(inputs). */
ddp_status mlp_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                      struct ddp_err *err);

#endif
