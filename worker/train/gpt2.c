/* gpt2.c -- see gpt2.h. What each block has computed is kept for backward; what attention's scores were is not, they are as many as
 * the square of the length (attention.c makes them again). */
#include "gpt2.h"

#include "layers/attention.h"
#include "layers/cross_entropy.h"
#include "layers/embedding.h"
#include "layers/gelu.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"
#include "normal.h"

#include <stdlib.h>

/* What a block keeps: name, numbers for each token in widths, and beside that (h = heads). */
#define KEPT(X)      \
    X(norm1, 1, 0)   \
    X(mean1, 0, 1)   \
    X(scale1, 0, 1)  \
    X(qkv, 3, 0)     \
    X(log_sum, 0, h) \
    X(att, 1, 0)     \
    X(mid, 1, 0)     \
    X(norm2, 1, 0)   \
    X(mean2, 0, 1)   \
    X(scale2, 0, 1)  \
    X(fc, 4, 0)      \
    X(gelu, 4, 0)    \
    X(out, 1, 0)

struct kept {
#define X(name, widths, more) float *name;
    KEPT(X)
#undef X
};

struct gpt2 {
    struct model model;
    const struct gpt2_config *config;
    size_t max_length;                              /* of the places' embedding */
    float *memory;                                  /* all that follows */
    float *embedded, *norm, *mean, *scale, *logits; /* before and behind the blocks */
    float *d, *d1, *d4;                             /* gradients: 1, 1 and 4 widths a token */
    float *scratch;                                 /* of attention */
    struct kept *kept;                              /* of each block */
};

size_t gpt2_tensor(size_t block, enum gpt2_block_tensor which)
{
    return GPT2_BLOCKS + block * GPT2_BLOCK + which;
}

static size_t end_tensor(const struct gpt2 *g, int which)
{
    return GPT2_BLOCKS + g->config->blocks * GPT2_BLOCK + (size_t)which;
}

/* --- forward ----------------------------------------------------------------------------------------- */

/* The tensors of one block; from gradients or values. */
struct block_of {
    const float *each[GPT2_BLOCK];
};

static struct block_of values_of(const struct gpt2 *g, size_t block)
{
    struct block_of b;
    for (int i = 0; i < GPT2_BLOCK; i++)
        b.each[i] = g->model.params.each[gpt2_tensor(block, (enum gpt2_block_tensor)i)].value;
    return b;
}

static struct attention attention_of(const struct gpt2 *g, const struct model_batch *batch)
{
    return (struct attention){ batch->rows, batch->length, g->config->heads, g->config->width };
}

static void block_forward(const struct gpt2 *g, size_t block, const float *x, const struct model_batch *batch)
{
    const struct kept *k = &g->kept[block];
    const struct block_of v = values_of(g, block);
    const struct attention a = attention_of(g, batch);
    const size_t n = batch->rows * batch->length, c = g->config->width;
    layer_norm_forward(k->norm1, k->mean1, k->scale1, x, v.each[GPT2_LN1_WEIGHT], v.each[GPT2_LN1_BIAS], n,
                       c);
    linear_forward(k->qkv, k->norm1, v.each[GPT2_QKV_WEIGHT], v.each[GPT2_QKV_BIAS], n, c, 3 * c);
    attention_forward(k->att, k->log_sum, k->qkv, g->scratch, &a);
    linear_forward_add(k->mid, x, k->att, v.each[GPT2_ATT_WEIGHT], v.each[GPT2_ATT_BIAS], n, c, c);
    layer_norm_forward(k->norm2, k->mean2, k->scale2, k->mid, v.each[GPT2_LN2_WEIGHT], v.each[GPT2_LN2_BIAS],
                       n, c);
    linear_forward(k->fc, k->norm2, v.each[GPT2_FC_WEIGHT], v.each[GPT2_FC_BIAS], n, c, 4 * c);
    gelu_forward(k->gelu, k->fc, n * 4 * c);
    linear_forward_add(k->out, k->mid, k->gelu, v.each[GPT2_PROJ_WEIGHT], v.each[GPT2_PROJ_BIAS], n, 4 * c,
                       c);
}

