/* auth_peer.c -- see auth_peer.h. The frames are made here and not by the client of libddp, so that a test can send
 * wrong ones. */
#include "auth_peer.h"

#include "ddp/context.h"
#include "store/encode.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct auth_peer auth_peer;

static void frame_of(struct buf *out, enum op_id op, struct slice bytes, struct auth *auth)
{
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cr_assert(append_u8(out, code) &&
              (auth != NULL ? auth_append_frame(auth, code, bytes, out) : append_blob(out, bytes)));
}

/* Send a request. If `tagged` is true, append the tag that authenticates the request. */
void peer_send_frame(struct client *c, enum op_id op, struct slice bytes, bool tagged)
{
    const size_t before = c->sent.len;
    frame_of(&c->sent, op, bytes, tagged ? &c->auth : NULL);
    peer_send(c->fd, slice_of(c->sent.data + before, c->sent.len - before));
}

/* Read exactly `n` bytes. Return false if the store closes the connection too early. */
static bool read_bytes(int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        cr_assert_gt(poll(&ready, 1, PEER_DEADLINE_MS), 0, "the store neither answers nor closes");
        const ssize_t got = recv(fd, (uint8_t *)bytes + at, n - at, 0);
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

/* Read a blob. Return its length, or -1 if the store closes the connection. */
int64_t peer_read_blob(int fd, uint8_t *bytes, size_t room)
{
    uint8_t head[8];
    if (!read_bytes(fd, head, sizeof(head)))
        return -1;
    cr_assert_leq(get_u64(head), room);
    return read_bytes(fd, bytes, get_u64(head)) ? (int64_t)get_u64(head) : -1;
}

void peer_expect_closed(struct client *c, const char *what)
{
    uint8_t byte;
    cr_expect_not(read_bytes(c->fd, &byte, 1), "%s: the store answers %d", what, byte);
}

void peer_greet(struct client *c, enum auth_role role)
{
    static uint8_t nonce[AUTH_NONCE_BYTES];
    *c = (struct client){ .fd = auth_peer.connect() };
    nonce[0]++;
    auth_hello(&c->auth, auth_peer.secret, role, "demo", nonce, c->hello);
}

/* Read the store's answer, and compute the client's proof. */
static void process_answer(struct client *c)
{
    char theirs[AUTH_PRINT_TEXT];
    cr_assert_eq(peer_read_blob(c->fd, c->answer, sizeof(c->answer)), AUTH_ANSWER_BYTES);
    cr_assert_eq(
        auth_prove(&c->auth, auth_peer.secret, slice_of(c->answer, sizeof(c->answer)), c->proof, theirs),
        AUTH_OK);
}

void peer_authenticate(struct client *c, enum auth_role role)
{
    peer_greet(c, role);
    peer_send_frame(c, OP_AUTH, slice_of(c->hello, sizeof(c->hello)), false);
    process_answer(c);
    peer_send_frame(c, OP_AUTH, slice_of(c->proof, sizeof(c->proof)), false);
}

void peer_identify(struct client *c, const char *role)
{
    char json[64];
    snprintf(json, sizeof(json), "{\"role\":\"%s\",\"job\":\"demo\"}", role);
    peer_send_frame(c, OP_IDENTIFY, slice_str(json), true);
}

void peer_expect_welcome(struct client *c)
{
    uint8_t status, empty[AUTH_TAG_BYTES];
    cr_assert(read_bytes(c->fd, &status, 1) && status == 0);
    cr_assert_eq(peer_read_blob(c->fd, empty, sizeof(empty)), AUTH_TAG_BYTES);
    struct slice frame = slice_of(empty, sizeof(empty));
    cr_assert(auth_open(&c->auth, 0, &frame));
}

/* Send a request to the store, and return the answer. Skip the push messages that arrive before the answer. */
const char *peer_call(struct client *c, const char *json)
{
    static uint8_t text[1 << 16];
    peer_send_frame(c, OP_CONTROL, slice_str(json), true);
    for (;;) {
        const int64_t n = peer_read_blob(c->fd, text, sizeof(text) - 1);
        cr_assert_geq(n, 0, "%s: closed", json);
        struct slice frame = slice_of(text, (size_t)n);
        cr_assert(auth_open(&c->auth, 0, &frame));
        text[frame.len] = '\0';
        if (strstr((char *)text, "\"push\"") == NULL)
            return (char *)text;
    }
}

/* Send `join`, and return the store's answer. */
static const char *call_join(struct client *c, int node_rank, int nodes)
{
    char json[256];
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"nproc\":2,\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"host\":\"n%d\",\"pid\":7,"
             "\"join_timeout_ms\":60000,\"node_timeout_ms\":60000}",
             nodes, nodes, node_rank, node_rank);
    return peer_call(c, json);
}

