/* devices.c -- see devices.h. */
#include "devices.h"

#include "core/half.h"
#include "pretend_gpu.h"
#include "train/cuda/cuda.h"
#include "train/cuda/device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A row of PRECISION_LIST: what a result may be off by, relative to all of it. */
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
