/* numbers.c -- see numbers.h. Models and inputs come from formulas, so that PyTorch's side
 * (tests/data/torch_models.py) can compute the same values. */
#include "numbers.h"

#include "core/half.h"
#include "ranks.h"
#include "train/cuda/device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 1 << 20 };

cJSON *numbers_read(const char *name)
{
    char path[256];
    char *text = calloc(1, ROOM);
    snprintf(path, sizeof(path), "tests/data/torch_%s.json", name);
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL && text != NULL, "%s: cannot be read; run from the top of the repository", path);
    size_t len = fread(text, 1, ROOM - 1, file);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    free(text);
    cr_assert(len < ROOM - 1 && json != NULL, "%s: too long, or not JSON", path);
    return json;
}

double numbers_get(const cJSON *row, const char *key, double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    if (cJSON_IsTrue(item))
        return 1;
    return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

size_t numbers_floats(const cJSON *array, float *to, size_t room)
{
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, array)
    {
        cr_assert(n < room, "more than %zu numbers", room);
        to[n++] = cJSON_IsString(item) ? strtof(item->valuestring, NULL) : (float)item->valuedouble;
    }
    return n;
}

/* --- known model ------------------------------------------------------------------------------------------ */

enum { PICTURES = 64, PIXELS = 784, COLOURED = 3 * 32 * 32, CLASSES = 10 };

/* Return pseudo-random number `k` of stream `stream`. */
static uint32_t noise(uint64_t stream, uint64_t k)
{
    uint32_t h = (uint32_t)(k * 2654435761u + stream * 40503u + 1);
    h = (h ^ (h >> 15)) * 73244475u;
    h = (h ^ (h >> 13)) * 295559667u;
    return h ^ (h >> 16);
}

static bool ends_with_weight(const char *name)
{
    return strcmp(name + strlen(name) - strlen("weight"), "weight") == 0;
}

static void set_values(struct model_tensor *t, uint64_t stream)
{
    for (size_t k = 0; k < t->count; k++) {
        double value = noise(stream, k) / 4294967296.0 - 0.5;
        if (t->dims >= 2)
            value /= sqrt((double)(t->count / t->shape[0]));
        else
            value = value * 0.1 + ends_with_weight(t->name);
        t->value[k] = (float)value;
    }
}

const struct model_kind *known_kind(const char *name)
{
    for (const struct model_kind *kind = models; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0)
            return kind;
    }
    return NULL;
}

/* Return true for a resnet. Its images have three colours. Its batches are small to save time. */
static bool is_coloured(const struct model_kind *kind)
{
    return strncmp(kind->name, "resnet", 6) == 0;
}

static struct model_spec spec_of(const struct model_kind *kind)
{
    static const struct model_spec
        of_pictures = { .rows = KNOWN_ROWS, .channels = 1, .height = 28, .width = 28, .classes = CLASSES },
        of_colours = { .rows = KNOWN_COLOURED, .channels = 3, .height = 32, .width = 32, .classes = CLASSES },
        of_tokens = { .rows = KNOWN_SEQUENCES, .length = KNOWN_LENGTH };
    return kind->input == MODEL_TOKENS ? of_tokens : is_coloured(kind) ? of_colours : of_pictures;
}

struct model *known_model(const char *name)
{
    return known_model_on(name, NULL);
}