void peer_join(struct client *c, int node_rank, int nodes)
{
    const char *answer = call_join(c, node_rank, nodes);
    cr_assert_not_null(strstr(answer, "\"ok\":true"), "%s", answer);
}

void peer_end(struct client *c)
{
    close(c->fd);
    buf_free(&c->sent);
}

/* Expect that `n` nodes are members of the job. */
void peer_expect_nodes(int n)
{
    struct client c;
    int found = 0;
    peer_authenticate(&c, AUTH_OPERATOR);
    peer_identify(&c, "ctl");
    peer_expect_welcome(&c);
    const char *answer = peer_call(&c, "{\"op\":\"status\"}");
    for (const char *at = answer; (at = strstr(at, "\"node_rank\":")) != NULL; at++)
        found++;
    cr_expect_eq(found, n, "%s", answer);
    peer_end(&c);
}

/* --- attacks ---------------------------------------------------------------------------------------------------- */

void attack_with_stores_messages(void)
{
    struct client c;
    peer_greet(&c, AUTH_AGENT);
    peer_send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    process_answer(&c);
    peer_send_frame(&c, OP_AUTH, slice_of(c.answer + AUTH_OFFER_BYTES, AUTH_PROOF_BYTES), false);
    peer_expect_closed(&c, "the store's proof");
    peer_end(&c);
    peer_greet(&c, AUTH_AGENT);
    peer_send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    process_answer(&c);
    peer_send_frame(&c, OP_AUTH, slice_of(c.answer, sizeof(c.answer)), false);
    peer_expect_closed(&c, "the store's answer");
    peer_end(&c);
}

void attack_with_stores_frames(void)
{
    struct client c;
    uint8_t frame[64];
    peer_authenticate(&c, AUTH_AGENT);
    peer_identify(&c, "agent");
    uint8_t status;
    cr_assert(read_bytes(c.fd, &status, 1));
    const int64_t n = peer_read_blob(c.fd, frame, sizeof(frame));
    cr_assert_eq(n, AUTH_TAG_BYTES);
    peer_send_frame(&c, OP_CONTROL, slice_of(frame, (size_t)n), false);
    peer_expect_closed(&c, "the store's frame");
    peer_end(&c);
}

void attack_as_operator(void)
{
    struct client c;
    uint8_t status;
    peer_authenticate(&c, AUTH_OPERATOR);
    peer_identify(&c, "agent");
    cr_expect(read_bytes(c.fd, &status, 1) && status == 1);
    peer_end(&c);
    peer_greet(&c, AUTH_OPERATOR);
    c.hello[1] = AUTH_AGENT; /* an attacker changes the role on the way to the store */
    peer_send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    cr_assert_eq(peer_read_blob(c.fd, c.answer, sizeof(c.answer)), AUTH_ANSWER_BYTES);
    char theirs[AUTH_PRINT_TEXT];
    cr_expect_eq(auth_prove(&c.auth, auth_peer.secret, slice_of(c.answer, sizeof(c.answer)), c.proof, theirs),
                 AUTH_BAD_PROOF);
    peer_end(&c);
    peer_authenticate(&c, AUTH_OPERATOR);
    peer_identify(&c, "ctl");
    peer_expect_welcome(&c);
    cr_expect_not_null(strstr(peer_call(&c, "{\"op\":\"join\",\"job\":\"demo\"}"), "for agents"));
    peer_end(&c);
}

