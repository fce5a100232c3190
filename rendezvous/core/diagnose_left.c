/* diagnose_left.c -- see diagnose.h. A rank has ended as if all were well, and a barrier can never complete without it. */
#include "core/barrier_roll.h"
#include "core/diagnose_words.h"

#include "base/text.h"

#include <stdio.h>

static bool has_come(const void *barrier, uint32_t rank)
{
    return barrier_has(barrier, rank);
}

/* "rank 1", "ranks 0-2, 4" */
static void put_waiters(struct buf *out, const struct barrier *barrier)
{
    buf_printf(out, barrier->arrived == 1 ? "rank " : "ranks ");
    put_ranges(out, barrier, barrier->world_size, has_come);
    buf_append(out, "", 1);
}

/* Memory that is short leaves the words out and not the finding. */
static const char *or_none(const struct buf *text)
{
    return text->len > 0 ? (const char *)text->data : "";
}

void diagnose_left(const struct barrier *barrier, const struct rank_facts *f, struct finding *finding)
{
    char who[FINDING_SUBJECT_MAX];
    struct buf waiters = { 0 }, name = { 0 };
    if (f->host != NULL)
        snprintf(who, sizeof(who), "rank %u (%.100s, pid %d)", f->rank, f->host, f->pid);
    else
        snprintf(who, sizeof(who), "rank %u", f->rank);
    put_waiters(&waiters, barrier);
    if (text_put(&name, barrier_name(barrier), DIAGNOSE_NAME_SHOWN))
        buf_append(&name, "", 1);
    finding_make(finding, FINDING_RANK_LEFT_EARLY, who, "waiters", or_none(&waiters), "barrier",
                 or_none(&name), NULL);
    buf_free(&waiters);
    buf_free(&name);
}