struct model *known_model_on(const char *name, struct compute *on)
{
    const struct model_kind *kind = known_kind(name);
    struct model *m;
    struct ddp_err err;
    cr_assert_not_null(kind);
    struct model_spec spec = spec_of(kind);
    spec.compute = on;
    cr_assert_eq(model_create(kind, &spec, &m, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < m->params.n; i++)
        set_values(&m->params.each[i], i);
    return m;
}

static float weight[KNOWN_ROWS];

static void set_weights(size_t rows, size_t length)
{
    for (size_t i = 0; i < rows; i++)
        weight[i] = 1 / (float)(rows * length);
}

static struct model_batch pictures(int step, int rows, int pixels)
{
    static float picture[KNOWN_ROWS * PIXELS > KNOWN_COLOURED * COLOURED ? KNOWN_ROWS * PIXELS
                                                                         : KNOWN_COLOURED * COLOURED];
    static int32_t label[KNOWN_ROWS];
    for (int row = 0; row < rows; row++) {
        int index = (step * rows + row) % PICTURES;
        label[row] = index % CLASSES;
        for (int i = 0; i < pixels; i++)
            picture[row * pixels + i] = (float)(noise(1000, (uint64_t)(index * pixels + i)) >> 24) / 255;
    }
    set_weights((size_t)rows, 1);
    return (struct model_batch){
        .rows = (size_t)rows, .length = 1, .picture = picture, .target = label, .weight = weight
    };
}

/* Return a token. Small tokens are more frequent, so that the model has something to learn. */
static int32_t known_token(int step, int row, int at)
{
    uint32_t byte = noise((uint64_t)(2000 + step), (uint64_t)(row * (KNOWN_LENGTH + 1) + at)) >> 24;
    return (int32_t)(byte * byte * byte >> 16);
}

static struct model_batch tokens(int step)
{
    static int32_t token[KNOWN_SEQUENCES * KNOWN_LENGTH], target[KNOWN_SEQUENCES * KNOWN_LENGTH];
    for (int i = 0; i < KNOWN_SEQUENCES * KNOWN_LENGTH; i++) {
        token[i] = known_token(step, i / KNOWN_LENGTH, i % KNOWN_LENGTH);
        target[i] = known_token(step, i / KNOWN_LENGTH, i % KNOWN_LENGTH + 1);
    }
    set_weights(KNOWN_SEQUENCES, KNOWN_LENGTH);
    return (struct model_batch){
        .rows = KNOWN_SEQUENCES, .length = KNOWN_LENGTH, .token = token, .target = target, .weight = weight
    };
}

struct model_batch known_batch(const struct model_kind *kind, int step)
{
    if (kind->input == MODEL_TOKENS)
        return tokens(step);
    return is_coloured(kind) ? pictures(step, KNOWN_COLOURED, COLOURED) : pictures(step, KNOWN_ROWS, PIXELS);
}

/* --- grad check ------------------------------------------------------------------------------------------- */

/* Use a generator with local state, so that other tests do not change the numbers. */
void grad_check_random(double *value, size_t n, unsigned seed)
{
    unsigned long long x = seed * 2654435761ULL + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        value[i] = (double)(x >> 33) / (double)(1ULL << 30) - 1;
    }
}

static double loss(const struct grad_check *c)
{
    double sum = 0;
    c->forward();
    for (size_t i = 0; i < c->n; i++)
        sum += c->out[i] * c->mix[i];
    return sum;
}

static double difference(const struct grad_check *c, double *value)
{
    const double h = c->step > 0 ? c->step : 1e-5, kept = *value;
    *value = kept + h;
    double above = loss(c);
    *value = kept - h;
    double below = loss(c);
    *value = kept;
    return (above - below) / (2 * h);
}

void grad_check_here(const struct grad_check *c)
{
    const double tolerance = c->tolerance > 0 ? c->tolerance : 1e-7;
    loss(c);
    c->backward();
    for (int a = 0; a < GRAD_CHECK_ARRAYS && c->in[a].name != NULL; a++) {
        for (size_t i = 0; i < c->in[a].n; i++) {
            double computed = c->in[a].grad[i], expected = difference(c, &c->in[a].value[i]);
            cr_assert(fabs(computed - expected) <= tolerance * (1 + fabs(expected)),
                      "d%s[%zu] is %.12g, differences say %.12g", c->in[a].name, i, computed, expected);
        }
    }
}

void grad_check(const struct grad_check *c)
{
    for (int a = 0; a < GRAD_CHECK_ARRAYS && c->in[a].name != NULL; a++)
        grad_check_random(c->in[a].value, c->in[a].n, (unsigned)a + 1);
    grad_check_random(c->mix, c->n, 77);
    grad_check_here(c);
}

/* --- devices ---------------------------------------------------------------------------------------------- */

/* The tolerance of each row of PRECISION_LIST. The norm of all differences is at most the tolerance times the norm of
 * the expected values, plus 1e-7. Each single difference is at most ten times the tolerance times the largest expected
 * value, plus 1e-6 (devices_expect_rows). */
static const double tolerances[] = {
    [PRECISION_FP32] = 2e-6, [PRECISION_BF16] = 8e-3, [PRECISION_FP16] = 2e-3
};

static uint64_t seed, state;

