/* gpt2.c -- see gpt2.h. The results of each block are kept for backward, except attention's scores, whose number
 * grows with the square of the length. attention.c computes the scores again. */
#include "train/models/gpt2.h"

#include "train/compute.h"
#include "train/models/model.h"

#include <stdlib.h>

/* The arrays that a block keeps for backward. Columns: name, widths, floats. For each token, an array has `widths`
 * x model width values. If `widths` is 0, an array has `floats` values of type float instead. h is the number of
 * heads. */
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
#define X(name, widths, more) void *name;
    KEPT(X)
#undef X
};

struct gpt2 {
    struct model model;
    const struct gpt2_config *config;
    struct compute *on;
    size_t max_length; /* number of rows in the embedding of positions */
    void *memory;      /* memory of all arrays below, and of the arrays in `kept` */
    /* `embedded` enters the first block; `norm` and `logits` follow the last block */
    void *embedded, *norm, *logits;
    float *mean, *scale; /* results of the layer norm after the final block */
    void *d, *d1, *d4;   /* gradients; values per token: `width` in `d` and `d1`, 4 * `width` in `d4` */
    float *scratch;      /* scratch memory of attention */
    struct kept kept[];  /* one for each block */
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

/* Return the tensors of one block, indexed by enum gpt2_block_tensor. */
static const struct model_tensor *tensors_of(const struct gpt2 *g, size_t block)
{
    return &g->model.params.each[gpt2_tensor(block, 0)];
}

static struct attention attention_of(const struct gpt2 *g, const struct model_batch *batch)
{
    return (struct attention){ batch->rows, batch->length, g->config->heads, g->config->width };
}

static void block_forward(const struct gpt2 *g, size_t block, const void *x, const struct model_batch *batch)
{
    const struct kept *k = &g->kept[block];
    const struct model_tensor *v = tensors_of(g, block);
    const struct attention a = attention_of(g, batch);
    const size_t n = batch->rows * batch->length, c = g->config->width;
    const struct compute_ops *ops = g->on->ops;
    ops->layer_norm_forward(g->on, k->norm1, k->mean1, k->scale1, x, v[GPT2_LN1_WEIGHT].at,
                            v[GPT2_LN1_BIAS].at, n, c);
    ops->linear_forward(g->on, k->qkv, NULL, k->norm1, v[GPT2_QKV_WEIGHT].at, v[GPT2_QKV_BIAS].at,
                        (struct linear){ n, c, 3 * c });
    ops->attention_forward(g->on, k->att, k->log_sum, k->qkv, g->scratch, &a);
    ops->linear_forward(g->on, k->mid, x, k->att, v[GPT2_ATT_WEIGHT].at, v[GPT2_ATT_BIAS].at,
                        (struct linear){ n, c, c });
    ops->layer_norm_forward(g->on, k->norm2, k->mean2, k->scale2, k->mid, v[GPT2_LN2_WEIGHT].at,
                            v[GPT2_LN2_BIAS].at, n, c);
    ops->linear_forward(g->on, k->fc, NULL, k->norm2, v[GPT2_FC_WEIGHT].at, v[GPT2_FC_BIAS].at,
                        (struct linear){ n, c, 4 * c });
    ops->gelu_forward(g->on, k->gelu, k->fc, n * 4 * c);
    ops->linear_forward(g->on, k->out, k->mid, k->gelu, v[GPT2_PROJ_WEIGHT].at, v[GPT2_PROJ_BIAS].at,
                        (struct linear){ n, 4 * c, c });
}

static const void *input_of(const struct gpt2 *g, size_t block)
{
    return block > 0 ? g->kept[block - 1].out : g->embedded;
}

static struct linear head_of(const struct gpt2 *g, size_t n)
{
    return (struct linear){ n, g->config->width, g->model.classes };
}

static ddp_status forward(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err)
{
    struct gpt2 *g = (struct gpt2 *)m;
    const struct model_tensor *p = m->params.each;
    const size_t n = batch->rows * batch->length, c = g->config->width, blocks = g->config->blocks;
    (void)err;
    const struct compute_ops *ops = g->on->ops;
    ops->embedding_forward(g->on, g->embedded, batch, p[GPT2_TOKENS].at, p[GPT2_PLACES].at, c);
    for (size_t block = 0; block < blocks; block++)
        block_forward(g, block, input_of(g, block), batch);
    ops->layer_norm_forward(g->on, g->norm, g->mean, g->scale, input_of(g, blocks), p[end_tensor(g, 0)].at,
                            p[end_tensor(g, 1)].at, n, c);
    ops->linear_forward(g->on, g->logits, NULL, g->norm, p[GPT2_TOKENS].at, NULL, head_of(g, n));
    m->logits = mode == MODEL_TEST && !g->on->remote ? g->logits : NULL;
    *loss = mode == MODEL_TEST ? ops->examine(g->on, g->logits, batch, m->classes, &m->correct)
                               : ops->cross_entropy(g->on, g->logits, g->logits, batch, m->classes, true);
    return DDP_OK;
}

/* --- backward: g->d is the gradient of the block's output, then of its input ------------------------------ */

/* Compute the gradients of the second half of a block: mid += proj(gelu(fc(norm2(mid)))). */
static void network_backward(const struct gpt2 *g, const struct kept *k, const struct model_tensor *v,
                             float *const grad[], size_t n)
{
    const size_t c = g->config->width;
    const struct linear fc = { n, c, 4 * c }, proj = { n, 4 * c, c };
    const struct compute_ops *ops = g->on->ops;
    ops->linear_backward_params(g->on, grad[GPT2_PROJ_WEIGHT], grad[GPT2_PROJ_BIAS], g->d, k->gelu, proj);
    ops->linear_backward_input(g->on, g->d4, g->d, v[GPT2_PROJ_WEIGHT].at, proj);
    ops->gelu_backward(g->on, g->d4, k->fc, n * 4 * c);
    ops->linear_backward_params(g->on, grad[GPT2_FC_WEIGHT], grad[GPT2_FC_BIAS], g->d4, k->norm2, fc);
    ops->linear_backward_input(g->on, g->d1, g->d4, v[GPT2_FC_WEIGHT].at, fc);
    ops->layer_norm_backward(g->on, g->d, grad[GPT2_LN2_WEIGHT], grad[GPT2_LN2_BIAS], g->d1, k->mid, k->mean2,
                             k->scale2, v[GPT2_LN2_WEIGHT].at, n, c);
}

static void attention_half_backward(const struct gpt2 *g, const struct kept *k, const struct model_tensor *v,
                                    float *const grad[], const void *x, const struct model_batch *batch)
{
    const struct attention a = attention_of(g, batch);
    const size_t n = batch->rows * batch->length, c = g->config->width;
    const struct linear qkv = { n, c, 3 * c }, att = { n, c, c };
    const struct compute_ops *ops = g->on->ops;
    ops->linear_backward_params(g->on, grad[GPT2_ATT_WEIGHT], grad[GPT2_ATT_BIAS], g->d, k->att, att);
    ops->linear_backward_input(g->on, g->d1, g->d, v[GPT2_ATT_WEIGHT].at, att);
    ops->attention_backward(g->on, g->d4, g->d1, k->att, k->qkv, k->log_sum, g->scratch, &a);
    ops->linear_backward_params(g->on, grad[GPT2_QKV_WEIGHT], grad[GPT2_QKV_BIAS], g->d4, k->norm1, qkv);
    ops->linear_backward_input(g->on, g->d1, g->d4, v[GPT2_QKV_WEIGHT].at, qkv);
    ops->layer_norm_backward(g->on, g->d, grad[GPT2_LN1_WEIGHT], grad[GPT2_LN1_BIAS], g->d1, x, k->mean1,
                             k->scale1, v[GPT2_LN1_WEIGHT].at, n, c);
}

static ddp_status block_backward(const struct gpt2 *g, size_t block, const struct model_batch *batch,
                                 float *const grad[], const struct model_ready *ready, struct ddp_err *err)
{
    const struct model_tensor *v = tensors_of(g, block);
    float *const *of_block = grad + gpt2_tensor(block, 0);
    network_backward(g, &g->kept[block], v, of_block, batch->rows * batch->length);
    ddp_status status = model_report_ready(ready, gpt2_tensor(block, GPT2_LN2_WEIGHT),
                                           gpt2_tensor(block, GPT2_PROJ_BIAS), err);
    if (status != DDP_OK)
        return status;
    attention_half_backward(g, &g->kept[block], v, of_block, input_of(g, block), batch);
    return model_report_ready(ready, gpt2_tensor(block, GPT2_LN1_WEIGHT), gpt2_tensor(block, GPT2_ATT_BIAS),
                              err);
}

/* Compute the gradients of the head. The head and the embedding share one weight. This function sets the gradient of
 * this weight. Later, embedding_backward adds its part to the gradient. */
static void head_backward(const struct gpt2 *g, float *const grad[], size_t n)
{
    const size_t c = g->config->width, norm = end_tensor(g, 0);
    const struct model_tensor *p = g->model.params.each;
    const struct compute_ops *ops = g->on->ops;
    ops->linear_backward_params(g->on, grad[GPT2_TOKENS], NULL, g->logits, g->norm, head_of(g, n));
    ops->linear_backward_input(g->on, g->d1, g->logits, p[GPT2_TOKENS].at, head_of(g, n));
    ops->zero(g->on, g->d, n * c * g->on->value_bytes);
    ops->layer_norm_backward(g->on, g->d, grad[norm], grad[norm + 1], g->d1, input_of(g, g->config->blocks),
                             g->mean, g->scale, p[norm].at, n, c);
}

static ddp_status backward(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err)
{
    struct gpt2 *g = (struct gpt2 *)m;
    head_backward(g, grad, batch->rows * batch->length);
    ddp_status status = model_report_ready(ready, end_tensor(g, 0), end_tensor(g, 1), err);
    for (size_t block = g->config->blocks; block > 0 && status == DDP_OK; block--)
        status = block_backward(g, block - 1, batch, grad, ready, err);
    if (status != DDP_OK)
        return status;
    g->on->ops->embedding_backward(g->on, grad[GPT2_TOKENS], grad[GPT2_PLACES], g->d, batch, g->max_length,
                                   g->config->width);
    return model_report_ready(ready, GPT2_TOKENS, GPT2_PLACES, err);
}

/* --- memory and first values --------------------------------------------------------------------------- */

static const struct model_ops ops = { forward, backward };

#define MEMORY_MAX ((size_t)1 << 40)

/* Return the memory at offset *at and increase *at by `bytes`. While g->memory is NULL, return NULL and only count
 * the bytes. */
static void *carve(const struct gpt2 *g, size_t *at, size_t bytes)
{
    void *taken = g->memory != NULL ? (char *)g->memory + *at : NULL;
    *at += (bytes + 255) / 256 * 256; /* aligned for vector loads */
    return taken;
}

/* Set the addresses of all arrays for `n` tokens. Each sequence has `length` tokens. Return the number of bytes. */
static size_t lay_out(struct gpt2 *g, size_t n, size_t length)
{
    const size_t h = g->config->heads, c = g->config->width, values = n * g->on->value_bytes,
                 numbers = n * sizeof(float);
    const struct attention a = { (n + length - 1) / length, length, h, c };
    size_t at = 0;
    g->embedded = carve(g, &at, values * c);
    g->norm = carve(g, &at, values * c);
    g->mean = carve(g, &at, numbers);
    g->scale = carve(g, &at, numbers);
    g->logits = carve(g, &at, values * compute_stride(g->on, g->model.classes));
    g->d = carve(g, &at, values * c);
    g->d1 = carve(g, &at, values * c);
    g->d4 = carve(g, &at, values * 4 * c);
    g->scratch = carve(g, &at, attention_scratch(&a) * sizeof(float));
    for (size_t block = 0; block < g->config->blocks; block++) {
#define X(name, widths, more) g->kept[block].name = carve(g, &at, values * (widths)*c + numbers * (more));
        KEPT(X)
#undef X
    }
    return at;
}

/* Allocate the memory. Reject more than MEMORY_MAX bytes, because a larger sum of bytes might overflow. */
static bool gpt2_allocate(struct gpt2 *g, size_t n, size_t length)
{
    if (n > MEMORY_MAX / lay_out(g, 1, length))
        return false;
    g->memory = model_alloc(&g->model, lay_out(g, n, length));
    lay_out(g, n, length);
    return g->memory != NULL;
}

/* Return the number of operations for one sequence, as llm.c counts them: 6 for each parameter and token, plus the
 * operations for attention's scores. */
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

/* Draw the initial values in the order of the tensors, with one generator for all tensors. */
static void gpt2_draw(struct gpt2 *g, uint64_t seed)
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
    if (length > kind->length)
        return ddp_fail(err, DDP_ERR_ARG, "sequences of %zu tokens: expected at most %zu", length,
                        kind->length);
    const struct gpt2_config *config = kind->config;
    struct gpt2 *g = calloc(1, sizeof(*g) + config->blocks * sizeof(g->kept[0]));
    if (g == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model");
    *g = (struct gpt2){ .model = { .ops = &ops, .compute = compute_of(spec), .classes = kind->vocabulary },
                        .config = config,
                        .on = compute_of(spec),
                        .max_length = kind->length };
    add_tensors(g);
    if (!model_tensors_place(&g->model.params) || !gpt2_allocate(g, spec->rows * length, length)) {
        model_free(&g->model);
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model and batches of %zu x %zu tokens",
                        spec->rows, length);
    }
    g->model.flops = flops(g, length);
    gpt2_draw(g, spec->seed);
    *out = &g->model;
    return DDP_OK;
}
