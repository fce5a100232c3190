/* Attacks on AUTH and on the calls of agents, over real sockets: recorded bytes, the store's own bytes, an exchanged role,
 * one wrong bit in each message, and reports about ranks of another node. */
#include "auth/auth.h"
#include "ddp/context.h"
#include "store/encode.h"
#include "store/ops.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct secret secret = { .key = { 1, 2, 3 } };

static void serve_secret(void)
{
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.secret = &secret;
    options.limits.guarded = true;
    serve_with(&options);
}

TestSuite(auth_attacks, .init = serve_secret, .fini = serve_end, .timeout = 300);

/* --- a client that has the secret ------------------------------------------------------------------------------ */

struct client {
    int fd;
    struct auth auth;
    uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
    struct buf sent; /* all bytes after the greeting */
};

static void frame_of(struct buf *out, enum op_id op, struct slice bytes, struct auth *auth)
{
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cr_assert(append_u8(out, code) &&
              (auth != NULL ? auth_append_frame(auth, code, bytes, out) : append_blob(out, bytes)));
}

/* Send a request. Without `tagged` the request has no tag. */
static void send_frame(struct client *c, enum op_id op, struct slice bytes, bool tagged)
{
    const size_t before = c->sent.len;
    frame_of(&c->sent, op, bytes, tagged ? &c->auth : NULL);
    peer_send(c->fd, slice_of(c->sent.data + before, c->sent.len - before));
}

/* Read exactly `n` bytes. Return false if the store closes the connection before. */
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
static int64_t read_blob(int fd, uint8_t *bytes, size_t room)
{
    uint8_t head[8];
    if (!read_bytes(fd, head, sizeof(head)))
        return -1;
    cr_assert_leq(get_u64(head), room);
    return read_bytes(fd, bytes, get_u64(head)) ? (int64_t)get_u64(head) : -1;
}

static void expect_closed(struct client *c, const char *what)
{
    uint8_t byte;
    cr_expect_not(read_bytes(c->fd, &byte, 1), "%s: the store answers %d", what, byte);
}

static void greet(struct client *c, enum auth_role role)
{
    static uint8_t nonce[AUTH_NONCE_BYTES];
    *c = (struct client){ .fd = peer_connect_c(served_port()) };
    nonce[0]++;
    auth_hello(&c->auth, &secret, role, "demo", nonce, c->hello);
}

/* Read the store's answer, and make the proof. */
static void process_answer(struct client *c)
{
    char theirs[AUTH_PRINT_TEXT];
    cr_assert_eq(read_blob(c->fd, c->answer, sizeof(c->answer)), AUTH_ANSWER_BYTES);
    cr_assert_eq(auth_prove(&c->auth, &secret, slice_of(c->answer, sizeof(c->answer)), c->proof, theirs),
                 AUTH_OK);
}

static void authenticate(struct client *c, enum auth_role role)
{
    greet(c, role);
    send_frame(c, OP_AUTH, slice_of(c->hello, sizeof(c->hello)), false);
    process_answer(c);
    send_frame(c, OP_AUTH, slice_of(c->proof, sizeof(c->proof)), false);
}

static void identify(struct client *c, const char *role)
{
    char json[64];
    snprintf(json, sizeof(json), "{\"role\":\"%s\",\"job\":\"demo\"}", role);
    send_frame(c, OP_IDENTIFY, slice_str(json), true);
}

static void expect_welcome(struct client *c)
{
    uint8_t status, empty[AUTH_TAG_BYTES];
    cr_assert(read_bytes(c->fd, &status, 1) && status == 0);
    cr_assert_eq(read_blob(c->fd, empty, sizeof(empty)), AUTH_TAG_BYTES);
    struct slice frame = slice_of(empty, sizeof(empty));
    cr_assert(auth_open(&c->auth, 0, &frame));
}

/* Call the store, and return its answer without the pushes before it. */
static const char *call(struct client *c, const char *json)
{
    static uint8_t text[1 << 16];
    send_frame(c, OP_CONTROL, slice_str(json), true);
    for (;;) {
        const int64_t n = read_blob(c->fd, text, sizeof(text) - 1);
        cr_assert_geq(n, 0, "%s: closed", json);
        struct slice frame = slice_of(text, (size_t)n);
        cr_assert(auth_open(&c->auth, 0, &frame));
        text[frame.len] = '\0';
        if (strstr((char *)text, "\"push\"") == NULL)
            return (char *)text;
    }
}

static void join(struct client *c, int node_rank, int nodes)
{
    char json[256];
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"nproc\":2,\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"host\":\"n%d\",\"pid\":7,"
             "\"join_timeout_ms\":60000,\"node_timeout_ms\":60000}",
             nodes, nodes, node_rank, node_rank);
    const char *answer = call(c, json);
    cr_assert_not_null(strstr(answer, "\"ok\":true"), "%s", answer);
}

static void end_client(struct client *c)
{
    close(c->fd);
    buf_free(&c->sent);
}

