/* barrier.c -- see barrier.h.
 *
 * The machine is the table below; a cell does its work and returns the next state, which step() stores. Cells
 * reach the outside only through barrier_env, so a test drives the machine without a connection.
 *
 * An open barrier has two bitmaps (members, arrived). Open barriers never outnumber waiting connections,
 * because an empty one is dropped. A used name keeps its struct, and after a failure the report and the
 * bitmaps, for members that arrive late. */
#include "store/barrier.h"

#include "base/text.h"
#include "store/encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Memory: one block for the barrier and its name, one for both bitmaps, so that the bitmaps can be freed after a
 * barrier was passed, while its name stays. At 100,000 ranks the bitmaps are 25 KB, the rest is under 200 bytes;
 * otherwise a job that passes a barrier each second for a week would fill the store. */

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

/* Valid for any barrier and rank: without its bitmaps a barrier has no members. */
bool barrier_needs(const struct barrier *barrier, uint32_t rank)
{
    return barrier->is_member != NULL && rank < barrier->world_size && bit(barrier->is_member, rank);
}

bool barrier_has(const struct barrier *barrier, uint32_t rank)
{
    return barrier->has_arrived != NULL && rank < barrier->world_size && bit(barrier->has_arrived, rank);
}

/* --- memory ---------------------------------------------------------------------------------------------- */

static size_t bitmap_bytes(uint32_t world_size)
{
    return (world_size + 7) / 8;
}

/* The memory charge of a barrier, the same when it is charged and returned: the name is freed with the struct. */
static uint64_t barrier_cost(struct slice name)
{
    return sizeof(struct barrier) + name.len;
}

/* From now on only the name counts, so free the bitmaps early. */
static void barrier_forget_roll(struct quota *quota, struct barrier *barrier)
{
    if (barrier->is_member != NULL)
        quota_give(quota, 2 * bitmap_bytes(barrier->world_size));
    free(barrier->is_member);
    barrier->is_member = barrier->has_arrived = NULL;
}

/* Free a barrier, the only place that does; it must be in no table and no list, with no place taken. */
static void barrier_free(struct quota *quota, struct barrier *barrier)
{
    barrier_forget_roll(quota, barrier);
    quota_give(quota, barrier_cost(barrier_name(barrier)) + barrier->report.cap);
    buf_free(&barrier->report);
    free(barrier);
}

/* Allocate both blocks or none. */
static struct barrier *alloc(struct quota *quota, const struct barrier_call *call)
{
    size_t bitmap = bitmap_bytes(call->world_size);
    uint64_t bytes = barrier_cost(call->name) + 2 * bitmap;
    if (!quota_take(quota, bytes))
        return NULL;
    struct barrier *barrier = calloc(1, sizeof(*barrier) + call->name.len);
    uint8_t *bits = calloc(2, bitmap);
    if (barrier == NULL || bits == NULL) {
        quota_give(quota, bytes);
        free(barrier);
        free(bits);
        return NULL;
    }
    barrier->is_member = bits;
    barrier->has_arrived = bits + bitmap;
    return barrier;
}

/* Allocate a barrier of that call's name and world, charged to `quota`, without members. The caller frees it
 * (barrier_free). NULL if memory or quota is short. */
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
    list_init(&barrier->seats);
    return barrier;
}

/* --- arrivals ------------------------------------------------------------------------------------------- */

/* Mark a rank as arrived, or as not arrived. Counts change only if the bit does, because a rank may arrive
 * twice after its connection broke. */
static void barrier_tick_off(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived += !bit(barrier->has_arrived, rank);
    set_bit(barrier->has_arrived, rank);
}

static void barrier_strike_out(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived -= bit(barrier->has_arrived, rank);
    clear_bit(barrier->has_arrived, rank);
}

/* Free the place before notifying its owner, because the owner may enter another barrier in the very next request. */
static void barrier_stand_up(struct barrier_seat *seat)
{
    list_remove(&seat->node);
    seat->barrier = NULL;
}

/* The call's rank has arrived and takes its place. Giving up the place leaves it arrived. */
static void barrier_sit_down(struct barrier *barrier, struct barrier_seat *seat,
                             const struct barrier_call *call)
{
    seat->barrier = barrier;
    seat->rank = call->rank;
    list_insert(&barrier->seats, &seat->node);
    barrier_tick_off(barrier, call->rank);
}

