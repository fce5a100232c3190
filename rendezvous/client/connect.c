/* connect.c -- connects to a store. The opcodes of a store depend on its version of torch, and a store does not
 * announce its version. So the client tries four greetings, each on a new connection, until the store answers one
 * greeting. */
#include "base/clock.h"
#include "base/connector.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/call.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ANSWER_MS = 2000,         /* time to answer a greeting, if the store may be PyTorch's */
    ANSWER_DDPRUN_MS = 10000, /* time to answer a greeting, if the store is known to be ddprun's */
    TLS_ALERT = 21,           /* first byte of an alert of TLS (RFC 8446, 5.1) */
    TLS_MAJOR = 3,            /* second byte of an alert of TLS */
};

/* --- connections ---------------------------------------------------------------------------------------- */

/* Return the reason why no connection was possible, with the likely cause. A semicolon separates the reason from a
 * remedy. ddpctl adds its own remedy to a reason without a semicolon. */
static const char *dial_error_text(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "the connection is refused: no process listens there";
    case ETIMEDOUT:
        return "no answer from that address: the host may be down, or a firewall drops packets";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to that address; check the network and the address";
    default:
        return strerror(error);
    }
}

/* Find the addresses of `host` before the deadline. Resolve a name on a separate thread, because the C library may
 * block longer. A numeric address needs no thread. */
static ddp_status client_resolve(const char *host, uint64_t deadline_ms, struct name_found *found,
                                 struct ddp_err *err)
{
    struct name_lookup *lookup;
    if (name_is_literal(host, found))
        return DDP_OK;
    char why[FORK_ERROR_MAX], remedy[FILES_REMEDY_MAX];
    const int rc = name_lookup_begin(host, &lookup);
    if (rc != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot start a thread to resolve the name '%s': %s%s", host,
                        fork_error_text(rc, why), files_remedy(rc == ENOMEM ? 0 : rc, remedy));
    struct pollfd answer = { name_lookup_fd(lookup), POLLIN, 0 };
    do
        poll(&answer, 1, client_remaining_ms(deadline_ms));
    while (answer.revents == 0 && clock_ms() < deadline_ms);
    const bool finished = name_lookup_result(lookup, found);
    name_lookup_end(lookup);
    if (!finished)
        return ddp_fail(
            err, DDP_ERR_TIMEOUT,
            "cannot resolve the name '%s': the name server does not answer; check the network, or "
            "use an IP address",
            host);
    if (found->error != 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "cannot resolve the name '%s': %s; check the name", host,
                        gai_strerror(found->error));
    return DDP_OK;
}

/* Connection attempts that run at the same time, each to a different address (base/race.h). */
struct client_race {
    struct race race;
    struct pollfd runners[RACE_ADDRESSES_MAX]; /* owned sockets; fd is -1 if no attempt is in progress */
    int error; /* errno of the latest failed attempt. But after ECONNREFUSED, `error` is not changed any more,
                * because ECONNREFUSED explains more than other errors */
};

/* End an attempt that has failed with `error`. */
static void runner_fail(struct client_race *r, int i, int error)
{
    if (r->runners[i].fd >= 0)
        close(r->runners[i].fd);
    r->runners[i].fd = -1;
    race_failed(&r->race, i);
    if (r->error != ECONNREFUSED)
        r->error = error;
}

/* Start an attempt to connect. Return true even if the attempt fails at once, because another address may work. Return
 * false if no address can work, because descriptors or memory have run out. */
static bool runner_start(struct client_race *r, int i, int port)
{
    const int fd = connector_begin(r->race.runners[i].address, port, 0);
    r->runners[i].fd = fd;
    if (fd < 0)
        runner_fail(r, i, -fd);
    return fd >= 0 || (fd != -EMFILE && fd != -ENFILE && fd != -ENOBUFS && fd != -ENOMEM);
}

/* Return the index of an attempt that has connected, or -1 if no attempt has connected yet. End failed attempts. */
static int find_winner(struct client_race *r)
{
    for (int i = 0; i < r->race.n; i++) {
        if (r->runners[i].fd < 0 || r->runners[i].revents == 0)
            continue;
        const int error = connector_error(r->runners[i].fd);
        if (error == 0)
            return i;
        runner_fail(r, i, error);
    }
    return -1;
}

/* Wait until an attempt has connected, all attempts have failed, or the deadline passes. *winner is the index of the
 * attempt that has connected. */
