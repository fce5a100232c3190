/* models.h -- the table of all models. The trainer creates a model only through its row, so a new model needs no change
 * in the trainer. A checkpoint has a hash of the model's name and no index, so the order of the rows may change. */
#ifndef TRAIN_MODELS_H
#define TRAIN_MODELS_H

#include "train/models/model.h"

/* A row of the table: one value of --model. Each size of a family has its own row, FAMILY:SIZE. */
struct model_kind {
    const char *name;
    enum model_input input;
    ddp_status (*create)(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err);
    const void *config;        /* configuration for `create` */
    size_t length, vocabulary; /* for MODEL_TOKENS: longest sequence; vocabulary */
    bool normalizes;           /* a layer normalizes over the batch */
};

/* Configurations, and functions that create models. The caller owns a created model. The initial parameters are the
 * same as in PyTorch after torch.manual_seed(seed), but some last bits may differ. */
struct mlp_config;
extern const struct mlp_config mlp_relu, mlp_seqnet;
ddp_status mlp_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                      struct ddp_err *err);

ddp_status resnet_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err);

/* All models. The array ends with a row without a name. */
extern const struct model_kind models[];
extern const char *const model_names[]; /* for the option --model; ends with NULL */

/* Return a hash of `name`, the name of a model. Checkpoints identify the model by this number. */
int64_t models_mark(const char *name);
/* Return the name of the model whose models_mark() is `mark`. Return NULL if there is no such model. The text is
 * constant. */
const char *models_marked(int64_t mark);

#endif