size_t devices_random(size_t below)
{
    if (seed == 0) {
        const char *given = getenv("DEVICES_SEED");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec + 1;
        state = seed;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((state >> 33) % below);
}

struct devices devices_open(int precision)
{
    struct devices d = { .precision = precision, .tolerance = tolerances[precision] };
    struct ddp_err err;
    if (getenv("DDP_TEST_GPU") == NULL)
        pretend_gpu();
    cr_assert_eq(cuda_open(0, precision, &d.gpu, &err), DDP_OK, "%s", err.msg);
    return d;
}

void devices_close(struct devices *d)
{
    for (int i = 0; i < d->used; i++) {
        free(d->all[i].cpu);
        d->gpu->ops->release(d->gpu, d->all[i].gpu);
    }
    d->gpu->ops->close(d->gpu);
}

static uint16_t narrowed(int precision, float x)
{
    return precision == PRECISION_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

static float widened(int precision, uint16_t x)
{
    return precision == PRECISION_BF16 ? bf16_to_f32(x) : f16_to_f32(x);
}

static bool is_half(const struct devices *d, const struct both *x)
{
    return x->values && d->precision != PRECISION_FP32;
}

static void copy(struct devices *d, void *to, const void *from, size_t bytes)
{
    struct cuda *c = cuda_of(d->gpu);
    cr_assert(cuda_check(c, c->gpu.call.copy_async(to, from, bytes, CUDA_COPY_DEFAULT, c->stream), "copy"));
    cr_assert(cuda_check(c, c->gpu.call.stream_sync(c->stream), "copy"), "%s", c->failed.msg);
}

static void send(struct devices *d, const struct both *x)
{
    uint16_t *half = malloc(x->n * sizeof(*half));
    for (size_t i = 0; i < x->n && is_half(d, x); i++) {
        half[i] = narrowed(d->precision, x->cpu[i]);
        x->cpu[i] = widened(d->precision, half[i]);
    }
    copy(d, x->gpu, is_half(d, x) ? (const void *)half : x->cpu,
         x->n * (is_half(d, x) ? sizeof(*half) : sizeof(float)));
    free(half);
}

static struct both numbers(struct devices *d, size_t n, double scale, bool values)
{
    struct both x = { calloc(n, sizeof(float)), d->gpu->ops->alloc(d->gpu, n * sizeof(float)), n, values };
    cr_assert(x.cpu != NULL && x.gpu != NULL);
    cr_assert_lt(d->used, 64);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (double)devices_random(1 << 20) / (1 << 20) - 0.5;
        x.cpu[i] = (float)(sum * scale * 1.7);
    }
    send(d, &x);
    d->all[d->used++] = x;
    return x;
}

struct both devices_values(struct devices *d, size_t n, double scale)
{
    return numbers(d, n, scale, true);
}

struct both devices_floats(struct devices *d, size_t n, double scale)
{
    return numbers(d, n, scale, false);
}

static float *fetched(struct devices *d, const struct both *x, size_t n)
{
    float *got = calloc(n, sizeof(float));
    uint16_t *half = calloc(n, sizeof(*half));
    copy(d, is_half(d, x) ? (void *)half : got, x->gpu, n * (is_half(d, x) ? sizeof(*half) : sizeof(float)));
    for (size_t i = 0; i < n && is_half(d, x); i++)
        got[i] = widened(d->precision, half[i]);
    free(half);
    return got;
}

void devices_expect_rows(struct devices *d, const char *what, struct both x, size_t n, size_t stride)
{
    const size_t rows = x.n / stride;
    float *got = fetched(d, &x, rows * stride);
    double off = 0, all = 0, most_off = 0, most = 0;
    for (size_t i = 0; i < rows * n; i++) {
        const double want = x.cpu[i], error = fabs(want - got[i / n * stride + i % n]);
        off += error * error;
        all += want * want;
        most_off = isnan(error) ? INFINITY : fmax(most_off, error);
        most = fmax(most, fabs(want));
    }
    cr_expect(sqrt(off) <= d->tolerance * sqrt(all) + 1e-7 && most_off <= 10 * d->tolerance * most + 1e-6,
              "%s, precision %d: off by %g of %g, one by %g of %g (DEVICES_SEED=%llu)", what, d->precision,
              sqrt(off), sqrt(all), most_off, most, (unsigned long long)seed);
    free(got);
}

void devices_expect_same(struct devices *d, const char *what, struct both x)
{
    devices_expect_rows(d, what, x, x.n, x.n);
}

void devices_check(struct devices *d, int precision, void (*check)(void))
{
    struct ddp_err err = { 0 };
    *d = devices_open(precision);
    check();
    cr_expect_eq(d->gpu->ops->end(d->gpu, &err), DDP_OK, "%s", err.msg);
    devices_close(d);
}
