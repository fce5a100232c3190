/* barrier.h -- named barriers of any ranks. The first arrival opens a barrier and sets its deadline. A name is used
 * only once.
 *
 *     (empty) --first arrival--> OPEN --last arrival--> RELEASED
 *        ^                         |  \--time up, a member's process ended, cancelled--> FAILED
 *        '------- last one leaves -'
 *
 * If all waiting ranks leave (CANCEL_WAIT, disconnect), the barrier is freed, and its name can be used again. After
 * RELEASED or FAILED, a name cannot be used again. A member that arrives after FAILED gets the same outcome and
 * report as the other members. A new attempt frees all names.
 *
 * The connection of a rank owns a waiter, `struct barrier_waiter`, for at most one barrier at a time. While the rank
 * waits, its waiter is in the list of the barrier. Every rank gets its answer through `answer`, possibly before
 * barriers_arrive returns. */
#ifndef RENDEZVOUS_STORE_BARRIER_H
#define RENDEZVOUS_STORE_BARRIER_H

#include "base/buf.h"
#include "base/list.h"
#include "store/quota.h"
#include "store/table.h"

#include <stdint.h>

/* The members of a barrier, and those that have arrived. Private to barrier.c.
 *
 *     members {0, 2, 3}        is_member    1 0 1 1
 *     rank 2 has arrived       has_arrived  0 0 1 0        members 3, arrived 1
 *
 * Bitmaps are small even for 100,000 ranks. The barrier is complete when `arrived` equals `members`. */

enum barrier_outcome { /* values of the protocol */
                       BARRIER_RELEASED = 0,
                       BARRIER_TIMED_OUT = 1,
                       BARRIER_LOST = 2,
                       BARRIER_CANCELLED = 3,
                       BARRIER_MISUSE = 4,
};

enum barrier_state { BARRIER_NEW, BARRIER_OPEN, BARRIER_PASSED, BARRIER_FAILED, BARRIER_STATES };
struct barrier {
    struct table_node node; /* by name */
    struct list open;       /* link in barriers.open, sorted by deadline */
    struct list waiters;    /* one for each waiting rank */
    enum barrier_state state;
    enum barrier_outcome outcome; /* valid in BARRIER_FAILED */
    uint32_t world_size;          /* number of bits in each bitmap */
    uint32_t members, arrived;    /* number of bits set in each bitmap */
    uint8_t *is_member;           /* owned; NULL = the barrier was passed */
    uint8_t *has_arrived;         /* in the same block of memory as is_member */
    uint64_t began_ms, deadline_ms;
    struct buf report; /* valid in BARRIER_FAILED: the JSON report for all members */
    char name[];
};

/* A member of the connection's struct. Set all bytes to zero before the first use. */
struct barrier_waiter {
    struct list node;
    struct barrier *barrier; /* NULL = the rank waits at no barrier */
    uint32_t rank;           /* the rank that waits, if `barrier` is not NULL */
};

struct barrier_env {
    void *user;
    /* Answer the rank of a waiter, which is removed already. `json` is borrowed for the call, and empty for
     * RELEASED. */
    void (*answer)(void *user, struct barrier_waiter *waiter, enum barrier_outcome outcome,
                   struct slice json);
    /* Append the JSON report of a failure to `out`, or nothing if memory is short. `because` continues the sentence
     * "barrier NAME ...". For BARRIER_MISUSE, `barrier` is NULL, and only the calling rank gets the report. */
    void (*report)(void *user, const struct barrier *barrier, struct slice name, enum barrier_outcome outcome,
                   const char *because, struct buf *out);
    /* Write how the process of `rank` ended: a sentence without a full stop, in at most `size` bytes with the NUL. */
    void (*end_of)(void *user, uint32_t rank, char *text, size_t size);
    bool (*has_ended)(void *user, uint32_t rank);
    void (*log)(void *user, const char *line);
    /* Called before a barrier fails because the member `rank` has ended. The waiting ranks still have their waiters.
     * NULL = not called. */
    void (*lost)(void *user, const struct barrier *barrier, uint32_t rank);
    /* Called after a barrier was opened, and before a barrier ends, for the event log. The waiting ranks still have
     * their waiters, in the order of arrival. `why` continues the sentence "barrier NAME ..." and is empty for
     * RELEASED. NULL = not called. */
    void (*opened)(void *user, const struct barrier *barrier);
    void (*ended)(void *user, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
};

/* A BARRIER_NAMED request. Slices are borrowed for the call. */
struct barrier_call {
    struct slice name;
    int64_t timeout_ms;
    struct slice members; /* u32 each, little-endian; empty = all ranks */
    uint32_t rank;
    uint32_t world_size;
    uint64_t now_ms;
};

static inline struct slice barrier_name(const struct barrier *barrier)
{
    return slice_of(barrier->name, barrier->node.key_len);
}
bool barrier_needs(const struct barrier *barrier, uint32_t rank);
bool barrier_has(const struct barrier *barrier, uint32_t rank);
static inline bool barrier_is_complete(const struct barrier *barrier)
{
    return barrier->arrived == barrier->members;
}

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

/* Initialize without barriers. Return false if memory is short. */
bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env);
void barriers_free(struct barriers *b);
/* Free all barriers and remove all waiters without an answer, because a new attempt begins. */
void barriers_clear(struct barriers *b);

/* Process the arrival of a rank. Return false, without an answer, if memory or quota is short. */
bool barriers_arrive(struct barriers *b, struct barrier_waiter *waiter, const struct barrier_call *call);
void barriers_leave(struct barriers *b, struct barrier_waiter *waiter);
/* Fail every open barrier that has the member `rank`, because the process of this rank has ended. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms);
/* Cancel an open barrier. `who` is a name for the report. Return false if no barrier with this name is open. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms);

/* Return the earliest deadline of an open barrier; UINT64_MAX = none. barriers_tick must be called at this time. */
uint64_t barriers_deadline(const struct barriers *b);
void barriers_tick(struct barriers *b, uint64_t now_ms);

#endif
