/* Compare the GPU kernels of train (worker/train/cuda/) with the layers of the CPU, for each type of values. The sizes
 * do not fill a block, and each run has new random numbers. On machines without a GPU the kernels run on a fake GPU
 * (tests/fake/shim.h). */
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct devices d;

static struct linear linear_of(size_t rows, size_t in, size_t out)
{
    return (struct linear){ rows, in, out };
}

EACH_PRECISION(kernels, linear_layers)
{
    const struct linear l =
        linear_of(1 + devices_random(40), 8 * (1 + devices_random(8)), 8 * (1 + devices_random(8)));
    struct both x = devices_values(&d, l.rows * l.in, 1), w = devices_values(&d, l.in * l.out, 0.2);
    struct both b = devices_values(&d, l.out, 1), y = devices_values(&d, l.rows * l.out, 1);
    struct both dy = devices_values(&d, l.rows * l.out, 1), dx = devices_values(&d, l.rows * l.in, 1);
    struct both dw = devices_floats(&d, l.in * l.out, 1), db = devices_floats(&d, l.out, 1);
#define FORWARD(to)  on->ops->linear_forward(on, y.to, NULL, x.to, w.to, b.to, l)
#define ADD(to)      on->ops->linear_forward(on, y.to, y.to, x.to, w.to, b.to, l)
#define BACKWARD(to) on->ops->linear_backward_params(on, dw.to, db.to, dy.to, x.to, l)
#define INPUT(to)    on->ops->linear_backward_input(on, dx.to, dy.to, w.to, l)
    BOTH(FORWARD);
    devices_expect_same(&d, "linear_forward", y);
    BOTH(ADD);
    devices_expect_same(&d, "linear_forward with `before`", y);
    BOTH(BACKWARD);
    devices_expect_same(&d, "dweight", dw);
    devices_expect_same(&d, "dbias", db);
    BOTH(INPUT);
    devices_expect_same(&d, "dx", dx);
#undef FORWARD
#undef ADD
#undef BACKWARD
#undef INPUT
}

/* The kernels read rows 16 bytes at a time. So a row of ten classes is padded to sixteen elements. */
EACH_PRECISION(kernels, rows_that_are_no_multiple_of_a_pack)
{
    const struct linear l = linear_of(5, 16, 10);
    const size_t stride = compute_stride(d.gpu, l.out);
    struct both x = devices_values(&d, l.rows * l.in, 1), w = devices_values(&d, l.in * l.out, 1);
    struct both y = devices_values(&d, l.rows * stride, 0);
    struct both dw = devices_floats(&d, l.in * l.out, 1), db = devices_floats(&d, l.out, 1);
    cr_expect_eq(stride, 16);
#define FORWARD(to)  on->ops->linear_forward(on, y.to, NULL, x.to, w.to, NULL, l)
#define BACKWARD(to) on->ops->linear_backward_params(on, dw.to, db.to, y.to, x.to, l)
    BOTH(FORWARD);
    devices_expect_rows(&d, "linear_forward", y, l.out, stride);
    BOTH(BACKWARD);
    devices_expect_same(&d, "dweight", dw);
    devices_expect_same(&d, "dbias", db);
#undef FORWARD
#undef BACKWARD
}

