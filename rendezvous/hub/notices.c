/* notices.c -- see notices.h.
 *
 * What nodes have found on themselves, once each: a node that joins again says the same again, and its row
 * is written over. The list is made with the first, for most jobs have none. */
#include "hub/notices.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

static struct finding *find(const struct notices *n, enum finding_code code, const char *subject)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->list[i].code == code && (subject == NULL || strcmp(n->list[i].subject, subject) == 0))
            return &n->list[i];
    return NULL;
}

bool notices_have(const struct notices *n, enum finding_code code, const char *subject)
{
    return find(n, code, subject) != NULL;
}

/* When it is full the rows are used again in turn: the newest are about the nodes that are here. */
static struct finding *slot_for(struct notices *n, enum finding_code code, const char *subject)
{
    struct finding *same = find(n, code, subject);
    if (same != NULL)
        return same;
    if (n->list == NULL)
        n->list = calloc(NOTICES_MAX, sizeof(*n->list));
    if (n->list == NULL)
        return NULL;
    if (n->count < NOTICES_MAX)
        return &n->list[n->count++];
    return &n->list[n->next++ % NOTICES_MAX];
}

/* It will be shown on terminals. */
static void put_plain(char *to, size_t size, const char *text)
{
    struct buf out = { 0 };
    const bool ok = text_put(&out, slice_str(text), size);
    snprintf(to, size, "%.*s", ok ? (int)out.len : 0, ok && out.len > 0 ? (const char *)out.data : "");
    buf_free(&out);
}

/* A code that is not in our table has no place in its order, and is not shown. */
void notices_add(struct notices *n, const char *code, const char *subject, const char *sentence,
                 const char *advice)
{
    const enum finding_code known = finding_by_name(code);
    struct finding *f = known != FINDING_NONE ? slot_for(n, known, subject) : NULL;
    if (f == NULL)
        return;
    f->code = known;
    f->more = 0;
    put_plain(f->subject, sizeof(f->subject), subject);
    put_plain(f->sentence, sizeof(f->sentence), sentence);
    put_plain(f->advice, sizeof(f->advice), advice);
}

void notices_free(struct notices *n)
{
    free(n->list);
    *n = (struct notices){ 0 };
}
