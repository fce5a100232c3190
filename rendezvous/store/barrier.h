/* barrier.h -- named barriers of any set of ranks. The first member that arrives opens the barrier and sets its
 * deadline. A passed barrier keeps its name for the attempt, because a late rank could otherwise enter the barrier of
 * the next step. */
#ifndef RENDEZVOUS_STORE_BARRIER_H
#define RENDEZVOUS_STORE_BARRIER_H

#include "base/buf.h"
#include "base/list.h"
#include "store/quota.h"
#include "store/table.h"

#include <stdint.h>

/* The result of a call for a barrier. The wire format uses these numbers, so they must not change. */
enum barrier_outcome {
    BARRIER_RELEASED = 0,  /* all members have arrived */
    BARRIER_TIMED_OUT = 1, /* the deadline has passed */
    BARRIER_LOST = 2,      /* the process of a member has ended */
    BARRIER_CANCELLED = 3, /* an operator has cancelled the barrier */
    BARRIER_MISUSE = 4,    /* the call was invalid; only the calling rank gets this outcome */
};

/* The states of a barrier:
 *
 *     NEW --first arrival--> OPEN --last arrival--> PASSED
 *      ^                      |  \--deadline passed, a member's process ended, or cancelled--> FAILED
 *      '-last waiting rank leaves
 *
 * If all waiting ranks leave (CANCEL_WAIT, disconnect), the barrier is freed, and its name can be used again. A passed
 * or failed barrier keeps its name until the next attempt, so this name cannot be used again in the attempt. A member
 * that arrives after the failure gets the same outcome and report as the other members. */
enum barrier_state { BARRIER_NEW, BARRIER_OPEN, BARRIER_PASSED, BARRIER_FAILED, BARRIER_STATES };

/* A named barrier. Its two bitmaps have one bit for each rank, so the bitmaps are small even for 100,000 ranks.
 * Example:
 *
 *     members {0, 2, 3}        is_member    1 0 1 1
 *     rank 2 has arrived       has_arrived  0 0 1 0        members 3, arrived 1
 *
 * The barrier is complete when `arrived` equals `members`. Only barrier.c changes a barrier. */
struct barrier {
    struct table_node node; /* by name */
    struct list open;       /* link in the list barriers.open, which is sorted by deadline */
    struct list waiters;    /* a struct barrier_waiter for each waiting rank, in the order of arrival */
    enum barrier_state state;
    enum barrier_outcome outcome; /* valid in BARRIER_FAILED */
    uint32_t world_size;          /* number of bits in each bitmap */
    uint32_t members, arrived;    /* number of members, and how many of them have arrived */
    uint8_t *is_member;           /* owned; NULL after the barrier has passed */
    uint8_t *has_arrived;         /* points into the memory block of is_member */
    uint64_t began_ms;            /* time of the first arrival (barrier_call.now_ms) */
    uint64_t deadline_ms;         /* time at which the barrier fails, on the caller's clock */
    struct buf report;            /* valid in BARRIER_FAILED: the JSON report for all members */
    char name[];
};

/* The wait of a rank's connection. A connection waits at one barrier at most. While the rank waits, its waiter is in
 * the list of the barrier. The waiter is a member of the connection's struct, so that an arrival allocates nothing. Set
 * all bytes to zero before the first use. */
struct barrier_waiter {
    struct list node;        /* link in barrier.waiters, if `barrier` is not NULL */
    struct barrier *barrier; /* borrowed; NULL if the rank waits at no barrier */
    uint32_t rank;           /* the rank that waits, if `barrier` is not NULL */
};

/* The functions that the barriers call. `user` is their first argument. `lost`, `opened` and `ended` may be
 * NULL, and must not change a barrier. */
struct barrier_env {
    void *user;
    /* Answer the rank of `waiter`. The waiter has already left its barrier, so the callback may use it for another
     * barrier. `json` is the report, borrowed for the call, and empty for BARRIER_RELEASED. */
    void (*answer)(void *user, struct barrier_waiter *waiter, enum barrier_outcome outcome,
                   struct slice json);
    /* Append the JSON report of a failure to `out`, or nothing if memory is short. `because` completes the sentence
     * "barrier NAME ...". For BARRIER_MISUSE, `barrier` is NULL, and only the calling rank gets the report. */
    void (*report)(void *user, const struct barrier *barrier, struct slice name, enum barrier_outcome outcome,
                   const char *because, struct buf *out);
    /* Write how the process of `rank` ended: a sentence without a full stop, in at most `size` bytes with the NUL. */
    void (*end_of)(void *user, uint32_t rank, char *text, size_t size);
    /* Return true if the process of `rank` has ended. A barrier with such a member cannot complete. */
    bool (*has_ended)(void *user, uint32_t rank);
    /* Log the line, which has no newline at its end. */
    void (*log)(void *user, const char *line);
    /* Called when a barrier will fail because the process of the member `rank` has ended. The other ranks are still
     * waiters. */
    void (*lost)(void *user, const struct barrier *barrier, uint32_t rank);
    /* Called after the first member has arrived. */
    void (*opened)(void *user, const struct barrier *barrier);
    /* Called before a barrier passes or fails, while its ranks are still waiters. `why` completes the sentence "barrier
     * NAME ..."; `why` is empty for BARRIER_RELEASED. */
    void (*ended)(void *user, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
};

/* A BARRIER_NAMED request. Slices are borrowed for the call. */
struct barrier_call {
    struct slice name;
    int64_t timeout_ms;   /* the value from the client, so it may be negative */
    struct slice members; /* ranks, each a little-endian u32; empty means all ranks */
    uint32_t rank;        /* the calling rank, which must be a member */
    uint32_t world_size;
    uint64_t now_ms; /* time on a clock that never goes back; all calls must use the same clock */
};

static inline struct slice barrier_name(const struct barrier *barrier)
{
    return slice_of(barrier->name, barrier->node.key_len);
}
/* Return true if `rank` is a member. A passed barrier has no members. */
bool barrier_needs(const struct barrier *barrier, uint32_t rank);
/* Return true if `rank` is a member and has arrived. At a passed barrier, return false. */
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
    struct quota *quota;  /* borrowed */
    struct table by_name; /* owned: all barriers, in any state */
    struct list open;     /* the barriers in BARRIER_OPEN; the barrier with the earliest deadline is first */
    uint32_t open_count;  /* length of `open` */
};

/* Initialize `b` without barriers. `env` is copied. Return false if memory is short. */
bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env);
void barriers_free(struct barriers *b);
/* Free all barriers because a new attempt begins. Remove all waiters and send them no answer. */
void barriers_clear(struct barriers *b);

/* Process the arrival of a rank. The rank gets its answer through barrier_env.answer, possibly before this function
 * returns. Return false, without an answer, if memory or quota is short. */
bool barriers_arrive(struct barriers *b, struct barrier_waiter *waiter, const struct barrier_call *call);
/* End a connection's wait without an answer, if the client cancels the wait or disconnects. Do nothing if the
 * connection waits at no barrier. */
void barriers_leave(struct barriers *b, struct barrier_waiter *waiter);
/* Fail every open barrier that has the member `rank`, because the process of this rank has ended. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms);
/* Cancel an open barrier. `who` names the operator in the report. Return false if no barrier with this name is open. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms);

/* Return the earliest deadline of an open barrier, or UINT64_MAX if no barrier is open. Call barriers_tick at this
 * time. */
uint64_t barriers_deadline(const struct barriers *b);
/* Fail each open barrier whose deadline is not later than `now_ms`. */
void barriers_tick(struct barriers *b, uint64_t now_ms);

#endif
