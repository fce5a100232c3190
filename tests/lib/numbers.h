/* numbers.h -- reference values for tests of arithmetic: PyTorch's results, models from formulas, central differences,
 * a GPU beside the CPU, subnormal numbers.
 *
 * tests/data/torch_numbers.py makes PyTorch's results (tests/data/torch_NAME.json). */
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

/* Return "tests/data/torch_NAME.json", or end the test. The caller frees it with cJSON_Delete. */
cJSON *numbers_read(const char *name);

/* Return the number at `key`, or `fallback`. */
double numbers_get(const cJSON *row, const char *key, double fallback);

/* Read an array of numbers or words such as "inf" into `to`; return its length. More than `room` elements end the
 * test. */
size_t numbers_floats(const cJSON *array, float *to, size_t room);

/* --- known model ------------------------------------------------------------------------------------------ */

/* Models, pictures and tokens from formulas, as in tests/data/torch_models.py. */

enum {
    KNOWN_ROWS = 20,    /* 28x28 images in a batch, from a set of 64 */
    KNOWN_COLOURED = 4, /* 3x32x32 images in a batch, for resnet */
    KNOWN_SEQUENCES = 3,
    KNOWN_LENGTH = 64,
};

/* Return the row `name` of models.h, or NULL. */
const struct model_kind *known_kind(const char *name);

/* Return the model `name` with known parameters and the batch sizes above, or end the test. */
struct model *known_model(const char *name);
/* Return the model on the device `on`. The caller uploads the parameters. */
struct model *known_model_on(const char *name, struct compute *on);

/* Make the batch of step `step`. It is valid until the next call. All targets have the same weight; the sum is 1. */
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
    } in[GRAD_CHECK_ARRAYS]; /* ends with an entry without a name */
    double *out, *mix;
    size_t n;               /* elements of `out` and of `mix` */
    void (*forward)(void);  /* computes `out` from the arrays `in` */
    void (*backward)(void); /* computes the gradients of `in` */
    double tolerance,       /* relative and absolute; 0: 1e-7 */
        step;               /* step of the differences; 0: 1e-5 */
};

/* Fill `value` with numbers in [-1, 1), the same in every run. */
void grad_check_random(double *value, size_t n, unsigned seed);

/* Fill `in` and `mix` with random numbers, and compare all gradients. Fail at the first error above the tolerance. */
void grad_check(const struct grad_check *c);

/* Compare as grad_check does, with the current `in` and `mix`. */
void grad_check_here(const struct grad_check *c);

/* --- devices ---------------------------------------------------------------------------------------------- */

/* The same call on a GPU and on the CPU, with the same numbers, must give the same result.
 *
 * The GPU is a fake, or this machine's with DDP_TEST_GPU=1 (scripts/gpu_check.sh). DEVICES_SEED=N repeats a run, whose
 * failure prints its seed. */

/* Numbers on the CPU and on the GPU; those of `cpu` are rounded to the device's type. */
struct both {
    float *cpu;
    void *gpu;
    size_t n;
    bool values; /* true: values of the device's type; false: floats */
};

struct devices {
    struct compute *gpu;
    int precision;
    double tolerance; /* allowed difference, relative to the largest value */
    struct both all[64];
    int used;
};

/* Open the GPU with a precision of train_options.h. */
struct devices devices_open(int precision);
void devices_close(struct devices *d); /* also frees all numbers */

/* Make n roughly normal numbers of width `scale`; 0: zeros. */
struct both devices_values(struct devices *d, size_t n, double scale);
struct both devices_floats(struct devices *d, size_t n, double scale);

/* Compare the GPU's numbers with the CPU's, relative to the largest. */
void devices_expect_same(struct devices *d, const char *what, struct both x);
/* Compare rows of `n` numbers: row i starts at i * `stride` on the GPU, at i * `n` on the CPU. */
void devices_expect_rows(struct devices *d, const char *what, struct both x, size_t n, size_t stride);

/* Return a random number below `below`, from this run's seed. */
size_t devices_random(size_t below);

/* Open `d`, run `check`, and expect that all calls are supported. */
void devices_check(struct devices *d, int precision, void (*check)(void));

/* EACH_PRECISION (suite, name) { ... } defines a test for each precision, with the file's `struct devices d`. */
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

/* Make a call on both. `on` is the device, `to` the member of struct both. */
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

/* Return true if this thread flushes subnormal results to zero. Compute such a result, instead of reading the control
 * word. */
static inline bool subnormals_vanish(void)
{
    volatile float smallest = 0x1p-126f;
    volatile float half = smallest * 0.5f;
    uint32_t bits;
    memcpy(&bits, (const void *)&half, sizeof(bits));
    return bits == 0;
}

/* Return number `i` of a sequence: subnormals, zero, the smallest normal numbers, numbers near 1, with alternating
 * signs. No operation gives infinity. */
static inline uint32_t subnormals_f32(uint32_t i)
{
    static const uint32_t exponents[] = { 0, 0, 1, 2, 0, 126 };
    const uint32_t mixed = i * 2654435761u;
    return (mixed & 1) << 31 | exponents[i % 6] << 23 | (i % 7 == 3 ? 0 : mixed >> 9);
}

/* Fill `to` with n numbers of `dtype`, from subnormals_f32. */
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