void attack_with_reports(int taken)
{
    static const char *const reports[] = {
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":0,\"pid\":9}",
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":2,\"pid\":9}",
        "{\"op\":\"worker_exited\",\"round\":1,\"rank\":0,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":2,\"local_rank\":0,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"cause\",\"round\":1,\"rank\":0,\"local_rank\":0,\"pid\":9,\"exit_code\":1}"
    };
    struct client c;
    peer_authenticate(&c, AUTH_AGENT);
    peer_identify(&c, "agent");
    peer_expect_welcome(&c);
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        const char *answer = peer_call(&c, reports[i]);
        cr_expect_not_null(strstr(answer, "\"ok\":false"), "%s: %s", reports[i], answer);
    }
    /* an agent may send `leave` at any time; this agent is not a member of the job, so nothing happens */
    peer_call(&c, "{\"op\":\"leave\",\"round\":1,\"signal\":15}");
    const char *answer = call_join(&c, taken, 2);
    cr_expect_not_null(strstr(answer, "\"ok\":false"), "%s", answer);
    peer_end(&c);
}

enum { IN_HELLO, IN_PROOF, IN_IDENTIFY, IN_JOIN, MESSAGES };

/* Join as an agent, but invert one bit in byte `byte` of the message. Return false if the message is too short. */
static bool join_with_wrong_bit(int message, size_t byte)
{
    static const char *const texts[] = { [IN_IDENTIFY] = "{\"role\":\"agent\",\"job\":\"demo\"}",
                                         [IN_JOIN] = "{\"op\":\"join\",\"job\":\"demo\"}" };
    static const enum op_id ops[] = { [IN_IDENTIFY] = OP_IDENTIFY, [IN_JOIN] = OP_CONTROL };
    struct client c;
    bool has_byte = true;
    const uint8_t bit = (uint8_t)(1 << byte % 8);
    peer_greet(&c, AUTH_AGENT);
    if (message == IN_HELLO && (has_byte = byte < sizeof(c.hello)))
        c.hello[byte] ^= bit;
    peer_send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    if (message == IN_HELLO) { /* the client must reject the answer, and sends no proof */
        char theirs[AUTH_PRINT_TEXT];
        const int64_t n = peer_read_blob(c.fd, c.answer, sizeof(c.answer));
        cr_expect(n < 0 ||
                      auth_prove(&c.auth, auth_peer.secret, slice_of(c.answer, (size_t)n), c.proof, theirs) !=
                          AUTH_OK ||
                      !has_byte,
                  "byte %zu of the first message", byte);
        peer_end(&c);
        return has_byte;
    }
    process_answer(&c);
    if (message == IN_PROOF && (has_byte = byte < sizeof(c.proof)))
        c.proof[byte] ^= bit;
    peer_send_frame(&c, OP_AUTH, slice_of(c.proof, sizeof(c.proof)), false);
    for (int m = IN_IDENTIFY; m <= message; m++) {
        const size_t before = c.sent.len, at = before + 9 + byte;
        frame_of(&c.sent, ops[m], slice_str(texts[m]), &c.auth);
        if (m == message && (has_byte = at < c.sent.len))
            c.sent.data[at] ^= bit;
        peer_send(c.fd, slice_of(c.sent.data + before, c.sent.len - before));
        if (m < message)
            peer_expect_welcome(&c);
    }
    if (has_byte)
        peer_expect_closed(&c, message == IN_PROOF ? "proof" : message == IN_IDENTIFY ? "IDENTIFY" : "join");
    peer_end(&c);
    return has_byte;
}

void attack_with_wrong_bits(void)
{
    for (int message = 0; message < MESSAGES; message++)
        for (size_t byte = 0; join_with_wrong_bit(message, byte); byte++)
            cr_assert_lt(byte, 1000);
}
