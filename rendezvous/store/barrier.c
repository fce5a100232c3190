/* barrier.c -- see barrier.h. The table `machine` has one function (a cell) for each state and event, and cells call
 * other modules only through barrier_env. A passed barrier frees its bitmaps, because the bitmaps of 100,000 ranks take
 * 25 KB. */
#include "store/barrier.h"

#include "base/text.h"
#include "store/encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool bit(const uint8_t *bits, uint32_t rank)
{
    return bits[rank / 8] >> rank % 8 & 1;
}

static void set_bit(uint8_t *bits, uint32_t rank)
{
    bits[rank / 8] |= (uint8_t)(1u << rank % 8);
}

static void clear_bit(uint8_t *bits, uint32_t rank)
{
    bits[rank / 8] &= (uint8_t) ~(1u << rank % 8);
}

bool barrier_needs(const struct barrier *barrier, uint32_t rank)
{
    return barrier->is_member != NULL && rank < barrier->world_size && bit(barrier->is_member, rank);
}

bool barrier_has(const struct barrier *barrier, uint32_t rank)
{
    return barrier->has_arrived != NULL && rank < barrier->world_size && bit(barrier->has_arrived, rank);
}

/* --- memory ---------------------------------------------------------------------------------------------- */

/* A barrier has two blocks of memory. The first block has the struct and the name, and the second block has both
 * bitmaps. When a barrier has passed, the second block is freed, because the bitmaps of 100,000 ranks take 25 KB. */

static size_t bitmap_bytes(uint32_t world_size)
{
    return (world_size + 7) / 8;
}

/* Return how many bytes the struct and the name charge to the quota. */
static uint64_t barrier_cost(struct slice name)
{
    return sizeof(struct barrier) + name.len;
}

static void barrier_free_bitmaps(struct quota *quota, struct barrier *barrier)
{
    if (barrier->is_member != NULL)
        quota_release(quota, 2 * bitmap_bytes(barrier->world_size));
    free(barrier->is_member);
    barrier->is_member = barrier->has_arrived = NULL;
}

/* Free a barrier that is in no list and no table, and has no waiters. Only this function frees barriers. */
static void barrier_free(struct quota *quota, struct barrier *barrier)
{
    barrier_free_bitmaps(quota, barrier);
    quota_release(quota, barrier_cost(barrier_name(barrier)) + barrier->report.cap);
    buf_free(&barrier->report);
    free(barrier);
}

/* Allocate both memory blocks of a barrier. Return NULL, and allocate nothing, if memory or quota is short. */
static struct barrier *alloc(struct quota *quota, const struct barrier_call *call)
{
    size_t bitmap = bitmap_bytes(call->world_size);
    uint64_t bytes = barrier_cost(call->name) + 2 * bitmap;
    if (!quota_use(quota, bytes))
        return NULL;
    struct barrier *barrier = calloc(1, sizeof(*barrier) + call->name.len);
    uint8_t *bits = calloc(2, bitmap);
    if (barrier == NULL || bits == NULL) {
        quota_release(quota, bytes);
        free(barrier);
        free(bits);
        return NULL;
    }
    barrier->is_member = bits;
    barrier->has_arrived = bits + bitmap;
    return barrier;
}

/* Create a barrier with the name and the world size of `call`, but without members. Return NULL if memory or quota is
 * short. */
static struct barrier *barrier_new(struct quota *quota, const struct barrier_call *call)
{
    struct barrier *barrier = alloc(quota, call);
    if (barrier == NULL)
        return NULL;
    if (call->name.len > 0)
        memcpy(barrier->name, call->name.data, call->name.len);
    barrier->node = (struct table_node){ .key = barrier->name,
                                         .key_len = (uint32_t)call->name.len,
                                         .hash = table_hash(call->name) };
    barrier->world_size = call->world_size;
    list_init(&barrier->open);
    list_init(&barrier->waiters);
    return barrier;
}

/* --- arrivals ------------------------------------------------------------------------------------------- */

/* Mark a rank as arrived. Count each rank only once, because a rank may arrive again on a new connection. */
static void barrier_mark_arrived(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived += !bit(barrier->has_arrived, rank);
    set_bit(barrier->has_arrived, rank);
}

