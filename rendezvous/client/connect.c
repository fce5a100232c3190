/* connect.c -- see connect.h.
 *
 * 20 ms, 30, 45, ... 2 s: a store that is being started is met within a few milliseconds, and one that is away for
 * minutes costs its machine next to nothing. */

#include "base/clock.h"
#include "client/call.h"
#include "client/client.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 20, LAST_PAUSE_MS = 2000 };

uint32_t client_pause_ms(unsigned round, uint32_t luck)
{
    uint32_t pause = FIRST_PAUSE_MS;
    while (round-- > 0 && pause < LAST_PAUSE_MS)
        pause += pause / 2;
    if (pause > LAST_PAUSE_MS)
        pause = LAST_PAUSE_MS;
    return pause / 2 + luck % (pause + 1); /* half to one and a half */
}

/* --- client resolve --------------------------------------------------------------------------------------- */

/* Getaddrinfo with a deadline.
 *
 * getaddrinfo cannot be told when to stop: with a dead name server it blocks for ten seconds and more. So a
 * name (a literal needs no server) is looked up on a thread of its own, and we wait for it no longer than we
 * said. The two share a `lookup`; whoever leaves last frees it, so a thread that is given up still cleans up
 * behind itself. */

struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int users; /* 2: both are there, 1: the other one has left */
    bool finished;
    int result; /* of getaddrinfo */
    struct addrinfo *found;
    char port[8];
    char host[];
};

/* Both families; the caller tries all addresses that come back. */
static int resolve(const char *host, const char *port, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = flags | AI_NUMERICSERV };
    return getaddrinfo(host, port, &hints, found);
}

/* With both users already counted: the thread may run before we have come to wait for it. NULL: no memory. */
static struct lookup *lookup_new(const char *host, const char *port)
{
    struct lookup *l = calloc(1, sizeof(*l) + strlen(host) + 1);
    if (l == NULL)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    client_cond_init(&l->done);
    l->users = 2;
    snprintf(l->port, sizeof(l->port), "%s", port);
    strcpy(l->host, host);
    return l;
}

/* The caller holds the lock and gives up its share. */
static void lookup_leave(struct lookup *l)
{
    bool last = --l->users == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->found != NULL)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *lookup_main(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo *found = NULL;
    int result = resolve(l->host, l->port, 0, &found);
    pthread_mutex_lock(&l->lock);
    l->result = result;
    l->found = result == 0 ? found : NULL;
    l->finished = true;
    pthread_cond_signal(&l->done);
    lookup_leave(l);
    return NULL;
}

/* Wait for the thread; false when the deadline passed first. */
static bool lookup_wait(struct lookup *l, uint64_t deadline_ms, int *result, struct addrinfo **found)
{
    bool in_time = true;
    pthread_mutex_lock(&l->lock);
    while (!l->finished && in_time)
        in_time = client_cond_wait(&l->done, &l->lock, deadline_ms);
    bool finished = l->finished;
    *result = l->result;
    *found = l->found;
    l->found = NULL;
    lookup_leave(l);
    return finished;
}

/* Detached: nobody can join a thread that he may have to leave behind. 0, or an errno. */
static int lookup_start(struct lookup *l)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, lookup_main, l);
    pthread_attr_destroy(&attr);
    return rc;
}

/* Resolve `host` (copied) and `port`. *found is yours: freeaddrinfo. DDP_ERR_CLOSED: the name is not known
 * (now). DDP_ERR_TIMEOUT: the name service did not answer by `deadline_ms`. */
static ddp_status client_resolve(const char *host, int port, uint64_t deadline_ms, struct addrinfo **found,
                                 struct ddp_err *err)
{
    char service[8];
    int result;
    snprintf(service, sizeof(service), "%d", port);
    if (resolve(host, service, AI_NUMERICHOST, found) == 0)
        return DDP_OK;
    struct lookup *l = lookup_new(host, service);
    if (l == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    int rc = lookup_start(l);
    if (rc != 0) {
        l->users = 1;
        pthread_mutex_lock(&l->lock);
        lookup_leave(l);
        return ddp_fail(err, DDP_ERR_IO, "cannot start a thread to look up '%s': %s", host, strerror(rc));
    }
    if (!lookup_wait(l, deadline_ms, &result, found))
        return ddp_fail(err, DDP_ERR_TIMEOUT, "the name service does not answer for '%s'", host);
    if (result != 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "the name '%s' is not known (%s)", host, gai_strerror(result));
    return DDP_OK;
}

/* --- client dial ------------------------------------------------------------------------------------------ */

/* The addresses of a name race each other.
 *
 * A name may have several addresses of which some lead nowhere: an IPv6 address on a machine without an IPv6
 * route, a network card that is down. They are tried in the resolver's order with the families in turn; each
 * gets a short head start, then the next one starts beside it, and the first that connects wins. So a dead
 * address costs a quarter of a second and not a connect time-out of two minutes. */

enum { MAX_ADDRESSES = 8, HEAD_START_MS = 250 };

struct race {
    const struct addrinfo *to[MAX_ADDRESSES]; /* borrowed from the resolver's list */
    struct pollfd runner[MAX_ADDRESSES];      /* fd -1: has failed */
    size_t addresses, started, running;
    int error; /* what the last failure was; "refused" is not overwritten, it says most */
};

/* What the user reads; a bare errno text leaves open what to look at. */
static const char *words_for(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "the connection is refused, nothing listens there";
    case ETIMEDOUT:
        return "no answer from that address (is the machine up? does a firewall drop packets?)";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to that address";
    default:
        return strerror(error);
    }
}

