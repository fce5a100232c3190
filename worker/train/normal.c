/* normal.c -- see normal.h.
 *
 * Box and Muller: two uniform numbers give a length and an angle, those two normal ones. torch draws all uniform numbers
 * first and pairs the k-th of eight with the k-th of the next eight; what is left of sixteen at the end is drawn again,
 * together with as many before it as make sixteen. */
#include "train/normal.h"

#include <math.h>

enum { GROUP = 16, HALF = GROUP / 2 };

static void turn(float *group, float deviation)
{
    for (int k = 0; k < HALF; k++) {
        const float length = sqrtf(-2 * logf(1 - group[k])) * deviation;
        const float angle = 6.283185307179586f * group[k + HALF];
        group[k] = length * cosf(angle);
        group[k + HALF] = length * sinf(angle);
    }
}

static void draw(float *to, size_t n, ddp_random *random)
{
    for (size_t i = 0; i < n; i++)
        to[i] = ddp_random_uniform(random);
}

void normal_fill(float *to, size_t n, float deviation, ddp_random *random)
{
    draw(to, n, random);
    for (size_t i = 0; i + GROUP <= n; i += GROUP)
        turn(to + i, deviation);
    if (n % GROUP != 0 && n > GROUP) {
        draw(to + n - GROUP, GROUP, random);
        turn(to + n - GROUP, deviation);
    }
}