static ddp_status race_run(struct client_race *r, int port, uint64_t deadline_ms, int *winner,
                           struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX];
    for (;;) {
        const struct race_step step = race_next(&r->race, clock_ms());
        switch (step.what) {
        case RACE_START:
            if (!runner_start(r, step.runner, port))
                return ddp_fail(err, DDP_ERR_IO, "cannot open a socket: %s%s", strerror(r->error),
                                files_remedy(r->error, remedy));
            continue;
        case RACE_LATE:
            runner_fail(r, step.runner, ETIMEDOUT);
            continue;
        case RACE_LOST:
            return ddp_fail(err, DDP_ERR_CLOSED, "%s", dial_error_text(r->error));
        case RACE_WAIT:
            break;
        }
        const uint64_t until_ms = step.at_ms < deadline_ms ? step.at_ms : deadline_ms;
        poll(r->runners, (nfds_t)r->race.n, client_remaining_ms(until_ms));
        *winner = find_winner(r);
        if (*winner >= 0)
            return DDP_OK;
        if (clock_ms() >= deadline_ms)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "%s", dial_error_text(ETIMEDOUT));
    }
}

/* Connect to the address of `host` that answers first, and close the sockets for its other addresses. The caller owns
 * the socket *fd, which is non-blocking, close-on-exec and TCP_NODELAY. After DDP_ERR_CLOSED or DDP_ERR_TIMEOUT another
 * try may succeed. DDP_ERR_IO means an error of this host, for example that no descriptors are left. */
static ddp_status client_dial(const char *host, int port, uint64_t deadline_ms, int *fd, struct ddp_err *err)
{
    struct client_race r = { 0 };
    struct name_found found;
    const char *addresses[RACE_ADDRESSES_MAX];
    int winner = -1;
    ddp_status status = client_resolve(host, deadline_ms, &found, err);
    if (status != DDP_OK)
        return status;
    for (int i = 0; i < found.n; i++)
        addresses[i] = found.addresses[i];
    for (int i = 0; i < RACE_ADDRESSES_MAX; i++)
        r.runners[i] = (struct pollfd){ -1, POLLOUT, 0 };
    race_line_up(&r.race, addresses, found.n);
    race_begin(&r.race, clock_ms());
    status = race_run(&r, port, deadline_ms, &winner, err);
    for (int i = 0; i < found.n; i++)
        if (i != winner && r.runners[i].fd >= 0)
            close(r.runners[i].fd);
    *fd = winner >= 0 ? r.runners[winner].fd : -1;
    return status;
}

/* --- greetings ------------------------------------------------------------------------------------------ */

/* Fail because `reply`, the first bytes that the peer has sent, is not an answer of a store. The error text shows these
 * bytes, because the bytes often name the service of the peer ("HTTP", "SSH-2.0"). */
static void fail_not_a_store(struct client_call *c, const uint8_t *reply, size_t len)
{
    const struct client_stream *in = &c->store->stream;
    char text[24];
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < sizeof(text); i++)
        text[n++] = (char)(isprint(reply[i]) ? reply[i] : '.');
    for (size_t i = in->at; i < in->len && n + 1 < sizeof(text); i++)
        text[n++] = (char)(isprint(in->in[i]) ? in->in[i] : '.');
    text[n] = '\0';
    if (len >= 2 && reply[0] == TLS_ALERT && reply[1] == TLS_MAJOR)
        client_fail(c, DDP_ERR_CORRUPT,
                    "the store accepts only encrypted connections from other hosts; use --encrypt");
    client_fail(c, DDP_ERR_CORRUPT, "the peer is not a store: it answers \"%s\"; check host and port", text);
}

/* Greet a new store with VALIDATE and PING. An old server reads VALIDATE as a SET, and the next 8 bytes as the length
 * of a key. These 8 bytes are the magic number, the opcode of PING and 3 bytes of the nonce. The third byte of the
 * nonce is the highest byte of the length and never 0, so the length is above 2^56. The server cannot allocate so much
 * memory, and closes the connection at once. If the length were small, the server's only thread would wait for the rest
 * of the key and serve no other client. */
static void greet_with_ping(struct client_call *c)
{
    const uint32_t nonce = 0x51500000u | ((uint32_t)getpid() & 0xFFFFu);
    uint8_t echo[4], expected[4] = { (uint8_t)nonce, (uint8_t)(nonce >> 8), 0x50, 0x51 };
    client_append_op(c, OP_VALIDATE);
    client_append_u32(c, WIRE_MAGIC);
    client_append_op(c, OP_PING);
    client_append_u32(c, nonce);
    client_send(c);
    client_read_bytes(c, echo, sizeof(echo));
    if (client_ok(c) && memcmp(echo, expected, sizeof(echo)) != 0)
        fail_not_a_store(c, echo, sizeof(echo));
}