/* The list with its two families in turn, beginning with the family that the resolver prefers. */
static void line_up(struct race *r, const struct addrinfo *list)
{
    const struct addrinfo *same = list, *other = list;
    while (r->addresses < MAX_ADDRESSES && (same != NULL || other != NULL)) {
        while (same != NULL && same->ai_family != list->ai_family)
            same = same->ai_next;
        while (other != NULL && other->ai_family == list->ai_family)
            other = other->ai_next;
        if (same != NULL) {
            r->to[r->addresses++] = same;
            same = same->ai_next;
        }
        if (other != NULL && r->addresses < MAX_ADDRESSES) {
            r->to[r->addresses++] = other;
            other = other->ai_next;
        }
    }
}

/* Runner `i` has failed with `error` (errno). */
static void drop_out(struct race *r, size_t i, int error)
{
    close(r->runner[i].fd);
    r->runner[i].fd = -1;
    r->running--;
    if (r->error != ECONNREFUSED)
        r->error = error;
}

/* A connect that fails on the spot (no route) drops out like one that fails later. False only when we
 * ourselves cannot go on: out of descriptors or memory. */
static bool start_next(struct race *r)
{
    const struct addrinfo *to = r->to[r->started];
    int on = 1;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    r->runner[r->started] = (struct pollfd){ fd, POLLOUT, 0 };
    if (fd < 0) {
        r->started++;
        r->error = errno;
        return errno == EAFNOSUPPORT;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    r->running++;
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)
        drop_out(r, r->started, errno);
    r->started++;
    return true;
}

/* On loopback a connect to a free port in the ephemeral range may meet itself (simultaneous open). It looks
 * like a connection, echoes all that we say, and takes the port from the store that wants to listen there. */
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

/* The number of a runner that has arrived; those that have failed drop out. -1: nobody yet. */
static int look_for_winner(struct race *r)
{
    for (size_t i = 0; i < r->started; i++) {
        int error = 0;
        socklen_t len = sizeof(error);
        if (r->runner[i].fd < 0 || r->runner[i].revents == 0)
            continue;
        getsockopt(r->runner[i].fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error == 0 && is_connected_to_itself(r->runner[i].fd))
            error = ECONNREFUSED;
        if (error == 0)
            return (int)i;
        drop_out(r, i, error);
    }
    return -1;
}

static ddp_status lost(const struct race *r, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_CLOSED, "%s", words_for(r->error));
}

/* Events are three: a runner becomes writable (arrived or failed), the head start of the last one is over,
 * the deadline. The next runner also starts at once when nobody is running any more, so that a refusal costs
 * no time. Run until one has arrived (its number in *winner), all have failed, or the deadline passes. */
static ddp_status race_run(struct race *r, uint64_t deadline_ms, int *winner, struct ddp_err *err)
{
    uint64_t next_start_ms = 0;
    for (;;) {
        uint64_t now = clock_ms();
        if (r->started < r->addresses && (now >= next_start_ms || r->running == 0)) {
            if (!start_next(r))
                return ddp_fail(err, DDP_ERR_IO, "cannot open a socket: %s", strerror(r->error));
            next_start_ms = now + HEAD_START_MS;
        }
        if (r->running == 0 && r->started == r->addresses)
            return lost(r, err);
        uint64_t until =
            r->started < r->addresses && next_start_ms < deadline_ms ? next_start_ms : deadline_ms;
        if (r->running > 0)
            poll(r->runner, r->started, client_remaining_ms(until));
        *winner = look_for_winner(r);
        if (*winner >= 0)
            return DDP_OK;
        if (clock_ms() >= deadline_ms && r->running > 0)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "%s", words_for(ETIMEDOUT));
    }
}

/* Connect to whichever address of the name answers first. *fd is yours, non-blocking, close-on-exec,
 * TCP_NODELAY. DDP_ERR_CLOSED, DDP_ERR_TIMEOUT: err says what was met there; worth another try. DDP_ERR_IO:
 * the fault is on our side (no descriptors left ...) and will not go away.
 * Whoever is still under way when the winner arrives is closed here, in the one place that knows all of
 * them. */
