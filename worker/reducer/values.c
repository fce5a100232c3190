/* values.c -- see reduce.h. The compiler vectorizes these loops, because the conversions in half.h have no
 * branches. */
#include "reducer/reduce.h"

#include "core/half.h"

int values_are_real(ddp_dtype dtype)
{
    return dtype == DDP_F32 || dtype == DDP_F64 || dtype == DDP_F16 || dtype == DDP_BF16;
}

/* Multiply in double, so that only the result is rounded. Each type has its own loop, because the compiler would not
 * vectorize a loop with a branch on the type. */
#define SCALE(type, load, store)                                \
    do {                                                        \
        type *v = values;                                       \
        for (size_t i = 0; i < n; i++)                          \
            v[i] = store((float)((double)load(v[i]) * factor)); \
    } while (0)
#define SAME(x) (x)

static void scale_f64(double *v, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++)
        v[i] *= factor;
}

/* Scale values of a real type. The reducer rejects options that would scale integers. */
void values_scale(ddp_dtype dtype, void *values, size_t n, double factor)
{
    if (factor == 1)
        return;
    if (dtype == DDP_F32)
        SCALE(float, SAME, SAME);
    else if (dtype == DDP_F16)
        SCALE(uint16_t, f16_to_f32, f32_to_f16);
    else if (dtype == DDP_BF16)
        SCALE(uint16_t, bf16_to_f32, f32_to_bf16);
    else if (dtype == DDP_F64)
        scale_f64(values, n, factor);
}

/* Convert f32 to 16 bits. Multiply first, so that a factor below 1 keeps large gradients in the range of f16. */
void values_narrow(ddp_dtype wire, uint16_t *to, const float *from, size_t n, double factor)
{
    if (wire == DDP_F16)
        for (size_t i = 0; i < n; i++)
            to[i] = f32_to_f16((float)(from[i] * factor));
    else
        for (size_t i = 0; i < n; i++)
            to[i] = f32_to_bf16((float)(from[i] * factor));
}

void values_widen(ddp_dtype wire, float *to, const uint16_t *from, size_t n, double factor)
{
    if (wire == DDP_F16)
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(f16_to_f32(from[i]) * factor);
    else
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(bf16_to_f32(from[i]) * factor);
}
