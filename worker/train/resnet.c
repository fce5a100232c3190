/* resnet.c -- see resnet.h.
 *
 *     stem      x -> convolution -> normalise -> ReLU -> stem.y
 *     block     x -> convolution -> normalise -> ReLU -> mid -> convolution -> normalise -> + shortcut of x -> ReLU -> y
 *     head      mean of each channel -> linear -> logits
 *
 * Kept for the backward pass: what each convolution gave, which normalisation needs, and what each ReLU gave. A test
 * keeps nothing, so it goes through a large batch in pieces that lie in the same memory; memory that no training batch was
 * large enough to touch is never there (calloc). */
#include "resnet.h"

#include "compute.h"
#include "ddp/random.h"
#include "ddp/syncbn.h"
#include "layers/activation.h"
#include "layers/conv.h"
#include "layers/cross_entropy.h"
#include "layers/linear.h"
#include "layers/pool.h"
#include "layers/shortcut.h"
#include "library.h"

#include <stdlib.h>
#include <string.h>

enum { TEST_ROWS = 16, TEMPORARIES = 3, PER_UNIT = 3 /* parameters */ };

const struct resnet_config resnet20 = { 3 };

/* A convolution and the normalisation behind it. Its parameters are param (weight), param + 1 and param + 2 (of the
 * normalisation), its buffers 2 * param / 3 and the one behind it. */
struct unit {
    struct conv conv;
    size_t param;
    ddp_syncbn bn;
    float *out; /* of the convolution */
};

struct block {
    struct unit unit[2];
    struct shortcut shortcut;
    float *mid, *y; /* behind the two ReLUs */
};

struct resnet {
    struct model model;
    ddp_group *group;
    size_t pixels, features, fc; /* of a picture; of the head; the parameter that is its weight */
    size_t blocks;
    struct unit stem;
    float *stem_y;
    struct block *block;
    float *temporary[TEMPORARIES]; /* gradients of what lies between layers */
    float *columns, *pooled, *dpooled, *logits, *dlogits;
    size_t rows; /* of the last forward pass for training */
    size_t most; /* values that `columns` has to hold for a layer */
};

/* --- forward ----------------------------------------------------------------------------------------------- */

static size_t unit_values(const struct unit *u)
{
    return u->conv.out * conv_side(&u->conv) * conv_side(&u->conv);
}

static const float *weight_of(const struct resnet *r, const struct unit *u)
{
    return r->model.params.each[u->param].value;
}

static ddp_status normalise(struct resnet *r, struct unit *u, const struct model_batch *batch,
                            enum model_mode mode, float *y, struct ddp_err *err)
{
    const struct model_tensor *buffer = &r->model.buffers.each[u->param / PER_UNIT * 2];
    const bool kept = mode == MODEL_TEST || !batch->still;
    u->bn.weight = r->model.params.each[u->param + 1].value;
    u->bn.bias = r->model.params.each[u->param + 2].value;
    u->bn.running_mean = kept ? buffer[0].value : NULL;
    u->bn.running_var = kept ? buffer[1].value : NULL;
    if (mode == MODEL_TEST)
        return library(ddp_syncbn_infer(&u->bn, u->out, batch->rows, y), err);
    return library(ddp_syncbn_forward(r->group, &u->bn, u->out, batch->rows, y), err);
}

/* y is not yet behind its ReLU. */
static ddp_status unit_forward(struct resnet *r, struct unit *u, const float *x,
                               const struct model_batch *batch, enum model_mode mode, float *y,
                               struct ddp_err *err)
{
    conv_forward(&u->conv, u->out, x, weight_of(r, u), batch->rows, r->columns);
    return normalise(r, u, batch, mode, y, err);
}

static ddp_status block_forward(struct resnet *r, struct block *b, const float *x,
                                const struct model_batch *batch, enum model_mode mode, struct ddp_err *err)
{
    ddp_status status = unit_forward(r, &b->unit[0], x, batch, mode, b->mid, err);
    if (status != DDP_OK)
        return status;
    activation_relu.forward(b->mid, batch->rows, unit_values(&b->unit[0]));
    status = unit_forward(r, &b->unit[1], b->mid, batch, mode, b->y, err);
    if (status != DDP_OK)
        return status;
    shortcut_forward(&b->shortcut, b->y, x, batch->rows);
    activation_relu.forward(b->y, batch->rows, unit_values(&b->unit[1]));
    return DDP_OK;
}

static size_t last_places(const struct resnet *r)
{
    const size_t side = conv_side(&r->block[r->blocks - 1].unit[1].conv);
    return side * side;
}