static void barrier_unmark_arrived(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived -= bit(barrier->has_arrived, rank);
    clear_bit(barrier->has_arrived, rank);
}

/* Remove the waiter from its barrier. Call this function before barrier_env.answer, because this callback may use the
 * waiter for another barrier. */
static void barrier_remove_waiter(struct barrier_waiter *waiter)
{
    list_remove(&waiter->node);
    waiter->barrier = NULL;
}

/* Add the waiter for the rank of `call`, and mark the rank as arrived. */
static void barrier_add_waiter(struct barrier *barrier, struct barrier_waiter *waiter,
                               const struct barrier_call *call)
{
    waiter->barrier = barrier;
    waiter->rank = call->rank;
    list_insert(&barrier->waiters, &waiter->node);
    barrier_mark_arrived(barrier, call->rank);
}

/* Return entry `i` of the list of members in `call`. */
static uint32_t barrier_member_at(const struct barrier_call *call, size_t i)
{
    return get_u32((const uint8_t *)call->members.data + 4 * i);
}

/* Set the members of a new barrier from the list of the first call. An empty list means all ranks. A list may name a
 * rank twice. */
static void barrier_set_members(struct barrier *barrier, const struct barrier_call *call)
{
    size_t n = call->members.len / 4, all = n == 0 ? call->world_size : n;
    for (size_t i = 0; i < all; i++) {
        uint32_t rank = n == 0 ? (uint32_t)i : barrier_member_at(call, i);
        barrier->members += !bit(barrier->is_member, rank);
        set_bit(barrier->is_member, rank);
    }
}

/* Return true if the list of a later call has the same members as the barrier. A list may name a rank twice, but each
 * rank must be counted once. So the first loop clears the bit of each counted rank, and the last loop sets these bits
 * again. This needs no second bitmap. */
static bool barrier_has_same_members(const struct barrier *barrier, const struct barrier_call *call)
{
    size_t n = call->members.len / 4;
    uint32_t distinct = n == 0 ? call->world_size : 0;
    for (size_t i = 0; i < n; i++)
        if (!bit(barrier->is_member, barrier_member_at(call, i)))
            return false;
    for (size_t i = 0; i < n; i++) {
        distinct += bit(barrier->is_member, barrier_member_at(call, i));
        clear_bit(barrier->is_member, barrier_member_at(call, i));
    }
    for (size_t i = 0; i < n; i++)
        set_bit(barrier->is_member, barrier_member_at(call, i));
    return distinct == barrier->members;
}

/* The longest timeout. A client may request 2^63 - 1 ms; without this limit, adding the timeout to the present time
 * could overflow. */
#define TEN_YEARS_MS (10ll * 365 * 24 * 3600 * 1000)

enum { BARRIER_END_MAX = 800 }; /* bytes for the text of barrier_env.end_of, with the NUL */

/* An event for one barrier. Each field after `type` is valid for the events in its comment. */
struct event {
    enum barrier_event type;
    struct barrier_waiter *waiter;   /* ARRIVES, LEAVES */
    const struct barrier_call *call; /* ARRIVES */
    uint32_t rank;                   /* MEMBER_ENDS */
    const char *who;                 /* CANCEL */
    uint64_t now_ms;                 /* time of the event; set for all events except LEAVES */
};

/* --- by name -------------------------------------------------------------------------------------------- */

/* Find a barrier by its name, in any state. */
static struct barrier *find_barrier(const struct barriers *b, struct slice name)
{
    struct table_node *node = table_find(&b->by_name, name, table_hash(name));
    return node ? TABLE_ENTRY(node, struct barrier, node) : NULL;
}

static struct barrier *make_barrier(struct barriers *b, const struct barrier_call *call)
{
    struct barrier *barrier = barrier_new(b->quota, call);
    if (barrier != NULL)
        table_insert(&b->by_name, &barrier->node);
    return barrier;
}

/* Remove a barrier from the table and free it. */
static void drop(struct barriers *b, struct barrier *barrier)
{
    table_remove(&b->by_name, &barrier->node);
    barrier_free(b->quota, barrier);
}

/* --- how a barrier ends --------------------------------------------------------------------------------- */

static void close_barrier(struct barriers *b, struct barrier *barrier)
{
    list_remove(&barrier->open);
    b->open_count--;
}