/* Expect that `n` nodes are members of the job. */
static void expect_nodes(int n)
{
    struct client c;
    int found = 0;
    authenticate(&c, AUTH_OPERATOR);
    identify(&c, "ctl");
    expect_welcome(&c);
    const char *answer = call(&c, "{\"op\":\"status\"}");
    for (const char *at = answer; (at = strstr(at, "\"node_rank\":")) != NULL; at++)
        found++;
    cr_expect_eq(found, n, "%s", answer);
    end_client(&c);
}

/* --- attacks ---------------------------------------------------------------------------------------------------- */

/* All bytes of an agent's connection, sent again. The store answers the first message, because it is correct. */
Test(auth_attacks, a_recorded_agent_is_not_an_agent)
{
    struct client agent, replay;
    uint8_t answer[AUTH_ANSWER_BYTES];
    authenticate(&agent, AUTH_AGENT);
    identify(&agent, "agent");
    expect_welcome(&agent);
    join(&agent, 0, 1);
    replay = (struct client){ .fd = peer_connect_c(served_port()) };
    peer_send(replay.fd, buf_slice(&agent.sent));
    cr_assert_eq(read_blob(replay.fd, answer, sizeof(answer)), AUTH_ANSWER_BYTES);
    expect_closed(&replay, "replay");
    expect_nodes(1);
    cr_expect_not_null(strstr(call(&agent, "{\"op\":\"heartbeat\"}"), "\"ok\":true"));
    end_client(&replay);
    end_client(&agent);
}

/* The store's answer as the client's first message, and its proof as the client's proof. */
Test(auth_attacks, the_stores_own_messages_prove_nothing)
{
    struct client c;
    greet(&c, AUTH_AGENT);
    send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    process_answer(&c);
    send_frame(&c, OP_AUTH, slice_of(c.answer + AUTH_OFFER_BYTES, AUTH_PROOF_BYTES), false);
    expect_closed(&c, "the store's proof");
    end_client(&c);
    greet(&c, AUTH_AGENT);
    send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    process_answer(&c);
    send_frame(&c, OP_AUTH, slice_of(c.answer, sizeof(c.answer)), false);
    expect_closed(&c, "the store's answer");
    end_client(&c);
}

/* A frame of the store has a tag of the other direction. */
Test(auth_attacks, the_stores_own_frames_are_not_requests)
{
    struct client c;
    uint8_t frame[64];
    authenticate(&c, AUTH_AGENT);
    identify(&c, "agent");
    uint8_t status;
    cr_assert(read_bytes(c.fd, &status, 1));
    const int64_t n = read_blob(c.fd, frame, sizeof(frame));
    cr_assert_eq(n, AUTH_TAG_BYTES);
    send_frame(&c, OP_CONTROL, slice_of(frame, (size_t)n), false);
    expect_closed(&c, "the store's frame");
    end_client(&c);
}

Test(auth_attacks, an_operator_does_not_become_an_agent)
{
    struct client c;
    uint8_t status;
    authenticate(&c, AUTH_OPERATOR);
    identify(&c, "agent");
    cr_expect(read_bytes(c.fd, &status, 1) && status == 1);
    end_client(&c);
    greet(&c, AUTH_OPERATOR);
    c.hello[1] = AUTH_AGENT; /* on the way */
    send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    cr_assert_eq(read_blob(c.fd, c.answer, sizeof(c.answer)), AUTH_ANSWER_BYTES);
    char theirs[AUTH_PRINT_TEXT];
    cr_expect_eq(auth_prove(&c.auth, &secret, slice_of(c.answer, sizeof(c.answer)), c.proof, theirs),
                 AUTH_BAD_PROOF);
    end_client(&c);
    authenticate(&c, AUTH_OPERATOR);
    identify(&c, "ctl");
    expect_welcome(&c);
    cr_expect_not_null(strstr(call(&c, "{\"op\":\"join\",\"job\":\"demo\"}"), "for agents"));
    end_client(&c);
    expect_nodes(0);
}

enum { IN_HELLO, IN_PROOF, IN_IDENTIFY, IN_JOIN, MESSAGES };

