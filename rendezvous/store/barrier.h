/* barrier.h -- named barriers of any subset of ranks. Each name is valid once, and the first arrival starts the deadline.
 *
 *     (empty) --first arrival--> OPEN --last arrival--> RELEASED
 *        ^                         |  \--time up, a member's process ended, cancelled--> FAILED
 *        '------- last one leaves -'
 *
 * If all waiting ranks leave (CANCEL_WAIT, disconnect), the barrier is freed and its name can be used again. A name
 * cannot be used again after RELEASED or FAILED. A member that arrives after FAILED gets the same outcome and report
 * as the other members. A new attempt frees all names.
 *
 * A seat is the place of a waiting rank in a barrier. A rank arrives with a `struct barrier_seat`, which the
 * connection of the rank owns. Every rank gets its answer through `answer`. The arriving rank may get its answer
 * before barriers_arrive returns. */
#ifndef RENDEZVOUS_STORE_BARRIER_H
#define RENDEZVOUS_STORE_BARRIER_H

#include "base/buf.h"
#include "base/list.h"
#include "store/quota.h"
#include "store/table.h"

#include <stdint.h>

/* The members and arrivals of one barrier. Private to the barriers.
 *
 *     members {0, 2, 3}        is_member    1 0 1 1
 *     rank 2 has arrived       has_arrived  0 0 1 0        members 3, arrived 1
 *
 * Bitmaps keep a world of 100,000 ranks small. Every arrival checks one bit of each bitmap. The counts `members` and
 * `arrived` are equal when the last member has arrived. */

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
    struct list open;       /* link in barriers.open, which has the earliest deadline first */
    struct list seats;      /* seats of the waiting ranks */
    enum barrier_state state;
    enum barrier_outcome outcome; /* once FAILED */
    uint32_t world_size;          /* ranks the bitmaps have room for */
    uint32_t members, arrived;    /* how many */
    uint8_t *is_member;           /* owned bitmap; NULL after the barrier was passed */
    uint8_t *has_arrived;         /* second half of the memory of is_member */
    uint64_t began_ms, deadline_ms;
    struct buf report; /* once FAILED: the JSON that every member gets */
    char name[];
};

/* Embedded in a connection, zeroed before first use. */
struct barrier_seat {
    struct list node;
    struct barrier *barrier; /* NULL = not seated */
    uint32_t rank;           /* while seated: rank of the owner */
};

struct barrier_env {
    void *user;
    /* Send the answer to the owner of `seat`. The seat is already free. `json` is empty for RELEASED and valid only
     * during the call. */
    void (*answer)(void *user, struct barrier_seat *seat, enum barrier_outcome outcome, struct slice json);
    /* Append the JSON report of a failure to `out`. Append nothing when memory is short. `because` continues the
     * sentence "barrier NAME ...". All members get the report. For BARRIER_MISUSE `barrier` is NULL, and only the
     * caller gets the report. */
    void (*report)(void *user, const struct barrier *barrier, struct slice name, enum barrier_outcome outcome,
                   const char *because, struct buf *out);
    /* Write a sentence that states how the process of `rank` ended, without a full stop, cut to `size`. */
    void (*end_of)(void *user, uint32_t rank, char *text, size_t size);
    bool (*has_ended)(void *user, uint32_t rank);
    void (*log)(void *user, const char *line);
    /* Report that the barrier fails because its member `rank` has ended. Waiting ranks still have their seats. NULL =
     * no observer. */
    void (*lost)(void *user, const struct barrier *barrier, uint32_t rank);
    /* Report to the event log that a barrier was opened or ends. Waiting ranks still have their seats, in the order
     * of arrival. `why` continues the sentence "barrier NAME ..." and is empty for RELEASED. NULL = no observer. */
    void (*opened)(void *user, const struct barrier *barrier);
    void (*ended)(void *user, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
};

/* One call of BARRIER_NAMED. Slices are borrowed. */
struct barrier_call {
    struct slice name;
    int64_t timeout_ms;
    struct slice members; /* u32 ranks, little-endian; empty = all ranks */
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

/* Initialise without barriers. Return false when memory is short. */
bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env);
void barriers_free(struct barriers *b);
/* Free all barriers and seats without sending an answer, because a new attempt begins. */
void barriers_clear(struct barriers *b);

/* Handle the arrival of a rank. Return false, without an answer, when memory or quota is short. */
bool barriers_arrive(struct barriers *b, struct barrier_seat *seat, const struct barrier_call *call);
void barriers_leave(struct barriers *b, struct barrier_seat *seat);
/* Fail every open barrier that needs `rank`, because the process of this rank has ended. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms);
/* Cancel an open barrier. The report names `who`. Return false when no barrier of this name is open. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms);

/* Return the earliest deadline, when barriers_tick must be called; UINT64_MAX = never. */
uint64_t barriers_deadline(const struct barriers *b);
void barriers_tick(struct barriers *b, uint64_t now_ms);

#endif
