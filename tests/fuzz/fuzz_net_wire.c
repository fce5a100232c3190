/* The same input is decoded as a hello, an answer, the head of a call, a reason, and a range of ports. No decoder may
 * read beyond the end of the input. Decoded texts must end with a NUL. A peer without the nonce must be rejected. */
#include "cpu/net_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool truth)
{
    if (!truth)
        abort();
}

static void hear_hello(const uint8_t bytes[NET_HELLO])
{
    struct net_hello mine = { .run = "ddp/job/0", .world = 4 }, heard;
    memset(mine.nonce, 0xa5, NET_NONCE);
    enum net_answer answer = net_decode_hello(bytes, &mine, &heard);
    must(strlen(heard.run) < NET_RUN && strlen(heard.host) < NET_HOST);
    must(answer != NET_WELCOME || memcmp(heard.nonce, mine.nonce, NET_NONCE) == 0);
}

static void hear_call(const uint8_t bytes[NET_HEAD])
{
    const struct call call = { .kind = CALL_BARRIER };
    struct ddp_err err = { .msg = "" };
    uint8_t mine[NET_HEAD];
    net_encode_head(mine, &call, 7, 0);
    must(net_compare_heads(mine, bytes, &err) == DDP_OK || err.msg[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t bytes[NET_HELLO + 1] = { 0 };
    struct net_ports ports;
    struct ddp_err err;

    memcpy(bytes, data, len < NET_HELLO ? len : NET_HELLO);
    hear_hello(bytes);
    hear_call(bytes);
    must(net_answer_text(net_decode_answer(bytes)) != NULL);
    call_decode_reason((const char *)bytes, &err);
    must(err.code != DDP_OK);
    if (net_ports_parse((const char *)bytes, &ports, &err) == DDP_OK)
        must(ports.low >= 0 && ports.low <= ports.high && ports.high <= 65535);
    return 0;
}
