/* resnet.c -- the residual networks for CIFAR of He et al. 2015 (section 4.2), with batch normalization over one rank
 * or all ranks. The outputs of each convolution and of each ReLU are kept, because the backward pass needs them. */
#include "train/models/models.h"

#include "train/compute.h"
#include "ddp/context.h"
#include "ddp/random.h"
#include "ddp/syncbn.h"
#include "train/library.h"

#include <stdlib.h>
#include <string.h>

/* --- the network ---------------------------------------------------------------------------------------- */

/* A network has a convolution of 16 channels, then three stages of three blocks with 16, 32 and 64 channels. A mean of
 * each channel and one linear layer follow. These are 20 layers, with 269,722 parameters for ten classes.
 *
 *     stem     x -> convolution -> normalize -> ReLU -> stem.y
 *     block    x -> convolution -> normalize -> ReLU -> mid -> convolution -> normalize -> + shortcut of x -> ReLU -> y
 *     head     mean of each channel -> linear -> logits
 *
 * Every convolution is 3 x 3, without bias, and is normalized over the batch. A block adds its input to its result
 * (compute.h: shortcut). Running means and variances are the model's buffers. Pictures are squares, and their side is a
 * multiple of four: 32 x 32 (CIFAR-10) or 28 x 28. */

/* IN_STAGE: number of blocks in a stage. */
enum { RESNET_STAGES = 3, RESNET_WIDTH = 16, IN_STAGE = 3, BLOCKS = RESNET_STAGES * IN_STAGE };

/* TEST_ROWS: number of pictures that a test on the CPU processes at a time. TEMPORARIES: number of gradients between
 * layers that are in memory at the same time. PER_UNIT: number of parameter tensors of a unit. */
enum { TEST_ROWS = 16, TEMPORARIES = 3, PER_UNIT = 3 };

/* A unit: a convolution and its normalization. The unit's parameters have the indices `param` (weight), param + 1 and
 * param + 2 (normalization). The unit's buffers have the indices 2 * param / 3 and 2 * param / 3 + 1. */
struct unit {
    struct conv conv;
    size_t param;
    double *saved; /* set by the forward pass: means, 1 / deviations, number of values of a channel */
    void *out;     /* output of the convolution */
};

struct block {
    struct unit unit[2];
    struct shortcut shortcut;
    void *mid, *y; /* outputs of the first and of the second ReLU */
};

struct resnet {
    struct model model;
    struct compute *on;
    ddp_ctx
        *ctx; /* borrowed: context of the ranks that normalize together; NULL if each rank normalizes its own
                      * batch alone */
    double *records;     /* on a device: records of all ranks, or sums in the backward pass */
    size_t features, fc; /* number of inputs of the head; index of the head's weight */
    struct unit stem;
    void *stem_y;
    void *temporary[TEMPORARIES]; /* gradients between layers */
    float *columns;
    void *pooled, *dpooled, *logits, *dlogits;
    size_t most; /* number of elements of `columns`: enough for the largest layer */
    size_t room; /* number of rows for which the layers have memory */
    struct block block[BLOCKS];
};

/* --- batch normalization -------------------------------------------------------------------------------- */

/* Each rank normalizes its own batch. If the spec has a context, all ranks normalize their batches together.
 *
 *   - On the CPU, libddp computes the normalization (ddp/syncbn.h).
 *   - On a device, the ranks exchange records (compute.h) on the device's stream, so the host does not wait. */

static size_t ranks_of(const struct resnet *r)
{
    return r->ctx != NULL ? (size_t)ddp_world_size(r->ctx) : 1;
}

static ddp_group *group_of(const struct resnet *r)
{
    return r->ctx != NULL ? ddp_world(r->ctx) : NULL;
}

static ddp_syncbn of_library(const struct batch_norm *b)
{
    return (ddp_syncbn){ .channels = b->channels,
                         .spatial = b->spatial,
                         .eps = b->eps,
                         .momentum = b->momentum,
                         .weight = b->weight,
                         .bias = b->bias,
                         .running_mean = b->running_mean,
                         .running_var = b->running_var,
                         .saved = b->saved,
                         .count = b->saved[2 * b->channels] };
}

