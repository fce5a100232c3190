/* speech.c -- see speech.h. */
#include "train/data/speech.h"

#include <string.h>

enum { MOST_SYLLABLES = 4 };

/* A word of one to four syllables of two letters. */
static void invent_word(ddp_random *luck, char *word)
{
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    int syllables = 1 + (int)(ddp_random_next(luck) % MOST_SYLLABLES);
    for (int i = 0; i < syllables; i++) {
        *word++ = consonants[ddp_random_next(luck) % (sizeof(consonants) - 1)];
        *word++ = vowels[ddp_random_next(luck) % (sizeof(vowels) - 1)];
    }
    *word = '\0';
}

void speech_invent(ddp_random *luck, struct speech *speech)
{
    for (int i = 0; i < SPEECH_WORDS; i++) {
        invent_word(luck, speech->word[i]);
        for (int k = 0; k < SPEECH_NEXT; k++)
            speech->next[i][k] = (uint8_t)(ddp_random_next(luck) % SPEECH_WORDS);
    }
}

/* 8 : 4 : 2 : 2 */
static int follow(ddp_random *luck, const struct speech *speech, int word)
{
    unsigned chance = ddp_random_next(luck) % 16;
    return speech->next[word][chance < 8 ? 0 : chance < 12 ? 1 : chance < 14 ? 2 : 3];
}

/* Every eighth word or so ends a sentence; each begins with the first word. */
void speech_write(ddp_random *luck, const struct speech *speech, uint8_t *text, size_t n)
{
    int word = 0;
    for (size_t at = 0; at < n;) {
        char piece[SPEECH_LETTERS + 2];
        int last = ddp_random_next(luck) % 8 == 0;
        strcpy(piece, speech->word[word]);
        strcat(piece, last ? ".\n" : " ");
        size_t len = strlen(piece) < n - at ? strlen(piece) : n - at;
        memcpy(text + at, piece, len);
        at += len;
        word = last ? 0 : follow(luck, speech, word);
    }
}