EACH_PRECISION(kernels, layer_norms)
{
    const size_t rows = 1 + devices_random(150), n = 8 * (1 + devices_random(40));
    struct both x = devices_values(&d, rows * n, 2), w = devices_values(&d, n, 1),
                b = devices_values(&d, n, 1);
    struct both y = devices_values(&d, rows * n, 1), mean = devices_floats(&d, rows, 1),
                scale = devices_floats(&d, rows, 1);
    struct both dy = devices_values(&d, rows * n, 1), dx = devices_values(&d, rows * n, 1);
    struct both dw = devices_floats(&d, n, 1), db = devices_floats(&d, n, 1);
#define FORWARD(to) on->ops->layer_norm_forward(on, y.to, mean.to, scale.to, x.to, w.to, b.to, rows, n)
#define BACKWARD(to) \
    on->ops->layer_norm_backward(on, dx.to, dw.to, db.to, dy.to, x.to, mean.to, scale.to, w.to, rows, n)
    BOTH(FORWARD);
    devices_expect_same(&d, "y", y);
    devices_expect_same(&d, "mean", mean);
    devices_expect_same(&d, "scale", scale);
    BOTH(BACKWARD);
    devices_expect_same(&d, "dx", dx);
    devices_expect_same(&d, "dweight", dw);
    devices_expect_same(&d, "dbias", db);
#undef FORWARD
#undef BACKWARD
}

EACH_PRECISION(kernels, gelus)
{
    const size_t n = 8 * (1 + devices_random(1000));
    struct both x = devices_values(&d, n, 4), y = devices_values(&d, n, 1), dy = devices_values(&d, n, 1);
#define FORWARD(to)  on->ops->gelu_forward(on, y.to, x.to, n)
#define BACKWARD(to) on->ops->gelu_backward(on, dy.to, x.to, n)
    BOTH(FORWARD);
    devices_expect_same(&d, "gelu", y);
    BOTH(BACKWARD);
    devices_expect_same(&d, "its gradient", dy);
#undef FORWARD
#undef BACKWARD
}

static void activation(const char *name, enum activation f)
{
    const size_t rows = 1 + devices_random(30), n = 8 * (1 + devices_random(30));
    struct both y = devices_values(&d, rows * n, 2), dy = devices_values(&d, rows * n, 1);
#define FORWARD(to)  on->ops->activation_forward(on, f, y.to, rows, n)
#define BACKWARD(to) on->ops->activation_backward(on, f, dy.to, y.to, rows, n)
    BOTH(FORWARD);
    devices_expect_same(&d, name, y);
    BOTH(BACKWARD);
    devices_expect_same(&d, name, dy);
#undef FORWARD
#undef BACKWARD
}

EACH_PRECISION(kernels, activations)
{
    activation("relu", ACTIVATION_RELU);
    activation("sigmoid", ACTIVATION_SIGMOID);
    activation("log_softmax", ACTIVATION_LOG_SOFTMAX);
}

/* --- kernels that read the batch ------------------------------------------------------------------------ */

static int32_t token[4096], target[4096];
static float weight[64];
static struct model_batch batch, on_cpu, on_gpu;

/* Make a batch in which some tokens are frequent and most are missing. The second row has the weight 0. */
static void make_batch(size_t rows, size_t length, size_t classes)
{
    struct ddp_err err;
    for (size_t i = 0; i < rows * length; i++) {
        token[i] = (int32_t)devices_random(1 + devices_random(classes));
        target[i] = (int32_t)devices_random(classes);
    }
    for (size_t row = 0; row < rows; row++)
        weight[row] = row == 1 ? 0 : 0.25f;
    batch = (struct model_batch){
        .rows = rows, .length = length, .token = token, .target = target, .weight = weight
    };
    cr_assert_eq(compute_cpu.ops->begin(&compute_cpu, &batch, 0, &on_cpu, &err), DDP_OK);
    cr_assert_eq(d.gpu->ops->begin(d.gpu, &batch, 0, &on_gpu, &err), DDP_OK, "%s", err.msg);
}

#define BATCH(to) (on == &compute_cpu ? &on_cpu : &on_gpu)

