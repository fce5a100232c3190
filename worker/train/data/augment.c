/* augment.c -- see augment.h. */
#include "train/data/augment.h"

/* Nine places each way: the remainder of 32 bits favours none by more than 2^-29. */
struct augment augment_draw(ddp_philox *luck)
{
    struct augment a;
    a.down = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.right = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.mirrored = (int)(ddp_philox_next(luck) >> 31);
    return a;
}

/* One row: cut first, then mirrored, so a column counts from the other end. */
static void row(const struct augment *a, const uint8_t *from, uint8_t *to, int side)
{
    for (int x = 0; x < side; x++) {
        int at = (a->mirrored ? side - 1 - x : x) + a->right;
        to[x] = at >= 0 && at < side ? from[at] : 0;
    }
}

void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side)
{
    for (int i = 0; i < channels * side; i++, to += side) {
        int at = i % side + a->down;
        if (at >= 0 && at < side)
            row(a, from + (i / side * side + at) * side, to, side);
        else
            for (int x = 0; x < side; x++)
                to[x] = 0;
    }
}
