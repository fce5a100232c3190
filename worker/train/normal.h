/* normal.h -- normally distributed numbers as torch draws them. */
#ifndef TRAIN_NORMAL_H
#define TRAIN_NORMAL_H

#include "ddp/random.h"

#include <stddef.h>

/* torch.normal_(0, deviation) of n floats, n >= 16, but for the last bits: torch's builds have logarithms and cosines of
 * their own. */
void normal_fill(float *to, size_t n, float deviation, ddp_random *random);

#endif
