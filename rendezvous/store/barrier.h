/* barrier.h -- named barriers: any subset of ranks, each name once, a deadline that the first arrival
 * starts.
 *
 *     (nobody) --first arrival--> OPEN --last arrival--> RELEASED
 *        ^                         |  \--time up, a member's process ended, cancelled--> FAILED
 *        '------- last one leaves -'
 *
 * A barrier that everybody has left again (CANCEL_WAIT, disconnect) is as if nobody had come. After
 * RELEASED the name is used up. After FAILED it is too, but a member that comes late gets the outcome the
 * others got, with the words that say so. Names are forgotten when a new attempt begins.
 *
 * A rank arrives through a `struct barrier_seat` that its connection owns. All answers go through `answer`, the
 * arriving rank's too, possibly before barriers_arrive returns. */
#ifndef RENDEZVOUS_BARRIER_H
#define RENDEZVOUS_BARRIER_H

#include "store/barrier_roll.h"

enum barrier_event {
    BARRIER_ARRIVES,
    BARRIER_LEAVES,
    BARRIER_MEMBER_ENDS,
    BARRIER_CANCEL,
    BARRIER_TIME_UP,
    BARRIER_EVENTS
};

struct barriers {
    struct barrier_env env;
    struct quota *quota; /* borrowed */
    struct table by_name;
    struct list open;
    uint32_t open_count;
};

/* False when memory is short. */
bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env);
void barriers_free(struct barriers *b);
/* A new attempt: all names are free again; who is seated is let go without an answer. */
void barriers_clear(struct barriers *b);

/* False when memory or budget is short: nobody has been answered. */
bool barriers_arrive(struct barriers *b, struct barrier_seat *seat, const struct barrier_call *call);
void barriers_leave(struct barriers *b, struct barrier_seat *seat);
/* The process of a rank has ended: every open barrier that needs it fails. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms);
/* False when no barrier of this name is open. `who` is put into the report. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms);

/* When barriers_tick has something to do, UINT64_MAX = never. */
uint64_t barriers_deadline(const struct barriers *b);
void barriers_tick(struct barriers *b, uint64_t now_ms);

#endif
