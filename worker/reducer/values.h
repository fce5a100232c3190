/* values.h -- arithmetic on one rank's gradients before and after they are summed. Pure.
 *
 * Factors are double and each value is rounded once: 1/3 as a float would be wrong in the eighth digit before anything is
 * multiplied. 0 stays 0, which the gaps between gradients rely on. */
#ifndef WORKER_REDUCER_VALUES_H
#define WORKER_REDUCER_VALUES_H

#include "ddp/group.h"

/* True if values of this type can be multiplied by a fraction. */
int values_are_real(ddp_dtype dtype);

/* v[i] *= factor for n elements of a type that is real. */
void values_scale(ddp_dtype dtype, void *values, size_t n, double factor);

/* Convert f32 to `wire` (DDP_F16 or DDP_BF16) and back, times `factor` in f32's precision. The arrays must not
 * overlap. */
void values_narrow(ddp_dtype wire, uint16_t *to, const float *from, size_t n, double factor);
void values_widen(ddp_dtype wire, float *to, const uint16_t *from, size_t n, double factor);

#endif
