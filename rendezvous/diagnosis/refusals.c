/* refusals.c -- see refusals.h.
 *
 * Thirty-two rows, all looked at each time: refusals are few, and a user who has started 1000 nodes with
 * the wrong option learns no more from the thousandth. */
#include "diagnosis/refusals.h"

#include <stdio.h>
#include <string.h>

/* An agent that tries again every second is one row. Another code is another mistake of the same process,
 * and gets a row of its own: the first was mended. */
static bool is_same(const struct refusal *row, const struct rdzv_join *join, enum rdzv_refused code)
{
    return row->code == code && row->node_rank == join->node_rank && row->pid == join->pid &&
           strcmp(row->host, join->host) == 0 && strcmp(row->job, join->job) == 0;
}

/* A row that is taken from another begins to count anew. */
static struct refusal *row_for(struct refusals *r, const struct rdzv_join *join, enum rdzv_refused code)
{
    struct refusal *oldest = &r->row[0];
    for (uint32_t i = 0; i < r->count; i++) {
        if (is_same(&r->row[i], join, code))
            return &r->row[i];
        if (r->row[i].last_ms < oldest->last_ms)
            oldest = &r->row[i];
    }
    if (r->count < REFUSALS_MAX)
        oldest = &r->row[r->count++];
    oldest->times = 0;
    return oldest;
}

/* The sentence is the last one: the other node that it names may be another by now. */
void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms)
{
    struct refusal *row = row_for(r, join, why->code);
    if (row->times++ == 0)
        row->first_ms = now_ms;
    row->code = why->code;
    row->node_rank = join->node_rank;
    row->pid = join->pid;
    row->last_ms = now_ms;
    snprintf(row->job, sizeof(row->job), "%s", join->job);
    snprintf(row->host, sizeof(row->host), "%s", join->host);
    snprintf(row->boot_id, sizeof(row->boot_id), "%s", join->boot_id);
    snprintf(row->sentence, sizeof(row->sentence), "%s", why->sentence);
}