/* The i-th rank of a call's list. */
static uint32_t barrier_member_at(const struct barrier_call *call, size_t i)
{
    return get_u32((const uint8_t *)call->members.data + 4 * i);
}

/* Set the members of a new barrier as its first caller names them. An empty list means the whole world. Naming a rank
 * twice changes nothing. */
static void barrier_take_members(struct barrier *barrier, const struct barrier_call *call)
{
    size_t n = call->members.len / 4, all = n == 0 ? call->world_size : n;
    for (size_t i = 0; i < all; i++) {
        uint32_t rank = n == 0 ? (uint32_t)i : barrier_member_at(call, i);
        barrier->members += !bit(barrier->is_member, rank);
        set_bit(barrier->is_member, rank);
    }
}

/* True if a later caller names the same members. A list may name a rank twice. To avoid a second bitmap, the members'
 * own bits are cleared while counting the different ones in the list, and set again. */
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

#define TEN_YEARS_MS \
    (10ll * 365 * 24 * 3600 * 1000) /* longer timeouts are cut to this, so that sums stay small */

enum { BARRIER_END_MAX = 800 };

struct event {
    enum barrier_event type;
    struct barrier_seat *seat;       /* ARRIVES, LEAVES */
    const struct barrier_call *call; /* ARRIVES */
    uint32_t rank;                   /* MEMBER_ENDS */
    const char *who;                 /* CANCEL */
    uint64_t now_ms;
};

typedef enum barrier_state (*cell)(struct barriers *b, struct barrier *barrier, const struct event *event);

/* A member may have died before the first arrival; then the barrier fails at once. */
static enum barrier_state comes_first(struct barriers *b, struct barrier *barrier, const struct event *event);
static enum barrier_state comes(struct barriers *b, struct barrier *barrier, const struct event *event);
/* If a name could be used twice, a rank that is one step behind would pass with the next step of the others. */
static enum barrier_state name_is_used(struct barriers *b, struct barrier *barrier,
                                       const struct event *event);
static enum barrier_state comes_late(struct barriers *b, struct barrier *barrier, const struct event *event);
/* When the last one leaves, the deadline ends. */
static enum barrier_state leaves(struct barriers *b, struct barrier *barrier, const struct event *event);
static enum barrier_state loses_member(struct barriers *b, struct barrier *barrier,
                                       const struct event *event);
static enum barrier_state is_cancelled(struct barriers *b, struct barrier *barrier,
                                       const struct event *event);
static enum barrier_state times_out(struct barriers *b, struct barrier *barrier, const struct event *event);
static enum barrier_state stays(struct barriers *b, struct barrier *barrier, const struct event *event);

/* clang-format off */
static const cell machine[BARRIER_STATES][BARRIER_EVENTS] = {
/*                    ARRIVES       LEAVES  MEMBER_ENDS   CANCEL        TIME_UP   */
[BARRIER_NEW]    = {  comes_first,  stays,  stays,        stays,        stays     },
[BARRIER_OPEN]   = {  comes,        leaves, loses_member, is_cancelled, times_out },
[BARRIER_PASSED] = {  name_is_used, stays,  stays,        stays,        stays     },
[BARRIER_FAILED] = {  comes_late,   stays,  stays,        stays,        stays     },
};
/* clang-format on */

/* --- by name -------------------------------------------------------------------------------------------- */

/* Also find used names: a rank that arrives late must get that error and not open the barrier again. */
static struct barrier *find_barrier(const struct barriers *b, struct slice name)
{
    struct table_node *node = table_find(&b->by_name, name, table_hash(name));
    return node ? TABLE_ENTRY(node, struct barrier, node) : NULL;
}

static struct barrier *make_barrier(struct barriers *b, const struct barrier_call *call)
{
    struct barrier *barrier = barrier_new(b->quota, call);
    if (barrier != NULL)
        table_put(&b->by_name, &barrier->node);
    return barrier;
}

