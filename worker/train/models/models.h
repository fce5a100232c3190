/* models.h -- the table of all models. */
#ifndef TRAIN_MODELS_H
#define TRAIN_MODELS_H

#include "train/models/model.h"

/* A row: one word of --model. Each size of a family is a row, FAMILY:SIZE. */
struct model_kind {
    const char *name;
    enum model_input input;
    ddp_status (*create)(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err);
    const void *config;        /* for create: what makes this row another than its neighbours */
    size_t length, vocabulary; /* of MODEL_TOKENS: the longest sequence, how many tokens there are */
    bool normalises;           /* over a batch */
};

/* Parameters are drawn as torch.manual_seed(seed) and PyTorch's layers would draw them, but for the last bit of some:
 * uniform in +-1/sqrt(inputs); normalisations begin as 1 and 0. */
struct mlp_config;
extern const struct mlp_config mlp_relu, mlp_seqnet;
ddp_status mlp_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                      struct ddp_err *err);

struct resnet_config;
extern const struct resnet_config resnet20;
ddp_status resnet_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err);

/* Ends with a row without a name. */
extern const struct model_kind models[];
extern const char *const model_names[]; /* of the same rows, for the option; ends with NULL */

/* The number of a model in checkpoints, independent of the order of rows: a hash of its name. models_marked
 * returns NULL if no model has it. */
int64_t models_mark(const char *name);
const char *models_marked(int64_t mark);

#endif
