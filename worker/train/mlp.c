/* mlp.c -- see mlp.h.
 *
 * Matrix products are BLAS's; everything between them is a loop. One layer is
 *
 *     forward    out   = act(x * W^T + b)
 *     backward   delta = act'(out, delta_out);  dW = delta^T * x;  db = column sums;  delta_x = delta * W
 *
 * All activations here can be undone from their output alone, so nothing else is kept. */
#include "mlp.h"

#include "ddp/random.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct mlp_tensor mlp_tensors[MLP_TENSORS] = {
#define X(name, count) { name, count },
    MLP_TENSOR_LIST(X)
#undef X
};

static const size_t width[MLP_LAYERS + 1] = { MLP_INPUT, MLP_HIDDEN, MLP_HIDDEN, MLP_CLASSES };

/* --- activations: rows x n values in place; `backward` turns d(loss)/d(out) into d(loss)/d(in) ------- */

/* Both work in place; a row of the table below picks one for each layer. */
struct activation {
    void (*forward)(float *y, size_t rows, size_t n);
    void (*backward)(float *d, const float *y, size_t rows, size_t n);
};

/* The gradient at 0 is 0, as in torch. */
static void relu(float *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

static void relu_back(float *d, const float *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        d[i] = y[i] > 0 ? d[i] : 0;
}

static void sigmoid(float *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        y[i] = 1.0f / (1.0f + expf(-y[i]));
}

/* y (1 - y) is the slope, from the output alone. */
static void sigmoid_back(float *d, const float *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        d[i] = d[i] * (y[i] * (1.0f - y[i]));
}

/* log(sum(exp(z))), with the largest taken out first so that nothing overflows. */
static float log_sum_exp(const float *z, size_t n)
{
    float top = z[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        top = z[i] > top ? z[i] : top;
    for (size_t i = 0; i < n; i++)
        sum += expf(z[i] - top);
    return top + logf(sum);
}

/* Row by row: each is a distribution of its own. */
static void log_softmax(float *y, size_t rows, size_t n)
{
    for (; rows > 0; rows--, y += n) {
        float lse = log_sum_exp(y, n);
        for (size_t i = 0; i < n; i++)
            y[i] -= lse;
    }
}

/* d - softmax * sum(d), and softmax is exp of the output. */
static void log_softmax_back(float *d, const float *y, size_t rows, size_t n)
{
    for (; rows > 0; rows--, y += n, d += n) {
        float sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += d[i];
        for (size_t i = 0; i < n; i++)
            d[i] -= expf(y[i]) * sum;
    }
}

static const struct activation act_relu = { relu, relu_back };
static const struct activation act_sigmoid = { sigmoid, sigmoid_back };
static const struct activation act_log_softmax = { log_softmax, log_softmax_back };

/* What follows each layer; nothing follows the last, cross-entropy takes the logits. */
static const struct activation *const activations[MLP_MODELS][MLP_LAYERS] = {
    [MLP_RELU] = { &act_relu, &act_relu, NULL },
    [MLP_SEQNET] = { &act_sigmoid, &act_log_softmax, NULL },
};
const char *const mlp_model_name[MLP_MODELS + 1] = { [MLP_RELU] = "mlp", [MLP_SEQNET] = "seqnet" };

/* --- memory ------------------------------------------------------------------------------------------ */

void mlp_views(float *flat, float *tensor[MLP_TENSORS])
{
    for (int i = 0; i < MLP_TENSORS; i++) {
        tensor[i] = flat;
        flat += mlp_tensors[i].count;
    }
}

/* Zeroed, so that a forward pass before mlp_seed is dull rather than undefined. */
bool mlp_init(struct mlp *mlp, enum mlp_model model, size_t max_rows)
{
    *mlp = (struct mlp){ .model = model, .max_rows = max_rows, .params = calloc(MLP_PARAMS, sizeof(float)) };
    bool complete = mlp->params != NULL;
    for (int i = 0; i < MLP_LAYERS; i++) {
        mlp->out[i] = calloc(max_rows * width[i + 1], sizeof(float));
        mlp->delta[i] = calloc(max_rows * width[i + 1], sizeof(float));
        complete = complete && mlp->out[i] != NULL && mlp->delta[i] != NULL;
    }
    if (complete)
        mlp_views(mlp->params, mlp->tensor);
    else
        mlp_free(mlp);
    return complete;
}

void mlp_free(struct mlp *mlp)
{
    free(mlp->params);
    for (int i = 0; i < MLP_LAYERS; i++) {
        free(mlp->out[i]);
        free(mlp->delta[i]);
    }
    *mlp = (struct mlp){ 0 };
}

/* Weight and bias of a layer share their bound: nn.Linear's kaiming_uniform(a = sqrt(5)) comes out at
 * 1/sqrt(inputs), the same as its rule for the bias. Drawn in this order, one generator for all. */
void mlp_seed(struct mlp *mlp, uint64_t seed)
{
    ddp_random random;
    ddp_random_seed(&random, seed);
    for (int i = 0; i < MLP_TENSORS; i++) {
        float bound = 1.0f / sqrtf((float)width[i / 2]);
        for (size_t k = 0; k < mlp_tensors[i].count; k++)
            mlp->tensor[i][k] = ddp_random_uniform(&random) * (bound - -bound) + -bound;
    }
}

/* --- forward and backward ---------------------------------------------------------------------------- */

/* The bias is put where the product will be added (beta = 1), which saves a pass over the output. */
const float *mlp_forward(struct mlp *mlp, const float *x, size_t rows)
{
    for (int i = 0; i < MLP_LAYERS; i++) {
        const float *weight = mlp->tensor[2 * i], *bias = mlp->tensor[2 * i + 1];
        size_t in = width[i], n = width[i + 1];
        for (size_t row = 0; row < rows; row++)
            memcpy(mlp->out[i] + row * n, bias, n * sizeof(float));
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)n, (int)in, 1, x, (int)in,
                    weight, (int)in, 1, mlp->out[i], (int)n);
        if (activations[mlp->model][i] != NULL)
            activations[mlp->model][i]->forward(mlp->out[i], rows, n);
        x = mlp->out[i];
    }
    return x;
}