/* What block `block` is given. */
static const float *input_of(const struct gpt2 *g, size_t block)
{
    return block > 0 ? g->kept[block - 1].out : g->embedded;
}

static ddp_status forward(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err)
{
    struct gpt2 *g = (struct gpt2 *)m;
    const struct model_tensor *p = m->params.each;
    const size_t n = batch->rows * batch->length, c = g->config->width, blocks = g->config->blocks;
    (void)err;
    embedding_forward(g->embedded, batch->token, p[GPT2_TOKENS].value, p[GPT2_PLACES].value, batch->rows,
                      batch->length, c);
    for (size_t block = 0; block < blocks; block++)
        block_forward(g, block, input_of(g, block), batch);
    layer_norm_forward(g->norm, g->mean, g->scale, input_of(g, blocks), p[end_tensor(g, 0)].value,
                       p[end_tensor(g, 1)].value, n, c);
    linear_forward(g->logits, g->norm, p[GPT2_TOKENS].value, NULL, n, c, m->classes);
    m->logits = mode == MODEL_TEST ? g->logits : NULL;
    *loss = mode == MODEL_TEST ? cross_entropy(NULL, g->logits, batch->target, batch->weight, batch->rows,
                                               batch->length, m->classes)
                               : cross_entropy_wide(g->logits, batch->target, batch->weight, batch->rows,
                                                    batch->length, m->classes);
    return DDP_OK;
}

/* --- backward: g->d is the gradient of what flows from block to block ---------------------------------- */

/* x of a residual's second half: mid += proj(gelu(fc(norm2(mid)))). */
static void network_backward(const struct gpt2 *g, const struct kept *k, const struct block_of *v,
                             float *const grad[], size_t n)
{
    const size_t c = g->config->width;
    linear_backward_params(grad[GPT2_PROJ_WEIGHT], grad[GPT2_PROJ_BIAS], g->d, k->gelu, n, 4 * c, c);
    linear_backward_input(g->d4, g->d, v->each[GPT2_PROJ_WEIGHT], n, 4 * c, c);
    gelu_backward(g->d4, k->fc, n * 4 * c);
    linear_backward_params(grad[GPT2_FC_WEIGHT], grad[GPT2_FC_BIAS], g->d4, k->norm2, n, c, 4 * c);
    linear_backward_input(g->d1, g->d4, v->each[GPT2_FC_WEIGHT], n, c, 4 * c);
    layer_norm_backward(g->d, grad[GPT2_LN2_WEIGHT], grad[GPT2_LN2_BIAS], g->d1, k->mid, k->mean2, k->scale2,
                        v->each[GPT2_LN2_WEIGHT], n, c);
}

static void attention_half_backward(const struct gpt2 *g, const struct kept *k, const struct block_of *v,
                                    float *const grad[], const float *x, const struct model_batch *batch)
{
    const struct attention a = attention_of(g, batch);
    const size_t n = batch->rows * batch->length, c = g->config->width;
    linear_backward_params(grad[GPT2_ATT_WEIGHT], grad[GPT2_ATT_BIAS], g->d, k->att, n, c, c);
    linear_backward_input(g->d1, g->d, v->each[GPT2_ATT_WEIGHT], n, c, c);
    attention_backward(g->d4, g->d1, k->qkv, k->log_sum, g->scratch, &a);
    linear_backward_params(grad[GPT2_QKV_WEIGHT], grad[GPT2_QKV_BIAS], g->d4, k->norm1, n, c, 3 * c);
    linear_backward_input(g->d1, g->d4, v->each[GPT2_QKV_WEIGHT], n, c, 3 * c);
    layer_norm_backward(g->d, grad[GPT2_LN1_WEIGHT], grad[GPT2_LN1_BIAS], g->d1, x, k->mean1, k->scale1,
                        v->each[GPT2_LN1_WEIGHT], n, c);
}

/* Parameters [first, last], from the last back. */
static ddp_status tell(const struct model_ready *ready, size_t first, size_t last, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = last + 1; i > first && status == DDP_OK; i--)
        status = model_is_ready(ready, i - 1, err);
    return status;
}

