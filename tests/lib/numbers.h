/* numbers.h -- reference values for tests of arithmetic: results of PyTorch, models with parameters from formulas,
 * central differences for gradients, a GPU beside the CPU, and subnormal numbers.
 *
 * The results of PyTorch are in tests/data/torch_NAME.json, which tests/data/torch_numbers.py makes. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "ddp/group.h"
#include "core/flush_subnormals.h"
#include "train/compute.h"
#include "train/models/models.h"
#include "train/train_options.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <stddef.h>

/* Return the file "tests/data/torch_NAME.json", or end the test. The caller frees the result with cJSON_Delete. */
cJSON *numbers_read(const char *name);

/* Return the number at `key`, or `fallback` if `row` has no such key. */
double numbers_get(const cJSON *row, const char *key, double fallback);

/* Read an array into `to`, and return its length. An element is a number, or a word such as "inf". More than `room`
 * elements end the test. */
size_t numbers_floats(const cJSON *array, float *to, size_t room);

/* --- known model ------------------------------------------------------------------------------------------ */

/* Models, pictures and tokens from formulas, as in tests/data/torch_models.py. */

enum {
    KNOWN_ROWS = 20,    /* number of 28x28 images in a batch, from a set of 64 */
    KNOWN_COLOURED = 4, /* number of 3x32x32 images in a batch, for resnet */
    KNOWN_SEQUENCES = 3,
    KNOWN_LENGTH = 64,
};

/* Return the row of models.h that is called `name`, or NULL. */
const struct model_kind *known_kind(const char *name);

/* Return the model `name` for batches of the sizes above, with known parameters, or end the test. */
struct model *known_model(const char *name);
/* Do the same as known_model, but on the device `on`. The caller uploads the parameters to the device. */
struct model *known_model_on(const char *name, struct compute *on);

/* Make the batch of step `step` for a model of this kind. All targets have the same weight, and the sum of these
 * weights is 1. The batch is valid until the next call. */
struct model_batch known_batch(const struct model_kind *kind, int step);

/* --- grad check ------------------------------------------------------------------------------------------- */

/* Compare the gradients of a layer with central differences, in double.
 *
 * The test compiles the layer's source with LAYERS_IN_DOUBLE (real.h) and fills a struct grad_check. The loss is
 * sum(out x mix), where `mix` has fixed random numbers. So `mix` is the gradient of `out`. */

enum { GRAD_CHECK_ARRAYS = 4 };

struct grad_check {
    struct {
        const char *name;
        double *value, *grad;
        size_t n;
    } in[GRAD_CHECK_ARRAYS]; /* the list ends with an entry without a name */
    double *out, *mix;
    size_t n;               /* number of elements in each of `out` and `mix` */
    void (*forward)(void);  /* computes `out` from the arrays `in` */
    void (*backward)(void); /* computes the gradients of the arrays `in`; `mix` is the gradient of `out` */
    double tolerance,       /* both relative and absolute; 0 means 1e-7 */
        step;               /* step of the central differences; 0 means 1e-5 */
};

/* Fill `value` with numbers in [-1, 1), which are the same in every run. */
void grad_check_random(double *value, size_t n, unsigned seed);

/* Fill `in` and `mix` with random numbers, and compare every element of the gradients. Fail the test at the first
 * element whose error is larger than the tolerance. */
void grad_check(const struct grad_check *c);

/* Compare as grad_check does, with the current `in` and `mix`. */
void grad_check_here(const struct grad_check *c);

/* --- devices ---------------------------------------------------------------------------------------------- */

/* The same call on a GPU and on the CPU, with the same numbers, must give the same result.
 *
 * The GPU is the fake GPU. If DDP_TEST_GPU=1 is set (scripts/gpu_check.sh), the GPU is the GPU of this machine. A
 * failed run prints its random seed, and DEVICES_SEED=N repeats the run with the seed N. */

/* Numbers that are both on the CPU and on the GPU. The numbers of `cpu` are rounded to the device's type, so that both
 * sides compute with the same numbers. */
struct both {
    float *cpu;
    void *gpu;
    size_t n;
    bool values; /* true: values of the device's type; false: floats */
};

struct devices {
    struct compute *gpu;
    int precision;
    double tolerance; /* allowed norm of the differences, relative to the norm of the CPU's numbers */
    struct both all[64];
    int used;
};

