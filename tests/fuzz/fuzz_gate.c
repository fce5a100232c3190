/* Four connections of other hosts to a store that has a secret. Steps are those of fuzz_session.c. Whatever the
 * strangers send, no key is stored, none becomes a node, and none gets more than the answers to PING, to the request
 * with which a launcher looks for the store, to AUTH, and the refusal of IDENTIFY. */
#include "auth/auth.h"
#include "hub/hub.h"

#include <assert.h>
#include <stdlib.h>

enum { STRANGERS = 4, LOCAL, ANSWERS_MAX = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hub *hub;
static bool is_open[LOCAL + 1];
static size_t sent[LOCAL + 1];
static uint8_t last[LOCAL + 1];
static uint64_t now_ms;

static void check_send(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)user, (void)holder;
    assert(is_open[conn] && bytes.len > 0);
    sent[conn] += bytes.len;
    last[conn] = ((const uint8_t *)bytes.data)[0];
    assert(sent[conn] <= ANSWERS_MAX);
}

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)user, (void)is_news;
    assert(is_open[conn] && why[0] != '\0');
    is_open[conn] = false;
}

static bool zeroes(void *user, void *bytes, size_t n)
{
    (void)user;
    memset(bytes, 0, n);
    return true;
}

/* Odd ones greet in dialect C, so that the input need not find the magic by itself. */
static void open_stranger(conn_id conn)
{
    static const uint8_t greeting[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };
    is_open[conn] = hub_connect(hub, conn, conn < 3 ? "a:1" : "b:1", now_ms);
    sent[conn] = 0;
    if (!is_open[conn])
        return;
    hub_set_foreign(hub, conn);
    if (conn % 2 && is_open[conn])
        hub_feed(hub, conn, slice_of(greeting, sizeof(greeting)), now_ms);
}

static void take_time(uint64_t ms)
{
    now_ms += ms;
    while (hub_deadline(hub) <= now_ms)
        hub_tick(hub, now_ms);
}

static void do_step(uint8_t what, struct slice bytes)
{
    const conn_id conn = (what & 3u) + 1;
    const unsigned action = what >> 2 & 7;
    if (!is_open[conn]) {
        open_stranger(conn);
    } else if (action == 7) {
        is_open[conn] = false;
        hub_disconnect(hub, conn, "closed by the peer", now_ms);
    } else if (action == 6) {
        take_time(bytes.len * 100);
    }
    if (is_open[conn])
        hub_feed(hub, conn, bytes, now_ms);
}

/* GETNUMKEYS of this host's user. */
static void expect_no_key(void)
{
    static const uint8_t ask[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07 };
    is_open[LOCAL] = hub_connect(hub, LOCAL, "127.0.0.1:1", now_ms);
    sent[LOCAL] = 0;
    hub_set_uid(hub, LOCAL, 1);
    hub_feed(hub, LOCAL, slice_of(ask, sizeof(ask)), now_ms);
    assert(sent[LOCAL] == 8 && last[LOCAL] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct secret secret = { { 1, 2, 3 } };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    const struct hub_sink sink = { .send = check_send, .close = note_close, .random = zeroes };
    limits.secret = &secret;
    limits.guarded = true;
    now_ms = 0;
    hub = hub_new(&limits, &sink);
    for (size_t at = 0; at + 2 <= size;) {
        size_t len = data[at + 1];
        len = len < size - at - 2 ? len : size - at - 2;
        do_step(data[at], slice_of(data + at + 2, len));
        at += 2 + len;
    }
    assert(hub_nodes(hub) == 0);
    expect_no_key();
    hub_free(hub);
    for (int i = 0; i <= LOCAL; i++)
        is_open[i] = false;
    return 0;
}
