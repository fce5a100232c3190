/* Compute each layer of `train` in double precision, and compare its gradients with central differences. This finds
 * a wrong gradient without a second implementation. */
#define LAYERS_IN_DOUBLE
#include "train/layers/activation.c"
#include "train/layers/attention.c"
#include "train/layers/linear.c"
#include "train/layers/layer_norm.c"

#include "numbers.h"

#include <criterion/criterion.h>

enum { ROWS = 5, IN = 7, OUT = 4 };

static double x[ROWS * IN], dx[ROWS * IN], w[OUT * IN], dw[OUT * IN], b[OUT], db[OUT], y[ROWS * OUT],
    mix[ROWS * OUT];

/* --- linear ------------------------------------------------------------------------------------------ */

static const struct linear linear = { ROWS, IN, OUT };

static void linear_there(void)
{
    cpu_linear_forward(NULL, y, NULL, x, w, b, linear);
}

static void linear_back(void)
{
    cpu_linear_backward_params(NULL, dw, db, mix, x, linear);
    cpu_linear_backward_input(NULL, dx, mix, w, linear);
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
    linear_there(); /* the bias b is all 0 */
    double first = y[3];
    cpu_linear_forward(NULL, y, NULL, x, w, NULL, linear);
    cr_expect_float_eq(y[3], first, 1e-15);
}

/* --- activations ------------------------------------------------------------------------------------- */

static enum activation tried;
static double a[ROWS * OUT], da[ROWS * OUT];

static void activation_there(void)
{
    memcpy(y, a, sizeof(y));
    cpu_activation_forward(NULL, tried, y, ROWS, OUT);
}

static void activation_back(void)
{
    memcpy(da, mix, sizeof(da));
    cpu_activation_backward(NULL, tried, da, y, ROWS, OUT);
}

static void check_activation(enum activation activation)
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
    check_activation(ACTIVATION_RELU);
}

Test(layers, sigmoid)
{
    check_activation(ACTIVATION_SIGMOID);
}

Test(layers, log_softmax)
{
    check_activation(ACTIVATION_LOG_SOFTMAX);
}

/* --- cross-entropy ----------------------------------------------------------------------------------- */

enum { LENGTH = 2, TARGETS = ROWS * LENGTH };
static double z[TARGETS * OUT], dz[TARGETS * OUT], loss_out[1], one[1];
static float weight[ROWS];
static int32_t target[TARGETS];

/* Return `rows` rows of the batch, from row `first` on. */
static struct model_batch entropy_rows(size_t first, size_t rows)
{
    return (struct model_batch){
        .rows = rows, .length = LENGTH, .target = target + first * LENGTH, .weight = weight + first
    };
}

static double loss_of(double *d, double *logits, bool wide)
{
    const struct model_batch batch = entropy_rows(0, ROWS);
    return cpu_cross_entropy(NULL, d, logits, &batch, OUT, wide);
}

/* Compute sum(weight x loss) row by row, because cpu_examine ignores the weights when it adds the losses of several
 * rows. */
static void entropy_there(void)
{
    loss_out[0] = 0;
    for (size_t row = 0; row < ROWS; row++) {
        const struct model_batch batch = entropy_rows(row, 1);
        loss_out[0] += (double)weight[row] * cpu_examine(NULL, z + row * LENGTH * OUT, &batch, OUT, NULL);
    }
}

static void entropy_back(void)
{
    loss_of(dz, z, false);
}

static void fill_weights(void)
{
    for (int i = 0; i < ROWS; i++)
        weight[i] = 0.3f * (float)(i + 1) - 0.7f;
}

/* Check the gradient when the weight of one row is 0. */
static void check_entropy(void (*back)(void), int weightless)
{
    const struct grad_check c = { .in = { { "z", z, dz, TARGETS * OUT } },
                                  .out = loss_out,
                                  .mix = one,
                                  .n = 1,
                                  .forward = entropy_there,
                                  .backward = back };
    grad_check_random(z, TARGETS * OUT, 5);
    fill_weights();
    weight[weightless] = 0;
    one[0] = 1;
    for (int i = 0; i < TARGETS; i++)
        target[i] = i % OUT;
    grad_check_here(&c);
}

Test(layers, cross_entropy_with_a_weight_of_0)
{
    check_entropy(entropy_back, 2);
}

Test(layers, the_gradient_of_cross_entropy_may_take_the_place_of_the_logits)
{
    grad_check_random(z, TARGETS * OUT, 5);
    fill_weights();
    double apart = loss_of(dz, z, false);
    double in_place = loss_of(z, z, false);
    cr_expect_eq(apart, in_place);
    cr_expect_eq(memcmp(z, dz, sizeof(z)), 0);
}

static void wide_back(void)
{
    memcpy(dz, z, sizeof(z));
    loss_of(dz, dz, true);
}

Test(layers, cross_entropy_of_many_classes)
{
    static double apart[TARGETS * OUT];
    check_entropy(wide_back, 1);
    memcpy(dz, z, sizeof(z));
    const double wide = loss_of(dz, dz, true), narrow = loss_of(apart, z, false);
    cr_expect_float_eq(wide, narrow, 1e-12);
}

/* --- GELU -------------------------------------------------------------------------------------------- */

static void gelu_there(void)
{
    cpu_gelu_forward(NULL, y, a, ROWS * OUT);
}

static void gelu_back(void)
{
    memcpy(da, mix, sizeof(da));
    cpu_gelu_backward(NULL, da, a, ROWS * OUT);
}

