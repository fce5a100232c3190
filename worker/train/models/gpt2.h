/* gpt2.h -- GPT-2: embeddings, blocks of attention and a two-layer network, and a head that shares its weight with the
 * tokens' embedding. There is no dropout. Parameters have the same names and shapes as in nanoGPT and llm.c, with
 * weights as [out][in], so that models can be exchanged with these programs. */

/* The model:
 *
 *     x = tokens + places
 *     each block:  x += proj(attention(qkv(norm(x))));  x += proj(gelu(fc(norm(x))))
 *     logits = norm(x) tokens^T */

#ifndef TRAIN_GPT2_H
#define TRAIN_GPT2_H

#include "train/models/models.h"

/* Each row has: the name that follows "gpt2:", number of blocks, number of heads, width, longest sequence, size of the
 * vocabulary. `tiny` is for tests. 10M and tiny use bytes as tokens. */
#define GPT2_SIZES(X)                  \
    X(tiny, 2, 2, 64, 64, 256)         \
    X(10M, 6, 6, 384, 256, 256)        \
    X(124M, 12, 12, 768, 1024, 50257)  \
    X(355M, 24, 16, 1024, 1024, 50257) \
    X(774M, 36, 20, 1280, 1024, 50257) \
    X(1558M, 48, 25, 1600, 1024, 50257)

struct gpt2_config {
    size_t blocks, heads, width;
};

/* Tensors of each block, in order. Each row has: id, name, two sizes, initial values. The sizes are in units of the
 * model's width. The second size is 0 for a vector. A model has wte.weight and wpe.weight, then the tensors of all
 * blocks, then ln_f.weight and ln_f.bias. */
#define GPT2_BLOCK_TENSORS(X)                         \
    X(LN1_WEIGHT, "ln_1.weight", 1, 0, ONES)          \
    X(LN1_BIAS, "ln_1.bias", 1, 0, ZEROS)             \
    X(QKV_WEIGHT, "attn.c_attn.weight", 3, 1, NORMAL) \
    X(QKV_BIAS, "attn.c_attn.bias", 3, 0, ZEROS)      \
    X(ATT_WEIGHT, "attn.c_proj.weight", 1, 1, SMALL)  \
    X(ATT_BIAS, "attn.c_proj.bias", 1, 0, ZEROS)      \
    X(LN2_WEIGHT, "ln_2.weight", 1, 0, ONES)          \
    X(LN2_BIAS, "ln_2.bias", 1, 0, ZEROS)             \
    X(FC_WEIGHT, "mlp.c_fc.weight", 4, 1, NORMAL)     \
    X(FC_BIAS, "mlp.c_fc.bias", 4, 0, ZEROS)          \
    X(PROJ_WEIGHT, "mlp.c_proj.weight", 1, 4, SMALL)  \
    X(PROJ_BIAS, "mlp.c_proj.bias", 1, 0, ZEROS)

enum gpt2_block_tensor {
#define X(id, name, out, in, first) GPT2_##id,
    GPT2_BLOCK_TENSORS(X)
#undef X
        GPT2_BLOCK
};
enum {
    GPT2_TOKENS,  /* index of wte.weight */
    GPT2_PLACES,  /* index of wpe.weight */
    GPT2_BLOCKS,  /* index of the first tensor of the blocks */
    GPT2_ENDS = 2 /* number of tensors after the blocks */
};

/* Create the model, which the caller owns, with the initial values of GPT-2 and llm.c. Values have a normal
 * distribution with deviation 0.02. For the last weight of each half of a block, the deviation is 0.02 / sqrt(2 *
 * number of blocks). */
ddp_status gpt2_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                       struct ddp_err *err);

/* Return the index of a tensor among the parameters. */
size_t gpt2_tensor(size_t block, enum gpt2_block_tensor which);

#endif