/* Normalize on a device. Each rank merges the records of all ranks in the order of ranks. The number of values is not
 * checked here, because even one picture has enough values of each channel for a variance. */
static ddp_status device_forward(const struct resnet *r, const struct batch_norm *b, void *y, const void *x,
                                 size_t rows, struct ddp_err *err)
{
    const struct compute_ops *ops = r->on->ops;
    const size_t words = batch_norm_numbers(b->channels);
    double *mine = r->records + (r->ctx != NULL ? words * (size_t)ddp_rank(r->ctx) : 0);
    ddp_status status = DDP_OK;
    ops->norm_measure(r->on, b, mine, x, rows);
    if (r->ctx != NULL)
        status = library(
            ddp_all_gather(ddp_world(r->ctx), mine, r->records, words, DDP_F64, ops->stream(r->on), NULL),
            err);
    ops->norm_learn(r->on, b, r->records, ranks_of(r));
    ops->norm_apply(r->on, b, y, x, rows, false);
    return status;
}

static ddp_status device_backward(const struct resnet *r, const struct batch_norm *b, void *dx,
                                  float *dweight, float *dbias, const void *dy, const void *x, size_t rows,
                                  struct ddp_err *err)
{
    const struct compute_ops *ops = r->on->ops;
    ddp_status status = DDP_OK;
    ops->norm_sums(r->on, b, r->records, dweight, dbias, dy, x, rows);
    if (r->ctx != NULL)
        status = library(ddp_all_reduce(ddp_world(r->ctx), r->records, r->records, 2 * b->channels, DDP_F64,
                                        DDP_SUM, ops->stream(r->on), NULL),
                         err);
    ops->norm_gradient(r->on, b, dx, r->records, dy, x, rows);
    return status;
}

/* Run the forward pass; collective if the spec has a context. A rank may have 0 rows. */
static ddp_status normalize_forward(const struct resnet *r, const struct batch_norm *b, void *y,
                                    const void *x, size_t rows, struct ddp_err *err)
{
    if (r->on->remote)
        return device_forward(r, b, y, x, rows, err);
    ddp_syncbn bn = of_library(b);
    ddp_status status = ddp_syncbn_forward(group_of(r), &bn, x, rows, y);
    b->saved[2 * b->channels] = bn.count;
    return library(status, err);
}

static ddp_status normalize_backward(const struct resnet *r, const struct batch_norm *b, void *dx,
                                     float *dweight, float *dbias, const void *dy, const void *x, size_t rows,
                                     struct ddp_err *err)
{
    if (r->on->remote)
        return device_backward(r, b, dx, dweight, dbias, dy, x, rows, err);
    const ddp_syncbn bn = of_library(b);
    return library(ddp_syncbn_backward(group_of(r), &bn, x, dy, rows, dx, dweight, dbias), err);
}

/* Normalize with the running mean and variance; not collective. */
static ddp_status normalize_infer(const struct resnet *r, const struct batch_norm *b, void *y, const void *x,
                                  size_t rows, struct ddp_err *err)
{
    if (r->on->remote) {
        r->on->ops->norm_apply(r->on, b, y, x, rows, true);
        return DDP_OK;
    }
    const ddp_syncbn bn = of_library(b);
    return library(ddp_syncbn_infer(&bn, x, rows, y), err);
}

/* --- forward ----------------------------------------------------------------------------------------------- */

static size_t unit_values(const struct unit *u)
{
    return u->conv.out * conv_side(&u->conv) * conv_side(&u->conv);
}

static const void *weight_of(const struct resnet *r, const struct unit *u)
{
    return r->model.params.each[u->param].at;
}

