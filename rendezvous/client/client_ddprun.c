/* client_ddprun.c -- what only a ddprun store understands: named barriers and CONTROL.
 *
 * None of these is ever sent to a store that has not welcomed our IDENTIFY: a genuine TCPStore closes the
 * connection on an opcode that it does not know. */
#include "client/client.h"

#include "base/clock.h"
#include "base/not_null.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

enum { BARRIER_GRACE_MS = 2000 };

/* --- named barriers ------------------------------------------------------------------------------------- */

/* The outcomes of the protocol page, in its order. */
static const ddp_status outcome_status[] = {
    DDP_OK, DDP_ERR_TIMEOUT, DDP_ERR_PEER_LOST, DDP_ERR_ABORTED, DDP_ERR_MISMATCH,
};

enum { OUTCOMES = sizeof(outcome_status) / sizeof(*outcome_status) };

/* The JSON also has the missing ranks one by one, for programs that use CONTROL; here the "message" is what
 * counts: one or more lines for a person, written by the store, which knows all ranks. Turn the store's
 * verdict into the call's failure, in the store's own words. */
static void conclude(struct client_call *c, uint8_t outcome, const char *json)
{
    if (!client_ok(c) || outcome == 0)
        return;
    if (outcome >= OUTCOMES) {
        client_fail(c, DDP_ERR_CORRUPT, "outcome %u of a barrier is unknown", outcome);
        return;
    }
    cJSON *object = cJSON_Parse(json);
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "message"));
    const ddp_status status = outcome_status[outcome];
    if (message != NULL)
        client_fail(c, status, "%s", message); /* begins with the barrier's name */
    else
        client_fail(c, status, "barrier '%.120s': %s", c->subject, ddp_status_text(status));
    c->answered = true;
    cJSON_Delete(object);
}

/* Our own time is over and the store has said nothing. Leave, and find out whether it has said something
 * meanwhile:
 *
 *     it had not      01 nonce                            (the answers to CANCEL_WAIT and PING)
 *     it had          outcome, u64 length, json, 01 nonce
 *
 * An outcome may be 1 too, so the two are told apart by the four bytes behind it: as a length our nonce is
 * over a gigabyte, which no JSON has. */
static void leave_barrier(struct client_call *c)
{
    const uint32_t nonce = 0x51500000u;
    const unsigned long long waited_ms = clock_ms() - c->start_ms;
    uint8_t low[4], high[4], ones[5];
    client_resume(c);
    client_put_op(c, OP_CANCEL_WAIT);
    client_put_op(c, OP_PING);
    client_put_u32(c, nonce);
    c->op = OP_BARRIER_NAMED;
    client_send_more(c);
    uint8_t outcome = client_take_u8(c);
    client_take_bytes(c, low, sizeof(low));
    if (outcome == 1 && get_u32(low) == nonce) {
        client_fail(c, DDP_ERR_TIMEOUT, "waited %llu ms and left, the store has not ended the barrier",
                    waited_ms);
        return;
    }
    client_take_bytes(c, high, sizeof(high));
    char *json = client_take_text(c, get_u32(low) | ((uint64_t)get_u32(high) << 32), WIRE_MAX_JSON);
    client_take_bytes(c, ones, sizeof(ones));
    conclude(c, outcome, json);
    free(json);
}

/* The answer comes when the barrier ends, which is in time unless the first arrival allowed more time than we
 * do. */
static void await_outcome(struct client_call *c)
{
    size_t len;
    uint8_t outcome = client_take_u8(c);
    if (c->err.code == DDP_ERR_TIMEOUT) {
        leave_barrier(c);
        return;
    }
    char *json = client_take_blob(c, WIRE_MAX_JSON, &len);
    conclude(c, outcome, json);
    free(json);
}

/* The ranks as the wire has them: u32 each, little-endian. */
static void put_members(struct client_call *c, const uint32_t *members, size_t n)
{
    struct buf list = { 0 };
    for (size_t i = 0; i < n && n <= WIRE_MAX_RANKS; i++)
        if (!put_u32(&list, members[i]))
            client_fail(c, DDP_ERR_NOMEM, "out of memory for %zu members", n);
    if (n > WIRE_MAX_RANKS)
        client_fail(c, DDP_ERR_LIMIT, "%zu members, at most %u are allowed", n, WIRE_MAX_RANKS);
    client_put_blob(c, FIELD_MEMBERS, buf_slice(&list));
    buf_free(&list);
}

/* Called first, so that nothing is sent to a store that would hang up on it. */
static void need_ours(struct client_call *c)
{
    if (!c->store->ours)
        client_fail(c, DDP_ERR_UNSUPPORTED,
                    "only a ddprun store has this, and only for those who say who they are");
}

/* The store ends the barrier for everybody at the deadline of the first arrival. We wait a little longer than
 * our own, so that in the usual case it is the store who speaks, because it knows who is missing. */
ddp_status ddp_store_barrier(ddp_store *store, const char *name, const uint32_t *members, size_t n,
                             uint32_t timeout_ms, struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(name, err);
    struct client_call c;
    client_begin(&c, store, OP_BARRIER_NAMED, name, timeout_ms);
    const uint64_t wait_ms = c.deadline_ms - c.start_ms;
    c.deadline_ms += BARRIER_GRACE_MS;
    need_ours(&c);
    if (store->rank < 0)
        client_fail(&c, DDP_ERR_ARG, "only a rank can join; connect with `rank` in the options");
    client_put_blob(&c, FIELD_NAME, slice_str(name));
    client_put_i64(&c, (int64_t)wait_ms);
    put_members(&c, members, members != NULL ? n : 0);
    client_send(&c);
    if (client_ok(&c))
        await_outcome(&c);
    return client_end(&c, err);
}

/* --- CONTROL -------------------------------------------------------------------------------------------- */

/* The store may push objects to an agent at any time; they are marked, and are not the answer. */
static bool is_push(const char *json)
{
    cJSON *object = cJSON_Parse(json);
    bool push = cJSON_HasObjectItem(object, "push");
    cJSON_Delete(object);
    return push;
}

/* The answer is handed over as it came, its "ok" unread: what a refusal means is the caller's to say. */
ddp_status ddp_store_control(ddp_store *store, const char *request, uint32_t timeout_ms, char **reply,
                             struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(request, err);
    NOT_NULL(reply, err);
    struct client_call c;
    size_t len;
    client_begin(&c, store, OP_CONTROL, NULL, timeout_ms);
    need_ours(&c);
    client_put_blob(&c, FIELD_JSON, slice_str(request));
    client_send(&c);
    char *answer = client_take_blob(&c, WIRE_MAX_JSON, &len);
    while (answer != NULL && is_push(answer)) {
        free(answer);
        answer = client_take_blob(&c, WIRE_MAX_JSON, &len);
    }
    *reply = answer;
    return client_end(&c, err);
}