/* Answer all waiting ranks. */
static void answer_all(struct barriers *b, struct barrier *barrier, enum barrier_outcome outcome)
{
    /* close the barrier first, because `answer` may use the list of open barriers */
    close_barrier(b, barrier);
    while (!list_is_empty(&barrier->waiters)) {
        struct barrier_waiter *waiter = LIST_ENTRY(barrier->waiters.next, struct barrier_waiter, node);
        barrier_remove_waiter(waiter);
        b->env.answer(b->env.user, waiter, outcome, buf_slice(&barrier->report));
    }
}

/* Log "barrier 'NAME' WHAT". The client chooses the name: text_append makes it printable and cuts it at 200 bytes. */
static void log_end(struct barriers *b, struct barrier *barrier, const char *what)
{
    struct buf line = { 0 };
    if (buf_printf(&line, "barrier '") && text_append(&line, barrier_name(barrier), 200) &&
        buf_printf(&line, "' %s", what))
        b->env.log(b->env.user, (const char *)line.data);
    buf_free(&line);
}

/* Fail the barrier and answer all waiting ranks. If memory is short, the report is empty. Charge the report to the
 * quota even if the quota is then exceeded, because the ranks must get an answer. */
static enum barrier_state fail_barrier(struct barriers *b, struct barrier *barrier,
                                       enum barrier_outcome outcome, const char *because)
{
    barrier->outcome = outcome;
    b->env.report(b->env.user, barrier, barrier_name(barrier), outcome, because, &barrier->report);
    quota_charge(b->quota, barrier->report.cap);
    log_end(b, barrier, because);
    if (b->env.ended != NULL)
        b->env.ended(b->env.user, barrier, outcome, because);
    answer_all(b, barrier, outcome);
    return BARRIER_FAILED;
}

/* Release all waiting ranks, and free the bitmaps. */
static enum barrier_state pass(struct barriers *b, struct barrier *barrier)
{
    if (b->env.ended != NULL)
        b->env.ended(b->env.user, barrier, BARRIER_RELEASED, "");
    answer_all(b, barrier, BARRIER_RELEASED);
    barrier_free_bitmaps(b->quota, barrier);
    return BARRIER_PASSED;
}

static void answer_misuse(struct barriers *b, struct barrier_waiter *waiter, struct slice name,
                          const char *why)
{
    struct buf report = { 0 };
    b->env.report(b->env.user, NULL, name, BARRIER_MISUSE, why, &report);
    b->env.answer(b->env.user, waiter, BARRIER_MISUSE, buf_slice(&report));
    buf_free(&report);
}

/* --- the cells ------------------------------------------------------------------------------------------ */

/* Each cell returns the next state, which step() stores. */

static enum barrier_state stays(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    (void)b, (void)event;
    return barrier->state;
}

/* Insert the barrier into the list of open barriers, which is sorted by deadline. Search from the end, because a new
 * deadline is usually the latest. */
static void open_barrier(struct barriers *b, struct barrier *barrier, const struct barrier_call *call)
{
    int64_t timeout_ms = call->timeout_ms < TEN_YEARS_MS ? call->timeout_ms : TEN_YEARS_MS;
    barrier->began_ms = call->now_ms;
    barrier->deadline_ms = call->now_ms + (uint64_t)timeout_ms;
    struct list *at = &b->open;
    while (at->prev != &b->open &&
           LIST_ENTRY(at->prev, struct barrier, open)->deadline_ms > barrier->deadline_ms)
        at = at->prev;
    list_insert(at, &barrier->open);
    b->open_count++;
}

/* Fail the barrier because the process of the member `rank` has ended. Clear the arrival of the rank, so that the
 * report lists the rank as missing. */
static enum barrier_state lose(struct barriers *b, struct barrier *barrier, uint32_t rank)
{
    char end[BARRIER_END_MAX], because[BARRIER_END_MAX + 32];
    b->env.end_of(b->env.user, rank, end, sizeof(end));
    snprintf(because, sizeof(because), "cannot complete: %s", end);
    barrier_unmark_arrived(barrier, rank);
    if (b->env.lost != NULL)
        b->env.lost(b->env.user, barrier, rank);
    return fail_barrier(b, barrier, BARRIER_LOST, because);
}