/* Return the arguments of a normalization. If `keeps` is false, the running mean and variance stay unchanged. */
static struct batch_norm norm_of(const struct resnet *r, const struct unit *u, bool keeps)
{
    static const ddp_syncbn usual = DDP_SYNCBN_INIT;
    const struct model_tensor *buffer = &r->model.buffers.each[u->param / PER_UNIT * 2];
    const size_t side = conv_side(&u->conv);
    return (struct batch_norm){ .channels = u->conv.out,
                                .spatial = side * side,
                                .eps = usual.eps,
                                .momentum = usual.momentum,
                                .weight = r->model.params.each[u->param + 1].at,
                                .bias = r->model.params.each[u->param + 2].at,
                                .running_mean = keeps ? buffer[0].master : NULL,
                                .running_var = keeps ? buffer[1].master : NULL,
                                .saved = u->saved };
}

/* Run a convolution and its normalization, without the ReLU. */
static ddp_status unit_forward(struct resnet *r, struct unit *u, const void *x,
                               const struct model_batch *batch, enum model_mode mode, void *y,
                               struct ddp_err *err)
{
    const struct batch_norm norm = norm_of(r, u, mode == MODEL_TEST || !batch->still);
    r->on->ops->conv_forward(r->on, &u->conv, u->out, x, weight_of(r, u), batch->rows, r->columns);
    if (mode == MODEL_TEST)
        return normalize_infer(r, &norm, y, u->out, batch->rows, err);
    return normalize_forward(r, &norm, y, u->out, batch->rows, err);
}

static void relu(const struct resnet *r, void *y, const struct unit *u, size_t rows)
{
    r->on->ops->activation_forward(r->on, ACTIVATION_RELU, y, rows, unit_values(u));
}

static ddp_status block_forward(struct resnet *r, struct block *b, const void *x,
                                const struct model_batch *batch, enum model_mode mode, struct ddp_err *err)
{
    ddp_status status = unit_forward(r, &b->unit[0], x, batch, mode, b->mid, err);
    if (status != DDP_OK)
        return status;
    relu(r, b->mid, &b->unit[0], batch->rows);
    status = unit_forward(r, &b->unit[1], b->mid, batch, mode, b->y, err);
    if (status != DDP_OK)
        return status;
    r->on->ops->shortcut_forward(r->on, &b->shortcut, b->y, x, batch->rows);
    relu(r, b->y, &b->unit[1], batch->rows);
    return DDP_OK;
}

static size_t last_places(const struct resnet *r)
{
    const size_t side = conv_side(&r->block[BLOCKS - 1].unit[1].conv);
    return side * side;
}

static struct linear head_of(const struct resnet *r, size_t rows)
{
    return (struct linear){ rows, r->features, r->model.classes };
}

/* Run all layers except the loss. Write the logits of the batch to `logits`. */
static ddp_status resnet_run(struct resnet *r, const struct model_batch *batch, enum model_mode mode,
                             void *logits, struct ddp_err *err)
{
    const struct compute_ops *ops = r->on->ops;
    const struct model_tensor *fc = &r->model.params.each[r->fc];
    ddp_status status = unit_forward(r, &r->stem, batch->picture, batch, mode, r->stem_y, err);
    const void *x = r->stem_y;
    if (status == DDP_OK)
        relu(r, r->stem_y, &r->stem, batch->rows);
    for (size_t i = 0; i < BLOCKS && status == DDP_OK; i++) {
        status = block_forward(r, &r->block[i], x, batch, mode, err);
        x = r->block[i].y;
    }
    if (status != DDP_OK)
        return status;
    ops->pool_forward(r->on, r->pooled, x, batch->rows * r->features, last_places(r));
    ops->linear_forward(r->on, logits, NULL, r->pooled, fc[0].at, fc[1].at, head_of(r, batch->rows));
    return DDP_OK;
}

/* Test a batch in pieces that fit into the buffers. A test keeps no outputs of layers, so all pieces use the same
 * memory. The result of a picture does not depend on other pictures. */
