/* dial.c -- see dial.h. dial_plan.c decides which step is next, and this file owns the sockets. The sockets are polled,
 * because libuv's streams hide the kernel's errno, and the findings depend on this errno. */
#include "net/dial.h"

#include "auth/auth.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/race.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "net/dial_plan.h"
#include "store/encode.h"
#include "store/ops.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- names on the loop ---------------------------------------------------------------------------------- */

struct loop_lookup {
    uv_poll_t poll;
    struct name_lookup *lookup;
    void (*done)(void *user, const struct name_found *found);
    void *user;
};

static void lookup_on_answer(uv_poll_t *poll, int status, int events)
{
    struct loop_lookup *l = poll->data;
    struct name_found found;
    (void)status, (void)events;
    uv_poll_stop(poll);
    if (name_lookup_result(l->lookup, &found))
        l->done(l->user, &found);
}

struct loop_lookup *loop_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user)
{
    struct loop_lookup *l = calloc(1, sizeof(*l));
    if (l == NULL || name_lookup_begin(host, &l->lookup) != 0) {
        free(l);
        return NULL;
    }
    l->done = done;
    l->user = user;
    l->poll.data = l;
    if (uv_poll_init(loop, &l->poll, name_lookup_fd(l->lookup)) != 0) {
        name_lookup_end(l->lookup);
        free(l);
        return NULL;
    }
    uv_poll_start(&l->poll, UV_READABLE, lookup_on_answer);
    return l;
}

static void lookup_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void loop_lookup_end(struct loop_lookup *l)
{
    if (l == NULL)
        return;
    uv_poll_stop(&l->poll);
    name_lookup_end(l->lookup);
    uv_close((uv_handle_t *)&l->poll, lookup_closed);
}

/* --- the dial ------------------------------------------------------------------------------------------- */

/* After every event, join_dial_advance() runs all due steps, prints the due messages and sets the only timer. A
 * runner is the connection to one address:
 *
 *     connect() -> writable -> VALIDATE, PING and a CONTROL request in one write -> the echo -> JSON object -> found
 *
 * VALIDATE, PING and CONTROL are the greeting. One write for all three needs only one round trip. PyTorch's store also
 * answers PING with the echo, but does not know CONTROL, so it then closes the connection.
 *
 * With --encrypt, a TLS handshake precedes the greeting. If MUNGE delivers the secret, the request for the store's
 * credential precedes the handshake. */

enum { ANSWER_MAX = 4096, ECHO_BYTES = 4, HEAD_BYTES = ECHO_BYTES + 8, NOTE_BYTES = 1536, UNSEALING_MS = 2 };

static const char hello[] = "{\"op\":\"hello\"}";

struct runner {
    uv_poll_t poll;
    struct join_dial *dial;
    int index, fd;
    bool greets;
    struct tls *tls;   /* owned; NULL if the connection does not use TLS */
    bool asks;         /* the runner has requested the store's credential */
    bool is_unsealing; /* MUNGE is unsealing the credential */
    /* owned; the request to MUNGE to unseal the credential, while `is_unsealing` */
    struct secret_call *call;
    struct secret *secret;       /* owned; the secret that MUNGE has delivered, or NULL */
    struct tls_context *context; /* owned; TLS with `secret`, or NULL */
    uint8_t in[ANSWER_MAX];      /* the first `n` bytes of the peer's answer, after decryption */
    size_t n;
};

struct join_dial {
    struct join_dial_options options;
    struct dial plan;
    uv_timer_t timer;
    struct loop_lookup *lookup; /* NULL if no lookup is in progress */
    struct runner *runners[RACE_ADDRESSES_MAX];
    uint32_t nonce;
    int handles; /* open handles of libuv; the last handle that closes frees the dial */
    bool closing;
    char host[ENDPOINT_HOST_MAX], who[64], note[NOTE_BYTES];
    /* The answer of a refusing store (store_host.h): finding code, newline, sentence. "" without such an answer. */
    char refusal[AUTH_GIFT_BYTES];
};

static void join_dial_advance(struct join_dial *j);
static void runner_on_event(uv_poll_t *poll, int status, int events);

