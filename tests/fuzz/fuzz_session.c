/* Four connections to one hub with a small quota. The input is a list of steps: a byte that selects an action and a
 * connection, a length, and that many bytes to feed. Nothing may be sent to a closed connection, and at the end
 * everything must be freed (LeakSanitizer checks). */
#include "store/encode.h"
#include "hub/hub.h"
#include "store/ops.h"

#include <assert.h>
#include <stdlib.h>

enum { CONNS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hub *hub;
static bool is_open[CONNS + 1];
static uint64_t now_ms;

static void check_send(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    (void)user;
    assert(is_open[conn] && bytes.len > 0);
}

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)user, (void)is_news;
    assert(is_open[conn] && why[0] != '\0');
    is_open[conn] = false;
}

static void note_log(void *user, const char *line)
{
    (void)user;
    assert(line[0] != '\0');
}

/* Odd ones greet in dialect C, 1 is an agent, so that the input need not find the magic by itself. */
static void open_conn(conn_id conn)
{
    static const uint8_t hello[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };
    static const char agent[] = "{\"role\":\"agent\",\"job\":\"j\"}";
    is_open[conn] = true;
    if (!hub_connect(hub, conn, "fuzz", now_ms)) {
        is_open[conn] = false;
        return;
    }
    if (conn % 2)
        hub_feed(hub, conn, slice_of(hello, sizeof(hello)), now_ms);
    if (conn != 1)
        return;
    struct buf bytes = { 0 };
    if (put_u8(&bytes, (uint8_t)op_table[OP_IDENTIFY].code[DIALECT_C]) && put_blob(&bytes, slice_str(agent)))
        hub_feed(hub, conn, buf_slice(&bytes), now_ms);
    buf_free(&bytes);
}

static void take_time(uint64_t ms)
{
    now_ms += ms;
    while (hub_deadline(hub) <= now_ms)
        hub_tick(hub, now_ms);
}

/* The lowest two bits choose the connection, the next three what happens to it. */
static void do_step(uint8_t what, struct slice bytes)
{
    conn_id conn = (what & 3u) + 1;
    unsigned action = what >> 2 & 7;
    if (!is_open[conn]) {
        open_conn(conn);
    } else if (action == 7) {
        is_open[conn] = false;
        hub_disconnect(hub, conn, "closed by the peer", now_ms);
    } else if (action == 6) {
        take_time(bytes.len * 100);
    }
    if (is_open[conn])
        hub_feed(hub, conn, bytes, now_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    const struct hub_sink sink = { .send = check_send, .close = note_close, .log = note_log };
    limits.max_bytes = 100000;
    now_ms = 0;
    hub = hub_new(&limits, &sink);
    for (size_t at = 0; at + 2 <= size;) {
        size_t len = data[at + 1];
        len = len < size - at - 2 ? len : size - at - 2;
        do_step(data[at], slice_of(data + at + 2, len));
        at += 2 + len;
    }
    hub_free(hub);
    for (int i = 0; i <= CONNS; i++)
        is_open[i] = false;
    return 0;
}