static ddp_status block_backward(const struct gpt2 *g, size_t block, const struct model_batch *batch,
                                 float *const grad[], const struct model_ready *ready, struct ddp_err *err)
{
    const struct block_of v = values_of(g, block);
    float *const *of_block = grad + gpt2_tensor(block, 0);
    network_backward(g, &g->kept[block], &v, of_block, batch->rows * batch->length);
    ddp_status status =
        tell(ready, gpt2_tensor(block, GPT2_LN2_WEIGHT), gpt2_tensor(block, GPT2_PROJ_BIAS), err);
    if (status != DDP_OK)
        return status;
    attention_half_backward(g, &g->kept[block], &v, of_block, input_of(g, block), batch);
    return tell(ready, gpt2_tensor(block, GPT2_LN1_WEIGHT), gpt2_tensor(block, GPT2_ATT_BIAS), err);
}

/* The tokens' embedding gets its gradient in two parts: here as the head, at the end as what was looked up. */
static void head_backward(const struct gpt2 *g, float *const grad[], size_t n)
{
    const size_t c = g->config->width, norm = end_tensor(g, 0);
    const struct model_tensor *p = g->model.params.each;
    linear_backward_params(grad[GPT2_TOKENS], NULL, g->logits, g->norm, n, c, g->model.classes);
    linear_backward_input(g->d1, g->logits, p[GPT2_TOKENS].value, n, c, g->model.classes);
    memset(g->d, 0, n * c * sizeof(float));
    layer_norm_backward(g->d, grad[norm], grad[norm + 1], g->d1, input_of(g, g->config->blocks), g->mean,
                        g->scale, p[norm].value, n, c);
}

static ddp_status backward(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err)
{
    struct gpt2 *g = (struct gpt2 *)m;
    head_backward(g, grad, batch->rows * batch->length);
    ddp_status status = tell(ready, end_tensor(g, 0), end_tensor(g, 1), err);
    for (size_t block = g->config->blocks; block > 0 && status == DDP_OK; block--)
        status = block_backward(g, block - 1, batch, grad, ready, err);
    if (status != DDP_OK)
        return status;
    embedding_backward(grad[GPT2_TOKENS], grad[GPT2_PLACES], g->d, batch->token, batch->rows, batch->length,
                       g->max_length, g->config->width);
    return tell(ready, GPT2_TOKENS, GPT2_PLACES, err);
}

/* --- memory and first values --------------------------------------------------------------------------- */

static void gpt2_free(struct model *m)
{
    struct gpt2 *g = (struct gpt2 *)m;
    free(g->memory);
    free(g->kept);
    free(g);
}

static const struct model_ops ops = { forward, backward, gpt2_free };

#define MEMORY_MAX ((size_t)1 << 40)

/* Hands out `count` floats of *at, or only counts them while there is no memory yet. */
static float *take(float *memory, size_t *at, size_t count)
{
    float *taken = memory != NULL ? memory + *at : NULL;
    *at += (count + 15) / 16 * 16; /* each begins a cache line when the memory does */
    return taken;
}

/* For `n` tokens in sequences of `length`; returns how many floats that is. */
static size_t lay_out(struct gpt2 *g, size_t n, size_t length)
{
    const size_t c = g->config->width, h = g->config->heads;
    size_t at = 0;
    g->embedded = take(g->memory, &at, n * c);
    g->norm = take(g->memory, &at, n * c);
    g->mean = take(g->memory, &at, n);
    g->scale = take(g->memory, &at, n);
    g->logits = take(g->memory, &at, n * g->model.classes);
    g->d = take(g->memory, &at, n * c);
    g->d1 = take(g->memory, &at, n * c);
    g->d4 = take(g->memory, &at, n * 4 * c);
    g->scratch = take(g->memory, &at, attention_scratch(length));
    for (size_t block = 0; block < g->config->blocks; block++) {
#define X(name, widths, more) g->kept[block].name = take(g->memory, &at, n * ((widths)*c + (more)));
        KEPT(X)
#undef X
    }
    return at;
}

