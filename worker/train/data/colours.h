/* colours.h -- the digits of glyphs.h in colour, as records of CIFAR-10. Pure, and the same bytes on every machine. */
#ifndef TRAIN_DATA_COLOURS_H
#define TRAIN_DATA_COLOURS_H

#include "ddp/random.h"

#include <stddef.h>

/* Fill `n` records of CIFAR_RECORD bytes. Every class comes equally often (up to one), in random order. */
void colour_fill(ddp_random *luck, size_t n, uint8_t *records);

#endif
