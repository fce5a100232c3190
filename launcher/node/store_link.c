/* store_link.c -- see store_link.h: the connection, and what goes out. link_core.h has the other files of the link.
 *
 * It can go wrong when: nobody listens, we are refused, the store goes away, sends nonsense, does not read or says
 * nothing. Each ends in `lost`, once, and never inside a call of the owner's: he may be in the middle of a step.
 *
 * Requests gather in `out` while `sending` is being written, so there is one write at a time and its buffer
 * never moves under the kernel. A queue that is full or had no memory is only noted where it happens, and
 * told before the loop waits again. */
#include "node/link_core.h"

#include "base/clock.h"
#include "base/json_integer.h"
#include "base/limits.h"

#include <cjson/cJSON.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_MS = 3, KEEPALIVE_S = 1, KEEPALIVE_PROBES = 3 };

/* --- requests ------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status);

/* One write at a time: its buffer is being read by the kernel. */
static bool can_flush(const struct store_link *link)
{
    return link->connected && !link->writing && !link->closing && link->out.bytes.len > 0;
}

/* The buffers change places and both keep their memory: after the first messages the queue allocates
 * nothing. */
static void flush(struct store_link *link)
{
    if (!can_flush(link))
        return;
    struct buf empty = link->sending;
    link->sending = link->out.bytes;
    link->out.bytes = empty;
    uv_buf_t bytes = uv_buf_init((char *)link->sending.data, (unsigned)link->sending.len);
    link->writing = true;
    link->urgent = false;
    int rc = uv_write(&link->write, (uv_stream_t *)&link->tcp, &bytes, 1, on_written);
    if (rc != 0)
        on_written(&link->write, rc);
}

static void on_written(uv_write_t *write, int status)
{
    struct store_link *link = write->data;
    link->writing = false;
    link->sending.len = 0;
    if (status < 0)
        link_lose(link, uv_strerror(status));
    else
        flush(link);
}

/* It has stopped, or hangs: who keeps on telling it would need more and more memory. */
static void lose_because_full(struct store_link *link)
{
    char why[128];
    snprintf(why, sizeof(why), "it does not take our messages: %llu of them have no answer, %zu bytes wait",
             (unsigned long long)(link->asked - link->answered), link->out.bytes.len);
    link_lose(link, why);
}

static void on_patience_over(uv_timer_t *patience)
{
    flush(patience->data);
}

/* All that one turn of the loop had to tell goes out at once; what is only mentioned waits a moment for
 * more. Twenty workers that end within PATIENCE_MS cost one packet. uv_prepare runs last before the loop
 * waits, when everything that this turn had to say has been said. */
static void on_before_poll(uv_prepare_t *prepare)
{
    struct store_link *link = prepare->data;
    if (link->out.full)
        lose_because_full(link);
    else if (link->out.no_memory)
        link_lose(link, "out of memory");
    else if (link->urgent)
        flush(link);
    else if (can_flush(link) && !uv_is_active((uv_handle_t *)&link->patience))
        uv_timer_start(&link->patience, on_patience_over, PATIENCE_MS, 0);
}

/* After a loss nothing is queued: nobody would take it away. */
static void request(struct store_link *link, cJSON *json)
{
    if (link_is_over(link))
        cJSON_Delete(json);
    else
        link->asked += link_queue_add(&link->out, OP_CONTROL, json);
}

/* With the round, so that the store can tell what has been overtaken. Takes `json` over, also when there is
 * no link. */
void store_link_mention(struct store_link *link, cJSON *json)
{
    if (link == NULL) {
        cJSON_Delete(json);
        return;
    }
    json_add_integer(json, "round", link->round);
    request(link, json);
}

void store_link_tell(struct store_link *link, cJSON *json)
{
    if (link != NULL)
        link->urgent = true; /* and so is what waits before it */
    store_link_mention(link, json);
}

/* Its number is remembered: answers carry no name, and this is the one whose answer is looked into. */
void store_link_join(struct store_link *link)
{
    request(link, say_join(link->options.plan, &link->options.who, link->instance));
    link->asked_join = link->asked;
    link->urgent = true;
}

/* All of it goes out together with the first bytes: one round trip, and the answer is the round. */
static void introduce(struct store_link *link)
{
    const struct plan *plan = link->options.plan;
    cJSON *who = cJSON_CreateObject();
    if (link->options.fd < 0)
        link_queue_validate(&link->out);
    cJSON_AddStringToObject(who, "role", "agent");
    cJSON_AddStringToObject(who, "job", plan->job);
    cJSON_AddStringToObject(who, "host", plan->facts->host);
    json_add_integer(who, "pid", link->options.who.pid);
    link_queue_add(&link->out, OP_IDENTIFY, who);
    store_link_join(link);
}

/* Not before the first answer: until then it is not sure that the other side can take a question at all. */
bool store_link_ask_status(struct store_link *link)
{
    if (link == NULL || link->answered == 0 || link_is_over(link))
        return false;
    store_link_tell(link, say("status"));
    return true;
}

/* --- the beat ------------------------------------------------------------------------------------------- */

/* A process that stood still must not take its own sleep for the store's. (SIGSTOP, a VM that moved: the clock has run
 * on, and the store's answers lie unread in our socket.) No more than the sleep is forgiven: on a crowded machine every
 * beat may be late, and the store would never be missed. When it goes on, what it reads may come before its beat is
 * due: so both look. What was heard after the beat was due, but before the sleep, was not heard in the future. */