/* --- the end -------------------------------------------------------------------------------------------- */

static void let_go(struct join_dial *j)
{
    if (--j->handles == 0)
        free(j);
}

static void on_timer_closed(uv_handle_t *handle)
{
    let_go(handle->data);
}

static void on_runner_closed(uv_handle_t *handle)
{
    struct runner *r = handle->data;
    let_go(r->dial);
    free(r);
}

/* End a runner. Close its socket, unless arrive() has passed the socket to the owner of the dial. Stop polling before
 * closing the socket, because a new descriptor may get the same number. on_runner_closed() frees the runner. */
static void end_runner(struct join_dial *j, int index)
{
    struct runner *r = j->runners[index];
    if (r == NULL)
        return;
    j->runners[index] = NULL;
    uv_poll_stop(&r->poll);
    if (r->fd >= 0)
        close(r->fd);
    tls_free(r->tls);
    if (r->is_unsealing)
        secret_unseal_end(r->call, NULL, NULL);
    tls_context_close(r->context);
    secret_free(r->secret);
    uv_close((uv_handle_t *)&r->poll, on_runner_closed);
}

static void end_all_runners(struct join_dial *j)
{
    for (int i = 0; i < RACE_ADDRESSES_MAX; i++)
        end_runner(j, i);
}

void join_dial_close(struct join_dial *j)
{
    if (j == NULL || j->closing)
        return;
    j->closing = true;
    end_all_runners(j);
    loop_lookup_end(j->lookup);
    uv_close((uv_handle_t *)&j->timer, on_timer_closed);
}

/* --- hello ---------------------------------------------------------------------------------------------- */

/* End a runner that has failed after connect() has begun. */
static void runner_fail(struct runner *r, int error)
{
    struct join_dial *j = r->dial;
    dial_failed(&j->plan, r->index, false, error, slice_of(r->in, r->n), clock_ms());
    end_runner(j, r->index);
}

