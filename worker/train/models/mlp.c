/* mlp.c -- the models mlp and seqnet for pictures: pixels -> 200 -> 200 -> classes, then cross-entropy. Both have the
 * same linear layers, so mlp_config contains only the two activations. The initial values are drawn in the order of the
 * layers, so that a run begins like a PyTorch program with the same seed.
 *
 *     mlp      linear, ReLU, linear, ReLU, linear
 *     seqnet   linear, sigmoid, linear, log_softmax, linear      (from tutorials for Fashion-MNIST) */
#include "train/compute.h"
#include "train/models/models.h"

#include "ddp/random.h"

#include <stdlib.h>

enum { MLP_LAYERS = 3, MLP_HIDDEN = 200 };

struct mlp_config {
    enum activation after[MLP_LAYERS - 1]; /* activations after all layers except the last */
};
const struct mlp_config mlp_relu = { { ACTIVATION_RELU, ACTIVATION_RELU } };
const struct mlp_config mlp_seqnet = { { ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX } };

struct mlp {
    struct model model;
    const struct mlp_config *config;
    size_t width[MLP_LAYERS + 1];
    void *out[MLP_LAYERS];   /* output of each layer, after its activation; the last output is the logits */
    void *delta[MLP_LAYERS]; /* gradients of `out` */
};

static const void *weight_of(const struct mlp *mlp, int layer)
{
    return mlp->model.params.each[2 * layer].at;
}

static struct linear linear_of(const struct mlp *mlp, int layer, size_t rows)
{
    return (struct linear){ rows, mlp->width[layer], mlp->width[layer + 1] };
}

static ddp_status forward(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err)
{
    struct mlp *mlp = (struct mlp *)m;
    struct compute *on = m->compute;
    const struct compute_ops *ops = on->ops;
    const void *x = batch->picture;
    (void)err;
    for (int i = 0; i < MLP_LAYERS; i++) {
        ops->linear_forward(on, mlp->out[i], NULL, x, weight_of(mlp, i), m->params.each[2 * i + 1].at,
                            linear_of(mlp, i, batch->rows));
        if (i < MLP_LAYERS - 1)
            ops->activation_forward(on, mlp->config->after[i], mlp->out[i], batch->rows, mlp->width[i + 1]);
        x = mlp->out[i];
    }
    void *logits = mlp->out[MLP_LAYERS - 1];
    m->logits = on->remote ? NULL : logits;
    *loss = mode == MODEL_TRAIN
                ? ops->cross_entropy(on, mlp->delta[MLP_LAYERS - 1], logits, batch, m->classes, false)
                : ops->examine(on, logits, batch, m->classes, &m->correct);
    return DDP_OK;
}

/* Compute the gradients of layer i: first of its activation, then of its weight, bias and input. */
static void layer_backward(struct mlp *mlp, int i, const struct model_batch *batch, float *const grad[])
{
    struct compute *on = mlp->model.compute;
    const struct compute_ops *ops = on->ops;
    const struct linear l = linear_of(mlp, i, batch->rows);
    const void *input = i > 0 ? mlp->out[i - 1] : batch->picture;
    void *d = mlp->delta[i];
    if (i < MLP_LAYERS - 1)
        ops->activation_backward(on, mlp->config->after[i], d, mlp->out[i], l.rows, l.out);
    ops->linear_backward_params(on, grad[2 * i], grad[2 * i + 1], d, input, l);
    if (i > 0)
        ops->linear_backward_input(on, mlp->delta[i - 1], d, weight_of(mlp, i), l);
}

static ddp_status backward(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = MLP_LAYERS - 1; i >= 0 && status == DDP_OK; i--) {
        layer_backward((struct mlp *)m, i, batch, grad);
        status = model_report_ready(ready, (size_t)(2 * i), (size_t)(2 * i + 1), err);
    }
    return status;
}

static const struct model_ops ops = { forward, backward };

static bool mlp_allocate(struct mlp *mlp, size_t rows)
{
    for (int i = 0; i < MLP_LAYERS; i++) {
        size_t in = mlp->width[i], n = mlp->width[i + 1];
        model_tensors_add(&mlp->model.params, MODEL_SHAPE(n, in), "lin%d.weight", i + 1);
        model_tensors_add(&mlp->model.params, MODEL_SHAPE(n), "lin%d.bias", i + 1);
        mlp->out[i] = model_rows(&mlp->model, rows, n);
        mlp->delta[i] = model_rows(&mlp->model, rows, n);
    }
    return model_tensors_place(&mlp->model.params) && !mlp->model.is_short;
}

/* Draw the initial values in the order of the layers, with one generator. Weight and bias have the same bound, 1 /
 * sqrt(inputs), as in nn.Linear. */
static void mlp_draw(struct mlp *mlp, uint64_t seed)
{
    ddp_random random;
    ddp_random_seed(&random, seed);
    for (int i = 0; i < 2 * MLP_LAYERS; i++) {
        const struct model_tensor *t = &mlp->model.params.each[i];
        uniform_fill(t->value, t->count, mlp->width[i / 2], &random);
    }
}

ddp_status mlp_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                      struct ddp_err *err)
{
    *out = NULL;
    struct mlp *mlp = calloc(1, sizeof(*mlp));
    if (mlp == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model");
    *mlp = (struct mlp){
        .model = { .ops = &ops, .compute = compute_of(spec), .classes = spec->classes },
        .config = kind->config,
        .width = { spec->channels * spec->height * spec->width, MLP_HIDDEN, MLP_HIDDEN, spec->classes },
    };
    if (!mlp_allocate(mlp, spec->rows)) {
        model_free(&mlp->model);
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the model and batches of %zu rows",
                        spec->rows);
    }
    mlp->model.flops = 6 * (double)mlp->model.params.count;
    mlp_draw(mlp, spec->seed);
    *out = &mlp->model;
    return DDP_OK;
}
