/* net_wire.c -- see net_wire.h. Numbers in messages are little-endian. Values travel in the sender's byte order,
 * because swapping would take longer than sending; `native` in the hello detects a difference. */
#include "cpu/net_wire.h"

#include "base/endpoint.h"

#include <string.h>

static const uint8_t hello_magic[8] = { 'd', 'd', 'p', 'n', 'e', 't', '1', '\n' };
static const uint8_t answer_magic[4] = { 'd', 'd', 'p', 'a' };
static const uint8_t head_magic[4] = { 'd', 'd', 'p', 'c' };

static uint8_t *write_number(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *to++ = (uint8_t)(value >> 8 * i);
    return to;
}

static uint64_t get_number(const uint8_t **from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t) * (*from)++ << 8 * i;
    return value;
}

static int32_t read_i32(const uint8_t **from)
{
    return (int32_t)(uint32_t)get_number(from, 4);
}

/* --- hello ---------------------------------------------------------------------------------------------- */

static const uint64_t native = 0x0102030405060708;

static uint8_t *write_bytes(uint8_t *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

void net_encode_hello(uint8_t bytes[NET_HELLO], const struct net_hello *hello)
{
    uint8_t *to = bytes;

    memset(bytes, 0, NET_HELLO);
    to = write_bytes(to, hello_magic, sizeof(hello_magic));
    to = write_bytes(to, &native, sizeof(native));
    to = write_bytes(to, hello->nonce, NET_NONCE);
    to = write_bytes(to, hello->run, NET_RUN);
    to = write_bytes(to, hello->host, NET_HOST);
    to = write_number(to, (uint32_t)hello->pid, 4);
    to = write_number(to, (uint32_t)hello->from, 4);
    to = write_number(to, (uint32_t)hello->to, 4);
    to = write_number(to, (uint32_t)hello->lane, 4);
    write_number(to, (uint32_t)hello->world, 4);
}

/* Return true if the n bytes may be the beginning of a hello. net_connect.c checks each received part, and closes the
 * connection of an unknown program at the first wrong byte. */
bool net_is_hello_prefix(const uint8_t *bytes, size_t n)
{
    return memcmp(bytes, hello_magic, n < sizeof(hello_magic) ? n : sizeof(hello_magic)) == 0;
}

/* Copy a text of n bytes. Set the last byte of the copy to NUL, because the peer's text may have no NUL. */
static const uint8_t *decode_text(const uint8_t *from, char *to, size_t n)
{
    memcpy(to, from, n);
    to[n - 1] = '\0';
    return from + n;
}

enum net_answer net_decode_hello(const uint8_t bytes[NET_HELLO], const struct net_hello *mine,
                                 struct net_hello *out)
{
    const uint8_t *from = bytes + sizeof(hello_magic) + sizeof(native);

    *out = (struct net_hello){ .from = -1 };
    if (!net_is_hello_prefix(bytes, NET_HELLO) ||
        memcmp(bytes + sizeof(hello_magic), &native, sizeof(native)) != 0)
        return NET_FOREIGN;
    memcpy(out->nonce, from, NET_NONCE);
    from = decode_text(from + NET_NONCE, out->run, NET_RUN);
    from = decode_text(from, out->host, NET_HOST);
    out->pid = read_i32(&from);
    out->from = read_i32(&from);
    out->to = read_i32(&from);
    out->lane = read_i32(&from);
    out->world = read_i32(&from);
    if (memcmp(out->nonce, mine->nonce, NET_NONCE) != 0 || strcmp(out->run, mine->run) != 0)
        return NET_OTHER_RUN;
    return out->to == mine->to && out->world == mine->world ? NET_WELCOME : NET_OTHER_RANK;
}

void net_encode_answer(uint8_t bytes[NET_ANSWER], enum net_answer answer)
{
    write_number(write_bytes(bytes, answer_magic, sizeof(answer_magic)), answer, 4);
}

enum net_answer net_decode_answer(const uint8_t bytes[NET_ANSWER])
{
    const uint8_t *from = bytes + sizeof(answer_magic);
    uint64_t number = get_number(&from, 4);
    return memcmp(bytes, answer_magic, sizeof(answer_magic)) == 0 && number < NET_ANSWERS
               ? (enum net_answer)number
               : NET_ANSWERS;
}

const char *net_answer_text(enum net_answer answer)
{
    static const char *const words[] = {
#define X(name, text) text,
        NET_ANSWER_LIST(X)
#undef X
    };
    return answer < NET_ANSWERS ? words[answer] : "the peer is not a rank of this job";
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Encode the rank, the number of the call, and the fields that must be equal on all ranks. */
void net_encode_head(uint8_t bytes[NET_HEAD], const struct call *call, uint64_t seq, int rank)
{
    uint8_t *to = write_bytes(bytes, head_magic, sizeof(head_magic));
    to = write_number(to, (uint32_t)rank, 4);
    to = write_number(to, seq, 8);
    to = write_number(to, call->n, 8);
    to = write_number(to, call->kind, 4);
    to = write_number(to, call->dtype, 4);
    to = write_number(to, call->op, 4);
    write_number(to, (uint32_t)call->root, 4);
}

static bool net_decode_head(const uint8_t bytes[NET_HEAD], struct call *call, uint64_t *seq, int *rank)
{
    const uint8_t *from = bytes + sizeof(head_magic);

    *rank = read_i32(&from);
    *seq = get_number(&from, 8);
    *call = (struct call){ .n = get_number(&from, 8) };
    call->kind = (enum call_kind)get_number(&from, 4);
    call->dtype = (ddp_dtype)get_number(&from, 4);
    call->op = (ddp_op)get_number(&from, 4);
    call->root = read_i32(&from);
    return memcmp(bytes, head_magic, sizeof(head_magic)) == 0;
}

/* Compare two heads. If the heads differ, the error names the lower rank first, so that both ranks print the same
 * text. */
ddp_status net_compare_heads(const uint8_t mine[NET_HEAD], const uint8_t theirs[NET_HEAD],
                             struct ddp_err *err)
{
    enum { CALL_AT = 8 }; /* offset of the first compared field, after magic and rank */
    struct call calls[2];
    uint64_t seq[2];
    int rank[2];
    char first[CALL_TEXT], other[CALL_TEXT];

    if (memcmp(mine + CALL_AT, theirs + CALL_AT, NET_HEAD - CALL_AT) == 0)
        return DDP_OK;
    net_decode_head(mine, &calls[0], &seq[0], &rank[0]);
    if (!net_decode_head(theirs, &calls[1], &seq[1], &rank[1]))
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "ranks disagree: rank %d called %s, but another host sent no valid call; check that "
                        "all ranks run the same version of libddp",
                        rank[0], call_text(first, &calls[0], seq[0]));
    int low = rank[1] < rank[0], high = !low;
    return ddp_fail(err, DDP_ERR_MISMATCH,
                    "ranks disagree: rank %d called %s, rank %d called %s; call the same collectives in the "
                    "same order and with the same arguments on all ranks",
                    rank[low], call_text(first, &calls[low], seq[low]), rank[high],
                    call_text(other, &calls[high], seq[high]));
}

/* --- DDP_PORT_RANGE --------------------------------------------------------------------------------------- */

/* Local ranks begin at different ports, so that they rarely try the same port. */

ddp_status net_ports_parse(const char *text, struct net_ports *out, struct ddp_err *err)
{
    const char *at = text;

    *out = (struct net_ports){ 0, 0 };
    if (*text == '\0')
        return DDP_OK;
    out->low = out->high = port_parse(&at);
    if (*at == '-') {
        at++;
        out->high = port_parse(&at);
    }
    if (*at != '\0' || out->low < 1 || out->high < out->low)
        return ddp_fail(err, DDP_ERR_ENV, "DDP_PORT_RANGE=%.40s: expected LOW-HIGH, ports from 1 to 65535",
                        text);
    return DDP_OK;
}

int net_ports_try(const struct net_ports *ports, int rank, int turn)
{
    int count = ports->high - ports->low + 1;
    if (ports->low == 0)
        return turn == 0 ? 0 : -1;
    return turn < count ? ports->low + (rank + turn) % count : -1;
}