static ddp_status test_forward(struct resnet *r, const struct model_batch *batch, struct ddp_err *err)
{
    const size_t most = r->on->remote ? r->room : TEST_ROWS, bytes = r->on->value_bytes;
    const size_t pixels = r->model.pixels * bytes, logits = compute_stride(r->on, r->model.classes) * bytes;
    ddp_status status = DDP_OK;
    for (size_t at = 0; at < batch->rows && status == DDP_OK; at += most) {
        struct model_batch piece = *batch;
        piece.rows = batch->rows - at < most ? batch->rows - at : most;
        piece.picture = (const void *)((const char *)batch->picture + at * pixels);
        status = resnet_run(r, &piece, MODEL_TEST, (char *)r->logits + at * logits, err);
    }
    return status;
}

static ddp_status forward(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err)
{
    struct resnet *r = (struct resnet *)m;
    struct model_batch part = *batch;
    part.rows = batch->counted; /* without padding, because padding would change the means */
    ddp_status status =
        mode == MODEL_TRAIN ? resnet_run(r, &part, mode, r->logits, err) : test_forward(r, batch, err);
    if (status != DDP_OK)
        return status;
    m->logits = r->on->remote ? NULL : r->logits;
    *loss = mode == MODEL_TRAIN
                ? r->on->ops->cross_entropy(r->on, r->dlogits, r->logits, &part, m->classes, false)
                : r->on->ops->examine(r->on, r->logits, batch, m->classes, &m->correct);
    return DDP_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------- */

/* Values that the functions of a backward pass share. */
struct back {
    struct resnet *r;
    size_t rows;
    float *const *grad;
    const struct model_ready *ready;
    struct ddp_err *err;
};

/* Compute the gradients of a unit's parameters. At the call, `d` is the gradient of the normalization's output. At the
 * return, `d` is the gradient of the convolution's output. */
static ddp_status unit_backward_params(const struct back *b, struct unit *u, const void *x, void *d)
{
    struct resnet *r = b->r;
    float *const *grad = b->grad + u->param;
    const struct batch_norm norm = norm_of(r, u, false);
    ddp_status status = normalize_backward(r, &norm, d, grad[1], grad[2], d, u->out, b->rows, b->err);
    if (status != DDP_OK)
        return status;
    r->on->ops->conv_backward_params(r->on, &u->conv, grad[0], d, x, b->rows, r->columns);
    return model_report_ready(b->ready, u->param, u->param + PER_UNIT - 1, b->err);
}

static void unit_backward_input(const struct back *b, const struct unit *u, const void *d, void *dx, bool add)
{
    struct resnet *r = b->r;
    r->on->ops->conv_backward_input(r->on, &u->conv, dx, d, weight_of(r, u), b->rows, add, r->columns);
}

static void relu_backward(const struct back *b, void *d, const void *y, const struct unit *u)
{
    b->r->on->ops->activation_backward(b->r->on, ACTIVATION_RELU, d, y, b->rows, unit_values(u));
}

/* Compute the gradients of a block with the input `x` and the output y. On entry, `d` is the gradient of y; the
 * function overwrites `d`. `dx` becomes the gradient of `x`. `dmid` is scratch memory. */
static ddp_status block_backward(const struct back *b, struct block *k, const void *x, void *d, void *dmid,
                                 void *dx)
{
    struct compute *on = b->r->on;
    relu_backward(b, d, k->y, &k->unit[1]);
    on->ops->shortcut_backward(on, &k->shortcut, dx, d, b->rows);
    ddp_status status = unit_backward_params(b, &k->unit[1], k->mid, d);
    if (status != DDP_OK)
        return status;
    unit_backward_input(b, &k->unit[1], d, dmid, false);
    relu_backward(b, dmid, k->mid, &k->unit[0]);
    status = unit_backward_params(b, &k->unit[0], x, dmid);
    if (status == DDP_OK)
        unit_backward_input(b, &k->unit[0], dmid, dx, true);
    return status;
}

/* Compute the gradients of the head's parameters, and set d to the gradient of the last block's output. */
static ddp_status head_backward(const struct back *b, void *d)
{
    struct resnet *r = b->r;
    const struct compute_ops *ops = r->on->ops;
    const struct linear head = head_of(r, b->rows);
    ops->linear_backward_params(r->on, b->grad[r->fc], b->grad[r->fc + 1], r->dlogits, r->pooled, head);
    ops->linear_backward_input(r->on, r->dpooled, r->dlogits, r->model.params.each[r->fc].at, head);
    ops->pool_backward(r->on, d, r->dpooled, b->rows * r->features, last_places(r));
    return model_report_ready(b->ready, r->fc, r->fc + 1, b->err);
}

static ddp_status backward(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err)
{
    struct resnet *r = (struct resnet *)m;
    const struct back b = { r, batch->counted, grad, ready, err };
    void *d = r->temporary[0], *dmid = r->temporary[1], *dx = r->temporary[2];
    ddp_status status = head_backward(&b, d);
    for (size_t i = BLOCKS; i-- > 0 && status == DDP_OK;) {
        const void *x = i > 0 ? r->block[i - 1].y : r->stem_y;
        status = block_backward(&b, &r->block[i], x, d, dmid, dx);
        void *held = d;
        d = dx;
        dx = held;
    }
    if (status != DDP_OK)
        return status;
    relu_backward(&b, d, r->stem_y, &r->stem);
    return unit_backward_params(&b, &r->stem, batch->picture, d);
}

/* --- memory ------------------------------------------------------------------------------------------------ */

static const struct model_ops ops = { forward, backward };

/* Add the tensors of a unit, with torch's names. `prefix` is "" or, for example, "layer2.0."; `number` is the
 * unit's number in its block. */
static void add_tensors(struct resnet *r, struct unit *u, const char *prefix, int number)
{
    struct model_tensors *p = &r->model.params, *b = &r->model.buffers;
    u->param = p->n;
    model_tensors_add(p, MODEL_SHAPE(u->conv.out, u->conv.in, CONV_KERNEL, CONV_KERNEL), "%sconv%d.weight",
                      prefix, number);
    model_tensors_add(p, MODEL_SHAPE(u->conv.out), "%sbn%d.weight", prefix, number);
    model_tensors_add(p, MODEL_SHAPE(u->conv.out), "%sbn%d.bias", prefix, number);
    model_tensors_add(b, MODEL_SHAPE(u->conv.out), "%sbn%d.running_mean", prefix, number);
    model_tensors_add(b, MODEL_SHAPE(u->conv.out), "%sbn%d.running_var", prefix, number);
}

static void unit_init(struct resnet *r, struct unit *u, struct conv conv, const char *prefix, int number)
{
    *u = (struct unit){ .conv = conv };
    add_tensors(r, u, prefix, number);
    u->out = model_rows(&r->model, r->room, unit_values(u));
    u->saved = model_alloc(&r->model, batch_norm_numbers(conv.out) * sizeof(double));
    r->most = conv_columns(&conv) > r->most ? conv_columns(&conv) : r->most;
    r->model.flops += 3 * conv_flops(&conv); /* 3 convolutions: forward, and the two gradients of backward */
}

/* Initialize block `i`, counted over all stages. In every stage except the first, the first block halves the picture
 * and doubles the channels. */
static void block_init(struct resnet *r, size_t i, struct unit *before)
{
    struct block *b = &r->block[i];
    const size_t stage = i / IN_STAGE, out = (size_t)RESNET_WIDTH << stage;
    const size_t in = before->conv.out, side = conv_side(&before->conv), stride = in == out ? 1 : 2;
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "layer%zu.%zu.", stage + 1, i % IN_STAGE);
    unit_init(r, &b->unit[0], (struct conv){ in, out, side, stride }, prefix, 1);
    const size_t half = conv_side(&b->unit[0].conv);
    unit_init(r, &b->unit[1], (struct conv){ out, out, half, 1 }, prefix, 2);
    b->shortcut = (struct shortcut){ in, out, side, stride };
    b->mid = model_rows(&r->model, r->room, unit_values(&b->unit[0]));
    b->y = model_rows(&r->model, r->room, unit_values(&b->unit[1]));
}

