/* barrier_roll.c -- see barrier_roll.h.
 *
 * Memory: one block for the barrier and its name, one for both bitmaps, so that the bitmaps of a barrier that
 * was passed can go while its name stays. At 100,000 ranks the bitmaps are 25 KB, the rest is under 200
 * bytes; a job that passes a barrier each second for a week would otherwise fill the store with them. */
#include "store/barrier_roll.h"

#include "store/encode.h"

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

/* Both may be asked of any barrier and rank: without its bitmaps nobody belongs to it. */
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

/* What a barrier takes of the limit of memory, the same when it is taken and given: the name is freed with the
 * struct. */
static uint64_t cost(struct slice name)
{
    return sizeof(struct barrier) + name.len;
}

void barrier_forget_roll(struct quota *quota, struct barrier *barrier)
{
    if (barrier->is_member != NULL)
        quota_give(quota, 2 * bitmap_bytes(barrier->world_size));
    free(barrier->is_member);
    barrier->is_member = barrier->has_arrived = NULL;
}

void barrier_free(struct quota *quota, struct barrier *barrier)
{
    barrier_forget_roll(quota, barrier);
    quota_give(quota, cost(barrier_name(barrier)) + barrier->report.cap);
    buf_free(&barrier->report);
    free(barrier);
}

/* Both blocks or none. */
static struct barrier *alloc(struct quota *quota, const struct barrier_call *call)
{
    size_t bitmap = bitmap_bytes(call->world_size);
    uint64_t bytes = cost(call->name) + 2 * bitmap;
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

struct barrier *barrier_new(struct quota *quota, const struct barrier_call *call)
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

/* --- who comes ------------------------------------------------------------------------------------------ */

/* Counts change only when the bit does, so that a rank may come twice (its connection broke, it came again). */
void barrier_tick_off(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived += !bit(barrier->has_arrived, rank);
    set_bit(barrier->has_arrived, rank);
}

void barrier_strike_out(struct barrier *barrier, uint32_t rank)
{
    barrier->arrived -= bit(barrier->has_arrived, rank);
    clear_bit(barrier->has_arrived, rank);
}

/* The seat is free before its owner hears of it: it may sit down elsewhere in the very next request. */
void barrier_stand_up(struct barrier_seat *seat)
{
    list_remove(&seat->node);
    seat->barrier = NULL;
}

void barrier_sit_down(struct barrier *barrier, struct barrier_seat *seat, const struct barrier_call *call)
{
    seat->barrier = barrier;
    seat->rank = call->rank;
    list_insert(&barrier->seats, &seat->node);
    barrier_tick_off(barrier, call->rank);
}

uint32_t barrier_member_at(const struct barrier_call *call, size_t i)
{
    return get_u32((const uint8_t *)call->members.data + 4 * i);
}

/* An empty list means the whole world. Naming a rank twice changes nothing. */
void barrier_take_members(struct barrier *barrier, const struct barrier_call *call)
{
    size_t n = call->members.len / 4, all = n == 0 ? call->world_size : n;
    for (size_t i = 0; i < all; i++) {
        uint32_t rank = n == 0 ? (uint32_t)i : barrier_member_at(call, i);
        barrier->members += !bit(barrier->is_member, rank);
        set_bit(barrier->is_member, rank);
    }
}

/* A list may name a rank twice. So that no second bitmap is needed, the members' own bits are cleared
 * while counting how many different ones the list has, and set again. */
bool barrier_has_same_members(const struct barrier *barrier, const struct barrier_call *call)
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
