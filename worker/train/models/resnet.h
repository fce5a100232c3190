/* resnet.h -- the residual networks for CIFAR of He et al. 2015 (section 4.2): a convolution of 16 channels, three stages of
 * `blocks` blocks with 16, 32 and 64, the mean of each channel, one linear layer. Every convolution is 3 x 3, without bias,
 * normalised over the batch. resnet20 has three blocks in a stage: 20 layers, 269,722 parameters for ten classes.
 *
 * A block adds its input to its result (activation.h: option A, without parameters). Running means and variances are the model's
 * buffers. With a group in the spec a batch is normalised over all ranks (ddp/syncbn.h). Rows at the end of a batch whose weight
 * is 0 are left out: they would be in the means.
 *
 * Squares of any size that four divides; ours are 32 x 32 (CIFAR-10) or 28 x 28. */
#ifndef TRAIN_RESNET_H
#define TRAIN_RESNET_H

#include "train/models/models.h"

enum { RESNET_STAGES = 3, RESNET_WIDTH = 16 };

struct resnet_config {
    size_t blocks; /* of a stage */
};
extern const struct resnet_config resnet20;

/* Parameters as torch.manual_seed(seed), nn.Conv2d and nn.Linear would draw them, but for the last bit of some: uniform in
 * +-1/sqrt(inputs); normalisations begin as 1 and 0. */
ddp_status resnet_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err);

#endif
