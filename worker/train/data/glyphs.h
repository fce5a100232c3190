/* glyphs.h -- a made-up data set: the ten digits, drawn by an unsteady hand.
 *
 * Pure, and the same bytes on every machine: only additions, products, quotients and square roots are used,
 * which IEEE 754 defines to the last bit, and the luck comes from a seeded generator the caller holds. */
#ifndef TRAIN_GLYPHS_H
#define TRAIN_GLYPHS_H

#include "train/dataset.h"
#include "ddp/random.h"

/* Every class equally often (up to one), in random order; `apart` bytes from one label to the next. */
void glyph_labels(ddp_random *luck, size_t n, uint8_t *labels, size_t apart);

/* One digit with its scratch on PICTURE_PIXELS of paper: 0 is bare, 1 is ink. */
void glyph_draw(ddp_random *luck, int label, float *paper);

/* Fill `n` pictures and their labels. Every class comes equally often (up to one), in random order. */
void glyph_fill(ddp_random *luck, size_t n, uint8_t *pixels, uint8_t *labels);

#endif
