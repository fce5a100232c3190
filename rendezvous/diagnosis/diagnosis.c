/* diagnosis.c -- the list of findings: in the order of the table, where causes stand above their consequences, and short
 * enough for a screen. See diagnose.h, and diagnose_job.c for who fills it. */
#include "diagnosis/diagnose_words.h"

/* How often a code is in the list, and where last: there `more` is counted, so that "and 396 more like
 * this" stands under the last one that is shown. `last` stays as it is when there is none. */
static uint32_t count_code(const struct diagnosis *d, enum finding_code code, uint32_t *last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->list[i].code != code)
            continue;
        *last = i;
        n++;
    }
    return n;
}

/* Behind all that stand above it in the table; when there is no room, the last one has to go. A full list
 * still takes a cause: what falls off its end is the least of the consequences. Of one code only the first
 * DIAGNOSIS_SAME are spelled out, else four hundred nodes that have not come would push the reason off the
 * screen. Insertion into an array is enough for a dozen rows, and equal codes stay in the order of their
 * numbers. */
struct finding *diagnosis_slot(struct diagnosis *d, enum finding_code code)
{
    uint32_t last = 0, at = d->n;
    if (count_code(d, code, &last) >= DIAGNOSIS_SAME) {
        d->list[last].more++;
        return NULL;
    }
    while (at > 0 && d->list[at - 1].code > code)
        at--;
    if (d->n == DIAGNOSIS_MAX)
        d->left_out++;
    if (at == DIAGNOSIS_MAX)
        return NULL;
    const uint32_t behind = (d->n < DIAGNOSIS_MAX ? d->n : DIAGNOSIS_MAX - 1) - at;
    memmove(&d->list[at + 1], &d->list[at], behind * sizeof(d->list[0]));
    d->n += d->n < DIAGNOSIS_MAX;
    return &d->list[at];
}

/* For one who has a single question and takes the whole diagnosis for it: two ways to the same finding
 * would in time give two answers. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->list[i].code == code)
            d->list[kept++] = d->list[i];
    d->n = kept;
    return kept > 0;
}