EACH_PRECISION(kernels, embeddings)
{
    const size_t rows = 1 + devices_random(4), length = 1 + devices_random(20), most = length + 3,
                 n = 8 * (1 + devices_random(12));
    make_batch(rows, length, 50);
    struct both tokens = devices_values(&d, 50 * n, 1), places = devices_values(&d, most * n, 1);
    struct both y = devices_values(&d, rows * length * n, 1);
    struct both dtokens = devices_floats(&d, 50 * n, 1), dplaces = devices_floats(&d, most * n, 1);
#define FORWARD(to)  on->ops->embedding_forward(on, y.to, BATCH(to), tokens.to, places.to, n)
#define BACKWARD(to) on->ops->embedding_backward(on, dtokens.to, dplaces.to, y.to, BATCH(to), most, n)
    BOTH(FORWARD);
    devices_expect_same(&d, "embedding", y);
    BOTH(BACKWARD);
    devices_expect_same(&d, "dtokens", dtokens);
    devices_expect_same(&d, "dplaces", dplaces);
#undef FORWARD
#undef BACKWARD
}

/* A call of report() that does not wait returns only the losses of work that was queued before the previous call of
 * report(). So the test runs the kernel twice. */
EACH_PRECISION(kernels, cross_entropies)
{
    const size_t rows = 3, length = 1 + devices_random(12), classes = 5 + devices_random(400);
    const size_t stride = compute_stride(d.gpu, classes), n = rows * length;
    struct compute_report report;
    struct ddp_err err;
    make_batch(rows, length, classes);
    struct both z = devices_values(&d, n * stride, 3), dz = devices_values(&d, n * stride, 0);
    for (size_t row = 1; row < n; row++)
        memmove(z.cpu + row * classes, z.cpu + row * stride, classes * sizeof(float));
    size_t correct = 0, want = 0;
    for (size_t i = 0; i < n; i++) {
        const float *row = z.cpu + i * classes;
        size_t best = 0;
        for (size_t k = 1; k < classes; k++)
            best = row[k] > row[best] ? k : best;
        if (i % 2 == 0)
            target[i] = (int32_t)best;
        want += (size_t)target[i] == best && weight[i / length] != 0;
    }
    cr_assert_eq(d.gpu->ops->begin(d.gpu, &batch, 0, &on_gpu, &err), DDP_OK, "%s", err.msg);
    const double tested = d.gpu->ops->examine(d.gpu, z.gpu, &on_gpu, classes, &correct);
    const double loss = compute_cpu.ops->cross_entropy(&compute_cpu, dz.cpu, z.cpu, &on_cpu, classes, false);
    cr_expect_float_eq(tested, loss, 1e-4 * loss);
    cr_expect_eq(correct, want, "%zu of %zu", correct, want);
    d.gpu->ops->cross_entropy(d.gpu, dz.gpu, z.gpu, &on_gpu, classes, false);
    devices_expect_rows(&d, "gradient of the logits", dz, classes, stride);
    cr_assert_eq(d.gpu->ops->report(d.gpu, false, &report, &err), DDP_OK);
    cr_expect_eq(report.loss, 0);
    d.gpu->ops->cross_entropy(d.gpu, z.gpu, z.gpu, &on_gpu, classes, true);
    cr_assert_eq(d.gpu->ops->report(d.gpu, false, &report, &err), DDP_OK);
    cr_expect_float_eq(report.loss, loss, 1e-4 * loss);
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK);
    cr_expect_float_eq(report.loss, loss, 1e-4 * loss);
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK);
    cr_expect_eq(report.loss, 0);
}

/* A value with all bits set is a NaN in each type. */
EACH_PRECISION(kernels, a_loss_that_is_no_number_is_told_once)
{
    enum { ROWS = 2, CLASSES = 16 };
    float no_number[ROWS * CLASSES];
    struct compute_report report;
    struct ddp_err err;
    make_batch(ROWS, 1, CLASSES);
    struct both z = devices_values(&d, ROWS * CLASSES, 1), bad = devices_values(&d, ROWS * CLASSES, 1);
    memset(no_number, 0xff, sizeof(no_number));
    cr_assert_eq(d.gpu->ops->copy(d.gpu, bad.gpu, no_number, ROWS * CLASSES * d.gpu->value_bytes / 4, &err),
                 DDP_OK);
    cr_assert_eq(d.gpu->ops->begin(d.gpu, &batch, 0, &on_gpu, &err), DDP_OK, "%s", err.msg);
    d.gpu->ops->cross_entropy(d.gpu, bad.gpu, bad.gpu, &on_gpu, CLASSES, true);
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK);
    cr_expect(isnan(report.loss), "%g", report.loss);
    d.gpu->ops->cross_entropy(d.gpu, z.gpu, z.gpu, &on_gpu, CLASSES, true);
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK);
    cr_expect(isfinite(report.loss) && report.loss > 0, "%g", report.loss);
}