/* Read a count. Fail if the count is negative or above `most`: then the peer is not a store, and the 8 bytes are
 * probably text. */
static void expect_count(struct client_call *c, int64_t most)
{
    uint8_t reply[8];
    client_read_bytes(c, reply, sizeof(reply));
    int64_t count = 0;
    memcpy(&count, reply, sizeof(count));
    if (client_ok(c) && (count < 0 || count > most))
        fail_not_a_store(c, reply, sizeof(reply));
}

/* Greet a store without PING: delete a key that does not exist. The key has 4096 bytes. An old server reads this number
 * as the high bytes of a length, so the length is above 2^52 (see greet_with_ping). The server cannot allocate so much
 * memory, and closes the connection. With a shorter key, the server's only thread would wait for more bytes. */
static void greet_without_ping(struct client_call *c)
{
    char missing[4096];
    memset(missing, '?', sizeof(missing) - 1);
    missing[sizeof(missing) - 1] = '\0';
    client_append_op(c, OP_VALIDATE);
    client_append_u32(c, WIRE_MAGIC);
    client_append_op(c, OP_DELETE_KEY);
    client_append_key(c, missing);
    client_send(c);
    expect_count(c, 1);
}

/* Greet a store of torch 2.1 with GETNUMKEYS and CANCEL_WAIT. Both requests change nothing, because no wait is in
 * progress. A store of dialect A also answers GETNUMKEYS, but closes the connection at the unknown opcode of
 * CANCEL_WAIT. */
static void greet_with_cancel(struct client_call *c)
{
    uint8_t reply;
    client_append_op(c, OP_GETNUMKEYS);
    client_append_op(c, OP_CANCEL_WAIT);
    client_send(c);
    expect_count(c, INT64_C(1) << 32);
    client_read_bytes(c, &reply, sizeof(reply));
    if (client_ok(c) && reply != 1)
        fail_not_a_store(c, &reply, sizeof(reply));
}

/* Greet an old server by counting its keys, because GETNUMKEYS is the shortest request. */
static void greet_in_old_numbers(struct client_call *c)
{
    client_append_op(c, OP_GETNUMKEYS);
    client_send(c);
    expect_count(c, INT64_C(1) << 32);
}

/* The greetings, in the order of their use. Most stores are recent, so the greeting for the newest torch is first.
 *
 *     VALIDATE and PING                           torch 2.5 and newer, and ddprun
 *     VALIDATE and DELETE_KEY                     torch 2.2 to 2.4
 *     GETNUMKEYS and CANCEL_WAIT of dialect B     torch 2.1
 *     GETNUMKEYS of dialect A                     up to torch 2.0 */
static const struct greeting {
    enum dialect dialect;
    void (*greet)(struct client_call *c);
} greetings[] = {
    { DIALECT_C, greet_with_ping },
    { DIALECT_C, greet_without_ping },
    { DIALECT_B, greet_with_cancel },
    { DIALECT_A, greet_in_old_numbers },
};

/* --- one round ------------------------------------------------------------------------------------------ */

/* Return true if a later try may succeed. */
static bool is_temporary(ddp_status status)
{
    return status == DDP_ERR_CLOSED || status == DDP_ERR_TIMEOUT;
}

/* Return the time `after_ms` from now, but at most the deadline. */
static uint64_t sooner(uint64_t deadline_ms, uint64_t after_ms)
{
    const uint64_t then = clock_ms() + after_ms;
    return then < deadline_ms ? then : deadline_ms;
}

/* Connect and greet. First clear the state of the previous attempt (socket, dialect, incomplete request). The timeout
 * for the answer is short, because some servers do not answer an unknown greeting. Set *dialled if the peer has
 * accepted the connection, even if the peer has not answered. */