/* d(loss)/d(logit) is softmax minus 1 at the label. Losses are summed in double: an epoch adds up many. */
double mlp_loss(struct mlp *mlp, const uint8_t *labels, const float *weight, size_t rows)
{
    const float *z = mlp->out[MLP_LAYERS - 1];
    float *d = mlp->delta[MLP_LAYERS - 1];
    double loss = 0;
    for (size_t row = 0; row < rows; row++, z += MLP_CLASSES, d += MLP_CLASSES) {
        float lse = log_sum_exp(z, MLP_CLASSES);
        for (int k = 0; k < MLP_CLASSES; k++)
            d[k] = weight[row] * (expf(z[k] - lse) - (k == labels[row] ? 1.0f : 0.0f));
        if (weight[row] != 0)
            loss += (double)(lse - z[labels[row]]);
    }
    return loss;
}

/* Row after row, the order of the memory; it also fixes the order of the additions. */
static void column_sums(float *sum, const float *d, size_t rows, size_t n)
{
    memset(sum, 0, n * sizeof(float));
    for (; rows > 0; rows--, d += n) {
        for (size_t i = 0; i < n; i++)
            sum[i] += d[i];
    }
}

/* beta = 0: gradients are overwritten, nothing need be cleared before a step. */
void mlp_backward(struct mlp *mlp, const float *x, size_t rows, float *const grad[MLP_TENSORS])
{
    for (int i = MLP_LAYERS - 1; i >= 0; i--) {
        const float *input = i > 0 ? mlp->out[i - 1] : x;
        float *d = mlp->delta[i];
        size_t in = width[i], n = width[i + 1];
        if (activations[mlp->model][i] != NULL)
            activations[mlp->model][i]->backward(d, mlp->out[i], rows, n);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n, (int)in, (int)rows, 1, d, (int)n, input,
                    (int)in, 0, grad[2 * i], (int)in);
        column_sums(grad[2 * i + 1], d, rows, n);
        if (i > 0)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)n, 1, d, (int)n,
                        mlp->tensor[2 * i], (int)in, 0, mlp->delta[i - 1], (int)in);
    }
}

uint64_t mlp_hash(const struct mlp *mlp)
{
    const uint8_t *byte = (const uint8_t *)mlp->params;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < MLP_PARAMS * sizeof(float); i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}