/* Three logits are minus infinity, as may happen with fp16. One thread adds both the second and the third of these
 * logits. */
Test(kernels, a_logit_of_minus_infinity_adds_nothing, .timeout = 120)
{
    enum { CLASSES = 304 };
    size_t correct;
    struct ddp_err err;
    d = devices_open(PRECISION_FP32);
    make_batch(1, 1, 2);
    target[0] = 100;
    cr_assert_eq(d.gpu->ops->begin(d.gpu, &batch, 0, &on_gpu, &err), DDP_OK, "%s", err.msg);
    struct both z = devices_values(&d, CLASSES, 3), dz = devices_values(&d, CLASSES, 0);
    z.cpu[5] = z.cpu[30] = z.cpu[30 + 256] = -INFINITY;
    cr_assert_eq(d.gpu->ops->copy(d.gpu, z.gpu, z.cpu, CLASSES, &err), DDP_OK, "%s", err.msg);
    const double tested = d.gpu->ops->examine(d.gpu, z.gpu, &on_gpu, CLASSES, &correct);
    const double loss = compute_cpu.ops->cross_entropy(&compute_cpu, dz.cpu, z.cpu, &on_cpu, CLASSES, false);
    cr_expect_float_eq(tested, loss, 1e-5 * loss, "%g, cpu %g", tested, loss);
    d.gpu->ops->cross_entropy(d.gpu, dz.gpu, z.gpu, &on_gpu, CLASSES, false);
    devices_expect_same(&d, "gradient of the logits", dz);
    devices_close(&d);
}

/* --- attention ------------------------------------------------------------------------------------------ */

static void attention(struct attention a)
{
    const size_t n = a.rows * a.length, scores = attention_scratch(&a);
    struct both qkv = devices_values(&d, n * 3 * a.width, 1.5), y = devices_values(&d, n * a.width, 1);
    struct both log_sum = devices_floats(&d, n * a.heads, 1), scratch = devices_floats(&d, scores, 0);
    struct both dy = devices_values(&d, n * a.width, 1), dqkv = devices_values(&d, n * 3 * a.width, 1);
    char name[80];
    snprintf(name, sizeof(name), "attention of %zu x %zu, %zu heads, width %zu", a.rows, a.length, a.heads,
             a.width);
#define FORWARD(to)  on->ops->attention_forward(on, y.to, log_sum.to, qkv.to, scratch.to, &a)
#define BACKWARD(to) on->ops->attention_backward(on, dqkv.to, dy.to, y.to, qkv.to, log_sum.to, scratch.to, &a)
    BOTH(FORWARD);
    devices_expect_same(&d, name, y);
    devices_expect_same(&d, "log_sum", log_sum);
    BOTH(BACKWARD);
    devices_expect_same(&d, name, dqkv);
#undef FORWARD
#undef BACKWARD
}

EACH_PRECISION(kernels, attentions)
{
    attention((struct attention){ 2, 1 + devices_random(40), 2, 64 });
    attention((struct attention){ 1, 64 + devices_random(70), 1, 64 });
    attention((struct attention){ 1, 40, 1, 16 });
}

/* --- updates ------------------------------------------------------------------------------------------- */

static void add_some(struct both x)
{
#define ADD(to) on->ops->add(on, x.to, x.to, x.n)
    BOTH(ADD);
#undef ADD
    devices_expect_same(&d, "add", x);
}