static ddp_status client_dial(const char *host, int port, uint64_t deadline_ms, int *fd, struct ddp_err *err)
{
    struct race race = { 0 };
    struct addrinfo *found;
    int winner = -1;
    ddp_status status = client_resolve(host, port, deadline_ms, &found, err);
    if (status != DDP_OK)
        return status;
    line_up(&race, found);
    status = race_run(&race, deadline_ms, &winner, err);
    for (size_t i = 0; i < race.started; i++)
        if ((int)i != winner && race.runner[i].fd >= 0)
            close(race.runner[i].fd);
    freeaddrinfo(found);
    *fd = winner >= 0 ? race.runner[winner].fd : -1;
    return status;
}

/* --- client connect --------------------------------------------------------------------------------------- */

/* From nothing to a connection on which requests can be made.
 *
 * A store does not say what it is, and each torch understands only its own numbering. So one round is:
 *
 *     dial, say VALIDATE+PING (torch 2.5 and newer, ddprun's)      answered? done
 *     dial, say VALIDATE+DELETE_KEY (torch 2.2 to 2.4)             answered? done
 *     dial, say GETNUMKEYS in the old numbering (up to torch 2.0)  answered? done
 *
 * where "closed without an answer" and "silent for two seconds" lead to the next line, and any wrong answer
 * ends it all: what listens there is not a store. Rounds are repeated with growing pauses until the deadline,
 * because workers and the store are started at the same time and a store may be restarted. What the last
 * round met is what the user reads.
 *
 * When the caller has a role to tell, the store is known to be ddprun's. Then only the first line is tried,
 * with more patience: a store that is merely busy must not be taken for an old one. */

enum {
    ANSWER_MS = 2000,       /* to a greeting, from a store of unknown make */
    ANSWER_OURS_MS = 10000, /* from one that is known to be ddprun's */
};

/* --- greetings ------------------------------------------------------------------------------------------ */

/* `reply` (its first bytes) was not what a store says: show it, it often names the service ("HTTP",
 * "SSH-2.0"). */
static void foreign(struct client_call *c, const uint8_t *reply, size_t len)
{
    const struct client_stream *in = &c->store->stream;
    char text[24];
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < sizeof(text); i++)
        text[n++] = (char)(isprint(reply[i]) ? reply[i] : '.');
    for (size_t i = in->at; i < in->len && n + 1 < sizeof(text); i++)
        text[n++] = (char)(isprint(in->in[i]) ? in->in[i] : '.');
    text[n] = '\0';
    client_fail(c, DDP_ERR_CORRUPT, "something answers there, but it is not a store: it says \"%s\"", text);
}

/* The third byte of the nonce is not 0: an old server takes VALIDATE and what follows for a SET whose key has
 * the length 0x..nonce0D3C85F7CE. Beyond 2^56 bytes its allocation fails at once, so that it closes; a
 * smaller length would make it wait for the key, and that one waits with its only thread. */
static void greet_with_ping(struct client_call *c)
{
    const uint32_t nonce = 0x51500000u | ((uint32_t)getpid() & 0xFFFFu);
    uint8_t echo[4], expected[4] = { (uint8_t)nonce, (uint8_t)(nonce >> 8), 0x50, 0x51 };
    client_put_op(c, OP_VALIDATE);
    client_put_u32(c, WIRE_MAGIC);
    client_put_op(c, OP_PING);
    client_put_u32(c, nonce);
    client_send(c);
    client_take_bytes(c, echo, sizeof(echo));
    if (client_ok(c) && memcmp(echo, expected, sizeof(echo)) != 0)
        foreign(c, echo, sizeof(echo));
}

/* A count that a store could answer with; as text of a foreign service it would be far above. */
static void expect_count(struct client_call *c, int64_t most)
{
    uint8_t reply[8];
    client_take_bytes(c, reply, sizeof(reply));
    int64_t count = 0;
    memcpy(&count, reply, sizeof(count));
    if (client_ok(c) && (count < 0 || count > most))
        foreign(c, reply, sizeof(reply));
}

/* Deleting a key that nobody has is the one harmless question whose first bytes can make an impossible length
 * for an old server (see above): the key's own length, 4096, lands in the upper half. */
static void greet_without_ping(struct client_call *c)
{
    char nobodys[4096];
    memset(nobodys, '?', sizeof(nobodys) - 1);
    nobodys[sizeof(nobodys) - 1] = '\0';
    client_put_op(c, OP_VALIDATE);
    client_put_u32(c, WIRE_MAGIC);
    client_put_op(c, OP_DELETE_KEY);
    client_put_key(c, nobodys);
    client_send(c);
    expect_count(c, 1);
}

