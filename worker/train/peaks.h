/* peaks.h -- what known GPUs can compute at most, for the metrics' mfu. Pure. */
#ifndef TRAIN_PEAKS_H
#define TRAIN_PEAKS_H

#include <stdbool.h>

/* TFLOP/s of dense products of a GPU that the driver calls `name`: of 16-bit values with sums in float32, or of float32 without TF32.
 * 0 = it is not in the table, or is only a part of one (MIG). */
double peaks_tflops(const char *name, bool is_float);

#endif
