/* Four connections talk to one hub with a small quota (hub_steps.h). The hub may send nothing to a closed connection,
 * and at the end everything must be freed (LeakSanitizer checks this). */
#include "store/encode.h"
#include "hub_steps.h"
#include "store/ops.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_send(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    (void)user;
    assert(is_open[conn] && bytes.len > 0);
}

static void note_log(void *user, const char *line)
{
    (void)user;
    assert(line[0] != '\0');
}

/* Open a connection. Connections with odd numbers greet in dialect C, and connection 1 is an agent. Otherwise the
 * fuzzer would have to find the magic number and the agent's requests by chance. */
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
        hub_receive(hub, conn, slice_of(hello, sizeof(hello)), now_ms);
    if (conn != 1)
        return;
    struct buf bytes = { 0 };
    if (append_u8(&bytes, (uint8_t)op_table[OP_IDENTIFY].code[DIALECT_C]) &&
        append_blob(&bytes, slice_str(agent)))
        hub_receive(hub, conn, buf_slice(&bytes), now_ms);
    buf_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    const struct hub_sink sink = { .send = check_send, .close = note_close, .log = note_log };
    limits.max_bytes = 100000;
    do_steps(&limits, &sink, data, size, open_conn);
    end_steps();
    return 0;
}