/* Open a new barrier. Fail it at once if a member's process has already ended. */
static enum barrier_state arrive_first(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier_set_members(barrier, event->call);
    open_barrier(b, barrier, event->call);
    barrier_add_waiter(barrier, event->waiter, event->call);
    if (b->env.opened != NULL)
        b->env.opened(b->env.user, barrier);
    for (uint32_t rank = 0; rank < barrier->world_size; rank++)
        if (barrier_needs(barrier, rank) && b->env.has_ended(b->env.user, rank))
            return lose(b, barrier, rank);
    return barrier_is_complete(barrier) ? pass(b, barrier) : BARRIER_OPEN;
}

static enum barrier_state arrive_next(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    const struct barrier_call *call = event->call;
    const char *why = NULL;
    if (!barrier_has_same_members(barrier, call))
        why = "is misused: earlier callers have another list of members";
    else if (barrier_has(barrier, call->rank))
        why = "is misused: this rank already waits on another connection";
    if (why != NULL) {
        answer_misuse(b, event->waiter, call->name, why);
        return BARRIER_OPEN;
    }
    barrier_add_waiter(barrier, event->waiter, call);
    return barrier_is_complete(barrier) ? pass(b, barrier) : BARRIER_OPEN;
}

/* Reject an arrival at a passed barrier. Otherwise a rank that is one step late would enter the barrier together with
 * the ranks of the next step. */
static enum barrier_state name_is_used(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    answer_misuse(b, event->waiter, event->call->name,
                  "is misused: the barrier with this name is already over; use each name only once");
    return barrier->state;
}

/* Answer a rank that arrives after the barrier has failed. Send a member the report of the failure. If the rank is not
 * a member, or has arrived before, answer that the name is misused. */
static enum barrier_state arrive_late(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    if (!barrier_needs(barrier, event->call->rank) || barrier_has(barrier, event->call->rank)) {
        answer_misuse(b, event->waiter, event->call->name,
                      "is misused: the barrier with this name has already failed; use each name only once");
    } else {
        barrier_mark_arrived(barrier, event->call->rank);
        b->env.answer(b->env.user, event->waiter, barrier->outcome, buf_slice(&barrier->report));
    }
    return barrier->state;
}

/* Remove the waiter of a rank that stops waiting. If no rank waits any more, return BARRIER_NEW: step() then frees the
 * barrier. */
static enum barrier_state leaves(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier_unmark_arrived(barrier, event->waiter->rank);
    barrier_remove_waiter(event->waiter);
    if (!list_is_empty(&barrier->waiters))
        return BARRIER_OPEN;
    close_barrier(b, barrier);
    return BARRIER_NEW;
}

static enum barrier_state loses_member(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    return barrier_needs(barrier, event->rank) ? lose(b, barrier, event->rank) : BARRIER_OPEN;
}

static enum barrier_state is_cancelled(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    char because[256];
    snprintf(because, sizeof(because), "was cancelled by %s", event->who);
    return fail_barrier(b, barrier, BARRIER_CANCELLED, because);
}

static enum barrier_state times_out(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    struct buf because = { 0 };
    bool ok = buf_printf(&because, "timed out after ") &&
              text_append_ms(&because, event->now_ms - barrier->began_ms) && buf_append(&because, "", 1);
    enum barrier_state next =
        fail_barrier(b, barrier, BARRIER_TIMED_OUT, ok ? (const char *)because.data : "timed out");
    buf_free(&because);
    return next;
}

/* --- events --------------------------------------------------------------------------------------------- */

typedef enum barrier_state (*cell)(struct barriers *b, struct barrier *barrier, const struct event *event);

/* clang-format off */
static const cell machine[BARRIER_STATES][BARRIER_EVENTS] = {
/*                    ARRIVES       LEAVES  MEMBER_ENDS   CANCEL        TIME_UP   */
[BARRIER_NEW]    = {  arrive_first, stays,  stays,        stays,        stays     },
[BARRIER_OPEN]   = {  arrive_next,  leaves, loses_member, is_cancelled, times_out },
[BARRIER_PASSED] = {  name_is_used, stays,  stays,        stays,        stays     },
[BARRIER_FAILED] = {  arrive_late,  stays,  stays,        stays,        stays     },
};
/* clang-format on */

/* Process one event. This function may free the barrier. */
static void step(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier->state = machine[barrier->state][event->type](b, barrier, event);
    if (barrier->state == BARRIER_NEW)
        drop(b, barrier);
}