/* An old server needs no greeting; counting its keys is the shortest question that it answers. */
static void greet_in_old_numbers(struct client_call *c)
{
    client_put_op(c, OP_GETNUMKEYS);
    client_send(c);
    expect_count(c, INT64_C(1) << 32);
}

/* Newest first: the newest is the likeliest, and refuses nobody. */
static const struct way {
    enum dialect dialect;
    void (*greet)(struct client_call *c);
} ways[] = {
    { DIALECT_C, greet_with_ping },
    { DIALECT_C, greet_without_ping },
    { DIALECT_A, greet_in_old_numbers },
};

/* --- one round ------------------------------------------------------------------------------------------ */

/* Worth another try: nobody there, nobody who answers. Everything else would be the same again. */
static bool is_passing(ddp_status status)
{
    return status == DDP_ERR_CLOSED || status == DDP_ERR_TIMEOUT;
}

/* `after_ms` from now, but not later than the deadline. */
static uint64_t sooner(uint64_t deadline_ms, uint64_t after_ms)
{
    const uint64_t then = clock_ms() + after_ms;
    return then < deadline_ms ? then : deadline_ms;
}

/* Dial and greet. What an earlier way has left in the handle (socket, dialect, half a request) is cleared
 * first. Its time for an answer is short, because a greeting that is not understood often meets silence.
 * DDP_ERR_CLOSED, DDP_ERR_TIMEOUT with *dialled: there is somebody, who does not answer. */
static ddp_status go(struct ddp_store *s, const struct way *way, bool ours, uint64_t deadline_ms,
                     bool *dialled, struct ddp_err *err)
{
    struct client_call c = { .store = s };
    int fd;
    client_stream_close(&s->stream);
    ddp_status status = client_dial(s->host, s->port, deadline_ms, &fd, err);
    *dialled = status == DDP_OK;
    if (status != DDP_OK)
        return status;
    client_stream_attach(&s->stream, fd);
    s->dialect = way->dialect;
    s->broken = false;
    s->out.len = 0;
    c.deadline_ms = sooner(deadline_ms, ours ? ANSWER_OURS_MS : ANSWER_MS);
    way->greet(&c);
    if (c.err.code == DDP_ERR_IO)
        c.err.code = DDP_ERR_CLOSED; /* the network failed under way: as good as refused */
    *err = c.err;
    return err->code;
}

/* All greetings were tried, the last one with this status. */
static ddp_status nobody_answers(ddp_status status, struct ddp_err *err)
{
    if (status == DDP_ERR_CLOSED)
        return ddp_fail(err, status,
                        "it accepts the connection, but closes it on every greeting (a store of another "
                        "user, or a proxy without a store?)");
    return ddp_fail(err, status, "it accepts the connection, but does not answer (not a store? stopped?)");
}

/* err says what was met on failure. */
static ddp_status one_round(struct ddp_store *s, const ddp_store_options *who, uint64_t deadline_ms,
                            struct ddp_err *err)
{
    const size_t n = who != NULL ? 1 : sizeof(ways) / sizeof(*ways);
    ddp_status status = DDP_ERR_CLOSED;
    for (size_t i = 0; i < n && (i == 0 || clock_ms() < deadline_ms); i++) {
        bool dialled;
        status = go(s, &ways[i], who != NULL, deadline_ms, &dialled, err);
        if (status == DDP_OK)
            return who != NULL ? client_identify(s, who, deadline_ms, err) : DDP_OK;
        if (!dialled || !is_passing(status))
            return status;
    }
    return nobody_answers(status, err);
}

/* --- rounds --------------------------------------------------------------------------------------------- */

/* Not a good random number, only a different one in each process and round. */
static uint32_t luck(void)
{
    uint64_t x = clock_us() * 0x9E3779B97F4A7C15u + (uint64_t)getpid() * 0xD1B54A32D192ED03u;
    return (uint32_t)(x >> 32);
}

/* The last pause is cut at the deadline, and no round begins behind it: its result could only be "no time",
 * and would hide what the round before has met. */
ddp_status client_connect(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                          struct ddp_err *err)
{
    const uint64_t start_ms = clock_ms();
    ddp_status status;
    for (unsigned round = 0;; round++) {
        status = one_round(store, who, deadline_ms, err);
        if (!is_passing(status))
            break;
        poll(NULL, 0, client_remaining_ms(sooner(deadline_ms, client_pause_ms(round, luck()))));
        if (clock_ms() >= deadline_ms) {
            err->code = status = DDP_ERR_TIMEOUT;
            ddp_wrap(err, "no connection within %llu ms", (unsigned long long)(clock_ms() - start_ms));
            break;
        }
    }
    if (status != DDP_OK)
        client_stream_close(&store->stream);
    store->stale = store->stale && status != DDP_OK;
    return status;
}
