/* devices.h -- a GPU and the CPU side by side: the same call on both, with the same numbers, must come to the same.
 *
 * The GPU is the fake one; with DDP_TEST_GPU=1 in the environment it is that of this machine (scripts/gpu_check.sh). Numbers are other
 * ones in each run, from a seed that is shown when something differs; DEVICES_SEED=N repeats it. */
#ifndef TESTS_LIB_DEVICES_H
#define TESTS_LIB_DEVICES_H

#include "train/compute.h"
#include "train/train_options.h"

/* Numbers that both have. `cpu` holds what the device's type leaves of them. */
struct both {
    float *cpu;
    void *gpu;
    size_t n;
    bool values; /* of the device's type; else float */
};

struct devices {
    struct compute *gpu;
    int precision;
    double tolerance; /* of values */
    struct both all[64];
    int used;
};

/* `precision` is one of train_options.h. */
struct devices devices_open(int precision);
void devices_close(struct devices *d); /* frees all numbers, too */

/* n numbers of a normal-looking distribution, `scale` wide; 0 = zeros. */
struct both devices_values(struct devices *d, size_t n, double scale);
struct both devices_floats(struct devices *d, size_t n, double scale);

/* All of the GPU's numbers are the CPU's: relative to both the whole and the largest of them. */
void devices_expect_same(struct devices *d, const char *what, struct both x);
/* In rows of `n` that lie `stride` apart on the GPU and n on the CPU. */
void devices_expect_rows(struct devices *d, const char *what, struct both x, size_t n, size_t stride);

/* From 0 up to `below`, from the seed of this run. */
size_t devices_random(size_t below);

/* Open `d`, run `check`, and see that the device could carry all of it out. */
void devices_check(struct devices *d, int precision, void (*check)(void));

/* EACH_PRECISION (suite, name) { ... } is a test for each precision, with the file's own `static struct devices d`. */
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

/* The same call on both: `on` is where, `to` the member of struct both. */
#define BOTH(CALL)                         \
    do {                                   \
        struct compute *on = &compute_cpu; \
        CALL(cpu);                         \
        on = d.gpu;                        \
        CALL(gpu);                         \
    } while (0)

#endif
