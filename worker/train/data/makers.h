/* makers.h -- what make-data writes: a set of digits or of tokens that a model can learn. Each file is written
 * whole or not at all. One generator makes the training set, then the test set, so equal seeds and sizes give equal
 * bytes. */
#ifndef WORKER_TRAIN_DATA_MAKERS_H
#define WORKER_TRAIN_DATA_MAKERS_H

#include "ddp/error.h"
#include "ddp/random.h"
#include "train/dataset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- glyphs ----------------------------------------------------------------------------------------------- */

/* A synthetic data set: the ten digits, drawn with random variations.
 *
 * Pure, and the same bytes on every machine: the functions use only additions, products, quotients and square roots,
 * which IEEE 754 defines to the last bit. The random numbers come from the caller's generator. */

/* Fill `n` pictures and their labels. Every class is equally frequent (up to one), in random order. */
void glyph_fill(ddp_random *luck, size_t n, uint8_t *pixels, uint8_t *labels);

/* --- speech ----------------------------------------------------------------------------------------------- */

/* A synthetic language, so that a model can learn its text: invented words, each followed by one of four words.
 *
 * Pure, and the same bytes on every machine. Letters depend on the word, and a word on the previous one. So a perfect
 * model has a loss of about 0.2 nats per letter. For 256 letters in random order the loss would be 5.5. */

enum { SPEECH_WORDS = 96, SPEECH_LETTERS = 10, SPEECH_NEXT = 4 };

struct speech {
    char word[SPEECH_WORDS][SPEECH_LETTERS]; /* text, with its NUL */
    uint8_t next[SPEECH_WORDS][SPEECH_NEXT]; /* the first is the most frequent */
};

struct maker_order {
    const char *out;                /* directory, which exists */
    uint64_t samples, test_samples; /* number of pictures or of tokens */
    uint64_t files;                 /* number of files with tokens for training */
    bool gzip;
};

struct maker {
    const char *name, *unit;
    uint64_t samples, test_samples; /* default */
    uint64_t most; /* limit of `samples` and of `test_samples`, because a part is made in memory */
    ddp_status (*make)(const struct maker_order *order, ddp_random *luck, struct ddp_err *err);
};

extern const struct maker makers[];
extern const char *const maker_names[]; /* names of the rows; ends with NULL */

#endif
