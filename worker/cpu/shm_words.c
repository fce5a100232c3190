/* shm_words.c -- see shm_words.h. */
#include "cpu/shm_words.h"

#include "cpu/peers.h"

#include <stdio.h>
#include <string.h>

/* What a rank is doing, or did last: its mark stays for another call. */
static const char *mark_text(char text[CALL_TEXT], const struct shm_control *control, int rank)
{
    const struct shm_mark *mark = shm_last_mark(control, rank);
    return call_text(text, &mark->call, mark->seq);
}

ddp_status words_ended(const struct shm_control *control, int rank, int ended, bool in_call,
                       struct ddp_err *err)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[ended];
    return ddp_fail(err, DDP_ERR_PEER_LOST, "rank %d (pid %d on %.63s) has ended%s rank %d %s %s", r->rank,
                    r->pid, control->host, in_call ? " while" : "; the last call of",
                    control->ranks[rank].rank, in_call ? "waited in" : "was", mark_text(text, control, rank));
}

/* Append "rank 2 (pid 123 is stopped by a signal or a debugger; last seen in all_reduce #16 (f32 x 9,
 * sum))". */
static void list_rank(char *list, size_t room, const struct shm_control *control, int rank)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[rank];
    size_t used = strlen(list);
    snprintf(list + used, room - used, "%srank %d (pid %d %s; last seen in %s)", used ? ", " : "", r->rank,
             r->pid, peers_state(r->pid), r->arrived == 0 ? "no call" : mark_text(text, control, rank));
}

ddp_status words_missing(const struct shm_control *control, int world, int rank, uint32_t phase,
                         uint32_t waited_ms, struct ddp_err *err)
{
    enum { LISTED = 4 }; /* more would not fit into the words of an error */
    char list[800] = "", text[CALL_TEXT];
    int missing = 0;

    for (int r = 0; r < world; r++)
        if (control->ranks[r].arrived != phase && missing++ < LISTED)
            list_rank(list, sizeof(list), control, r);
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "rank %d waited %u ms in %s, but %d of %d ranks on %.63s did not come: %s%s",
                    control->ranks[rank].rank, waited_ms, mark_text(text, control, rank), missing, world,
                    control->host, list, missing > LISTED ? ", and others" : "");
}

/* Everything that decides how many barriers and bytes a call has. Pointers and time-outs are each rank's
 * own affair. */
static bool same_call(const struct shm_mark *a, const struct shm_mark *b)
{
    return a->seq == b->seq && a->call.kind == b->call.kind && a->call.n == b->call.n &&
           a->call.dtype == b->call.dtype && a->call.op == b->call.op && a->call.root == b->call.root;
}

ddp_status words_compare(const struct shm_control *control, int world, struct ddp_err *err)
{
    char first[CALL_TEXT], other[CALL_TEXT];
    const struct shm_mark *mark = shm_last_mark(control, 0);

    for (int r = 1; r < world; r++)
        if (!same_call(mark, shm_mark_of(control, r, mark->seq)))
            return ddp_fail(err, DDP_ERR_MISMATCH, "ranks disagree: rank %d called %s, rank %d called %s",
                            control->ranks[0].rank, mark_text(first, control, 0), control->ranks[r].rank,
                            mark_text(other, control, r));
    return DDP_OK;
}