/* Join as an agent, but one bit of one message is wrong. Return false if the message has no such byte. */
static bool join_with_wrong_bit(int message, size_t byte)
{
    static const char *const texts[] = { [IN_IDENTIFY] = "{\"role\":\"agent\",\"job\":\"demo\"}",
                                         [IN_JOIN] = "{\"op\":\"join\",\"job\":\"demo\"}" };
    static const enum op_id ops[] = { [IN_IDENTIFY] = OP_IDENTIFY, [IN_JOIN] = OP_CONTROL };
    struct client c;
    bool has_byte = true;
    const uint8_t bit = (uint8_t)(1 << byte % 8);
    greet(&c, AUTH_AGENT);
    if (message == IN_HELLO && (has_byte = byte < sizeof(c.hello)))
        c.hello[byte] ^= bit;
    send_frame(&c, OP_AUTH, slice_of(c.hello, sizeof(c.hello)), false);
    if (message == IN_HELLO) { /* the client must not accept the answer, and does not know the right proof */
        char theirs[AUTH_PRINT_TEXT];
        const int64_t n = read_blob(c.fd, c.answer, sizeof(c.answer));
        cr_expect(n < 0 ||
                      auth_prove(&c.auth, &secret, slice_of(c.answer, (size_t)n), c.proof, theirs) !=
                          AUTH_OK ||
                      !has_byte,
                  "byte %zu of the first message", byte);
        end_client(&c);
        return has_byte;
    }
    process_answer(&c);
    if (message == IN_PROOF && (has_byte = byte < sizeof(c.proof)))
        c.proof[byte] ^= bit;
    send_frame(&c, OP_AUTH, slice_of(c.proof, sizeof(c.proof)), false);
    for (int m = IN_IDENTIFY; m <= message; m++) {
        const size_t before = c.sent.len, at = before + 9 + byte;
        frame_of(&c.sent, ops[m], slice_str(texts[m]), &c.auth);
        if (m == message && (has_byte = at < c.sent.len))
            c.sent.data[at] ^= bit;
        peer_send(c.fd, slice_of(c.sent.data + before, c.sent.len - before));
        if (m < message)
            expect_welcome(&c);
    }
    if (has_byte)
        expect_closed(&c, message == IN_PROOF ? "proof" : message == IN_IDENTIFY ? "IDENTIFY" : "join");
    end_client(&c);
    return has_byte;
}

Test(auth_attacks, one_wrong_bit_in_any_message_ends_the_connection)
{
    for (int message = 0; message < MESSAGES; message++)
        for (size_t byte = 0; join_with_wrong_bit(message, byte); byte++)
            cr_assert_lt(byte, 1000);
    expect_nodes(0);
}

/* Node 1 of two nodes reports ranks of node 0. */
Test(auth_attacks, an_agent_reports_its_own_ranks_only)
{
    static const char *const reports[] = {
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":1,\"pid\":9}",
        "{\"op\":\"worker_exited\",\"round\":1,\"rank\":1,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"local_rank\":0,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"cause\",\"round\":1,\"rank\":1,\"local_rank\":0,\"pid\":9,\"exit_code\":1}"
    };
    struct client agents[2];
    for (int i = 0; i < 2; i++) {
        authenticate(&agents[i], AUTH_AGENT);
        identify(&agents[i], "agent");
        expect_welcome(&agents[i]);
        join(&agents[i], i, 2);
    }
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        const char *answer = call(&agents[1], reports[i]);
        cr_expect_not_null(strstr(answer, "\"ok\":false"), "%s: %s", reports[i], answer);
    }
    const char *own = call(&agents[1], "{\"op\":\"worker_started\",\"round\":1,\"rank\":2,\"pid\":9}");
    cr_expect_not_null(strstr(own, "\"ok\":true"), "%s", own);
    cr_expect_not_null(strstr(call(&agents[0], "{\"op\":\"status\"}"), "\"state\":\"running\""));
    for (int i = 0; i < 2; i++)
        end_client(&agents[i]);
}

/* --- a peer that connects again and again --------------------------------------------------------------------------- */

static struct {
    pthread_t thread;
    _Atomic bool ends;
    _Atomic int n; /* connections that the store has accepted */
} stranger;

/* Connect from 127.0.0.2, begin an authentication, and leave. Do so until `ends`. */
static void *reconnect(void *unused)
{
    const struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002) };
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)served_port()) };
    const struct linger at_once = { .l_onoff = 1 }; /* a reset, so that no port stays in TIME_WAIT */
    char hello[128];
    (void)unused;
    snprintf(hello, sizeof(hello), PEER_GREETING " 83 %02x%02x000000000000 0101", AUTH_HELLO_BYTES % 256,
             AUTH_HELLO_BYTES / 256);
    while (!stranger.ends) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        if (bind(fd, (const struct sockaddr *)&own, sizeof(own)) == 0 &&
            connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 && peer_send_hex(fd, hello))
            stranger.n++;
        close(fd);
    }
    return NULL;
}

/* Each of the agents authenticates, joins and leaves while the stranger connects again and again. */
Test(auth_attacks, a_peer_that_connects_again_and_again_keeps_no_agent_out)
{
    enum { AGENTS = 20, RECONNECTS = 50 };
    cr_assert_eq(pthread_create(&stranger.thread, NULL, reconnect, NULL), 0);
    for (int i = 0; i < AGENTS; i++) {
        struct client c;
        for (const int before = stranger.n; stranger.n < before + RECONNECTS;)
            usleep(1000);
        authenticate(&c, AUTH_AGENT);
        for (const int before = stranger.n; stranger.n < before + RECONNECTS;)
            usleep(1000);
        identify(&c, "agent");
        expect_welcome(&c);
        end_client(&c);
    }
    stranger.ends = true;
    pthread_join(stranger.thread, NULL);
}
