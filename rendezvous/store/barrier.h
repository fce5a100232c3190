/* barrier.h -- named barriers of any subset of ranks. Each name is valid once, and the first arrival starts the deadline.
 *
 *     (empty) --first arrival--> OPEN --last arrival--> RELEASED
 *        ^                         |  \--time up, a member's process ended, cancelled--> FAILED
 *        '------- last one leaves -'
 *
 * If all ranks leave again (CANCEL_WAIT, disconnect), the barrier returns to the state before the first arrival.
 * After RELEASED the name is used up. After FAILED it is too, but a late member gets the outcome of the others, with
 * the reason. A new attempt frees all names.
 *
 * A rank arrives through a `struct barrier_seat` that its connection owns. All answers go through `answer`, including
 * the arriving rank's, possibly before barriers_arrive returns. */
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
 * Bitmaps, because a world may have 100,000 ranks, and every arrival checks membership and an earlier arrival of the
 * same rank. The counts beside them detect the last arrival by one comparison. */

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
    struct list open;       /* in barriers.open, earliest deadline first */
    struct list seats;      /* seats of the waiting ranks */
    enum barrier_state state;
    enum barrier_outcome outcome; /* once FAILED */
    uint32_t world_size;          /* ranks the bitmaps have room for */
    uint32_t members, arrived;    /* how many */
    uint8_t *is_member;           /* owned bitmap; NULL once it is no longer needed */
    uint8_t *has_arrived;         /* the second half of the same memory */
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
    /* The seat has its answer and is free again; `json` is empty for RELEASED and valid during the call. */
    void (*answer)(void *user, struct barrier_seat *seat, enum barrier_outcome outcome, struct slice json);
    /* Append the JSON for every member when the barrier fails; `because` is the end of a sentence about it. `barrier` is
     * NULL for BARRIER_MISUSE, which only the caller of `name` gets. When memory is short nothing is appended. */
    void (*report)(void *user, const struct barrier *barrier, struct slice name, enum barrier_outcome outcome,
                   const char *because, struct buf *out);
    /* Write how the process of this rank has ended, as a sentence without a full stop, cut to `size`. */
    void (*end_of)(void *user, uint32_t rank, char *text, size_t size);
    bool (*has_ended)(void *user, uint32_t rank);
    void (*log)(void *user, const char *line);
    /* `rank`, which has ended, keeps the barrier from ever opening; its seats are still taken. NULL = no observer. */
    void (*lost)(void *user, const struct barrier *barrier, uint32_t rank);
    /* It was opened, or ends: for an event log. Its seats are still taken, in the order of their arrival. `why` ends
     * a sentence about a failure. NULL = no observer. */
    void (*opened)(void *user, const struct barrier *barrier);
    void (*ended)(void *user, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
};

/* One call of BARRIER_NAMED. Slices are borrowed. */
struct barrier_call {
    struct slice name;
    int64_t timeout_ms;
    struct slice members; /* u32 ranks, little-endian; empty = all */
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

/* False when memory is short. */
bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env);
void barriers_free(struct barriers *b);
/* Begin a new attempt: all names are free again, and seated ranks leave without an answer. */
void barriers_clear(struct barriers *b);

/* False when memory or budget is short: no answer was sent. */
bool barriers_arrive(struct barriers *b, struct barrier_seat *seat, const struct barrier_call *call);
void barriers_leave(struct barriers *b, struct barrier_seat *seat);
/* The process of a rank has ended: every open barrier that needs it fails. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms);
/* False when no barrier of this name is open. `who` is named in the report. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms);

/* When barriers_tick has something to do, UINT64_MAX = never. */
uint64_t barriers_deadline(const struct barriers *b);
void barriers_tick(struct barriers *b, uint64_t now_ms);

#endif
