/* Whole models of train on a GPU, or on the fake GPU of tests/fake if the machine has no GPU. Losses, gradients and
 * test results must equal those of the CPU. */
#include "numbers.h"
#include "train/train_options.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static struct devices d;
static struct model *on_cpu, *on_gpu;
static struct ddp_err err;

static void open_both(const char *name, int precision)
{
    d = devices_open(precision);
    on_cpu = known_model(name);
    on_gpu = known_model_on(name, d.gpu);
    cr_assert_eq(d.gpu->ops->place(d.gpu, &on_gpu->params, 1, &err), DDP_OK, "%s", err.msg);
}

static void close_both(void)
{
    model_free(on_cpu);
    model_free(on_gpu);
    devices_close(&d);
}

static struct both gradients(float **cpu, float **gpu)
{
    const struct model_tensors *t = &on_cpu->params;
    struct both all = devices_floats(&d, t->count, 1);
    model_views(t, all.cpu, cpu);
    model_views(t, all.gpu, gpu);
    return all;
}

static double loss_of_gpu(void)
{
    struct compute_report report;
    cr_assert_eq(d.gpu->ops->report(d.gpu, true, &report, &err), DDP_OK, "%s", err.msg);
    return report.loss;
}

static void expect_gradients(float *const cpu[], float *const gpu[])
{
    for (size_t i = 0; i < on_cpu->params.n; i++)
        devices_expect_same(&d, on_cpu->params.each[i].name,
                            (struct both){ cpu[i], gpu[i], on_cpu->params.each[i].count, false });
}

/* Compare a model on both devices. Rounding errors of the layers add up. So the tolerances for the loss and the
 * gradients are larger than for one layer. */
static void compare(const char *name, int precision, double of_loss, double of_gradients)
{
    const struct model_kind *kind = known_kind(name);
    struct model_batch batch = known_batch(kind, 0);
    double loss, nothing;
    const size_t most = kind->input == MODEL_TOKENS ? 1 : 5; /* few rows, because the fake GPU is slow */
    batch.rows = batch.rows < most ? batch.rows : most;
    open_both(name, precision);
    d.tolerance = of_gradients;
    float **cpu = calloc(2 * on_cpu->params.n, sizeof(*cpu)), **gpu = cpu + on_cpu->params.n;
    gradients(cpu, gpu);
    cr_assert_eq(model_forward(on_cpu, &batch, MODEL_TRAIN, &loss, &err), DDP_OK);
    cr_assert_eq(model_forward(on_gpu, &batch, MODEL_TRAIN, &nothing, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(nothing, 0);
    cr_expect_float_eq(loss_of_gpu() / loss, 1, of_loss);
    cr_assert_eq(model_backward(on_cpu, cpu, NULL, &err), DDP_OK);
    cr_assert_eq(model_backward(on_gpu, gpu, NULL, &err), DDP_OK, "%s", err.msg);
    expect_gradients(cpu, gpu);
    free(cpu);
    close_both();
}

Test(models_gpu, gpt2_in_fp32, .timeout = 120)
{
    compare("gpt2:tiny", PRECISION_FP32, 2e-5, 2e-5);
}

Test(models_gpu, gpt2_in_bf16, .timeout = 120)
{
    compare("gpt2:tiny", PRECISION_BF16, 3e-2, 3e-2);
}

Test(models_gpu, mlp_in_fp32, .timeout = 120)
{
    compare("mlp", PRECISION_FP32, 2e-5, 2e-5);
}

/* The tolerance is large, because small gradients have few digits in fp16 if the loss is not scaled. */
Test(models_gpu, mlp_in_fp16, .timeout = 120)
{
    compare("mlp", PRECISION_FP16, 6e-2, 6e-2);
}

Test(models_gpu, seqnet_in_fp32, .timeout = 120)
{
    compare("seqnet", PRECISION_FP32, 2e-5, 2e-5);
}

/* The tolerance for gradients is large. In each of twenty layers a value near 0 may change its sign, which changes a
 * gradient by about 1 %. In the next test, the tolerance is larger: even on the CPU, rounding the weights to fp16
 * changes some gradients by 13 %. */
Test(models_gpu, resnet20_in_fp32, .timeout = 120)
{
    compare("resnet20", PRECISION_FP32, 1e-5, 0.1);
}

Test(models_gpu, resnet20_in_fp16, .timeout = 120)
{
    compare("resnet20", PRECISION_FP16, 5e-3, 0.4);
}

static void expect_the_same_test(const char *name)
{
    double of_cpu, of_gpu;
    struct model_batch batch = known_batch(known_kind(name), 3);
    batch.rows = 1;
    open_both(name, PRECISION_FP32);
    cr_assert_eq(model_forward(on_cpu, &batch, MODEL_TEST, &of_cpu, &err), DDP_OK);
    cr_assert_eq(model_forward(on_gpu, &batch, MODEL_TEST, &of_gpu, &err), DDP_OK, "%s", err.msg);
    cr_expect_float_eq(of_gpu / of_cpu, 1, 1e-5);
    cr_expect_eq(model_correct(on_gpu, &batch), model_correct(on_cpu, &batch));
    cr_expect_null(on_gpu->logits);
    close_both();
}

Test(models_gpu, a_test_finds_the_same, .timeout = 120)
{
    expect_the_same_test("gpt2:tiny");
}

Test(models_gpu, a_test_of_resnet20_finds_the_same, .timeout = 120)
{
    expect_the_same_test("resnet20");
}

/* The layers have memory for fewer images than the batch has, so MODEL_TEST processes the batch in pieces. In bf16, the
 * offset of each piece must be computed with two bytes for each value. */
Test(models_gpu, a_large_test_goes_in_pieces, .timeout = 120)
{
    enum { ROWS = 21, PIXELS = 3 * 8 * 8 };
    static float picture[ROWS * PIXELS], weight[ROWS];
    static int32_t target[ROWS];
    double of_cpu, of_gpu;
    struct model_spec spec = {
        .rows = ROWS, .train_rows = 2, .channels = 3, .height = 8, .width = 8, .classes = 10
    };
    struct model_batch batch = {
        .rows = ROWS, .length = 1, .picture = picture, .target = target, .weight = weight
    };
    d = devices_open(PRECISION_BF16);
    for (size_t i = 0; i < ROWS * PIXELS; i++)
        picture[i] = (float)devices_random(512) / 256 - 1;
    for (size_t i = 0; i < ROWS; i++) {
        target[i] = (int32_t)devices_random(10);
        weight[i] = 1;
    }
    cr_assert_eq(model_create(known_kind("resnet20"), &spec, &on_cpu, &err), DDP_OK, "%s", err.msg);
    spec.compute = d.gpu;
    cr_assert_eq(model_create(known_kind("resnet20"), &spec, &on_gpu, &err), DDP_OK, "%s", err.msg);
    const struct model_tensor *last = &on_cpu->params.each[on_cpu->params.n - 2];
    for (size_t i = 0; i < last->count; i++) /* large weights, because otherwise all logits are nearly 0 */
        on_gpu->params.each[on_gpu->params.n - 2].value[i] = last->value[i] *= 1000;
    cr_assert_eq(d.gpu->ops->place(d.gpu, &on_gpu->params, 1, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(model_forward(on_cpu, &batch, MODEL_TEST, &of_cpu, &err), DDP_OK);
    cr_assert_eq(model_forward(on_gpu, &batch, MODEL_TEST, &of_gpu, &err), DDP_OK, "%s", err.msg);
    cr_expect_float_eq(of_gpu / of_cpu, 1, 0.03, "%g, cpu %g", of_gpu, of_cpu);
    close_both();
}