/* Add the parameters of the last linear layer, and allocate its buffers and the memory that all layers share. Each
 * `temporary` has the size of the stem's output, because no layer has a larger output. */
static void head_init(struct resnet *r, size_t rows, size_t classes)
{
    r->features = (size_t)RESNET_WIDTH << (RESNET_STAGES - 1);
    r->fc = r->model.params.n;
    model_tensors_add(&r->model.params, MODEL_SHAPE(classes, r->features), "fc.weight");
    model_tensors_add(&r->model.params, MODEL_SHAPE(classes), "fc.bias");
    r->model.flops += 6 * (double)classes * (double)r->features;
    r->columns = model_alloc(&r->model, r->most * sizeof(float));
    r->pooled = model_rows(&r->model, r->room, r->features);
    r->dpooled = model_rows(&r->model, r->room, r->features);
    r->logits = model_rows(&r->model, rows, classes);
    r->dlogits = model_rows(&r->model, r->room, classes);
    for (int i = 0; i < TEMPORARIES; i++)
        r->temporary[i] = model_rows(&r->model, r->room, unit_values(&r->stem));
    if (r->on->remote)
        r->records = model_alloc(&r->model, ranks_of(r) * batch_norm_numbers(r->features) * sizeof(double));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Return the number of rows for which the layers need memory: the rows of a training batch or of a piece of a test,
 * whichever is larger. */
static size_t room_of(const struct model_spec *spec)
{
    return larger(spec->train_rows > 0 ? spec->train_rows : spec->rows,
                  spec->rows < TEST_ROWS ? spec->rows : TEST_ROWS);
}

static bool resnet_allocate(struct resnet *r, const struct model_spec *spec)
{
    const struct conv first = { spec->channels, RESNET_WIDTH, spec->height, 1 };
    unit_init(r, &r->stem, first, "", 1);
    r->stem_y = model_rows(&r->model, r->room, unit_values(&r->stem));
    for (size_t i = 0; i < BLOCKS; i++)
        block_init(r, i, i > 0 ? &r->block[i - 1].unit[1] : &r->stem);
    head_init(r, spec->rows, spec->classes);
    return model_tensors_place(&r->model.params) && model_tensors_place(&r->model.buffers) &&
           !r->model.is_short;
}

/* --- initial values ---------------------------------------------------------------------------------------- */

static void resnet_fill(struct model_tensor *t, float value)
{
    for (size_t i = 0; i < t->count; i++)
        t->value[i] = value;
}

/* Draw initial values as torch does, in the order of the layers. The bias of nn.Linear has the same range as the
 * weight. */
static void resnet_draw(struct resnet *r, uint64_t seed)
{
    struct model_tensors *p = &r->model.params;
    ddp_random random;
    ddp_random_seed(&random, seed);
    for (size_t i = 0; i < p->n; i++) {
        struct model_tensor *t = &p->each[i];
        if (i >= r->fc)
            uniform_fill(t->value, t->count, r->features, &random);
        else if (t->dims > 1)
            uniform_fill(t->value, t->count, t->count / t->shape[0], &random);
        else
            resnet_fill(t, i % PER_UNIT == 1 ? 1 : 0);
    }
    for (size_t i = 1; i < r->model.buffers.n; i += 2) /* variances */
        resnet_fill(&r->model.buffers.each[i], 1);
}

ddp_status resnet_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                         struct ddp_err *err)
{
    (void)kind;
    *out = NULL;
    if (spec->height != spec->width || spec->height == 0 || spec->height % 4 != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "pictures of %zux%zu: expected squares whose side is a multiple of 4", spec->height,
                        spec->width);
    struct resnet *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model");
    *r = (struct resnet){
        .model = { .ops = &ops, .compute = compute_of(spec), .classes = spec->classes },
        .on = compute_of(spec),
        .ctx = spec->ctx,
        .room = room_of(spec),
    };
    if (!resnet_allocate(r, spec)) {
        model_free(&r->model);
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model and batches of %zu rows",
                        spec->rows);
    }
    resnet_draw(r, spec->seed);
    *out = &r->model;
    return DDP_OK;
}