/* All layers but the loss; logits of the batch's rows into `logits`. */
static ddp_status run(struct resnet *r, const struct model_batch *batch, enum model_mode mode, float *logits,
                      struct ddp_err *err)
{
    const struct model_tensor *fc = &r->model.params.each[r->fc];
    ddp_status status = unit_forward(r, &r->stem, batch->picture, batch, mode, r->stem_y, err);
    const float *x = r->stem_y;
    if (status == DDP_OK)
        activation_relu.forward(r->stem_y, batch->rows, unit_values(&r->stem));
    for (size_t i = 0; i < r->blocks && status == DDP_OK; i++) {
        status = block_forward(r, &r->block[i], x, batch, mode, err);
        x = r->block[i].y;
    }
    if (status != DDP_OK)
        return status;
    pool_forward(r->pooled, x, batch->rows * r->features, last_places(r));
    linear_forward(logits, r->pooled, fc[0].value, fc[1].value, batch->rows, r->features, r->model.classes);
    return DDP_OK;
}

/* In pieces: nothing is kept, and a picture's result does not depend on its neighbours. */
static ddp_status test_forward(struct resnet *r, const struct model_batch *batch, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t at = 0; at < batch->rows && status == DDP_OK; at += TEST_ROWS) {
        struct model_batch piece = *batch;
        piece.rows = batch->rows - at < TEST_ROWS ? batch->rows - at : TEST_ROWS;
        piece.picture += at * r->pixels;
        status = run(r, &piece, MODEL_TEST, r->logits + at * r->model.classes, err);
    }
    return status;
}

/* Padding, which stands at the end. */
static size_t rows_that_count(const struct model_batch *batch)
{
    size_t rows = batch->rows;
    while (rows > 0 && batch->weight[rows - 1] == 0)
        rows--;
    return rows;
}