static void feel_pulse(struct store_link *link, uint64_t now_ms)
{
    if (now_ms <= link->beat_at_ms + STOOD_STILL_MS)
        return;
    link->stood_ms = now_ms - link->beat_at_ms;
    link->woke_ms = link->beat_at_ms = now_ms;
    link->heard_ms += link->stood_ms;
    if (link->heard_ms > now_ms)
        link->heard_ms = now_ms;
}

static bool is_silent(struct store_link *link, uint64_t now_ms)
{
    feel_pulse(link, now_ms);
    link->beat_at_ms = now_ms + link->options.beat_ms;
    return link->options.silent_ms > 0 && now_ms - link->heard_ms > link->options.silent_ms;
}

/* It also carries what is new of the workers' processes, for a diagnosis needs to know who computes and who
 * hangs. */
static void on_heartbeat(uv_timer_t *timer)
{
    struct store_link *link = timer->data;
    char why[96];
    if (is_silent(link, clock_ms())) {
        snprintf(why, sizeof(why), "it has said nothing for %.3g s (--node_timeout)",
                 (double)link->options.silent_ms / 1000);
        link_lose(link, why);
        return;
    }
    cJSON *beat = say("heartbeat");
    link->options.calls.beat(link->options.user, beat);
    store_link_tell(link, beat);
}

/* --- the connection ------------------------------------------------------------------------------------- */

/* Take one whole answer off the front. False when there is none, or no more is wanted. */
static bool take_one(struct store_link *link)
{
    uint8_t status = 0;
    struct slice text;
    size_t used;
    int found = link_is_over(link) ? 0 : link_answer(&link->in, link->welcome ? NULL : &status, &text, &used);
    if (found < 0)
        link_lose(link, "what answers there is not a store of ddprun");
    if (found <= 0)
        return false;
    if (link->welcome)
        link_take_answer(link, text);
    else
        link_take_welcome(link, status, text);
    buf_consume(&link->in, used);
    return true;
}

/* One chunk of the link's own: on_read copies at once, and libuv's 64 KiB for each read would be allocated
 * and freed for an answer of fifty bytes. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct store_link *link = handle->data;
    *buf = uv_buf_init(link->chunk, sizeof(link->chunk));
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct store_link *link = tcp->data;
    const uint64_t now_ms = clock_ms();
    feel_pulse(link, now_ms);
    link->heard_ms = now_ms;
    if (n < 0)
        link_lose(link, n == UV_EOF ? "the store closed the connection" : uv_strerror((int)n));
    else if (!buf_append(&link->in, buf->base, (size_t)n))
        link_lose(link, "out of memory");
    while (take_one(link))
        continue;
}

/* The kernel gives up on a host that has gone without a word: after so long bytes of ours have no answer, or, while
 * nobody speaks, its probes. */
static void watch_host(struct store_link *link)
{
    int fd = -1, interval = KEEPALIVE_S, probes = KEEPALIVE_PROBES;
    unsigned limit_ms = (unsigned)link->options.silent_ms;
    uv_tcp_keepalive(&link->tcp, 1, KEEPALIVE_S);
    if (limit_ms == 0 || uv_fileno((uv_handle_t *)&link->tcp, &fd) != 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
}

/* Without Nagle: a message here is what somebody waits for. */
static void begin(struct store_link *link)
{
    link->connected = true;
    link->heard_ms = clock_ms();
    link->beat_at_ms = link->heard_ms + link->options.beat_ms;
    uv_tcp_nodelay(&link->tcp, 1);
    watch_host(link);
    uv_read_start((uv_stream_t *)&link->tcp, on_alloc, on_read);
    uv_timer_start(&link->heartbeat, on_heartbeat, link->options.beat_ms, link->options.beat_ms);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct store_link *link = connect->data;
    if (status < 0)
        link_lose(link, uv_strerror(status));
    else
        begin(link);
}

/* Only literals: the store has told us the address that it listens on, and a name server may take
 * seconds. */
static int resolve(const char *address, int port, struct sockaddr_storage *out)
{
    int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

/* A socket that was handed over is ours also when it cannot be used; join_dial has greeted on it already. */
static int start(struct store_link *link)
{
    struct sockaddr_storage to;
    int rc;
    if (link->options.fd < 0) {
        rc = resolve(link->options.address, link->options.port, &to);
        return rc != 0
                   ? rc
                   : uv_tcp_connect(&link->connect, &link->tcp, (const struct sockaddr *)&to, on_connected);
    }
    rc = uv_tcp_open(&link->tcp, link->options.fd);
    if (rc == 0)
        begin(link);
    else
        close(link->options.fd);
    return rc;
}

ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err)
{
    struct store_link *link = calloc(1, sizeof(*link));
    if (link == NULL && options->fd >= 0) /* it has been handed over */
        close(options->fd);
    if (link == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the connection to the store");
    link->options = *options;
    link->tcp.data = link->heartbeat.data = link->patience.data = link->before_poll.data = link;
    link->connect.data = link->write.data = link;
    uv_tcp_init(options->loop, &link->tcp);
    uv_timer_init(options->loop, &link->heartbeat);
    uv_timer_init(options->loop, &link->patience);
    uv_prepare_init(options->loop, &link->before_poll);
    uv_prepare_start(&link->before_poll, on_before_poll);
    link->open_handles = 4;
    introduce(link);
    int rc = start(link);
    if (rc == 0) {
        *out = link;
        return DDP_OK;
    }
    store_link_close(link);
    return ddp_fail(err, DDP_ERR_IO, "cannot connect to the store at %s:%d: %s", options->address,
                    options->port, uv_strerror(rc));
}
