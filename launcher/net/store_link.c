/* store_link.c -- see store_link.h.
 *
 * The connection, requests, answers and the end of the link.
 *
 * Failures: no process listens, or the store rejects us, disconnects, sends invalid data, does not read, or is
 * silent. The first failure calls `lost`. The call is made from the loop, never inside a function that the owner has
 * called.
 *
 * Requests are collected in `out` while `sending` is being written. So there is one write at a time, and its buffer
 * does not move. A full queue or a lack of memory is recorded, and reported before the loop waits again. */
#include "net/store_link.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/syscalls.h"

#include <cjson/cJSON.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void link_lose(struct store_link *link, const char *why);

static void link_take_welcome(struct store_link *link, uint8_t status, struct slice text);

static void link_take_answer(struct store_link *link, struct slice text);

/* Lengths are little-endian on the wire, whatever machine this is.
 *
 * The launcher has its own few lines of the protocol beside the hub's, because it sends two kinds of requests and
 * reads one kind of answer. */

enum { LENGTH_BYTES = 8 };

static void put_u64(struct buf *out, uint64_t value)
{
    uint8_t bytes[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    buf_append(out, bytes, sizeof(bytes));
}

/* PyTorch's greeting: every store expects it first, and it selects dialect C, in which our requests have their
 * numbers. The first bytes of an empty queue always fit. */
static void link_queue_validate(struct link_queue *q)
{
    const uint32_t magic = WIRE_MAGIC;
    const uint8_t bytes[] = { (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C], magic & 0xff,
                              (magic >> 8) & 0xff, (magic >> 16) & 0xff, magic >> 24 };
    buf_append(&q->bytes, bytes, sizeof(bytes));
}

/* Returns true if the queue has room. A full queue accepts no later request, because a missing request is worse than
 * a lost link. The subtraction cannot overflow. */
static bool has_room(struct link_queue *q, size_t bytes)
{
    q->full = q->full || bytes > LINK_QUEUE_MAX - q->bytes.len;
    q->no_memory = q->no_memory || (!q->full && buf_reserve(&q->bytes, bytes) == NULL);
    return !q->full && !q->no_memory;
}

/* Append a request. Reserve room for all parts first, because half a request would be read as the beginning of the
 * next. `auth` NULL: without a tag. */
static bool link_queue_bytes(struct link_queue *q, enum op_id op, struct slice bytes, struct auth *auth)
{
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    uint8_t tag[AUTH_TAG_BYTES];
    const size_t more = auth != NULL ? sizeof(tag) : 0;
    if (!has_room(q, 1 + LENGTH_BYTES + bytes.len + more))
        return false;
    if (auth != NULL)
        auth_seal(auth, code, bytes, tag);
    buf_append(&q->bytes, &code, 1);
    put_u64(&q->bytes, bytes.len + more);
    buf_append(&q->bytes, bytes.data, bytes.len);
    buf_append(&q->bytes, tag, more);
    return true;
}

/* Append a request that consists of `json`, which is freed in any case. */
static bool link_queue_add(struct link_queue *q, enum op_id op, cJSON *json, struct auth *auth)
{
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    q->no_memory = q->no_memory || text == NULL;
    const bool fits = text != NULL && link_queue_bytes(q, op, slice_str(text), auth);
    cJSON_free(text);
    return fits;
}

/* The first answer of `in`, which has a status in front when `status` is not NULL: 1 = *text is its JSON (borrowed
 * from `in`) and *used its bytes, 0 = it is incomplete, -1 = invalid length. A length is compared with its limit
 * before it is used. The rest is computed by subtraction, which cannot overflow. */
static int link_answer(const struct buf *in, uint8_t *status, struct slice *text, size_t *used)
{
    const size_t at = status != NULL ? 1 : 0;
    uint64_t len = 0;
    if (in->len < at + LENGTH_BYTES)
        return 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        len |= (uint64_t)in->data[at + (size_t)i] << (8 * i);
    if (len > WIRE_MAX_JSON)
        return -1;
    if (in->len - at - LENGTH_BYTES < len)
        return 0;
    if (status != NULL)
        *status = in->data[0];
    *text = slice_of(in->data + at + LENGTH_BYTES, (size_t)len);
    *used = at + LENGTH_BYTES + (size_t)len;
    return 1;
}

enum { PATIENCE_MS = 3, KEEPALIVE_S = 1, KEEPALIVE_PROBES = 3 };

/* --- requests ------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status);

/* One write at a time: its buffer is being read by the kernel. */
static bool can_flush(const struct store_link *link)
{
    return link->connected && !link->writing && !link->closing && link->out.bytes.len > 0;
}

/* Swap the buffers; both keep their memory, so after the first messages the queue allocates nothing. */
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

/* The store has stopped or hangs: queueing more would need more and more memory. */
static void lose_because_full(struct store_link *link)
{
    char why[128];
    snprintf(why, sizeof(why),
             "it does not read our messages: %llu of them have no answer, %zu bytes are queued",
             (unsigned long long)(link->asked - link->answered), link->out.bytes.len);
    link_lose(link, why);
}

static void on_patience_over(uv_timer_t *patience)
{
    flush(patience->data);
}

/* Everything that one turn of the loop queues is sent at once; less urgent messages wait a moment for more. Twenty
 * workers that end within PATIENCE_MS cost one packet. uv_prepare runs last before the loop waits. */
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

static bool has_secret(const struct store_link *link)
{
    return link->options.plan->secret != NULL;
}

static struct auth *tags_of(struct store_link *link)
{
    return has_secret(link) ? &link->auth : NULL;
}

/* Queues a request. After a loss requests are freed, because they would never be sent. */
static void request(struct store_link *link, cJSON *json)
{
    if (link_is_over(link))
        cJSON_Delete(json);
    else if (link->early == NULL || !cJSON_AddItemToArray(link->early, json))
        link->asked += link_queue_add(&link->out, OP_CONTROL, json, tags_of(link));
}

/* Add the round, so that the store can detect outdated messages. Takes ownership of `json`, even without a link. */
void store_link_mention(struct store_link *link, cJSON *json)
{
    if (link == NULL) {
        cJSON_Delete(json);
        return;
    }
    message_add_sender(&(struct message_sender){ .round = link->round }, json);
    request(link, json);
}

void store_link_tell(struct store_link *link, cJSON *json)
{
    if (link != NULL)
        link->urgent = true; /* and so is everything queued before it */
    store_link_mention(link, json);
}

/* Sends `join` and keeps the number of the request, because answers have no name. */
void store_link_join(struct store_link *link)
{
    request(link, encode_join(link->options.plan, &link->options.who, link->instance));
    link->asked_join = link->asked;
    link->urgent = true;
}

/* Sends greeting, IDENTIFY and `join` together, so that they need only one round trip. */
static void identify(struct store_link *link)
{
    const struct plan *plan = link->options.plan;
    const struct message_identify who = { .role = "agent",
                                          .job = plan->job,
                                          .host = plan->facts->host,
                                          .pid = link->options.who.pid,
                                          .attempt = MESSAGE_NONE,
                                          .world_size = MESSAGE_NONE,
                                          .rank = MESSAGE_NONE };
    link_queue_add(&link->out, OP_IDENTIFY, message_encode_identify(&who), tags_of(link));
    store_link_join(link);
}

/* Queues the first messages. With a secret, the store must prove that it has the secret before this node sends anything
 * about the job. Returns 0, or a code of libuv when there are no random numbers. */
static int introduce(struct store_link *link)
{
    uint8_t nonce[AUTH_NONCE_BYTES] = { 0 }, hello[AUTH_HELLO_BYTES];
    if (link->options.fd < 0)
        link_queue_validate(&link->out);
    if (!has_secret(link)) {
        identify(link);
        return 0;
    }
    if (sys_getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return UV_EIO;
    auth_hello(&link->auth, link->options.plan->secret, AUTH_AGENT, link->options.plan->job, nonce, hello);
    link_queue_bytes(&link->out, OP_AUTH, slice_of(hello, sizeof(hello)), NULL);
    link->early = cJSON_CreateArray();
    link->out.no_memory = link->out.no_memory || link->early == NULL;
    link->urgent = true;
    return 0;
}

/* The store's answer to the first message. Requests that have waited for it follow in their order. */
static void take_proof(struct store_link *link, struct slice answer)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    char theirs[AUTH_PRINT_TEXT], ours[AUTH_PRINT_TEXT], why[256];
    const struct secret *secret = link->options.plan->secret;
    const enum auth_result result = auth_prove(&link->auth, secret, answer, proof, theirs);
    cJSON *early = link->early;
    auth_fingerprint(secret, ours);
    if (result == AUTH_SECRET_DIFFERS)
        snprintf(why, sizeof(why),
                 "secret differs: sha256 %.8s.. here, %.8s.. there; use the same --secret_file", ours,
                 theirs);
    else if (result == AUTH_NO_SECRET)
        snprintf(why, sizeof(why), "the store has no secret; start its node with the same --secret_file");
    else
        snprintf(why, sizeof(why), "the store does not prove that it has the secret: %s",
                 auth_result_text(result));
    if (result != AUTH_OK) {
        link_lose(link, why);
        return;
    }
    link->early = NULL;
    link_queue_bytes(&link->out, OP_AUTH, slice_of(proof, sizeof(proof)), NULL);
    identify(link);
    while (cJSON_GetArraySize(early) > 0)
        request(link, cJSON_DetachItemFromArray(early, 0));
    cJSON_Delete(early);
}

/* Requests the status. Before the first answer of the store this returns false, because the store may reject the
 * agent. */
bool store_link_ask_status(struct store_link *link)
{
    if (link == NULL || link->answered == 0 || link_is_over(link))
        return false;
    store_link_tell(link, message_encode_status(&(struct message_status){ .round = MESSAGE_NONE }));
    return true;
}

/* --- the beat ------------------------------------------------------------------------------------------- */

/* A process that was frozen must not blame the store for its own pause. (SIGSTOP, a VM that was moved: the clock went
 * on, and the store's answers are unread in our socket.) Excuse only the length of the pause: on a crowded machine
 * every heartbeat may be late, and a lost store would never be detected. After the pause, answers may be read before
 * the next heartbeat is due, so both places check. An answer that arrived after the heartbeat was due, but before the
 * pause, did not arrive in the future. */
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

/* It also carries changes of the workers' processes, because a diagnosis needs to know which compute and which hang. */
static void on_heartbeat(uv_timer_t *timer)
{
    struct store_link *link = timer->data;
    char why[96];
    if (is_silent(link, clock_ms())) {
        snprintf(why, sizeof(why), "no message from it for %.3g s (--node_timeout)",
                 (double)link->options.silent_ms / 1000);
        link_lose(link, why);
        return;
    }
    struct message_heartbeat beat = { .moved_ms = MESSAGE_NONE, .round = MESSAGE_NONE };
    link->options.calls.beat(link->options.user, &beat);
    store_link_tell(link, message_encode_heartbeat(&beat));
}

/* --- the connection ------------------------------------------------------------------------------------- */

/* Remove one whole answer from the front. False without one, or when no more are wanted. */
static bool take_one(struct store_link *link)
{
    uint8_t status = 0;
    struct slice text;
    size_t used;
    int found =
        link_is_over(link)
            ? 0
            : link_answer(&link->in, link->welcome || link->early != NULL ? NULL : &status, &text, &used);
    if (found < 0)
        link_lose(link, "the peer there is not a store of ddprun");
    if (found <= 0)
        return false;
    if (link->early == NULL && has_secret(link) && !auth_open(&link->auth, status, &text)) {
        link_lose(link, "a message of the store has a wrong tag");
        return false;
    }
    if (link->early != NULL)
        take_proof(link, text);
    else if (link->welcome)
        link_take_answer(link, text);
    else
        link_take_welcome(link, status, text);
    buf_consume(&link->in, used);
    return true;
}

/* One chunk owned by the link: on_read copies at once, while libuv's 64 KiB per read would be allocated and freed for
 * an answer of fifty bytes. */
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

/* The kernel gives up a host that disappeared silently: after this long without an acknowledgement of our bytes or,
 * on an idle connection, of its probes. */
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

/* Without Nagle, because a peer waits for each message. */
static void store_link_connected(struct store_link *link)
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
        store_link_connected(link);
}