/* Sum rows on the GPU. Expect the same bits as with the CPU's order of additions, and no values from other rows. */
static void sum_some_rows(int many)
{
    const size_t n = 1 + devices_random(3000), stride = n + devices_random(50);
    struct both rows = devices_floats(&d, stride * COMPUTE_ROWS, 1), sum = devices_floats(&d, n, 0);
    float got[3000];
    struct ddp_err err;
    d.gpu->ops->sum_rows(d.gpu, sum.gpu, rows.gpu, n, stride, many);
    cr_assert_eq(d.gpu->ops->copy(d.gpu, got, sum.gpu, n, &err), DDP_OK, "%s", err.msg);
    for (int half = 1; half < many; half *= 2) {
        for (int k = 0; k + half < many; k += 2 * half) {
            for (size_t i = 0; i < n; i++)
                rows.cpu[(size_t)k * stride + i] += rows.cpu[(size_t)(k + half) * stride + i];
        }
    }
    cr_expect_arr_eq(got, rows.cpu, n * sizeof(float), "sum of %d rows", many);
}

static void update(ddp_optim o, double most)
{
    const size_t n = 1 + devices_random(40000);
    struct both p = devices_floats(&d, n, 1), g = devices_floats(&d, n, 1), m = devices_floats(&d, n, 0);
    struct both v = devices_floats(&d, n, 0);
    struct model_tensor tensor = { .count = n, .dims = 1, .shape = { n }, .value = p.cpu };
    struct model_tensors all = { .each = &tensor, .n = 1, .values = p.cpu, .count = n };
    struct compute_report report;
    struct ddp_err err;
    cr_assert_eq(d.gpu->ops->place(d.gpu, &all, 1, &err), DDP_OK, "%s", err.msg);
    const struct both master = { p.cpu, tensor.master != NULL ? tensor.master : p.gpu, n, false };
    const double norm = most > 0 ? ddp_clip_grad_norm(&g.cpu, &n, 1, most)
                                 : ddp_grad_norm((const float *const *)&g.cpu, &n, 1);
    for (int step = 0; step < 2; step++) {
        ddp_optim_begin(&o);
        ddp_optim_update(&o, p.cpu, g.cpu, m.cpu, v.cpu, n);
        d.gpu->ops->norm(d.gpu, (float *const *)&g.gpu, &n, 1, most > 0 ? most : INFINITY, 1);
        const struct compute_update u = { .p = master.gpu,
                                          .w = tensor.master == NULL ? (void *)(uintptr_t)tensor.at : NULL,
                                          .g = g.gpu,
                                          .m = o.rule == DDP_SGD && o.momentum == 0 ? NULL : m.gpu,
                                          .v = v.gpu,
                                          .n = n };
        d.gpu->ops->update(d.gpu, &o, &u);
    }
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK);
    cr_expect_float_eq(report.norm, norm, 1e-5 * norm);
    const struct both copy = { p.cpu, (void *)tensor.at, n, true };
    devices_expect_same(&d, "masters", master);
    devices_expect_same(&d, "weights", copy);
}

EACH_PRECISION(kernels, sums_and_updates)
{
    const ddp_optim sgd = DDP_SGD_INIT, adam = DDP_ADAM_INIT, adamw = DDP_ADAMW_INIT;
    ddp_optim momentum = sgd;
    momentum.momentum = 0.9;
    momentum.nesterov = 1;
    momentum.weight_decay = 0.1;
    add_some(devices_floats(&d, 1 + devices_random(5000), 1));
    for (int many = 1; many <= COMPUTE_ROWS && d.precision == PRECISION_FP32; many *= 2)
        sum_some_rows(many);
    if (d.precision == PRECISION_FP32)
        d.tolerance = 1e-5; /* the GPU multiplies a clipped gradient in another order */
    update(sgd, 0);
    update(momentum, 0.5);
    update(adam, 0);
    update(adamw, 1);
}