Test(layers, gelu)
{
    const struct grad_check c = { .in = { { "a", a, da, ROWS * OUT } },
                                  .out = y,
                                  .mix = mix,
                                  .n = ROWS * OUT,
                                  .forward = gelu_there,
                                  .backward = gelu_back };
    grad_check(&c);
    a[0] = 1;
    gelu_there();
    cr_expect_float_eq(y[0], 0.841191990, 1e-9); /* torch's result with approximate="tanh" */
}

/* --- layer norm: more elements than REAL_LANES, and not a multiple of them ---------------------------------- */

enum { WIDE = 37 };
static double n_x[ROWS * WIDE], n_dx[ROWS * WIDE], n_w[WIDE], n_dw[WIDE], n_b[WIDE], n_db[WIDE],
    n_y[ROWS * WIDE], n_mix[ROWS * WIDE], mean[ROWS], scale[ROWS];

static void norm_there(void)
{
    cpu_layer_norm_forward(NULL, n_y, mean, scale, n_x, n_w, n_b, ROWS, WIDE);
}

static void norm_back(void)
{
    memset(n_dx, 0, sizeof(n_dx));
    cpu_layer_norm_backward(NULL, n_dx, n_dw, n_db, n_mix, n_x, mean, scale, n_w, ROWS, WIDE);
}

static const struct grad_check norm = {
    .in = { { "x", n_x, n_dx, ROWS *WIDE }, { "weight", n_w, n_dw, WIDE }, { "bias", n_b, n_db, WIDE } },
    .out = n_y,
    .mix = n_mix,
    .n = ROWS * WIDE,
    .forward = norm_there,
    .backward = norm_back
};

Test(layers, layer_norm)
{
    grad_check(&norm);
}

Test(layers, layer_norm_adds_to_the_gradient_that_goes_past_it)
{
    grad_check(&norm);
    norm_back();
    double once = n_dx[5];
    cpu_layer_norm_backward(NULL, n_dx, n_dw, n_db, n_mix, n_x, mean, scale, n_w, ROWS, WIDE);
    cr_expect_float_eq(n_dx[5], 2 * once, 1e-12);
}

/* --- embedding: tokens that come twice ------------------------------------------------------------------- */

enum { SEQUENCES = 2, PLACES = 4, MOST_PLACES = 6, TOKENS = 5, NUMBERS = 3 };
static const int32_t token[SEQUENCES * PLACES] = { 0, 3, 3, 1, 4, 3, 0, 0 };
static const struct model_batch sequences = { .rows = SEQUENCES, .length = PLACES, .token = token };
static double e_tokens[TOKENS * NUMBERS], de_tokens[TOKENS * NUMBERS], e_places[MOST_PLACES * NUMBERS],
    de_places[MOST_PLACES * NUMBERS], e_y[SEQUENCES * PLACES * NUMBERS], e_mix[SEQUENCES * PLACES * NUMBERS];

static void embedding_there(void)
{
    cpu_embedding_forward(NULL, e_y, &sequences, e_tokens, e_places, NUMBERS);
}

static void embedding_back(void)
{
    memset(de_tokens, 0, sizeof(de_tokens));
    cpu_embedding_backward(NULL, de_tokens, de_places, e_mix, &sequences, MOST_PLACES, NUMBERS);
}

Test(layers, embedding)
{
    const struct grad_check c = { .in = { { "tokens", e_tokens, de_tokens, TOKENS * NUMBERS },
                                          { "places", e_places, de_places, MOST_PLACES * NUMBERS } },
                                  .out = e_y,
                                  .mix = e_mix,
                                  .n = SEQUENCES * PLACES * NUMBERS,
                                  .forward = embedding_there,
                                  .backward = embedding_back };
    grad_check(&c);
}

/* --- attention --------------------------------------------------------------------------------------- */

enum { HEADS = 2, WIDTH = 6, LONG = BLOCK + 9 };
static double qkv[2 * LONG * 3 * WIDTH], dqkv[2 * LONG * 3 * WIDTH], t_y[2 * LONG * WIDTH],
    t_mix[2 * LONG * WIDTH], log_sum[2 * LONG * HEADS], scratch[2 * BLOCK * LONG];
static struct attention attention;

static void attention_there(void)
{
    cpu_attention_forward(NULL, t_y, log_sum, qkv, scratch, &attention);
}

static void attention_back(void)
{
    cpu_attention_backward(NULL, dqkv, t_mix, t_y, qkv, log_sum, scratch, &attention);
}

static void check_attention(size_t rows, size_t length)
{
    const struct grad_check c = { .in = { { "qkv", qkv, dqkv, rows * length * 3 * WIDTH } },
                                  .out = t_y,
                                  .mix = t_mix,
                                  .n = rows * length * WIDTH,
                                  .forward = attention_there,
                                  .backward = attention_back };
    attention = (struct attention){ rows, length, HEADS, WIDTH };
    memset(dqkv, 0x55, sizeof(dqkv)); /* backward must overwrite these values */
    grad_check(&c);
}

Test(layers, attention_of_two_sequences)
{
    check_attention(2, 7);
}

Test(layers, attention_in_more_blocks_than_one)
{
    check_attention(1, LONG);
}

Test(layers, attention_does_not_look_ahead)
{
    double before[WIDTH];
    attention = (struct attention){ 1, LONG, HEADS, WIDTH };
    grad_check_random(qkv, LONG * 3 * WIDTH, 1);
    attention_there();
    memcpy(before, t_y + 5 * WIDTH, sizeof(before));
    for (int i = 6 * 3 * WIDTH; i < LONG * 3 * WIDTH; i++)
        qkv[i] = 1e300;
    attention_there();
    cr_expect_eq(memcmp(before, t_y + 5 * WIDTH, sizeof(before)), 0);
}
