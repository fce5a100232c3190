/* speech.h -- a made-up language, to write text that a model can learn: invented words, each followed by one of four.
 *
 * Pure, and the same bytes on every machine. Letters follow from the word and words from the word before, so who has learnt both
 * is left with about 0.2 nats of surprise a letter, of 5.5 that 256 letters in no order have. */
#ifndef TRAIN_DATA_SPEECH_H
#define TRAIN_DATA_SPEECH_H

#include "ddp/random.h"

#include <stddef.h>

enum { SPEECH_WORDS = 96, SPEECH_LETTERS = 10, SPEECH_NEXT = 4 };

struct speech {
    char word[SPEECH_WORDS][SPEECH_LETTERS]; /* text, with its NUL */
    uint8_t next[SPEECH_WORDS][SPEECH_NEXT]; /* the first is the most frequent */
};

void speech_invent(ddp_random *luck, struct speech *speech);

/* `n` letters (ASCII), beginning with a sentence, cut wherever they end. */
void speech_write(ddp_random *luck, const struct speech *speech, uint8_t *text, size_t n);

#endif