/* Only literals: the store has sent its address, and a name server may take seconds. */
static int resolve(const char *address, int port, struct sockaddr_storage *out)
{
    int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

/* The link owns a socket that was handed over, even if it cannot be used; join_dial has already sent the greeting on
 * it. */
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
        store_link_connected(link);
    else
        close(link->options.fd);
    return rc;
}

ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err)
{
    struct store_link *link = calloc(1, sizeof(*link));
    if (link == NULL && options->fd >= 0) /* the socket has been handed over */
        close(options->fd);
    if (link == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot connect to the store: out of memory");
    link->options = *options;
    link->tcp.data = link->heartbeat.data = link->patience.data = link->before_poll.data = link;
    link->connect.data = link->write.data = link;
    uv_tcp_init(options->loop, &link->tcp);
    uv_timer_init(options->loop, &link->heartbeat);
    uv_timer_init(options->loop, &link->patience);
    uv_prepare_init(options->loop, &link->before_poll);
    uv_prepare_start(&link->before_poll, on_before_poll);
    link->open_handles = 4;
    int rc = introduce(link);
    if (rc == 0)
        rc = start(link);
    if (rc == 0) {
        *out = link;
        return DDP_OK;
    }
    store_link_close(link);
    return ddp_fail(err, DDP_ERR_IO, "cannot connect to the store at %s:%d: %s", options->address,
                    options->port, uv_strerror(rc));
}

/* --- answers ---------------------------------------------------------------------------------------------- */

/* The store's messages and their receivers.
 *
 * Answers come in the order of the requests, so counting is enough: the first is IDENTIFY's, and of those that follow
 * the link remembers the number of the latest join. The store may push objects between them; they carry "push". Two
 * rejections are ignored: of a message about a round that is over (STALE_ROUND), which crossed the store's own
 * message, and of a claim to a connection (VOUCH_REFUSED), which happens when a worker identifies itself while its
 * agent still answers for it. */

/* The answer to IDENTIFY, the only one with a status byte in front, and one JSON object after it. */
static void link_take_welcome(struct store_link *link, uint8_t status, struct slice text)
{
    char why[512];
    if (status == 0) {
        link->welcome = true;
        return;
    }
    snprintf(why, sizeof(why), "the store rejected this agent: %.*s", (int)text.len, (const char *)text.data);
    link_lose(link, why);
}

/* The instance names this life of the job: with it this node rejoins, and a store that was restarted detects that it
 * belongs to another. */
static void take_join(struct store_link *link, const cJSON *json)
{
    struct message_answer answer;
    struct message_joined joined;
    struct message_refusal refusal;
    message_read_answer(json, &answer);
    message_read_joined(json, &joined);
    message_read_refusal(json, &refusal);
    if (!answer.ok) {
        link->options.calls.refused(link->options.user, refusal.code, answer.error, refusal.advice);
        return;
    }
    snprintf(link->instance, sizeof(link->instance), "%.*s", LINK_INSTANCE_MAX - 1, joined.instance);
    link->options.calls.joined(link->options.user, strcmp(joined.state, "spare") == 0, link->instance,
                               (uint64_t)joined.ms);
}

/* Any other rejection is about a message that the store does not understand or believe. If the job went on, its store
 * would know less than its agents assume. */
static void take_no(struct store_link *link, const char *code, const char *error)
{
    char why[512];
    if (strcmp(code, "STALE_ROUND") == 0 || strcmp(code, "NO_MEMBER") == 0 ||
        strcmp(code, "VOUCH_REFUSED") == 0)
        return;
    snprintf(why, sizeof(why), "the store rejected a message: %s", error[0] != '\0' ? error : "(no reason)");
    link_lose(link, why);
}

/* Handles an answer. Most answers matter only if they are rejections. Only the status has members. */
static void take_reply(struct store_link *link, const cJSON *json)
{
    struct message_answer answer;
    struct message_refusal refusal;
    struct message_status_lists status;
    message_read_answer(json, &answer);
    message_read_refusal(json, &refusal);
    message_read_status_lists(json, &status);
    link->answered++;
    if (link->answered == link->asked_join && cJSON_IsObject(json))
        take_join(link, json);
    else if (!answer.ok)
        take_no(link, refusal.code, answer.error);
    else if (status.members != NULL)
        link->options.calls.status(link->options.user, json);
}

/* --- pushes --------------------------------------------------------------------------------------------- */

/* Only a node that has joined since the last round is in a round; numbers rise, and a given node rank stays. */
static bool is_sane_round(const struct store_link *link, const cJSON *push, struct heard_round *round)
{
    const struct plan *plan = link->options.plan;
    const bool keeps_rank = !plan->meeting.elastic && plan->meeting.node_rank >= 0;
    return decode_round(push, plan->nproc, round) && link->asked_join != link->begun_join &&
           round->round > link->round && (!keeps_rank || round->node_rank == plan->meeting.node_rank);
}

static void push_round(struct store_link *link, const cJSON *push)
{
    struct heard_round *round = malloc(sizeof(*round)); /* too large for a stack */
    if (round == NULL || !is_sane_round(link, push, round)) {
        link_lose(link, round == NULL ? "out of memory" : "it sent an invalid round");
    } else {
        link->round = round->round;
        link->begun_join = link->asked_join;
        link->options.calls.round(link->options.user, round);
    }
    free(round);
}

/* Missing fields are 0 here: they are for a line on the screen, and no decision depends on them. */
static void push_waiting(struct store_link *link, const cJSON *push)
{
    struct heard_waiting waiting;
    decode_waiting(push, &waiting);
    link->options.calls.waiting(link->options.user, &waiting);
}

/* Ignore a stop of another round: it crossed our own message about that one. */
static void push_stop(struct store_link *link, const cJSON *push)
{
    struct failure cause;
    if (decode_whose_round(push) != link->round)
        return;
    decode_stop(push, &cause);
    link->options.calls.stop(link->options.user, &cause);
}

/* A verdict about a later round ends the wait of a node that is in none. */
static void push_verdict(struct store_link *link, const cJSON *push)
{
    struct heard_verdict verdict;
    if (decode_whose_round(push) < link->round)
        return;
    if (decode_verdict(push, &verdict))
        link->options.calls.verdict(link->options.user, &verdict);
    else
        link_lose(link, "it sent an invalid verdict");
}

/* Passed on unchanged, and valid only during the call. */
static void push_findings(struct store_link *link, const cJSON *push)
{
    link->options.calls.findings(link->options.user, push);
}

static void push_who(struct store_link *link, const cJSON *push)
{
    struct message_who who;
    message_read_who(push, &who);
    if (who.conn >= 1)
        link->options.calls.who(link->options.user, who.conn, who.peer, who.store, who.owner);
}

static void push_sample(struct store_link *link, const cJSON *push)
{
    struct message_sample sample;
    message_read_sample(push, &sample);
    if (sample.id >= 1)
        link->options.calls.sample(link->options.user, sample.id, sample.ranks, sample.native);
}

/* Passed on unchanged: the event log of this node holds the store's events beside its own. */
static void push_event(struct store_link *link, const cJSON *push)
{
    struct message_event m;
    message_read_event(push, &m);
    if (m.event != NULL)
        link->options.calls.event(link->options.user, m.event);
}

/* The store's last message to this node. */
static void push_dropped(struct store_link *link, const cJSON *push)
{
    struct message_dropped m;
    message_read_dropped(push, &m);
    snprintf(link->fate.dropped, sizeof(link->fate.dropped), "%.*s", LINK_DROPPED_MAX - 1, m.why);
    link_lose(link, "the store gave up this node");
}

/* Passed on as findings, and kept for the report. */
static void push_left_waiting(struct store_link *link, const cJSON *push)
{
    link->options.calls.left_waiting(link->options.user, push);
}

/* Ignore unknown kinds: they come from a newer store. */
static void take_push(struct store_link *link, const cJSON *json, const char *kind)
{
    static void (*const take[MESSAGE_COUNT + 1])(struct store_link * link, const cJSON *push) = {
        [MESSAGE_ROUND] = push_round,       [MESSAGE_WAITING] = push_waiting,
        [MESSAGE_STOP] = push_stop,         [MESSAGE_VERDICT] = push_verdict,
        [MESSAGE_FINDINGS] = push_findings, [MESSAGE_WHO] = push_who,
        [MESSAGE_EVENT] = push_event,       [MESSAGE_LEFT_WAITING] = push_left_waiting,
        [MESSAGE_DROPPED] = push_dropped,   [MESSAGE_SAMPLE] = push_sample,
    };
    const enum message_id id = message_find_push(kind);
    if (take[id] != NULL)
        take[id](link, json);
}

/* Handles an object from the store. A push is not counted as an answer. */
static void link_take_answer(struct store_link *link, struct slice text)
{
    cJSON *json = cJSON_ParseWithLength(text.data, text.len);
    struct message_push push;
    message_read_push(json, &push);
    if (push.push[0] != '\0')
        take_push(link, json, push.push);
    else
        take_reply(link, json);
    cJSON_Delete(json);
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* How the link ends: it is lost for whatever reason; then its owner closes it, and the last of its handles frees it.
 * Both may happen within a callback, in either order. */

/* A pause that ended long ago, or was too short to matter, did not cause the loss. */
static bool stood_still(const struct store_link *link, uint64_t now_ms)
{
    const uint64_t limit_ms = link->options.silent_ms;
    return link->stood_ms > 0 && 2 * link->stood_ms >= limit_ms && now_ms - link->woke_ms <= limit_ms;
}

const struct link_fate *store_link_fate(const struct store_link *link)
{
    return &link->fate;
}

/* The link reports nothing after this. It stays allocated until its owner closes it, perhaps inside the callback.
 * `lost` is cleared before it is called, so any nested call finds the link closed. The heartbeat stops with it,
 * because unsent heartbeats would fill the queue. */
static void link_lose(struct store_link *link, const char *why)
{
    if (link_is_over(link))
        return;
    void (*lost)(void *, const char *) = link->options.calls.lost;
    link->options.calls.lost = NULL;
    link->fate.stood_ms = stood_still(link, clock_ms()) ? link->stood_ms : 0;
    uv_read_stop((uv_stream_t *)&link->tcp);
    uv_timer_stop(&link->heartbeat);
    lost(link->options.user, why);
}

/* libuv may touch a handle until its close callback has run; all four must have. */
static void handle_closed(uv_handle_t *handle)
{
    struct store_link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    buf_free(&link->out.bytes);
    buf_free(&link->sending);
    buf_free(&link->in);
    cJSON_Delete(link->early);
    auth_wipe(&link->auth);
    free(link);
}

/* A write of this turn may be done although its callback has not run, so ask libuv and not `writing`: libuv takes
 * nothing after a write that is still in progress. */
static void send_last(struct store_link *link)
{
    const uv_buf_t bytes = uv_buf_init((char *)link->out.bytes.data, (unsigned)link->out.bytes.len);
    if (link->connected && bytes.len > 0)
        uv_try_write((uv_stream_t *)&link->tcp, &bytes, 1);
}

/* Send the last message if there is room; the kernel delivers it before the end. */
void store_link_close(struct store_link *link)
{
    if (link == NULL || link->closing)
        return;
    link->options.calls.lost = NULL;
    send_last(link);
    link->closing = true;
    uv_close((uv_handle_t *)&link->tcp, handle_closed);
    uv_close((uv_handle_t *)&link->heartbeat, handle_closed);
    uv_close((uv_handle_t *)&link->patience, handle_closed);
    uv_close((uv_handle_t *)&link->before_poll, handle_closed);
}
