/* This program sends the fuzzer's input on four connections of strangers to a store that has a secret. A stranger is a
 * client on another host that has not proven that it knows the secret. After all steps (hub_steps.h) no key is stored,
 * and no stranger is a node. A stranger gets answers only to three requests: PING, AUTH (with the credential), and the
 * request with which a launcher checks for a store. The IDENTIFY of a stranger is rejected. */
#include "auth/auth.h"
#include "hub_steps.h"

#include <stdlib.h>

enum { ANSWERS_MAX = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t sent[STEPS_LOCAL + 1];
static uint8_t last[STEPS_LOCAL + 1];

static void check_send(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)user, (void)holder;
    assert(is_open[conn] && bytes.len > 0);
    sent[conn] += bytes.len;
    last[conn] = ((const uint8_t *)bytes.data)[0];
    assert(sent[conn] <= ANSWERS_MAX);
}

static bool zeroes(void *user, void *bytes, size_t n)
{
    (void)user;
    memset(bytes, 0, n);
    return true;
}

/* Open a connection. A connection with an odd number sends the greeting of dialect C at once, because random input
 * rarely contains the magic number. */
static void open_stranger(conn_id conn)
{
    static const uint8_t greeting[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };
    is_open[conn] = hub_connect(hub, conn, conn < 3 ? "a:1" : "b:1", now_ms);
    sent[conn] = 0;
    if (!is_open[conn])
        return;
    hub_set_foreign(hub, conn);
    if (conn % 2 && is_open[conn])
        hub_receive(hub, conn, slice_of(greeting, sizeof(greeting)), now_ms);
}

/* Expect that the store has no key. Count the keys (GETNUMKEYS) as a user of the store's host, because a stranger may
 * not count them. */
static void expect_no_key(void)
{
    static const uint8_t ask[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07 };
    is_open[STEPS_LOCAL] = hub_connect(hub, STEPS_LOCAL, "127.0.0.1:1", now_ms);
    sent[STEPS_LOCAL] = 0;
    hub_set_uid(hub, STEPS_LOCAL, 1);
    hub_receive(hub, STEPS_LOCAL, slice_of(ask, sizeof(ask)), now_ms);
    assert(sent[STEPS_LOCAL] == 8 && last[STEPS_LOCAL] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct secret secret = { .key = { 1, 2, 3 } };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    const struct hub_sink sink = { .send = check_send, .close = note_close, .random = zeroes };
    limits.secret = &secret;
    limits.credential = "MUNGE:";
    limits.guarded = true;
    do_steps(&limits, &sink, data, size, open_stranger);
    assert(hub_nodes(hub) == 0);
    expect_no_key();
    end_steps();
    return 0;
}