/* More than MEMORY_MAX no machine has, and the sum for it might wrap around to little. */
static bool allocate(struct gpt2 *g, size_t n, size_t length)
{
    g->kept = calloc(g->config->blocks, sizeof(*g->kept));
    if (g->kept == NULL || n > MEMORY_MAX / sizeof(float) / lay_out(g, 1, length))
        return false;
    g->memory = calloc(lay_out(g, n, length), sizeof(float));
    lay_out(g, n, length);
    return g->memory != NULL;
}

/* Of one sequence, counted as llm.c counts: 6 for each parameter and token, and attention's scores, of which half are
 * computed. */
static double flops(const struct gpt2 *g, size_t length)
{
    const double tokens = (double)length;
    return tokens * (6 * (double)g->model.params.count +
                     6 * (double)g->config->blocks * (double)g->config->width * tokens);
}

enum first { ZEROS, ONES, NORMAL, SMALL };

static void add_tensors(struct gpt2 *g)
{
    struct model_tensors *t = &g->model.params;
    const size_t c = g->config->width;
    model_tensors_add(t, MODEL_SHAPE(g->model.classes, c), "wte.weight");
    model_tensors_add(t, MODEL_SHAPE(g->max_length, c), "wpe.weight");
    for (size_t block = 0; block < g->config->blocks; block++) {
#define X(id, name, out, in, first) model_tensors_add(t, MODEL_SHAPE((out)*c, (in)*c), "h.%zu." name, block);
        GPT2_BLOCK_TENSORS(X)
#undef X
    }
    model_tensors_add(t, MODEL_SHAPE(c), "ln_f.weight");
    model_tensors_add(t, MODEL_SHAPE(c), "ln_f.bias");
}

static void set_first(struct model_tensor *t, enum first first, float small, ddp_random *random)
{
    if (first == NORMAL || first == SMALL)
        normal_fill(t->value, t->count, first == SMALL ? small : 0.02f, random);
    for (size_t i = 0; first == ONES && i < t->count; i++)
        t->value[i] = 1;
}

/* Drawn in the order of the tensors, one generator for all. */
static void draw(struct gpt2 *g, uint64_t seed)
{
    static const enum first firsts[GPT2_BLOCK] = {
#define X(id, name, out, in, first) first,
        GPT2_BLOCK_TENSORS(X)
#undef X
    };
    const float small = 0.02f / sqrtf(2 * (float)g->config->blocks);
    struct model_tensor *t = g->model.params.each;
    ddp_random random;
    ddp_random_seed(&random, seed);
    set_first(&t[GPT2_TOKENS], NORMAL, small, &random);
    set_first(&t[GPT2_PLACES], NORMAL, small, &random);
    for (size_t i = 0; i < g->config->blocks * GPT2_BLOCK; i++)
        set_first(&t[GPT2_BLOCKS + i], firsts[i % GPT2_BLOCK], small, &random);
    set_first(&t[end_tensor(g, 0)], ONES, small, &random);
}

ddp_status gpt2_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                       struct ddp_err *err)
{
    const size_t length = spec->length != 0 ? spec->length : kind->length;
    *out = NULL;
    if (spec->channels != 0)
        return ddp_fail(err, DDP_ERR_ARG, "takes tokens, the data are pictures");
    if (length > kind->length)
        return ddp_fail(err, DDP_ERR_ARG, "sequences of %zu tokens, %zu at most", length, kind->length);
    struct gpt2 *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the model");
    *g = (struct gpt2){ .model = { .ops = &ops, .classes = kind->vocabulary },
                        .config = kind->config,
                        .max_length = kind->length };
    add_tensors(g);
    if (!model_tensors_place(&g->model.params) || !allocate(g, spec->rows * length, length)) {
        model_free(&g->model);
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the model and batches of %zu x %zu tokens",
                        spec->rows, length);
    }
    g->model.flops = flops(g, length);
    draw(g, spec->seed);
    *out = &g->model;
    return DDP_OK;
}