static ddp_status forward(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err)
{
    struct resnet *r = (struct resnet *)m;
    struct model_batch counted = *batch;
    if (mode == MODEL_TRAIN)
        r->rows = counted.rows = rows_that_count(batch);
    ddp_status status =
        mode == MODEL_TRAIN ? run(r, &counted, mode, r->logits, err) : test_forward(r, batch, err);
    if (status != DDP_OK)
        return status;
    m->logits = r->logits;
    *loss = cross_entropy(mode == MODEL_TRAIN ? r->dlogits : NULL, r->logits, batch->target, batch->weight,
                          counted.rows, 1, m->classes);
    return DDP_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------- */

/* What the steps of a backward pass hand on. */
struct back {
    struct resnet *r;
    size_t rows;
    float *const *grad;
    const struct model_ready *ready;
    struct ddp_err *err;
};

/* The last parameter first. */
static ddp_status are_ready(const struct back *b, size_t param, size_t n)
{
    ddp_status status = DDP_OK;
    while (n-- > 0 && status == DDP_OK)
        status = model_is_ready(b->ready, param + n, b->err);
    return status;
}

/* From d, the gradient of what the normalisation gave: those of the parameters; d becomes that of the convolution's result. */
static ddp_status unit_backward_params(const struct back *b, struct unit *u, const float *x, float *d)
{
    float *const *grad = b->grad + u->param;
    ddp_status status =
        library(ddp_syncbn_backward(b->r->group, &u->bn, u->out, d, b->rows, d, grad[1], grad[2]), b->err);
    if (status != DDP_OK)
        return status;
    conv_backward_weight(&u->conv, grad[0], d, x, b->rows, b->r->columns);
    return are_ready(b, u->param, PER_UNIT);
}

static void unit_backward_input(const struct back *b, const struct unit *u, const float *d, float *dx,
                                int add)
{
    conv_backward_input(&u->conv, dx, d, weight_of(b->r, u), b->rows, add, b->r->columns);
}

/* d: gradient of y, overwritten; dx: that of x, to be written; `dmid` is free. */
static ddp_status block_backward(const struct back *b, struct block *k, const float *x, float *d, float *dmid,
                                 float *dx)
{
    const size_t mid = unit_values(&k->unit[0]);
    activation_relu.backward(d, k->y, b->rows, unit_values(&k->unit[1]));
    shortcut_backward(&k->shortcut, dx, d, b->rows);
    ddp_status status = unit_backward_params(b, &k->unit[1], k->mid, d);
    if (status != DDP_OK)
        return status;
    unit_backward_input(b, &k->unit[1], d, dmid, 0);
    activation_relu.backward(dmid, k->mid, b->rows, mid);
    status = unit_backward_params(b, &k->unit[0], x, dmid);
    if (status == DDP_OK)
        unit_backward_input(b, &k->unit[0], dmid, dx, 1);
    return status;
}

/* Into d: the gradient of what the last block gave. */
static ddp_status head_backward(const struct back *b, float *d)
{
    struct resnet *r = b->r;
    const float *weight = r->model.params.each[r->fc].value;
    linear_backward_params(b->grad[r->fc], b->grad[r->fc + 1], r->dlogits, r->pooled, b->rows, r->features,
                           r->model.classes);
    linear_backward_input(r->dpooled, r->dlogits, weight, b->rows, r->features, r->model.classes);
    pool_backward(d, r->dpooled, b->rows * r->features, last_places(r));
    return are_ready(b, r->fc, 2);
}

static ddp_status backward(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err)
{
    struct resnet *r = (struct resnet *)m;
    const struct back b = { r, r->rows, grad, ready, err };
    float *d = r->temporary[0], *dmid = r->temporary[1], *dx = r->temporary[2];
    ddp_status status = head_backward(&b, d);
    for (size_t i = r->blocks; i-- > 0 && status == DDP_OK;) {
        const float *x = i > 0 ? r->block[i - 1].y : r->stem_y;
        status = block_backward(&b, &r->block[i], x, d, dmid, dx);
        float *held = d;
        d = dx;
        dx = held;
    }
    if (status != DDP_OK)
        return status;
    activation_relu.backward(d, r->stem_y, b.rows, unit_values(&r->stem));
    return unit_backward_params(&b, &r->stem, batch->picture, d);
}

/* --- memory ------------------------------------------------------------------------------------------------ */

static void unit_free(struct unit *u)
{
    free(u->out);
    free(u->bn.saved);
}

static void resnet_free(struct model *m)
{
    struct resnet *r = (struct resnet *)m;
    float *const arrays[] = { r->stem_y, r->columns, r->pooled, r->dpooled, r->logits, r->dlogits };
    for (size_t i = 0; r->block != NULL && i < r->blocks; i++) {
        unit_free(&r->block[i].unit[0]);
        unit_free(&r->block[i].unit[1]);
        free(r->block[i].mid);
        free(r->block[i].y);
    }
    unit_free(&r->stem);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        free(arrays[i]);
    for (int i = 0; i < TEMPORARIES; i++)
        free(r->temporary[i]);
    free(r->block);
    free(r);
}

static const struct model_ops ops = { forward, backward, resnet_free };

/* Names as torch's programs have them. `prefix` is "" or "layer2.0.", `number` that of the unit in its block. */
static void add_tensors(struct resnet *r, struct unit *u, const char *prefix, int number)
{
    struct model_tensors *p = &r->model.params, *b = &r->model.buffers;
    const size_t k = u->conv.kernel;
    u->param = p->n;
    model_tensors_add(p, MODEL_SHAPE(u->conv.out, u->conv.in, k, k), "%sconv%d.weight", prefix, number);
    model_tensors_add(p, MODEL_SHAPE(u->conv.out), "%sbn%d.weight", prefix, number);
    model_tensors_add(p, MODEL_SHAPE(u->conv.out), "%sbn%d.bias", prefix, number);
    model_tensors_add(b, MODEL_SHAPE(u->conv.out), "%sbn%d.running_mean", prefix, number);
    model_tensors_add(b, MODEL_SHAPE(u->conv.out), "%sbn%d.running_var", prefix, number);
}

static bool unit_init(struct resnet *r, struct unit *u, struct conv conv, size_t rows, const char *prefix,
                      int number)
{
    *u = (struct unit){ .conv = conv, .bn = DDP_SYNCBN_INIT };
    add_tensors(r, u, prefix, number);
    u->bn.channels = conv.out;
    u->bn.spatial = conv_side(&conv) * conv_side(&conv);
    u->out = calloc(rows * unit_values(u), sizeof(float));
    u->bn.saved = calloc(2 * conv.out, sizeof(double));
    r->most = conv_columns(&conv) > r->most ? conv_columns(&conv) : r->most;
    r->model.flops += 3 * conv_flops(&conv); /* forward, and two products as large in the backward pass */
    return u->out != NULL && u->bn.saved != NULL;
}

/* Block `i` of all; the first of a stage halves the picture and doubles the channels, but for that of the first stage. */
static bool block_init(struct resnet *r, size_t i, const struct resnet_config *config, struct unit *before,
                       size_t rows)
{
    struct block *b = &r->block[i];
    const size_t stage = i / config->blocks, out = (size_t)RESNET_WIDTH << stage;
    const size_t in = before->conv.out, side = conv_side(&before->conv), stride = in == out ? 1 : 2;
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "layer%zu.%zu.", stage + 1, i % config->blocks);
    bool complete = unit_init(r, &b->unit[0], (struct conv){ in, out, side, 3, stride, 1 }, rows, prefix, 1);
    const size_t half = conv_side(&b->unit[0].conv);
    complete =
        unit_init(r, &b->unit[1], (struct conv){ out, out, half, 3, 1, 1 }, rows, prefix, 2) && complete;
    b->shortcut = (struct shortcut){ in, out, side, stride };
    b->mid = calloc(rows * unit_values(&b->unit[0]), sizeof(float));
    b->y = calloc(rows * unit_values(&b->unit[1]), sizeof(float));
    return complete && b->mid != NULL && b->y != NULL;
}

