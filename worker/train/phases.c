/* phases.c -- see phases.h. */
#include "train/phases.h"

#include <assert.h>

const char *const phase_words[PHASES] = {
#define X(name, words, key) words,
    PHASE_LIST(X)
#undef X
};
const char *const phase_key[PHASES] = {
#define X(name, words, key) key,
    PHASE_LIST(X)
#undef X
};

void phases_start(struct phases *p)
{
    for (int i = 0; i < PHASES; i++)
        p->us[i] = 0;
    p->count = 0;
    p->depth = 0;
}

void phases_begin(struct phases *p, enum phase phase, uint64_t now_us)
{
    assert(p->depth < PHASES_DEPTH);
    p->open[p->depth].phase = phase;
    p->open[p->depth].begin_us = now_us;
    p->open[p->depth].inside_us = 0;
    p->depth++;
}

/* A clock that went back, which none should, is a phase of nothing. */
void phases_end(struct phases *p, uint64_t now_us)
{
    assert(p->depth > 0);
    p->depth--;
    uint64_t begin_us = p->open[p->depth].begin_us;
    uint64_t us = now_us > begin_us ? now_us - begin_us : 0;
    uint64_t inside_us = p->open[p->depth].inside_us;
    p->us[p->open[p->depth].phase] += us > inside_us ? us - inside_us : 0;
    if (p->depth > 0)
        p->open[p->depth - 1].inside_us += us;
    if (p->count < PHASES_PIECES && (p->depth == 0 || us >= PHASES_SHORT_US))
        p->piece[p->count++] = (struct phases_piece){ p->open[p->depth].phase, begin_us, begin_us + us };
}