/* Remove it from the table before freeing it; the one place for both. */
static void drop(struct barriers *b, struct barrier *barrier)
{
    table_remove(&b->by_name, &barrier->node);
    barrier_free(b->quota, barrier);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Its name stays known, but it is no longer open. */
static void close_barrier(struct barriers *b, struct barrier *barrier)
{
    list_remove(&barrier->open);
    b->open_count--;
}

/* Close it first, so that nothing that the answers cause finds it among the open ones. */
static void answer_all(struct barriers *b, struct barrier *barrier, enum barrier_outcome outcome)
{
    close_barrier(b, barrier);
    while (!list_is_empty(&barrier->seats)) {
        struct barrier_seat *seat = LIST_ENTRY(barrier->seats.next, struct barrier_seat, node);
        barrier_stand_up(seat);
        b->env.answer(b->env.user, seat, outcome, buf_slice(&barrier->report));
    }
}

/* Log the first line of the report's message for operators. */
static void log_end(struct barriers *b, struct barrier *barrier, const char *what)
{
    struct buf line = { 0 };
    if (buf_printf(&line, "barrier '") && text_put(&line, barrier_name(barrier), 200) &&
        buf_printf(&line, "' %s", what))
        b->env.log(b->env.user, (const char *)line.data);
    buf_free(&line);
}

/* If memory for the report is short the members still get their answer, without a text. */
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

/* From here on only the name counts. */
static enum barrier_state pass(struct barriers *b, struct barrier *barrier)
{
    if (b->env.ended != NULL)
        b->env.ended(b->env.user, barrier, BARRIER_RELEASED, "");
    answer_all(b, barrier, BARRIER_RELEASED);
    barrier_forget_roll(b->quota, barrier);
    return BARRIER_PASSED;
}

static void answer_misuse(struct barriers *b, struct barrier_seat *seat, struct slice name, const char *why)
{
    struct buf report = { 0 };
    b->env.report(b->env.user, NULL, name, BARRIER_MISUSE, why, &report);
    b->env.answer(b->env.user, seat, BARRIER_MISUSE, buf_slice(&report));
    buf_free(&report);
}

/* --- the cells ------------------------------------------------------------------------------------------ */

static enum barrier_state stays(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    (void)b, (void)event;
    return barrier->state;
}

/* Deadlines mostly grow, so the place is near the end. */
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

/* A dead rank does not count as arrived, even if its request arrived before it died. Its sentence becomes the
 * first line, because it is the cause. */
static enum barrier_state lose(struct barriers *b, struct barrier *barrier, uint32_t rank)
{
    char end[BARRIER_END_MAX], because[BARRIER_END_MAX + 32];
    b->env.end_of(b->env.user, rank, end, sizeof(end));
    snprintf(because, sizeof(because), "cannot complete: %s", end);
    barrier_strike_out(barrier, rank);
    if (b->env.lost != NULL)
        b->env.lost(b->env.user, barrier, rank);
    return fail_barrier(b, barrier, BARRIER_LOST, because);
}

static enum barrier_state comes_first(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier_take_members(barrier, event->call);
    open_barrier(b, barrier, event->call);
    barrier_sit_down(barrier, event->seat, event->call);
    if (b->env.opened != NULL)
        b->env.opened(b->env.user, barrier);
    for (uint32_t rank = 0; rank < barrier->world_size; rank++)
        if (barrier_needs(barrier, rank) && b->env.has_ended(b->env.user, rank))
            return lose(b, barrier, rank);
    return barrier_is_complete(barrier) ? pass(b, barrier) : BARRIER_OPEN;
}

static enum barrier_state comes(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    const struct barrier_call *call = event->call;
    const char *why = NULL;
    if (!barrier_has_same_members(barrier, call))
        why = "is misused: other ranks have joined it with other members";
    else if (barrier_has(barrier, call->rank))
        why = "is misused: this rank has already joined it on another connection";
    if (why != NULL) {
        answer_misuse(b, event->seat, call->name, why);
        return BARRIER_OPEN;
    }
    barrier_sit_down(barrier, event->seat, call);
    return barrier_is_complete(barrier) ? pass(b, barrier) : BARRIER_OPEN;
}

static enum barrier_state name_is_used(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    answer_misuse(b, event->seat, event->call->name,
                  "is misused: it has been passed before, and each name can be used only once");
    return barrier->state;
}

/* Report it once only: a rank that has the answer and asks again uses the name twice. */
static enum barrier_state comes_late(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    if (!barrier_needs(barrier, event->call->rank) || barrier_has(barrier, event->call->rank)) {
        answer_misuse(b, event->seat, event->call->name,
                      "is misused: it has failed before, and each name can be used only once");
    } else {
        barrier_tick_off(barrier, event->call->rank);
        b->env.answer(b->env.user, event->seat, barrier->outcome, buf_slice(&barrier->report));
    }
    return barrier->state;
}

static enum barrier_state leaves(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier_strike_out(barrier, event->seat->rank);
    barrier_stand_up(event->seat);
    if (!list_is_empty(&barrier->seats))
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
              text_put_ms(&because, event->now_ms - barrier->began_ms) && buf_append(&because, "", 1);
    enum barrier_state next =
        fail_barrier(b, barrier, BARRIER_TIMED_OUT, ok ? (const char *)because.data : "timed out");
    buf_free(&because);
    return next;
}

/* --- events --------------------------------------------------------------------------------------------- */

static void step(struct barriers *b, struct barrier *barrier, const struct event *event)
{
    barrier->state = machine[barrier->state][event->type](b, barrier, event);
    if (barrier->state == BARRIER_NEW)
        drop(b, barrier);
}

/* Return the error of a call in any state of the barrier, or NULL. */
static const char *find_misuse(const struct barrier_call *call)
{
    bool is_member = call->members.len == 0;
    if (call->timeout_ms < 0)
        return "is misused: the timeout is negative";
    if (call->members.len % 4 != 0)
        return "is misused: the list of members is cut off";
    if (call->rank >= call->world_size)
        return "is misused: a rank is outside the world";
    for (size_t i = 0; i < call->members.len / 4; i++) {
        if (barrier_member_at(call, i) >= call->world_size)
            return "is misused: a member is outside the world";
        is_member = is_member || barrier_member_at(call, i) == call->rank;
    }
    return is_member ? NULL : "is misused: this rank is not a member";
}

/* A barrier that is made here is NEW, so its first step is comes_first. */
bool barriers_arrive(struct barriers *b, struct barrier_seat *seat, const struct barrier_call *call)
{
    const char *why = find_misuse(call);
    if (why != NULL) {
        answer_misuse(b, seat, call->name, why);
        return true;
    }
    struct barrier *barrier = find_barrier(b, call->name);
    if (barrier == NULL && (barrier = make_barrier(b, call)) == NULL)
        return false;
    step(b, barrier,
         &(struct event){ .type = BARRIER_ARRIVES, .seat = seat, .call = call, .now_ms = call->now_ms });
    return true;
}

void barriers_leave(struct barriers *b, struct barrier_seat *seat)
{
    if (seat->barrier != NULL)
        step(b, seat->barrier, &(struct event){ .type = BARRIER_LEAVES, .seat = seat });
}

/* Failing one barrier removes only that one from the list of open ones. */
void barriers_member_ended(struct barriers *b, uint32_t rank, uint64_t now_ms)
{
    struct event event = { .type = BARRIER_MEMBER_ENDS, .rank = rank, .now_ms = now_ms };
    for (struct list *at = b->open.next, *next; at != &b->open; at = next) {
        next = at->next;
        step(b, LIST_ENTRY(at, struct barrier, open), &event);
    }
}

/* Only an open barrier can be cancelled: an unused name stays free. */
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

/* The list is in order of deadlines, and each step removes its first. */
void barriers_tick(struct barriers *b, uint64_t now_ms)
{
    while (barriers_deadline(b) <= now_ms)
        step(b, LIST_ENTRY(b->open.next, struct barrier, open),
             &(struct event){ .type = BARRIER_TIME_UP, .now_ms = now_ms });
}

/* --- all of them ---------------------------------------------------------------------------------------- */

bool barriers_init(struct barriers *b, struct quota *quota, const struct barrier_env *env)
{
    *b = (struct barriers){ .env = *env, .quota = quota };
    list_init(&b->open);
    return table_init(&b->by_name);
}

/* No answers are sent: the waiting sessions are workers of the old attempt, and the caller closes them. */
void barriers_clear(struct barriers *b)
{
    struct table_node *node = table_next(&b->by_name, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&b->by_name, node);
        struct barrier *barrier = TABLE_ENTRY(node, struct barrier, node);
        while (!list_is_empty(&barrier->seats))
            barrier_stand_up(LIST_ENTRY(barrier->seats.next, struct barrier_seat, node));
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