/* Check the arguments of `call`, but not the state of its barrier. Return the reason why the arguments are invalid, or
 * NULL if they are valid. Later functions use each member as a bit index, so each member must be below the world
 * size. */
static const char *find_misuse(const struct barrier_call *call)
{
    bool is_member = call->members.len == 0;
    if (call->timeout_ms < 0)
        return "is misused: the timeout is negative";
    if (call->members.len % 4 != 0)
        return "is misused: the size of the list of members is not a multiple of 4 bytes";
    if (call->rank >= call->world_size)
        return "is misused: this rank is not below the world size";
    for (size_t i = 0; i < call->members.len / 4; i++) {
        if (barrier_member_at(call, i) >= call->world_size)
            return "is misused: a rank in the list of members is not below the world size";
        is_member = is_member || barrier_member_at(call, i) == call->rank;
    }
    return is_member ? NULL : "is misused: this rank is not a member";
}

bool barriers_arrive(struct barriers *b, struct barrier_waiter *waiter, const struct barrier_call *call)
{
    const char *why = find_misuse(call);
    if (why != NULL) {
        answer_misuse(b, waiter, call->name, why);
        return true;
    }
    struct barrier *barrier = find_barrier(b, call->name);
    if (barrier == NULL && (barrier = make_barrier(b, call)) == NULL)
        return false;
    step(b, barrier,
         &(struct event){ .type = BARRIER_ARRIVES, .waiter = waiter, .call = call, .now_ms = call->now_ms });
    return true;
}

void barriers_leave(struct barriers *b, struct barrier_waiter *waiter)
{
    if (waiter->barrier != NULL)
        step(b, waiter->barrier, &(struct event){ .type = BARRIER_LEAVES, .waiter = waiter });
}

/* Fail each open barrier of which this rank is a member. Read `next` before each step, because the step may remove the
 * barrier from the list. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms)
{
    struct event event = { .type = BARRIER_MEMBER_ENDS, .rank = rank, .now_ms = now_ms };
    for (struct list *at = b->open.next, *next; at != &b->open; at = next) {
        next = at->next;
        step(b, LIST_ENTRY(at, struct barrier, open), &event);
    }
}

/* Cancel an open barrier. An unknown name creates no barrier. */
bool barriers_cancel(struct barriers *b, struct slice name, const char *who, uint64_t now_ms)
{
    struct barrier *barrier = find_barrier(b, name);
    if (barrier == NULL || barrier->state != BARRIER_OPEN)
        return false;
    step(b, barrier, &(struct event){ .type = BARRIER_CANCEL, .who = who, .now_ms = now_ms });
    return true;
}

uint64_t barriers_deadline(const struct barriers *b)
{
    return list_is_empty(&b->open) ? UINT64_MAX : LIST_ENTRY(b->open.next, struct barrier, open)->deadline_ms;
}

/* Fail each open barrier whose deadline has passed. The loop ends, because each step removes a barrier from the
 * list. */
void barriers_tick(struct barriers *b, uint64_t now_ms)
{
    while (barriers_deadline(b) <= now_ms)
        step(b, LIST_ENTRY(b->open.next, struct barrier, open),
             &(struct event){ .type = BARRIER_TIME_UP, .now_ms = now_ms });
}

/* --- all barriers --------------------------------------------------------------------------------------- */

bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env)
{
    *b = (struct barriers){ .env = *env, .quota = quota };
    list_init(&b->open);
    return table_init(&b->by_name);
}

/* Free all barriers. The waiting clients get no answer, because they belong to the old attempt. The caller then closes
 * their sessions. */
void barriers_clear(struct barriers *b)
{
    struct table_node *node = table_next(&b->by_name, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&b->by_name, node);
        struct barrier *barrier = TABLE_ENTRY(node, struct barrier, node);
        while (!list_is_empty(&barrier->waiters))
            barrier_remove_waiter(LIST_ENTRY(barrier->waiters.next, struct barrier_waiter, node));
        list_remove(&barrier->open);
        drop(b, barrier);
    }
    b->open_count = 0;
}

void barriers_free(struct barriers *b)
{
    if (b->by_name.chain != NULL)
        barriers_clear(b);
    table_free(&b->by_name);
}
