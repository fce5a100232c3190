/* models.c -- see models.h. The option --model gives an index into `model_names`, and the same index selects the row of
 * `models`. So both arrays are made from the same lists. */
#include "train/models/models.h"

#include "base/buf.h"
#include "train/models/gpt2.h"

#include <string.h>

/* Columns: the members name, create, config and normalizes of struct model_kind. */
#define PICTURE_MODELS(X)                       \
    X("mlp", mlp_create, &mlp_relu, false)      \
    X("seqnet", mlp_create, &mlp_seqnet, false) \
    X("resnet20", resnet_create, NULL, true)

#define GPT2_CONFIG(size, blocks, heads, width, length, vocabulary) \
    static const struct gpt2_config gpt2_##size = { blocks, heads, width };
GPT2_SIZES(GPT2_CONFIG)

#define PICTURE_ROW(name, create, config, normalizes) \
    { name, MODEL_PICTURES, create, config, 0, 0, normalizes },
#define GPT2_ROW(size, blocks, heads, width, length, vocabulary) \
    { "gpt2:" #size, MODEL_TOKENS, gpt2_create, &gpt2_##size, length, vocabulary, false },

const struct model_kind models[] = { PICTURE_MODELS(PICTURE_ROW) GPT2_SIZES(GPT2_ROW){ 0 } };

#define PICTURE_NAME(name, ...) name,
#define GPT2_NAME(size, ...)    "gpt2:" #size,

const char *const model_names[] = { PICTURE_MODELS(PICTURE_NAME) GPT2_SIZES(GPT2_NAME) NULL };

int64_t models_mark(const char *name)
{
    return (int64_t)hash_bytes(HASH_START, name, strlen(name));
}

const char *models_marked(int64_t mark)
{
    for (int i = 0; model_names[i] != NULL; i++) {
        if (models_mark(model_names[i]) == mark)
            return model_names[i];
    }
    return NULL;
}
