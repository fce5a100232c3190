/* makers.h -- what make-data writes: a learnable set of digits or of tokens, file by file, each whole or not at
 * all. Training set and test set come from one generator in this order, so equal seeds and sizes give equal bytes. */
#ifndef WORKER_TRAIN_DATA_MAKERS_H
#define WORKER_TRAIN_DATA_MAKERS_H

#include "ddp/error.h"
#include "ddp/random.h"
#include "train/dataset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- glyphs ----------------------------------------------------------------------------------------------- */

/* A made-up data set: the ten digits, drawn by an unsteady hand.
 *
 * Pure, and the same bytes on every machine: only additions, products, quotients and square roots are used,
 * which IEEE 754 defines to the last bit, and the luck comes from a seeded generator the caller holds. */

/* Fill `n` pictures and their labels. Every class comes equally often (up to one), in random order. */
void glyph_fill(ddp_random *luck, size_t n, uint8_t *pixels, uint8_t *labels);

/* --- speech ----------------------------------------------------------------------------------------------- */

/* A made-up language, to write text that a model can learn: invented words, each followed by one of four.
 *
 * Pure, and the same bytes on every machine. Letters follow from the word and words from the word before, so who has learnt both
 * is left with about 0.2 nats of surprise a letter, of 5.5 that 256 letters in no order have. */

enum { SPEECH_WORDS = 96, SPEECH_LETTERS = 10, SPEECH_NEXT = 4 };

struct speech {
    char word[SPEECH_WORDS][SPEECH_LETTERS]; /* text, with its NUL */
    uint8_t next[SPEECH_WORDS][SPEECH_NEXT]; /* the first is the most frequent */
};

struct maker_order {
    const char *out;                /* directory; it is there */
    uint64_t samples, test_samples; /* pictures or tokens */
    uint64_t files;                 /* of tokens for training */
    bool gzip;
};

struct maker {
    const char *name, *unit;
    uint64_t samples, test_samples; /* default */
    uint64_t most;                  /* of either: a part is made in memory */
    ddp_status (*make)(const struct maker_order *order, ddp_random *luck, struct ddp_err *err);
};

extern const struct maker makers[];
extern const char *const maker_names[]; /* of the same rows; ends with NULL */

#endif
