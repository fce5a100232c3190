/* augment.h -- the usual way to make CIFAR's 50,000 training pictures look like more: each is moved by up to four pixels and
 * half of them are mirrored (He et al. 2015, 4.2). Pure; chance is the sample's own. */
#ifndef TRAIN_DATA_AUGMENT_H
#define TRAIN_DATA_AUGMENT_H

#include "ddp/random.h"

enum { AUGMENT_PADDING = 4 };

/* Where the picture's corner lies and whether it is mirrored. */
struct augment {
    int down, right; /* -AUGMENT_PADDING .. AUGMENT_PADDING: of the window over the padded picture */
    int mirrored;    /* 0 or 1 */
};

/* torchvision's RandomCrop(32, padding=4), then RandomHorizontalFlip(). */
struct augment augment_draw(ddp_philox *luck);

/* `channels` planes of side x side bytes; what comes in over the edge is 0. Not in place. */
void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side);

#endif