/* Write the numeric address of one end of the connection, or "?" if the kernel reports no address. */
static void name_of(int fd, int (*get)(int, struct sockaddr *, socklen_t *), char *text, size_t size)
{
    struct sockaddr_storage addr = { 0 };
    socklen_t len = sizeof(addr);
    if (get(fd, (struct sockaddr *)&addr, &len) != 0 ||
        getnameinfo((struct sockaddr *)&addr, len, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, size, "?");
}

/* Pass the socket of a runner to the owner of the dial. The owner later closes the dial. */
static void arrive(struct runner *r)
{
    struct join_dial *j = r->dial;
    struct join_dial_found found = {
        .fd = r->fd, .port = j->options.port, .tls = r->tls, .secret = r->secret, .context = r->context
    };
    name_of(r->fd, getpeername, found.address, sizeof(found.address));
    name_of(r->fd, getsockname, found.source, sizeof(found.source));
    dial_arrived(&j->plan, r->index, clock_ms());
    r->fd = -1;
    r->tls = NULL;
    r->secret = NULL;
    r->context = NULL;
    end_all_runners(j);
    j->options.found(j->options.user, &found);
}

/* Return the error for a connection that the peer has closed. A peer that answers PING and then closes the connection
 * is PyTorch's store. */
static int closed_kind(const struct runner *r)
{
    uint8_t echo[ECHO_BYTES];
    write_le(echo, r->dial->nonce, ECHO_BYTES);
    if (r->n >= ECHO_BYTES && memcmp(r->in, echo, ECHO_BYTES) == 0)
        return HELLO_TORCH;
    return dial_answer_kind(slice_of(r->in, r->n));
}

/* Check whether the answer is complete. The answer begins with the echo of this node's PING. If the first four bytes
 * differ from the echo, the peer is not a store. */
static void check_answer(struct runner *r)
{
    uint8_t echo[ECHO_BYTES];
    write_le(echo, r->dial->nonce, ECHO_BYTES);
    if (r->n < ECHO_BYTES)
        return;
    if (memcmp(r->in, echo, ECHO_BYTES) != 0) {
        runner_fail(r, dial_answer_kind(slice_of(r->in, r->n)));
    } else if (r->n >= HEAD_BYTES) {
        const uint64_t len = get_u64(r->in + ECHO_BYTES);
        if (len > ANSWER_MAX - HEAD_BYTES)
            runner_fail(r, HELLO_OTHER);
        else if (r->n >= HEAD_BYTES + len)
            arrive(r);
    }
}

/* --- TLS -------------------------------------------------------------------------------------------------- */

/* Send all bytes. One call is enough, because the buffer of a new socket has room for 1 KiB. */
static bool send_all(struct runner *r, const struct buf *bytes)
{
    errno = ENOMEM; /* buf_append sets no errno when memory is short */
    return bytes->len == 0 || send(r->fd, bytes->data, bytes->len, MSG_NOSIGNAL) == (ssize_t)bytes->len;
}

/* Return the error for a failed TLS handshake. `bytes` are the last bytes that the peer sent: an alert (an error
 * message of TLS), another TLS record, or bytes of another service. 23 is the type of a TLS record with application
 * data (RFC 8446). The dial continues after any of these errors, because any host on the path can forge an alert. */
static int rejected_kind(struct slice bytes)
{
    const int kind = dial_answer_kind(bytes);
    if (tls_alert_code(bytes) == TLS_ALERT_PLAIN)
        return HELLO_PLAIN;
    return kind == HELLO_TLS || kind == HELLO_ENCRYPTED || *(const uint8_t *)bytes.data == 23 ? HELLO_REJECTED
                                                                                              : kind;
}

static bool append_hello(struct runner *r, struct buf *out);

/* Decrypt received bytes, and append them to `in`. Return false if the runner has failed. */
static bool decrypt(struct runner *r, struct slice bytes)
{
    struct buf plain = { 0 }, out = { 0 };
    const bool was_open = tls_state(r->tls) == TLS_OPEN;
    const enum tls_state state = tls_receive(r->tls, bytes, &plain, &out);
    const bool greets = !was_open && state == TLS_OPEN;
    const bool fits = plain.len <= sizeof(r->in) - r->n;
    bool ok = state != TLS_FAILED && fits && (!greets || append_hello(r, &out));
    ok = send_all(r, &out) && ok;
    if (ok && plain.len > 0)
        memcpy(r->in + r->n, plain.data, plain.len);
    r->n += ok ? plain.len : 0;
    if (!ok && state == TLS_FAILED && !was_open) {
        r->n = bytes.len < sizeof(r->in) ? bytes.len : sizeof(r->in);
        memcpy(r->in, bytes.data, r->n);
        runner_fail(r, rejected_kind(bytes));
    } else if (!ok) {
        runner_fail(r, HELLO_OTHER);
    }
    buf_free(&plain);
    buf_free(&out);
    return ok;
}

/* --- MUNGE ------------------------------------------------------------------------------------------------- */

/* End a runner for which MUNGE has delivered no secret. */
static void fail_without_secret(struct runner *r, struct slice why)
{
    struct join_dial *j = r->dial;
    dial_failed(&j->plan, r->index, false, HELLO_NO_SECRET, why, clock_ms());
    end_runner(j, r->index);
}

static bool begin_tls(struct runner *r, const struct tls_context *context);

/* Begin the handshake with the unsealed secret. */
static void end_unsealing(struct runner *r)
{
    struct ddp_err err;
    ddp_status status = secret_unseal_end(r->call, &r->secret, &err);
    const bool has_secret = status == DDP_OK;
    r->is_unsealing = r->asks = false;
    r->call = NULL;
    r->n = 0;
    if (status == DDP_OK)
        status = tls_context_open(TLS_CLIENT, r->secret, r->dial->options.munge_job, &r->context, &err);
    /* In an error of MUNGE, a remedy follows the semicolon. Leave out this remedy, because the finding has its own
     * remedy. */
    if (status != DDP_OK)
        fail_without_secret(r, slice_of(err.msg, has_secret ? strlen(err.msg) : strcspn(err.msg, ";")));
    else if (!begin_tls(r, r->context))
        runner_fail(r, errno);
    else
        uv_poll_start(&r->poll, UV_READABLE, runner_on_event);
}

/* Check each runner (connection to one address) that waits until MUNGE has unsealed the secret. Restart the runner's
 * time limit, because the call of MUNGE has its own time limit. Continue the runner if MUNGE has finished. Return true
 * while a runner still waits. */
static bool check_unsealing(struct join_dial *j)
{
    bool runs = false;
    for (int i = 0; i < RACE_ADDRESSES_MAX; i++) {
        struct runner *r = j->runners[i];
        if (r == NULL || !r->is_unsealing)
            continue;
        dial_continued(&j->plan, i, clock_ms());
        if (secret_call_is_over(r->call))
            end_unsealing(r);
        else
            runs = true;
    }
    return runs;
}

/* Keep the refusal that a store has sent. join_dial_advance() then ends the dial. The refusal is not authenticated, so
 * ddprun only prints the refusal, and sends no data about the job. */
static void read_refusal(struct runner *r, struct slice text)
{
    struct join_dial *j = r->dial;
    snprintf(j->refusal, sizeof(j->refusal), "%.*s", (int)text.len, (const char *)text.data);
    text_disarm(j->refusal, strlen(j->refusal), '\n');
    end_runner(j, r->index);
}

/* Check whether the answer with the credential is complete. No byte may follow the answer. */
static void check_credential(struct runner *r)
{
    struct slice credential;
    enum auth_result result;
    const int got = auth_read_answer_tls(slice_of(r->in, r->n), &result, &credential);
    if (got == 0)
        return;
    if (got < 0) {
        runner_fail(r, dial_answer_kind(slice_of(r->in, r->n)));
    } else if (result == AUTH_NOT_ENCRYPTED) {
        runner_fail(r, HELLO_PLAIN);
    } else if (result == AUTH_NO_SECRET && credential.len > 0) {
        read_refusal(r, credential);
    } else if (result != AUTH_OK) {
        fail_without_secret(r, slice_str(auth_result_text(result)));
    } else {
        uv_poll_stop(&r->poll);
        r->call = secret_unseal_begin(credential.data, credential.len);
        r->is_unsealing = true;
    }
}

/* Read the answer. Handle a reset like a FIN, because the kernel sends a reset if a service closes the connection
 * before it has read all bytes. */
static void read_answer(struct runner *r)
{
    uint8_t bytes[ANSWER_MAX];
    const ssize_t n = read(r->fd, bytes, r->tls != NULL ? sizeof(bytes) : sizeof(r->in) - r->n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && r->tls != NULL) {
        if (decrypt(r, slice_of(bytes, (size_t)n)))
            check_answer(r);
    } else if (n > 0) {
        memcpy(r->in + r->n, bytes, (size_t)n);
        r->n += (size_t)n;
        (r->asks ? check_credential : check_answer)(r);
    } else if (n < 0 && errno != ECONNRESET) {
        runner_fail(r, errno);
    } else {
        runner_fail(r, closed_kind(r));
    }
}

/* Append the greeting, encrypted if the runner uses TLS. */
static bool append_hello(struct runner *r, struct buf *out)
{
    struct buf bytes = { 0 };
    bool ok =
        append_u8(&bytes, (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C]) && append_u32(&bytes, WIRE_MAGIC) &&
        append_u8(&bytes, (uint8_t)op_table[OP_PING].code[DIALECT_C]) && append_u32(&bytes, r->dial->nonce) &&
        append_u8(&bytes, (uint8_t)op_table[OP_CONTROL].code[DIALECT_C]) &&
        append_blob(&bytes, slice_str(hello));
    ok = ok &&
         (r->tls != NULL ? tls_send(r->tls, buf_slice(&bytes), out) : buf_append(out, bytes.data, bytes.len));
    buf_free(&bytes);
    return ok;
}

/* Send the first message of the TLS handshake. The greeting follows after the handshake. Return false and set errno
 * on failure. */
static bool begin_tls(struct runner *r, const struct tls_context *context)
{
    struct buf out = { 0 }, none = { 0 };
    r->tls = tls_new(context);
    errno = ENOMEM;
    const bool sent = r->tls != NULL &&
                      tls_receive(r->tls, slice_of(NULL, 0), &none, &out) == TLS_HANDSHAKE &&
                      send_all(r, &out);
    buf_free(&out);
    return sent;
}

/* Send the first message to the peer. Depending on the options, this is the first message of TLS, the request for the
 * credential, or the greeting. */
static bool send_hello(struct runner *r)
{
    struct buf out = { 0 };
    uint8_t ask[AUTH_ASK_TLS_BYTES];
    const struct join_dial_options *o = &r->dial->options;
    if (o->tls != NULL)
        return begin_tls(r, o->tls);
    r->asks = o->munge_job != NULL && !endpoint_is_loopback(r->dial->plan.race.runners[r->index].address);
    auth_ask_tls(ask);
    errno = ENOMEM;
    const bool sent =
        (r->asks ? buf_append(&out, ask, sizeof(ask)) : append_hello(r, &out)) && send_all(r, &out);
    buf_free(&out);
    return sent;
}

/* --- connections ---------------------------------------------------------------------------------------- */

static void connected(struct runner *r)
{
    char source[RACE_TEXT_MAX];
    name_of(r->fd, getsockname, source, sizeof(source));
    dial_connected(&r->dial->plan, r->index, source, clock_ms());
    r->greets = true;
    if (!send_hello(r))
        runner_fail(r, errno == ECONNRESET || errno == EPIPE ? HELLO_CLOSED : errno);
    else
        uv_poll_start(&r->poll, UV_READABLE, runner_on_event);
}

/* Check the result of connect(). After an error, libuv only reports that the socket is ready, so read the error from
 * the socket. */
static void check_connect(struct runner *r)
{
    const int error = connector_error(r->fd);
    if (error != 0)
        runner_fail(r, error);
    else
        connected(r);
}

static void runner_on_event(uv_poll_t *poll, int status, int events)
{
    struct runner *r = poll->data;
    struct join_dial *j = r->dial;
    (void)status, (void)events;
    if (r->greets)
        read_answer(r);
    else
        check_connect(r);
    join_dial_advance(j);
}

/* Return a new runner, which owns `fd`, or NULL if memory is short. */
static struct runner *runner_new(struct join_dial *j, int index, int fd)
{
    struct runner *r = calloc(1, sizeof(*r));
    if (r == NULL || uv_poll_init(j->options.loop, &r->poll, fd) != 0) {
        free(r);
        return NULL;
    }
    *r = (struct runner){ .poll = r->poll, .dial = j, .index = index, .fd = fd };
    r->poll.data = r;
    j->handles++;
    return r;
}

static void start_runner(struct join_dial *j, int index)
{
    const int fd =
        connector_begin(j->plan.race.runners[index].address, j->options.port, j->options.max_segment);
    struct runner *r = fd >= 0 ? runner_new(j, index, fd) : NULL;
    if (r == NULL) {
        dial_failed(&j->plan, index, true, fd >= 0 ? ENOMEM : -fd, slice_of(NULL, 0), clock_ms());
        if (fd >= 0)
            close(fd);
        return;
    }
    j->runners[index] = r;
    uv_poll_start(&r->poll, UV_WRITABLE, runner_on_event);
}

/* --- names ---------------------------------------------------------------------------------------------- */

static void handle_addresses(struct join_dial *j, const struct name_found *found)
{
    const char *addresses[RACE_ADDRESSES_MAX];
    for (int i = 0; i < found->n; i++)
        addresses[i] = found->addresses[i];
    if (found->error != 0)
        dial_unresolved(&j->plan, found->error, clock_ms());
    else
        dial_resolved(&j->plan, addresses, found->n, found->hosts_line[0] != '\0' ? found->hosts_line : NULL,
                      clock_ms());
}

static void on_resolved(void *user, const struct name_found *found)
{
    struct join_dial *j = user;
    loop_lookup_end(j->lookup);
    j->lookup = NULL;
    handle_addresses(j, found);
    join_dial_advance(j);
}

/* Look up the host. A literal address is parsed without a thread. */
static void resolve_host(struct join_dial *j)
{
    struct name_found found;
    j->plan.options.literal = name_is_literal(j->host, &found);
    if (j->plan.options.literal) {
        handle_addresses(j, &found);
        return;
    }
    j->lookup = loop_lookup_begin(j->options.loop, j->host, on_resolved, j);
    if (j->lookup == NULL)
        dial_unresolved(&j->plan, EAI_MEMORY, clock_ms());
}

/* --- next step ------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
    join_dial_advance(timer->data);
}

/* End the dial without a store, and pass the reason to the callback `failed`. The reason is the first of these texts
 * that exists: the answer of a refusing store, `note` if the owner has set `code`, a report about the dial. Do not use
 * `j` after the callback, because the callback may close the dial. */
static void join_dial_give_up(struct join_dial *j)
{
    struct buf report = { 0 };
    const size_t code_len = strcspn(j->refusal, "\n");
    j->plan.phase = DIAL_OVER; /* a timer that is still set must not call `failed` again */
    if (j->refusal[0] != '\0') {
        const bool has_text = j->refusal[code_len] != '\0';
        j->refusal[code_len] = '\0';
        end_all_runners(j);
        j->options.failed(j->options.user, j->refusal, j->refusal + code_len + has_text);
        return;
    }
    const bool asked = j->options.code != NULL;
    const bool ok = asked || (dial_report(&j->plan, &report, clock_ms()) && buf_append(&report, "", 1));
    const char *words = asked ? j->note : (const char *)report.data;
    end_all_runners(j);
    j->options.failed(j->options.user, asked ? j->options.code : dial_code(j->plan.finding),
                      ok ? words : "store: cannot connect: ddprun is out of memory");
    buf_free(&report);
}

/* Carry out a step other than WAIT and GIVE_UP. */
static void carry_out(struct join_dial *j, const struct dial_step *step)
{
    switch (step->what) {
    case DIAL_RESOLVE:
        resolve_host(j);
        break;
    case DIAL_CONNECT:
        start_runner(j, step->runner);
        break;
    case DIAL_DROP:
        end_runner(j, step->runner);
        break;
    case DIAL_GIVE_UP:
    case DIAL_WAIT:
        break;
    }
}

/* Set the timer for the next step or the next message, whichever is earlier. Update libuv's clock first, because
 * libuv updates this clock only once in each turn of the loop. */
static void set_timer(struct join_dial *j, uint64_t step_at_ms)
{
    const uint64_t status_ms = dial_status_due(&j->plan),
                   at_ms = step_at_ms < status_ms ? step_at_ms : status_ms;
    const uint64_t now_ms = clock_ms();
    uv_update_time(j->options.loop);
    uv_timer_start(&j->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* Run all due steps and print the due messages. `failed` and `print` may close the dial. The memory of `j` stays valid
 * until the loop runs the close callbacks. */
static void join_dial_advance(struct join_dial *j)
{
    struct dial_step step = { .what = DIAL_WAIT };
    if (j->closing || j->plan.phase == DIAL_ARRIVED || j->plan.phase == DIAL_OVER)
        return;
    const bool unseals = check_unsealing(j);
    if (j->refusal[0] != '\0') {
        join_dial_give_up(j);
        return;
    }
    do {
        step = dial_next(&j->plan, clock_ms());
        carry_out(j, &step);
    } while (step.what != DIAL_WAIT && step.what != DIAL_GIVE_UP);
    if (step.what == DIAL_GIVE_UP) {
        join_dial_give_up(j);
        return;
    }
    dial_print_status(&j->plan, clock_ms(), j->options.print, j->options.user);
    if (!j->closing)
        set_timer(j, unseals ? clock_ms() + UNSEALING_MS : step.at_ms);
}

/* --- begin ---------------------------------------------------------------------------------------------- */

/* Return a nonce whose third byte is not 0. An old PyTorch store reads the third byte as the highest byte of a key's
 * length. With a byte of 0 the length would be small, and the store would wait for more bytes. See greet_with_ping() in
 * rendezvous/client/connect.c. */
static uint32_t make_nonce(uint32_t seed)
{
    return 0x51500000u | (seed & 0xFFFFu);
}

/* Start a dial. Texts are copied, because they may be on the owner's stack. Random bytes only vary the pauses, so use
 * the pid instead if reading random bytes would block. */
ddp_status join_dial_start(const struct join_dial_options *options, struct join_dial **out,
                           struct ddp_err *err)
{
    struct join_dial *j = calloc(1, sizeof(*j));
    uint32_t seed = 0;
    struct rlimit files = { 0 };
    if (j == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "store: cannot connect: out of memory");
    if (sys_getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        seed = (uint32_t)getpid();
    j->options = *options;
    snprintf(j->host, sizeof(j->host), "%s", options->host);
    snprintf(j->who, sizeof(j->who), "%s", options->who);
    snprintf(j->note, sizeof(j->note), "%s", options->note != NULL ? options->note : "");
    j->nonce = make_nonce(seed);
    j->handles = 1;
    uv_timer_init(options->loop, &j->timer);
    j->timer.data = j;
    getrlimit(RLIMIT_NOFILE, &files);
    const struct dial_options plan = { .host = j->host,
                                       .port = options->port,
                                       .master = options->master,
                                       .who = j->who,
                                       .here = options->this_host,
                                       .knob = options->knob,
                                       .note = j->note,
                                       .local_only = options->local_only,
                                       .budget_ms = options->budget_ms,
                                       .open_files = files.rlim_cur,
                                       .seed = seed };
    dial_begin(&j->plan, &plan, clock_ms());
    uv_timer_start(&j->timer, on_timer,
                   options->n_failed > 0 ? race_pause_ms(options->n_failed - 1, seed) : 0, 0);
    *out = j;
    return DDP_OK;
}

/* --- large packets -------------------------------------------------------------------------------------- */

enum {
    PATH_ANSWER_MS = 200,   /* longest wait for an answer */
    PATH_LARGE_MS = 60,     /* shortest wait for the answer to a large packet */
    PATH_LARGE_FACTOR = 20, /* a large packet may take this many round-trip times of a small packet */
    PATH_SMALL_BYTES = 8,   /* bytes of data in a small packet */
    PATH_LARGE_MAX = 1500,  /* the largest IP packet that is probed */
};

/* Two connected UDP sockets to the same closed port: for small and for large packets. */
struct path_sockets {
    int fd[2];   /* indexed by enum path_size; -1 if not open */
    int data[2]; /* bytes of a packet without its headers, indexed by enum path_size */
    int bytes;   /* bytes of a large packet with its headers */
};

/* Open a UDP socket whose packets are never fragmented. For these packets the kernel ignores
 * the MTU that it has learnt. */
static int path_open(const struct addrinfo *to)
{
    const int level = to->ai_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
    const int option = to->ai_family == AF_INET6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER;
    const int probe = to->ai_family == AF_INET6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, level, option, &probe, sizeof(probe)) == 0 &&
        connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Open both sockets. Set `bytes` to the size of the largest packet that the kernel sends to this peer, but at most
 * PATH_LARGE_MAX. Larger packets are not probed, because their loss does not prove a fault. For example, if only this
 * host has an MTU of 9000, the peer announces a smaller segment size, and TCP connections work. */
static bool path_open_both(struct path_sockets *p, const struct addrinfo *to)
{
    const bool is_v6 = to->ai_family == AF_INET6;
    const int level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, header = is_v6 ? 40 + 8 : 20 + 8;
    socklen_t len = sizeof(p->bytes);
    p->fd[PATH_SMALL] = path_open(to);
    p->fd[PATH_LARGE] = path_open(to);
    if (p->fd[PATH_SMALL] < 0 || p->fd[PATH_LARGE] < 0 ||
        getsockopt(p->fd[PATH_LARGE], level, is_v6 ? IPV6_MTU : IP_MTU, &p->bytes, &len) != 0)
        return false;
    if (p->bytes > PATH_LARGE_MAX)
        p->bytes = PATH_LARGE_MAX;
    p->data[PATH_SMALL] = PATH_SMALL_BYTES;
    p->data[PATH_LARGE] = p->bytes - header;
    return p->data[PATH_LARGE] > PATH_SMALL_BYTES;
}

/* Wait for an answer. Return ECONNREFUSED if the peer has rejected the packet or has sent a datagram, because both show
 * that the packet has arrived. Return 0 if no answer arrives, or another errno for any other error. */
static int path_answer(int fd, int wait_ms)
{
    struct pollfd answer = { .fd = fd, .events = POLLIN };
    char byte;
    if (poll(&answer, 1, wait_ms) <= 0)
        return 0;
    if (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0)
        return ECONNREFUSED;
    return errno == EAGAIN ? 0 : errno;
}

/* Send a packet, and wait for the answer. A late answer to an earlier packet of this size counts, too. */
static int path_try(int fd, const void *data, int len, int wait_ms)
{
    int error = path_answer(fd, 0);
    if (error == 0 && send(fd, data, (size_t)len, MSG_NOSIGNAL) < 0)
        error = errno;
    return error != 0 ? error : path_answer(fd, wait_ms);
}

/* Return how long to wait for the answer to a large packet if the last small packet got an answer after `took_ms`. */
static int path_large_wait(uint64_t took_ms)
{
    const uint64_t wait_ms = PATH_LARGE_FACTOR * took_ms;
    return wait_ms < PATH_LARGE_MS ? PATH_LARGE_MS : wait_ms > PATH_ANSWER_MS ? PATH_ANSWER_MS : (int)wait_ms;
}

/* Count the result of path_try for a packet of this size. */
static void path_add(struct path_answers *a, enum path_size size, int error)
{
    a->answered[size] += error == ECONNREFUSED;
    a->is_reported = a->is_reported || error == EMSGSIZE;
    a->has_error = a->has_error || (error != 0 && error != ECONNREFUSED && error != EMSGSIZE);
}

/* Carry out the steps of path_next. If large packets seem lost, check once more for a late answer. Then return the
 * result. */
static enum path_step path_run(const struct path_sockets *p, const void *data)
{
    struct path_answers a = { 0 };
    uint64_t begin_ms = clock_ms(), small_ms = 0;
    const uint64_t until_ms = begin_ms + PATH_PROBE_MS;
    enum path_step step;
    while ((step = path_next(&a)) <= PROBE_SEND_LARGE && begin_ms < until_ms) {
        const enum path_size size = step == PROBE_SEND_LARGE ? PATH_LARGE : PATH_SMALL;
        const int error = path_try(p->fd[size], data, p->data[size],
                                   size == PATH_LARGE ? path_large_wait(small_ms) : PATH_ANSWER_MS);
        const uint64_t now_ms = clock_ms();
        if (size == PATH_SMALL)
            small_ms = now_ms - begin_ms;
        begin_ms = now_ms;
        a.sent[size]++;
        path_add(&a, size, error);
    }
    if (step == PROBE_LOSES)
        path_add(&a, PATH_LARGE, path_answer(p->fd[PATH_LARGE], 0));
    step = path_next(&a);
    return step > PROBE_SEND_LARGE ? step : PROBE_UNKNOWN;
}

/* Probe port 33434, the first port of traceroute. Services do not use this port, so a host usually rejects packets to
 * this port. A rejection shows that the packet has arrived. */
enum path_step path_probe(const char *address, int *lost_bytes)
{
    static const char data[PATH_LARGE_MAX];
    const struct addrinfo numeric = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                      .ai_socktype = SOCK_DGRAM };
    struct addrinfo *to = NULL;
    struct path_sockets p = { .fd = { -1, -1 } };
    enum path_step result = PROBE_UNKNOWN;
    *lost_bytes = 0;
    if (address[0] != '\0' && getaddrinfo(address, "33434", &numeric, &to) == 0 && path_open_both(&p, to))
        result = path_run(&p, data);
    if (result == PROBE_LOSES)
        *lost_bytes = p.bytes;
    for (int i = 0; i < 2; i++)
        if (p.fd[i] >= 0)
            close(p.fd[i]);
    if (to != NULL)
        freeaddrinfo(to);
    return result;
}