static ddp_status dial_and_greet(struct ddp_store *s, const struct greeting *greeting, bool is_ddprun,
                                 uint64_t deadline_ms, bool *dialled, struct ddp_err *err)
{
    struct client_call c = { .store = s };
    int fd;
    client_stream_close(&s->stream);
    ddp_status status = client_dial(s->host, s->port, deadline_ms, &fd, err);
    *dialled = status == DDP_OK;
    if (status != DDP_OK)
        return status;
    client_stream_attach(&s->stream, fd);
    s->dialect = greeting->dialect;
    s->broken = false;
    s->out.len = 0;
    c.deadline_ms = sooner(deadline_ms, is_ddprun ? ANSWER_DDPRUN_MS : ANSWER_MS);
    if (s->auth != NULL && s->auth->tls != NULL &&
        client_stream_encrypt(&s->stream, s->auth->tls, c.deadline_ms, err) != DDP_OK)
        return err->code;
    greeting->greet(&c);
    if (c.err.code == DDP_ERR_IO)
        c.err.code = DDP_ERR_CLOSED; /* DDP_ERR_IO would end the search for a store */
    *err = c.err;
    return err->code;
}

/* Fail because no greeting was answered. `status` is the result of the last greeting. */
static ddp_status fail_no_answer(ddp_status status, struct ddp_err *err)
{
    if (status == DDP_ERR_CLOSED)
        return ddp_fail(
            err, status,
            "the server accepts connections, but closes each connection after the first message: the server "
            "may be the store of another user, or a proxy without a store; check host and port");
    return ddp_fail(err, status,
                    "the server accepts the connection, but does not answer: it may be a stopped process, or "
                    "not a store; check host and port");
}

/* Try each greeting once, until the store answers. If the peer closes the connection, or does not answer for 2 s, try
 * the next greeting. After a wrong answer the search ends, because the peer is not a store.
 *
 * If `who` is not NULL, the store is ddprun's: try only the first greeting, then send AUTH (if s->auth is set) and
 * IDENTIFY. The timeout is then longer, because a busy ddprun store must not be mistaken for an old store. If no
 * greeting succeeds, `err` describes the last failure. */
static ddp_status one_round(struct ddp_store *s, const ddp_store_options *who, uint64_t deadline_ms,
                            struct ddp_err *err)
{
    const size_t n = who != NULL ? 1 : sizeof(greetings) / sizeof(*greetings);
    ddp_status status = DDP_ERR_CLOSED;
    for (size_t i = 0; i < n && (i == 0 || clock_ms() < deadline_ms); i++) {
        bool dialled;
        status = dial_and_greet(s, &greetings[i], who != NULL, deadline_ms, &dialled, err);
        if (status == DDP_OK && who != NULL && s->auth != NULL)
            status = client_authenticate(s, deadline_ms, err);
        if (status == DDP_OK)
            return who != NULL ? client_identify(s, who, deadline_ms, err) : DDP_OK;
        if (!dialled || !is_temporary(status))
            return status;
        if (greetings[i].dialect == DIALECT_B && status == DDP_ERR_TIMEOUT)
            break; /* do not try dialect A: a slow store of dialect B would also answer the greeting of
                    * dialect A, and the client would then use the wrong dialect */
    }
    return fail_no_answer(status, err);
}

/* --- rounds --------------------------------------------------------------------------------------------- */

/* Return a number that differs between processes and calls, so that ranks do not retry together. The factors are odd
 * numbers that spread the bits. */
static uint32_t luck(void)
{
    uint64_t x = clock_us() * 0x9E3779B97F4A7C15u + (uint64_t)getpid() * 0xD1B54A32D192ED03u;
    return (uint32_t)(x >> 32);
}

/* Try in rounds until the deadline, because the store may start later than the workers. The pauses between the rounds
 * grow. The error describes the last round. If a pause ends at the deadline, no round follows. A further round would
 * time out at once, and its error would replace the error of the previous round.
 *
 * A caller that sets a role (`who` is not NULL) declares that the store is ddprun's. */
ddp_status client_connect(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                          struct ddp_err *err)
{
    const uint64_t start_ms = clock_ms();
    ddp_status status;
    for (unsigned round = 0;; round++) {
        status = one_round(store, who, deadline_ms, err);
        if (!is_temporary(status))
            break;
        poll(NULL, 0, client_remaining_ms(sooner(deadline_ms, race_pause_ms(round, luck()))));
        if (clock_ms() >= deadline_ms) {
            err->code = status = DDP_ERR_TIMEOUT;
            ddp_wrap(err, "no connection within %s",
                     text_ms(clock_ms() - start_ms, (char[TEXT_MS_MAX]){ 0 }));
            break;
        }
    }
    if (status != DDP_OK)
        client_stream_close(&store->stream);
    store->stale = store->stale && status != DDP_OK;
    return status;
}
