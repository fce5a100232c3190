/* Each layer of `train` in double precision, its gradients against central differences. */
#define LAYERS_IN_DOUBLE
#include "train/layers/activation.c"
#include "train/layers/cross_entropy.c"
#include "train/layers/linear.c"

#include "grad_check.h"

#include <criterion/criterion.h>

enum { ROWS = 5, IN = 7, OUT = 4 };

static double x[ROWS * IN], dx[ROWS * IN], w[OUT * IN], dw[OUT * IN], b[OUT], db[OUT], y[ROWS * OUT],
    mix[ROWS * OUT];

/* --- linear ------------------------------------------------------------------------------------------ */

static void linear_there(void)
{
    linear_forward(y, x, w, b, ROWS, IN, OUT);
}

static void linear_back(void)
{
    linear_backward_params(dw, db, mix, x, ROWS, IN, OUT);
    linear_backward_input(dx, mix, w, ROWS, IN, OUT);
}

Test(layers, linear)
{
    const struct grad_check c = {
        .in = { { "x", x, dx, ROWS * IN }, { "weight", w, dw, OUT * IN }, { "bias", b, db, OUT } },
        .out = y,
        .mix = mix,
        .n = ROWS * OUT,
        .forward = linear_there,
        .backward = linear_back
    };
    grad_check(&c);
}

Test(layers, linear_without_a_bias_overwrites_what_was_there)
{
    grad_check_random(x, ROWS * IN, 1);
    grad_check_random(w, OUT * IN, 2);
    linear_forward(y, x, w, b, ROWS, IN, OUT); /* b is 0 */
    double first = y[3];
    linear_forward(y, x, w, NULL, ROWS, IN, OUT);
    cr_expect_float_eq(y[3], first, 1e-15);
}

/* --- activations ------------------------------------------------------------------------------------- */

static const struct activation *tried;
static double a[ROWS * OUT], da[ROWS * OUT];

static void activation_there(void)
{
    memcpy(y, a, sizeof(y));
    tried->forward(y, ROWS, OUT);
}

static void activation_back(void)
{
    memcpy(da, mix, sizeof(da));
    tried->backward(da, y, ROWS, OUT);
}

static void check_activation(const struct activation *activation)
{
    const struct grad_check c = { .in = { { "a", a, da, ROWS * OUT } },
                                  .out = y,
                                  .mix = mix,
                                  .n = ROWS * OUT,
                                  .forward = activation_there,
                                  .backward = activation_back };
    tried = activation;
    grad_check(&c);
}

Test(layers, relu)
{
    check_activation(&activation_relu);
}

Test(layers, sigmoid)
{
    check_activation(&activation_sigmoid);
}

Test(layers, log_softmax)
{
    check_activation(&activation_log_softmax);
}

/* --- cross-entropy ----------------------------------------------------------------------------------- */

enum { LENGTH = 2, TARGETS = ROWS * LENGTH };
static double z[TARGETS * OUT], dz[TARGETS * OUT], weight[ROWS], loss_out[1], one[1];
static int32_t target[TARGETS];

/* sum(weight x loss), from one row at a time: the function itself adds the losses without the weights. */
static void entropy_there(void)
{
    loss_out[0] = 0;
    for (size_t row = 0; row < ROWS; row++)
        loss_out[0] += weight[row] * cross_entropy(NULL, z + row * LENGTH * OUT, target + row * LENGTH,
                                                   &weight[row], 1, LENGTH, OUT);
}

static void entropy_back(void)
{
    cross_entropy(dz, z, target, weight, ROWS, LENGTH, OUT);
}

Test(layers, cross_entropy_with_a_weight_of_0)
{
    const struct grad_check c = { .in = { { "z", z, dz, TARGETS * OUT } },
                                  .out = loss_out,
                                  .mix = one,
                                  .n = 1,
                                  .forward = entropy_there,
                                  .backward = entropy_back };
    grad_check_random(z, TARGETS * OUT, 5);
    grad_check_random(weight, ROWS, 6);
    weight[2] = 0;
    one[0] = 1;
    for (int i = 0; i < TARGETS; i++)
        target[i] = i % OUT;
    grad_check_here(&c);
}

Test(layers, the_gradient_of_cross_entropy_may_take_the_place_of_the_logits)
{
    grad_check_random(z, TARGETS * OUT, 5);
    grad_check_random(weight, ROWS, 6);
    double apart = cross_entropy(dz, z, target, weight, ROWS, LENGTH, OUT);
    double in_place = cross_entropy(z, z, target, weight, ROWS, LENGTH, OUT);
    cr_expect_eq(apart, in_place);
    cr_expect_eq(memcmp(z, dz, sizeof(z)), 0);
}