/* What does not belong to one layer. The largest picture between layers is the stem's. */
static bool head_init(struct resnet *r, size_t rows, size_t classes)
{
    bool complete = true;
    r->features = (size_t)RESNET_WIDTH << (RESNET_STAGES - 1);
    r->fc = r->model.params.n;
    model_tensors_add(&r->model.params, MODEL_SHAPE(classes, r->features), "fc.weight");
    model_tensors_add(&r->model.params, MODEL_SHAPE(classes), "fc.bias");
    r->model.flops += 6 * (double)classes * (double)r->features;
    r->columns = calloc(r->most, sizeof(float));
    r->pooled = calloc(rows * r->features, sizeof(float));
    r->dpooled = calloc(rows * r->features, sizeof(float));
    r->logits = calloc(rows * classes, sizeof(float));
    r->dlogits = calloc(rows * classes, sizeof(float));
    for (int i = 0; i < TEMPORARIES; i++) {
        r->temporary[i] = calloc(rows * unit_values(&r->stem), sizeof(float));
        complete = complete && r->temporary[i] != NULL;
    }
    return complete && r->columns != NULL && r->pooled != NULL && r->dpooled != NULL && r->logits != NULL &&
           r->dlogits != NULL;
}

static bool allocate(struct resnet *r, const struct resnet_config *config, const struct model_spec *spec)
{
    const struct conv first = { spec->channels, RESNET_WIDTH, spec->height, 3, 1, 1 };
    r->block = calloc(r->blocks, sizeof(*r->block));
    if (r->block == NULL)
        return false;
    bool complete = unit_init(r, &r->stem, first, spec->rows, "", 1);
    r->stem_y = calloc(spec->rows * unit_values(&r->stem), sizeof(float));
    for (size_t i = 0; i < r->blocks; i++)
        complete =
            block_init(r, i, config, i > 0 ? &r->block[i - 1].unit[1] : &r->stem, spec->rows) && complete;
    complete = head_init(r, spec->rows, spec->classes) && complete && r->stem_y != NULL;
    complete = model_tensors_place(&r->model.params) && complete;
    return model_tensors_place(&r->model.buffers) && complete;
}

/* --- the beginning ----------------------------------------------------------------------------------------- */

static void uniform(struct model_tensor *t, size_t inputs, ddp_random *random)
{
    const float bound = 1.0f / sqrtf((float)inputs);
    for (size_t i = 0; i < t->count; i++)
        t->value[i] = ddp_random_uniform(random) * (bound - -bound) + -bound;
}

static void fill(struct model_tensor *t, float value)
{
    for (size_t i = 0; i < t->count; i++)
        t->value[i] = value;
}

/* torch's defaults, in the order of the layers. nn.Linear's bias has the bound of its weight. */
static void draw(struct resnet *r, uint64_t seed)
{
    struct model_tensors *p = &r->model.params;
    ddp_random random;
    ddp_random_seed(&random, seed);
    for (size_t i = 0; i < p->n; i++) {
        struct model_tensor *t = &p->each[i];
        if (i >= r->fc)
            uniform(t, r->features, &random);
        else if (t->dims > 1)
            uniform(t, t->count / t->shape[0], &random);
        else
            fill(t, i % PER_UNIT == 1 ? 1 : 0);
    }
    for (size_t i = 1; i < r->model.buffers.n; i += 2) /* variances */
        fill(&r->model.buffers.each[i], 1);
}

ddp_status resnet_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err)
{
    const struct resnet_config *config = kind->config;
    *out = NULL;
    if (spec->compute != NULL && spec->compute->remote)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "has no kernels for a GPU yet; --device cpu computes it");
    if (spec->height != spec->width || spec->height == 0 || spec->height % 4 != 0)
        return ddp_fail(err, DDP_ERR_ARG, "pictures of %zux%zu, expected squares whose side four divides",
                        spec->height, spec->width);
    struct resnet *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the model");
    *r = (struct resnet){
        .model = { .ops = &ops, .classes = spec->classes },
        .group = spec->group,
        .pixels = spec->channels * spec->height * spec->width,
        .blocks = RESNET_STAGES * config->blocks,
    };
    if (!allocate(r, config, spec)) {
        model_free(&r->model);
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the model and batches of %zu rows", spec->rows);
    }
    draw(r, spec->seed);
    *out = &r->model;
    return DDP_OK;
}