/* Open the GPU. `precision` is one of the precisions of train_options.h. */
struct devices devices_open(int precision);
void devices_close(struct devices *d); /* also frees all numbers */

/* Make n random numbers with a roughly normal distribution. `scale` is the standard deviation. If `scale` is 0, all
 * numbers are 0. */
struct both devices_values(struct devices *d, size_t n, double scale);
struct both devices_floats(struct devices *d, size_t n, double scale);

/* Compare the GPU's numbers with the CPU's numbers. Fail if the norm of the differences, or a single difference, is too
 * large. */
void devices_expect_same(struct devices *d, const char *what, struct both x);
/* Compare rows of `n` numbers. Row i starts at number i * `stride` on the GPU, and at number i * `n` on the CPU. */
void devices_expect_rows(struct devices *d, const char *what, struct both x, size_t n, size_t stride);

/* Return a random number from 0 to `below` - 1, from the seed of this run. */
size_t devices_random(size_t below);

/* Open `d`, run `check`, and expect that the device supports all calls. */
void devices_check(struct devices *d, int precision, void (*check)(void));

/* EACH_PRECISION (suite, name) { ... } defines a test for each precision. The file must define `struct devices d`. */
#define EACH_PRECISION(suite, name)              \
    static void name(void);                      \
    Test(suite, name##_in_fp32, .timeout = 120)  \
    {                                            \
        devices_check(&d, PRECISION_FP32, name); \
    }                                            \
    Test(suite, name##_in_bf16, .timeout = 120)  \
    {                                            \
        devices_check(&d, PRECISION_BF16, name); \
    }                                            \
    Test(suite, name##_in_fp16, .timeout = 120)  \
    {                                            \
        devices_check(&d, PRECISION_FP16, name); \
    }                                            \
    static void name(void)

/* Make the same call on the CPU and on the GPU. `on` is the device, and `to` is the member of struct both. */
#define BOTH(CALL)                         \
    do {                                   \
        struct compute *on = &compute_cpu; \
        CALL(cpu);                         \
        on = d.gpu;                        \
        CALL(gpu);                         \
    } while (0)

/* --- subnormal numbers --- */

/* Numbers near the smallest normal number, and this thread's mode for subnormals (worker/core/flush_subnormals.h). */

enum { KEEP = 0, FLUSH = FLUSH_SUBNORMALS_BITS };

static inline uint64_t subnormals_mode(void)
{
    return flush_subnormals_read() & FLUSH_SUBNORMALS_BITS;
}

/* Return true if this thread now flushes subnormal results to zero. The function computes a subnormal result instead of
 * reading the control word. */
static inline bool subnormals_vanish(void)
{
    volatile float smallest = 0x1p-126f;
    volatile float half = smallest * 0.5f;
    uint32_t bits;
    memcpy(&bits, (const void *)&half, sizeof(bits));
    return bits == 0;
}

/* Return number `i` of a sequence with alternating signs: subnormal numbers, zero, the smallest normal numbers, and
 * numbers near 1. No operation on these numbers gives infinity. */
static inline uint32_t subnormals_f32(uint32_t i)
{
    static const uint32_t exponents[] = { 0, 0, 1, 2, 0, 126 };
    const uint32_t mixed = i * 2654435761u;
    return (mixed & 1) << 31 | exponents[i % 6] << 23 | (i % 7 == 3 ? 0 : mixed >> 9);
}

/* Fill `to` with n numbers of type `dtype`, made from successive numbers of subnormals_f32. */
static inline void subnormals_fill(void *to, ddp_dtype dtype, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t f32 = subnormals_f32((uint32_t)i + seed * 1000);
        if (dtype == DDP_F32)
            ((uint32_t *)to)[i] = f32;
        else if (dtype == DDP_BF16)
            ((uint16_t *)to)[i] = (uint16_t)(f32 >> 16);
        else if (dtype == DDP_F16)
            ((uint16_t *)to)[i] = (uint16_t)(f32 >> 16 & 0x83ff);
        else
            ((uint64_t *)to)[i] = (uint64_t)(f32 & 0x80000000u) << 32 | (uint64_t)(f32 >> 23 & 3) << 52 |
                                  (uint64_t)(f32 & 0x7fffffu) << 29;
    }
}

#endif
