/* diagnose_left.c -- see diagnose.h. A rank has ended as if all were well, and others can never go on without it. */
#include "store/barrier_roll.h"
#include "diagnosis/diagnose_words.h"
#include "job/members.h"

#include "base/text.h"

#include <stdio.h>

static bool has_come(const void *barrier, uint32_t rank)
{
    return barrier_has(barrier, rank);
}

static bool has_left(const void *members, uint32_t rank)
{
    return member_has_left(members_at(members, rank));
}

static uint32_t count_left(const struct members *members, uint32_t *first)
{
    uint32_t n = 0;
    for (uint32_t rank = members->world_size; rank-- > 0;)
        if (has_left(members, rank)) {
            *first = rank;
            n++;
        }
    return n;
}

/* "rank 1", "ranks 0-2, 4" */
static void put_some(struct buf *out, const void *of, uint32_t n, uint32_t count,
                     bool (*is)(const void *of, uint32_t rank))
{
    buf_printf(out, count == 1 ? "rank " : "ranks ");
    put_ranges(out, of, n, is);
}

/* Memory that is short leaves the words out and not the finding. */
static const char *text_in(struct buf *text)
{
    return buf_append(text, "", 1) ? (const char *)text->data : "";
}

/* "rank 3 (n1, pid 77)" */
static void put_rank(struct buf *out, const struct rank_facts *f)
{
    buf_printf(out, "rank %u", f->rank);
    if (f->host != NULL)
        buf_printf(out, " (%.100s, pid %d)", f->host, f->pid);
}

void diagnose_left_barrier(const struct barrier *barrier, const struct rank_facts *f, struct finding *finding)
{
    struct buf who = { 0 }, waiters = { 0 }, where = { 0 };
    put_rank(&who, f);
    put_some(&waiters, barrier, barrier->world_size, barrier->arrived, has_come);
    buf_printf(&where, "at ");
    diagnose_put_place(barrier_name(barrier), true, &where);
    finding_make(finding, FINDING_RANK_LEFT_EARLY, text_in(&who), "waiters", text_in(&waiters), "it", "it",
                 "where", text_in(&where), NULL);
    buf_free(&who);
    buf_free(&waiters);
    buf_free(&where);
}

bool diagnose_left_call(const struct members *members, uint32_t waiter, int64_t lost, struct finding *finding)
{
    struct buf who = { 0 };
    uint32_t first = lost >= 0 ? (uint32_t)lost : 0;
    words waits;
    const uint32_t n = lost >= 0 ? 1 : count_left(members, &first);
    const struct rank_facts f = n > 0 ? member_facts(members, first) : (struct rank_facts){ 0 };
    if (n == 1)
        put_rank(&who, &f);
    else
        put_some(&who, members, members->world_size, n, has_left);
    snprintf(waits, sizeof(waits), "rank %u", waiter);
    if (n > 0)
        finding_make(finding, FINDING_RANK_LEFT_EARLY, text_in(&who), "waiters", waits, "it",
                     n == 1 ? "it" : "them", "where", "in a collective", NULL);
    buf_free(&who);
    return n > 0;
}
