/* store_link.c -- see store_link.h. While libuv writes the bytes in `sending`, new requests are collected in `out`,
 * because `sending` must not change during a write. If the queue overflows or memory is short, the link is lost before
 * the loop waits again. */
#include "net/store_link.h"

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/syscalls.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void link_lose(struct store_link *link, const char *why);

static void wire_fails(struct store_link *link, int status);

static bool can_resume(const struct store_link *link);

static void link_handle_welcome(struct store_link *link, uint8_t status, struct slice text);

static void link_handle_answer(struct store_link *link, struct slice text);

/* --- frames --------------------------------------------------------------------------------------------- */

/* The launcher sends few kinds of requests, so it does not use the parser of the hub. A length has eight bytes,
 * little-endian. */
enum { LENGTH_BYTES = 8 };

/* Queue VALIDATE, the request of PyTorch's protocol that every store expects first. The code of VALIDATE also selects
 * dialect C of the protocol (store/ops.h). An empty queue always has space for these bytes. */
static void link_queue_validate(struct link_queue *q)
{
    const uint32_t magic = WIRE_MAGIC;
    const uint8_t bytes[] = { (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C], magic & 0xff,
                              (magic >> 8) & 0xff, (magic >> 16) & 0xff, magic >> 24 };
    buf_append(&q->bytes, bytes, sizeof(bytes));
}

/* Return true if the queue has space. After one refused request, the queue refuses all later requests, because the
 * store would not notice a missing request. */
static bool has_room(struct link_queue *q, size_t bytes)
{
    q->full = q->full || bytes > LINK_QUEUE_MAX - q->bytes.len;
    q->no_memory = q->no_memory || (!q->full && buf_reserve(&q->bytes, bytes) == NULL);
    return !q->full && !q->no_memory;
}

/* Append a request. Space for the whole request is reserved first, because half a request would corrupt the
 * connection. If `auth` is NULL, the request has no authentication tag. */
static bool link_queue_bytes(struct link_queue *q, enum op_id op, struct slice bytes, struct auth *auth)
{
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    if (!has_room(q, 1 + LENGTH_BYTES + bytes.len + AUTH_TAG_BYTES))
        return false;
    buf_append(&q->bytes, &code, 1);
    return auth != NULL ? auth_append_frame(auth, code, bytes, &q->bytes) : append_blob(&q->bytes, bytes);
}

/* Append a request that consists of `json`, and free `json` in any case. */
static bool link_queue_add(struct link_queue *q, enum op_id op, cJSON *json, struct auth *auth)
{
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    q->no_memory = q->no_memory || text == NULL;
    const bool fits = text != NULL && link_queue_bytes(q, op, slice_str(text), auth);
    cJSON_free(text);
    return fits;
}

/* Parse the first answer in the buffer `in`. If `status` is not NULL, a status byte precedes the answer. If the answer
 * is complete, return 1. Then *text is its JSON (borrowed from `in`), and *used is the length of the whole answer.
 * Return 0 for an incomplete answer, and -1 for an invalid length. */
static int link_answer(const struct buf *in, uint8_t *status, struct slice *text, size_t *used)
{
    const size_t at = status != NULL ? 1 : 0;
    if (in->len < at + LENGTH_BYTES)
        return 0;
    const uint64_t len = get_u64(in->data + at);
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

enum { PATIENCE_MS = 3, UNSEALING_MS = 1, KEEPALIVE_S = 1, KEEPALIVE_PROBES = 3 };

/* --- requests ------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status);

/* Return true if bytes wait to be sent and no write is in progress. */
static bool can_flush(const struct store_link *link)
{
    const struct link_wire *wire = link->wire;
    return wire != NULL && wire->connected && !wire->writing && !link->closing &&
           (link->out.bytes.len > 0 || wire->cipher.len > 0);
}

/* Encrypt all queued bytes. After a failure only set no_memory; on_before_poll then ends the link. */
static void encrypt(struct store_link *link)
{
    struct link_wire *wire = link->wire;
    if (link->out.bytes.len > 0 && !tls_send(wire->tls, buf_slice(&link->out.bytes), &wire->cipher))
        link->out.no_memory = true;
    link->out.bytes.len = 0;
}

/* Move the queued bytes to `sending` and write them. */
static void flush(struct store_link *link)
{
    if (!can_flush(link))
        return;
    struct link_wire *wire = link->wire;
    if (wire->tls != NULL)
        encrypt(link);
    struct buf *full = wire->tls != NULL ? &wire->cipher : &link->out.bytes;
    const struct buf empty = wire->sending;
    wire->sending = *full;
    *full = empty;
    uv_buf_t bytes = uv_buf_init((char *)wire->sending.data, (unsigned)wire->sending.len);
    wire->writing = true;
    link->urgent = false;
    int rc = uv_write(&wire->write, (uv_stream_t *)&wire->tcp, &bytes, 1, on_written);
    if (rc != 0)
        on_written(&wire->write, rc);
}

static void on_written(uv_write_t *write, int status)
{
    struct link_wire *wire = write->data;
    struct store_link *link = wire->link;
    wire->writing = false;
    wire->sending.len = 0;
    if (link == NULL)
        return;
    if (status < 0)
        wire_fails(link, status);
    else
        flush(link);
}

/* Give up the link, because the queue is full. The store does not read and has probably stopped. */
static void lose_because_full(struct store_link *link)
{
    char why[128];
    snprintf(why, sizeof(why),
             "the store does not read this node's messages: %llu messages have no answer, and %zu bytes "
             "wait to be sent",
             (unsigned long long)(link->asked - link->answered), link->out.bytes.len);
    link_lose(link, why);
}

static void on_patience_over(uv_timer_t *patience)
{
    flush(patience->data);
}

/* Send all messages that were queued in this turn of the loop. Messages that are not urgent wait up to PATIENCE_MS, so
 * that one packet can report the ends of many workers. uv_prepare runs this function before the loop waits. */
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
    return link->secret != NULL;
}

/* Return the state that adds authentication tags to requests, or NULL if the link has no secret. */
static struct auth *tags_of(struct store_link *link)
{
    return has_secret(link) ? &link->auth : NULL;
}

/* Queue a request. If the link may resume, keep a copy until the answer arrives. While the connection is broken, only
 * make the copy. */
static void ask(struct store_link *link, cJSON *json)
{
    struct link_queue *out = &link->out;
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    out->no_memory = out->no_memory || text == NULL;
    bool fits = text != NULL &&
                (link->state != LINK_UP || link_queue_bytes(out, OP_CONTROL, slice_str(text), tags_of(link)));
    if (fits && link->options.who.resumes) {
        out->full = out->full || link->unanswered.bytes.len > LINK_QUEUE_MAX;
        fits = kept_add(&link->unanswered, slice_str(text));
        out->no_memory = out->no_memory || !fits;
    }
    cJSON_free(text);
    if (link->asked == link->answered)
        link->answered_ms = clock_ms();
    link->asked += fits;
}

/* Queue a request. After the loss of the link, the request is only freed. */
static void request(struct store_link *link, cJSON *json)
{
    if (link_is_over(link))
        cJSON_Delete(json);
    else if (link->state != LINK_UP || link->early == NULL || !cJSON_AddItemToArray(link->early, json))
        ask(link, json);
}

/* Queue a message with the number of the round, so that the store detects outdated messages. Take ownership of
 * `json`, even if `link` is NULL. */
void store_link_mention(struct store_link *link, cJSON *json)
{
    if (link == NULL) {
        cJSON_Delete(json);
        return;
    }
    message_add_sender(&(struct message_sender){ .round = link->round }, json);
    request(link, json);
}

void store_link_send(struct store_link *link, cJSON *json)
{
    if (link != NULL)
        link->urgent = true; /* on_before_poll then sends the queue without a delay */
    store_link_mention(link, json);
}

/* Send `join`. Record the number of this request, because the number identifies the answer. */
void store_link_join(struct store_link *link)
{
    request(link, encode_join(link->options.plan, &link->options.who, link->instance));
    link->asked_join = link->asked;
    link->urgent = true;
}

/* Send `resume`. Do not count this message as a request. Unanswered requests are sent again on a later connection, but
 * each connection begins with a new `resume`. */
static void send_resume(struct store_link *link)
{
    const struct message_resume m = { .job = link->options.plan->job,
                                      .token = link->token,
                                      .heard = (int64_t)link->received };
    link_queue_add(&link->out, OP_CONTROL, message_encode_resume(&m), tags_of(link));
    link->urgent = true;
}

/* Send IDENTIFY together with `join` or `resume`, so that both need only one round trip. */
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
    if (link->state == LINK_RESUMING)
        send_resume(link);
    else
        store_link_join(link);
}

/* Queue the first message of AUTH. Return 0, or an error of libuv if the system provides no random numbers. */
static int greet(struct store_link *link)
{
    uint8_t nonce[AUTH_NONCE_BYTES] = { 0 }, hello[AUTH_HELLO_BYTES];
    if (sys_getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return UV_EIO;
    auth_hello(&link->auth, link->secret, AUTH_AGENT, link->options.plan->job, nonce, hello);
    link_queue_bytes(&link->out, OP_AUTH, slice_of(hello, sizeof(hello)), NULL);
    link->urgent = true;
    return 0;
}

/* Queue the first messages. If the job has a secret, this node sends data about the job only after the store has proved
 * that it has the same secret. If MUNGE delivers the secret, this node first asks for the store's credential; a later
 * connection uses the secret that was delivered. Return 0, or an error of libuv. */
static int introduce(struct store_link *link)
{
    uint8_t ask[AUTH_ASK_BYTES];
    link->secret = link->unsealed != NULL ? link->unsealed : link->options.plan->secret;
    if (link->options.fd < 0)
        link_queue_validate(&link->out);
    const bool asks = link->unsealed == NULL && plan_uses_munge(link->options.plan, link->options.address);
    if (!has_secret(link) && !asks) {
        identify(link);
        return 0;
    }
    link->early = cJSON_CreateArray();
    link->out.no_memory = link->out.no_memory || link->early == NULL;
    if (!asks)
        return greet(link);
    auth_ask(ask);
    link_queue_bytes(&link->out, OP_AUTH, slice_of(ask, sizeof(ask)), NULL);
    link->urgent = true;
    return 0;
}

/* Identify this node. Requests that were queued during AUTH follow in their order. */
static void end_auth(struct store_link *link)
{
    cJSON *early = link->early;
    link->early = NULL;
    identify(link);
    while (cJSON_GetArraySize(early) > 0)
        request(link, cJSON_DetachItemFromArray(early, 0));
    cJSON_Delete(early);
}

/* Give up the link, because MUNGE has not delivered the secret. The text for the user contains `reason` without the
 * remedy after its semicolon, because this function appends another remedy. */
static void lose_without_secret(struct store_link *link, const char *reason)
{
    char why[sizeof(struct ddp_err) + 160];
    snprintf(why, sizeof(why),
             "%.*s; run munged on every node, or start all nodes with the same --secret_file "
             "(PET_SECRET_FILE)",
             (int)strcspn(reason, ";"), reason);
    link_lose(link, why);
}

/* Begin AUTH when the credential is unsealed. The timer repeats while the thread unseals. */
static void on_unsealing(uv_timer_t *timer)
{
    struct store_link *link = timer->data;
    struct ddp_err err;
    if (!secret_call_is_over(link->call))
        return;
    uv_timer_stop(timer);
    const ddp_status status = secret_unseal_end(link->call, &link->unsealed, &err);
    link->call = NULL;
    link->secret = link->unsealed;
    if (link_is_over(link))
        return;
    if (status != DDP_OK)
        lose_without_secret(link, err.msg);
    else if (greet(link) != 0)
        link_lose(link, "the system provides no random numbers for the authentication");
}

/* Handle the answer to the request for the credential. If the store has no secret, do not end the link yet. The store
 * may be a store that rejects all nodes (store_host.h), and only its answer to `join` contains the reason. */
static void handle_credential(struct store_link *link, struct slice answer)
{
    struct slice credential;
    const enum auth_result result = auth_read_answer(answer, &credential);
    if (link->call != NULL) {
        link_lose(link, "the store sent a second credential");
    } else if (result == AUTH_OK) {
        link->call = secret_unseal_begin(credential.data, credential.len);
        uv_timer_start(&link->patience, on_unsealing, UNSEALING_MS, UNSEALING_MS);
    } else if (result == AUTH_NO_SECRET) {
        link->is_open = true;
        end_auth(link);
    } else if (result == AUTH_OTHER_VERSION) {
        link_lose(link, auth_result_text(result));
    } else {
        lose_without_secret(link, auth_result_text(result));
    }
}

/* Handle the store's proof of the secret. */
static void handle_proof(struct store_link *link, struct slice answer)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    char theirs[AUTH_PRINT_TEXT], why[256];
    const enum auth_result result = auth_prove(&link->auth, link->secret, answer, proof, theirs);
    if (result != AUTH_OK) {
        auth_explain(result, link->secret, theirs, why, sizeof(why));
        link_lose(link, why);
        return;
    }
    link_queue_bytes(&link->out, OP_AUTH, slice_of(proof, sizeof(proof)), NULL);
    end_auth(link);
}

/* Request the status. Return false before the first answer from the store. */
bool store_link_ask_status(struct store_link *link)
{
    if (link == NULL || link->answered == 0 || link_is_over(link))
        return false;
    store_link_send(link, message_encode_status(&(struct message_status){ .round = MESSAGE_NONE }));
    return true;
}

/* --- heartbeats ----------------------------------------------------------------------------------------- */

/* Detect from a late heartbeat that this process was paused, for example by SIGSTOP. The pause must not count as a
 * silence of the store, so add the length of the pause to `last_received_ms`. Do not restart the timeout: on a busy
 * machine every heartbeat may be late, and a silent store would never be detected.
 *
 * The timer and the reader both call this function, because either may run first after a pause. */
static void detect_pause(struct store_link *link, uint64_t now_ms)
{
    if (now_ms <= link->beat_at_ms + STOOD_STILL_MS)
        return;
    link->stood_ms = now_ms - link->beat_at_ms;
    link->woke_ms = link->beat_at_ms = now_ms;
    link->last_received_ms += link->stood_ms;
    if (link->last_received_ms > now_ms)
        link->last_received_ms = now_ms;
}

/* Return true if the store was silent for the whole node timeout. */
static bool is_silent(struct store_link *link, uint64_t now_ms)
{
    detect_pause(link, now_ms);
    link->beat_at_ms = now_ms + link->options.beat_ms;
    return link->options.silent_ms > 0 && now_ms - link->last_received_ms > link->options.silent_ms;
}

/* Record whether the kernel has sent segments several times without an acknowledgement. In that case, the network or
 * the store's host has failed. If only the store hangs, the kernel of its host still acknowledges. While the owner
 * dials the store because of a silence (`suspect`), change nothing. */
static void note_stuck(struct store_link *link)
{
    enum { STUCK_TIMES = 2 };
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    int fd = -1;
    if (link->suspect || link->wire == NULL || uv_fileno((uv_handle_t *)&link->wire->tcp, &fd) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return;
    if (info.tcpi_unacked == 0 || info.tcpi_retransmits < STUCK_TIMES)
        return;
    link->fate.stuck_bytes = (int)info.tcpi_snd_mss;
    link->fate.stuck_times = info.tcpi_retransmits + 1;
}

static void forget_stuck(struct store_link *link)
{
    link->fate.stuck_bytes = link->fate.stuck_times = 0;
}

/* Give up the link, because the store was silent for the whole node timeout. */
static void lose_silent(struct store_link *link)
{
    char why[256], limit[TEXT_MS_MAX];
    text_ms(link->options.silent_ms, limit);
    link->fate.is_silent = true;
    note_stuck(link);
    if (link->state == LINK_UP)
        snprintf(why, sizeof(why), "no message from the store for %s (--node_timeout)", limit);
    else
        snprintf(why, sizeof(why),
                 "the connection broke (%.100s), and no new connection succeeded within %s (--node_timeout)",
                 link->why_broken, limit);
    link_lose(link, why);
}

/* Call `broken` once if a request has no answer for a quarter of the timeout. The owner then dials again. A router may
 * have forgotten the connection, and the kernel would notice this too late. Heartbeats call this function every third
 * of the timeout, so at least the last third is left for the dial. */
static void suspect_silence(struct store_link *link)
{
    if (link->state != LINK_UP || link->suspect || !can_resume(link) || link->asked == link->answered ||
        clock_ms() - link->answered_ms <= link->options.silent_ms / 4)
        return;
    note_stuck(link);
    link->suspect = true;
    link->options.calls.broken(link->options.user, NULL);
    forget_stuck(link);
}

/* Confirm the received frames now if many frames are unconfirmed, without waiting for the next heartbeat. The store
 * keeps each frame until this node confirms the frame. */
static void confirm_received(struct store_link *link)
{
    enum { CONFIRM_EVERY = 256 };
    if (link->token[0] == '\0' || link->received - link->confirmed < CONFIRM_EVERY)
        return;
    link->confirmed = link->received;
    store_link_mention(
        link, message_encode_heartbeat(&(struct message_heartbeat){
                  .moved_ms = MESSAGE_NONE, .heard = (int64_t)link->received, .round = MESSAGE_NONE }));
}

/* Give up the link if the store was silent for the whole node timeout. Otherwise send a heartbeat, which also reports
 * changes of the workers' processes. While the connection is broken, send nothing: the first heartbeat on the new
 * connection reports these changes. */
static void on_heartbeat(uv_timer_t *timer)
{
    struct store_link *link = timer->data;
    if (is_silent(link, clock_ms())) {
        lose_silent(link);
        return;
    }
    if (link->asked != link->answered)
        note_stuck(link);
    if (link->state == LINK_UP) {
        struct message_heartbeat beat = { .moved_ms = MESSAGE_NONE,
                                          .heard = MESSAGE_NONE,
                                          .round = MESSAGE_NONE };
        if (link->token[0] != '\0')
            beat.heard = (int64_t)(link->confirmed = link->received);
        link->options.calls.beat(link->options.user, &beat);
        store_link_send(link, message_encode_heartbeat(&beat));
    }
    suspect_silence(link);
}

/* --- the connection ------------------------------------------------------------------------------------- */

/* Handle the first complete answer in `in`, and remove it. Return false if `in` has no complete answer, or if the link
 * is lost. */
static bool handle_answer(struct store_link *link)
{
    uint8_t status = 0;
    struct slice text;
    size_t used;
    int found =
        link_is_over(link)
            ? 0
            : link_answer(&link->in, link->welcome || link->early != NULL ? NULL : &status, &text, &used);
    if (found < 0)
        link_lose(link, "the peer is not a store of ddprun");
    if (found <= 0)
        return false;
    if (link->early == NULL && has_secret(link) && !auth_open(&link->auth, status, &text)) {
        link_lose(link, "a message from the store has a wrong authentication tag: the message changed on "
                        "the network, or another program sent it");
        return false;
    }
    if (link->early != NULL)
        (has_secret(link) ? handle_proof : handle_credential)(link, text);
    else if (link->welcome)
        link_handle_answer(link, text);
    else
        link_handle_welcome(link, status, text);
    buf_consume(&link->in, used);
    return true;
}

/* Provide the buffer of struct link_wire for a read. A buffer of the suggested size would take 64 KiB for each
 * read. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct link_wire *wire = handle->data;
    *buf = uv_buf_init(wire->chunk, sizeof(wire->chunk));
}

/* Clear the record of a silence, because an answer has arrived. If the owner has begun a dial because of the silence,
 * call `restored`. */
static void report_end_of_silence(struct store_link *link)
{
    link->fate.is_silent = false;
    forget_stuck(link);
    if (!link->suspect)
        return;
    link->suspect = false;
    link->options.calls.restored(link->options.user);
}

/* Decrypt received bytes. TLS may also produce bytes to send. If bytes were changed on the way, TLS fails. The link
 * then resumes with a new connection, if it can resume. */
static void decrypt(struct store_link *link, struct slice bytes)
{
    struct link_wire *wire = link->wire;
    const enum tls_state state = tls_receive(wire->tls, bytes, &link->in, &wire->cipher);
    link->urgent = link->urgent || wire->cipher.len > 0;
    if (state == TLS_FAILED && can_resume(link))
        wire_fails(link, UV_EPROTO);
    else if (state == TLS_FAILED)
        link_lose(link, tls_why(wire->tls));
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct store_link *link = ((struct link_wire *)tcp->data)->link;
    const uint64_t now_ms = clock_ms();
    if (link == NULL)
        return;
    detect_pause(link, now_ms);
    if (n < 0) {
        wire_fails(link, (int)n);
        return;
    }
    /* During a resume, only the answer to `resume` counts as a sign of life. If other bytes counted, each new
     * connection would restart the timeout, and the link could connect again without end. */
    if (link->state == LINK_UP)
        link->last_received_ms = now_ms;
    if (link->wire->tls != NULL)
        decrypt(link, slice_of(buf->base, (size_t)n));
    else if (!buf_append(&link->in, buf->base, (size_t)n))
        link_lose(link, "out of memory");
    while (handle_answer(link))
        continue;
}

/* Set the kernel's timeouts for a host that has disappeared. The kernel ends the connection if sent bytes, or
 * probes of an idle connection, are not acknowledged in time. */
static void watch_host(struct store_link *link)
{
    int fd = -1, interval = KEEPALIVE_S, probes = KEEPALIVE_PROBES;
    unsigned limit_ms = (unsigned)link->options.silent_ms;
    uv_tcp_keepalive(&link->wire->tcp, 1, KEEPALIVE_S);
    if (limit_ms == 0 || uv_fileno((uv_handle_t *)&link->wire->tcp, &fd) != 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
}

/* Start to read. Switch off Nagle's algorithm, because it would delay small messages. */
static void read_wire(struct store_link *link)
{
    link->wire->connected = true;
    uv_tcp_nodelay(&link->wire->tcp, 1);
    watch_host(link);
    uv_read_start((uv_stream_t *)&link->wire->tcp, on_alloc, on_read);
}

/* Start to read from the socket, and start the heartbeat timer. */
static void store_link_connected(struct store_link *link)
{
    link->last_received_ms = clock_ms();
    link->beat_at_ms = link->last_received_ms + link->options.beat_ms;
    read_wire(link);
    uv_timer_start(&link->heartbeat, on_heartbeat, link->options.beat_ms, link->options.beat_ms);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct store_link *link = ((struct link_wire *)connect->data)->link;
    if (link == NULL)
        return;
    if (status < 0)
        link_lose(link, uv_strerror(status));
    else
        store_link_connected(link);
}

/* Give the link a new socket (struct link_wire), which owns `tls`. Return false if memory is short. */
static bool open_wire(struct store_link *link, struct tls *tls)
{
    struct link_wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL) {
        tls_free(tls);
        return false;
    }
    wire->tls = tls;
    wire->link = link;
    wire->tcp.data = wire->connect.data = wire->write.data = wire;
    uv_tcp_init(link->options.loop, &wire->tcp);
    link->wire = wire;
    return true;
}

static void on_wire_closed(uv_handle_t *handle)
{
    struct link_wire *wire = handle->data;
    buf_free(&wire->sending);
    buf_free(&wire->cipher);
    tls_free(wire->tls);
    free(wire);
}

/* Close the socket of the link. The close callback frees the struct link_wire. If `by_reset` is true, send a reset
 * instead of a FIN, because after a FIN the store would assume that this node has ended. */
static void drop_wire(struct store_link *link, bool by_reset)
{
    struct link_wire *wire = link->wire;
    if (wire == NULL)
        return;
    link->wire = NULL;
    wire->link = NULL;
    uv_read_stop((uv_stream_t *)&wire->tcp);
    if (!by_reset || uv_tcp_close_reset(&wire->tcp, on_wire_closed) != 0)
        uv_close((uv_handle_t *)&wire->tcp, on_wire_closed);
}

/* --- a broken connection ---------------------------------------------------------------------------------- */

static bool can_resume(const struct store_link *link)
{
    return link->token[0] != '\0' && !link_is_over(link);
}

/* Close the connection, and clear all state that belongs to this connection. */
static void clear_wire(struct store_link *link)
{
    drop_wire(link, true);
    link->in.len = link->out.bytes.len = 0;
    link->welcome = link->suspect = false;
    cJSON_Delete(link->early);
    link->early = NULL;
}

/* Return true if the status shows that the store has closed the connection. The kernel reports a FIN as EOF, or as
 * EPIPE at a later write. With TLS, a FIN counts only after TLS's last message, because an attacker can forge a FIN. */
static bool is_end(const struct store_link *link, int status)
{
    const struct tls *tls = link->wire->tls;
    return (status == UV_EOF || status == UV_EPIPE) && (tls == NULL || tls_state(tls) != TLS_OPEN);
}

/* Handle an error of the socket. If the store has closed the connection, or the link cannot resume, give up the link.
 * Otherwise call `broken`, so that the owner dials. */
static void wire_fails(struct store_link *link, int status)
{
    link->fate.is_silent = status == UV_ETIMEDOUT;
    link->fate.is_unheard = !link->welcome && link->state == LINK_UP;
    if (status == UV_ETIMEDOUT)
        note_stuck(link);
    if (!can_resume(link) || is_end(link, status)) {
        link_lose(link, status == UV_EOF ? "the store closed the connection" : uv_strerror(status));
        return;
    }
    clear_wire(link);
    link->state = LINK_BROKEN;
    snprintf(link->why_broken, sizeof(link->why_broken), "%s",
             status == UV_EOF ? "the connection ended without the last message of TLS (close_notify)"
                              : uv_strerror(status));
    link->options.calls.broken(link->options.user, link->why_broken);
}

void store_link_resume(struct store_link *link, int fd, struct tls *tls, const char *own)
{
    if (link == NULL || !can_resume(link) || (link->state != LINK_BROKEN && !link->suspect)) {
        tls_free(tls);
        close(fd);
        return;
    }
    if (link->suspect)
        snprintf(link->why_broken, sizeof(link->why_broken), "the store was silent");
    clear_wire(link);
    link->state = LINK_RESUMING;
    snprintf(link->options.who.own, sizeof(link->options.who.own), "%s", own);
    link->options.fd = fd;
    int rc = open_wire(link, tls) ? uv_tcp_open(&link->wire->tcp, fd) : UV_ENOMEM;
    if (rc != 0)
        close(fd);
    if (rc == 0)
        rc = introduce(link);
    if (rc == 0)
        read_wire(link);
    else
        link_lose(link, uv_strerror(rc));
}

/* Handle the answer to `resume`: send again the requests that the store has not received. */
static void handle_resumed(struct store_link *link, const cJSON *json)
{
    struct message_answer answer;
    struct message_resumed resumed;
    struct slice frame;
    char why[512];
    message_read_answer(json, &answer);
    message_read_resumed(json, &resumed);
    const uint64_t received = link->token_at + (uint64_t)resumed.received;
    if (!answer.ok || received > link->asked) {
        snprintf(why, sizeof(why), "the connection broke (%s), and the new connection failed: %s",
                 link->why_broken,
                 answer.ok ? "the store confirms requests that this node never sent" : answer.error);
        link_lose(link, why);
        return;
    }
    uint64_t number = link->unanswered.done;
    link->answered_ms = link->last_received_ms = clock_ms();
    link->fate.is_silent = false;
    forget_stuck(link);
    link->state = LINK_UP;
    for (size_t at = 0; kept_next(&link->unanswered, &at, &frame);)
        if (++number > received)
            link_queue_bytes(&link->out, OP_CONTROL, frame, tags_of(link));
    link->urgent = true;
    link->options.calls.restored(link->options.user);
}

/* Parse a numeric address. The address is never a name, because the dial has resolved the name. */
static int resolve(const char *address, int port, struct sockaddr_storage *out)
{
    int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

/* Connect to the store. If the options have a socket, use this socket instead, because join_dial has already sent the
 * greeting on the socket. The link owns the socket of the options, even if this function fails. */
static int start(struct store_link *link)
{
    struct sockaddr_storage to;
    int rc;
    if (link->options.fd < 0) {
        rc = resolve(link->options.address, link->options.port, &to);
        return rc != 0 ? rc
                       : uv_tcp_connect(&link->wire->connect, &link->wire->tcp, (const struct sockaddr *)&to,
                                        on_connected);
    }
    rc = uv_tcp_open(&link->wire->tcp, link->options.fd);
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
    if (link != NULL) {
        link->options = *options;
        text_copy(link->address, sizeof(link->address), options->address);
        link->options.address = link->address;
    } else {
        tls_free(options->tls);
    }
    if (link == NULL || !open_wire(link, options->tls)) {
        free(link);
        if (options->fd >= 0) /* without a link, no other function closes the socket */
            close(options->fd);
        return ddp_fail(err, DDP_ERR_NOMEM, "store: cannot connect: out of memory");
    }
    link->options.who.resumes =
        options->calls.broken != NULL && options->silent_ms > 0 && !endpoint_is_loopback(options->address);
    link->heartbeat.data = link->patience.data = link->before_poll.data = link;
    uv_timer_init(options->loop, &link->heartbeat);
    uv_timer_init(options->loop, &link->patience);
    uv_prepare_init(options->loop, &link->before_poll);
    uv_prepare_start(&link->before_poll, on_before_poll);
    link->open_handles = 3;
    char remedy[FILES_REMEDY_MAX];
    int rc = introduce(link);
    if (rc == 0)
        rc = start(link);
    if (rc == 0) {
        *out = link;
        return DDP_OK;
    }
    store_link_close(link);
    return ddp_fail(err, DDP_ERR_IO, "store %s:%d: cannot connect: %s%s", options->address, options->port,
                    uv_strerror(rc), files_remedy(-rc, remedy));
}

/* --- answers ---------------------------------------------------------------------------------------------- */

/* The store answers in the order of the requests, so a counter matches answers to requests. The first answer belongs to
 * IDENTIFY. Pushes, with the member "push", may come between answers. */

/* Handle the answer to IDENTIFY, the only answer with a status byte before its JSON object. */
static void link_handle_welcome(struct store_link *link, uint8_t status, struct slice text)
{
    char why[512];
    if (status == 0) {
        link->welcome = true;
        return;
    }
    snprintf(why, sizeof(why), "the store rejected this agent: %.*s", (int)text.len, (const char *)text.data);
    link_lose(link, why);
}

/* Return true if this node must not join the store, because the store has no secret. If the store rejects the node
 * first, handle_join reports that rejection instead. */
static bool must_be_refused(const struct store_link *link)
{
    return link->is_open && (!link->options.plan->cli->torchrun || link->options.plan->encrypt);
}

/* End the link: the store has accepted this node, but the node must not join a store without a secret. */
static void lose_open_store(struct store_link *link)
{
    link_lose(link,
              "the store has no secret, so this node does not join; run munged on every node, start all "
              "nodes with the same --secret_file, or pass --insecure to all nodes");
}

/* Handle the answer to `join`. `instance` is the store's id for this run of the job. The next `join` sends this id, so
 * that a restarted store recognizes a node that the previous store had accepted. */
static void handle_join(struct store_link *link, const cJSON *json)
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
    if (must_be_refused(link)) {
        lose_open_store(link);
        return;
    }
    snprintf(link->instance, sizeof(link->instance), "%.*s", LINK_INSTANCE_MAX - 1, joined.instance);
    if (link->options.who.resumes && link->token[0] == '\0' && strlen(joined.token) == LIMIT_TOKEN) {
        snprintf(link->token, sizeof(link->token), "%s", joined.token);
        link->token_at = link->answered;
    }
    link->options.calls.joined(link->options.user, strcmp(joined.state, "spare") == 0, link->instance,
                               (uint64_t)joined.ms);
}

/* Handle a rejection. Ignore four harmless codes. Each code rejects one kind of message:
 *
 *     STALE_ROUND, NO_MEMBER  a message about a round that is over, or about a round without this node
 *     VOUCH_REFUSED           a message about the owner of a connection; usually the worker has identified itself
 *     NOTICE_REFUSED          a finding that another node of this host has already sent
 *
 * After any other code, give up the link, because store and agent disagree about the job. */
static void handle_rejection(struct store_link *link, const char *code, const char *error)
{
    char why[512];
    if (strcmp(code, "STALE_ROUND") == 0 || strcmp(code, "NO_MEMBER") == 0 ||
        strcmp(code, "VOUCH_REFUSED") == 0 || strcmp(code, "NOTICE_REFUSED") == 0)
        return;
    snprintf(why, sizeof(why), "the store rejected a message: %s", error[0] != '\0' ? error : "(no reason)");
    link_lose(link, why);
}

/* Handle an answer. Only a rejection, and the answers to `join` and to a status request, need a reaction. */
static void handle_reply(struct store_link *link, const cJSON *json)
{
    struct message_answer answer;
    struct message_refusal refusal;
    struct message_status_lists status;
    message_read_answer(json, &answer);
    message_read_refusal(json, &refusal);
    message_read_status_lists(json, &status);
    link->answered++;
    link->answered_ms = clock_ms();
    report_end_of_silence(link);
    kept_confirm(&link->unanswered, link->answered);
    if (link->answered == link->asked_join && cJSON_IsObject(json))
        handle_join(link, json);
    else if (!answer.ok)
        handle_rejection(link, refusal.code, answer.error);
    else if (status.members != NULL)
        link->options.calls.status(link->options.user, json);
}

/* --- pushes --------------------------------------------------------------------------------------------- */

/* Decode a pushed round. Return true if the round is valid. This node must have sent a `join` since its latest round,
 * and the number of the new round must be higher than the number of the latest round. If the job is static and the plan
 * has a node rank, the round must have the same node rank. */
static bool is_sane_round(const struct store_link *link, const cJSON *push, struct heard_round *round)
{
    const struct plan *plan = link->options.plan;
    const bool keeps_rank = !plan->meeting.elastic && plan->meeting.node_rank >= 0;
    return decode_round(push, plan->nproc, round) && link->asked_join != link->begun_join &&
           round->round > link->round && (!keeps_rank || round->node_rank == plan->meeting.node_rank);
}

static void push_round(struct store_link *link, const cJSON *push)
{
    struct heard_round *round = malloc(sizeof(*round)); /* too large for the stack */
    if (round == NULL || !is_sane_round(link, push, round)) {
        link_lose(link, round == NULL ? "out of memory" : "the store's message about a new round is invalid");
        free(round);
        return;
    }
    link->round = round->round;
    link->begun_join = link->asked_join;
    link->options.calls.round(link->options.user, round);
}

/* Report to the owner which nodes have joined, and which nodes are missing. Time limits that the push lacks become -1;
 * other missing numbers become 0. */
static void push_waiting(struct store_link *link, const cJSON *push)
{
    struct heard_waiting waiting;
    decode_waiting(push, &waiting);
    link->options.calls.waiting(link->options.user, &waiting);
}

/* Decode the failure that ended a round. `why` is the store's reason, which reports print first. */
static void decode_cause(const cJSON *cause, const char *why, struct failure *f)
{
    message_decode_failure(cause, f);
    text_copy(f->why, sizeof(f->why), why);
}

/* Pass the push `stop` to the owner. Ignore a stop of an earlier round, because this node has already ended that
 * round. */
static void push_stop(struct store_link *link, const cJSON *push)
{
    struct message_stop m;
    struct failure cause;
    message_read_stop(push, &m);
    if (m.round != link->round)
        return;
    decode_cause(m.cause, m.why, &cause);
    link->options.calls.stop(link->options.user, &cause);
}

/* Decode a verdict. Return false if the verdict is neither "restart" nor "finish". Without this check, the owner would
 * handle any other verdict like "finish", and end the job. */
static bool decode_verdict(const struct message_verdict *m, struct heard_verdict *v)
{
    struct message_exit exits;
    message_read_exit(m->exit, &exits);
    decode_cause(m->cause, m->why, &v->cause);
    v->what = (struct agent_verdict){ .restart = strcmp(m->next, "restart") == 0,
                                      .backoff_ms = (uint64_t)m->backoff_ms,
                                      .no_restart = no_restart_find(m->no_restart),
                                      .stop_signal = v->cause.rank < 0 ? v->cause.signal : 0,
                                      .exit_first = (int)exits.first,
                                      .exit_max = (int)exits.max,
                                      .exit_rank0 = (int)exits.rank0 };
    v->attempt = (int)m->attempt;
    v->step = m->step;
    v->best = m->best_step;
    v->stacks = m->stacks;
    return v->what.restart || strcmp(m->next, "finish") == 0;
}

/* Report a verdict to the owner. Ignore a verdict about a round that is older than this node's latest round. Accept a
 * verdict about a newer round: a node that waits for the next round is not a member of the running round, but the store
 * also sends it the verdict about the running round. */
static void push_verdict(struct store_link *link, const cJSON *push)
{
    struct message_verdict m;
    struct heard_verdict verdict;
    message_read_verdict(push, &m);
    if (m.round < link->round)
        return;
    if (decode_verdict(&m, &verdict))
        link->options.calls.verdict(link->options.user, &verdict);
    else
        link_lose(link, "the store's message about the end of the round is invalid");
}

/* Pass findings to the owner. The findings are valid only during the call. */
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
        link->options.calls.sample(link->options.user, sample.id, sample.ranks, sample.native,
                                   sample.still_ms);
}

/* Pass an event of the store to the owner, for the event log of this node. */
static void push_event(struct store_link *link, const cJSON *push)
{
    struct message_event m;
    message_read_event(push, &m);
    if (m.event != NULL)
        link->options.calls.event(link->options.user, m.event);
}

/* Handle `dropped`, the store's last message to this node. The message contains the reason why the store drops this
 * node. */
static void push_dropped(struct store_link *link, const cJSON *push)
{
    struct message_dropped m;
    message_read_dropped(push, &m);
    snprintf(link->fate.dropped, sizeof(link->fate.dropped), "%.*s", LINK_DROPPED_MAX - 1, m.why);
    link_lose(link, "the store dropped this node");
}

/* Pass on the push about a rank that left while other ranks waited. */
static void push_left_waiting(struct store_link *link, const cJSON *push)
{
    link->options.calls.left_waiting(link->options.user, push);
}

/* Call the function that handles a push of this kind. Ignore unknown kinds, because a newer store may send them. If
 * this node must not join the store, only end the link, because a push with a new round would start workers. */
static void handle_push(struct store_link *link, const cJSON *json, const char *kind)
{
    static void (*const receivers[MESSAGE_COUNT + 1])(struct store_link * link, const cJSON *push) = {
        [MESSAGE_ROUND] = push_round,       [MESSAGE_WAITING] = push_waiting,
        [MESSAGE_STOP] = push_stop,         [MESSAGE_VERDICT] = push_verdict,
        [MESSAGE_FINDINGS] = push_findings, [MESSAGE_WHO] = push_who,
        [MESSAGE_EVENT] = push_event,       [MESSAGE_LEFT_WAITING] = push_left_waiting,
        [MESSAGE_DROPPED] = push_dropped,   [MESSAGE_SAMPLE] = push_sample,
    };
    const enum message_id id = message_find_push(kind);
    if (must_be_refused(link))
        lose_open_store(link);
    else if (receivers[id] != NULL)
        receivers[id](link, json);
}

/* Handle an object from the store, and count it in `received`. The count begins with the answer that contains the
 * token. Answers to `resume` are not counted. This node reports the count to the store, so that the store does not send
 * the counted objects again. */
static void link_handle_answer(struct store_link *link, struct slice text)
{
    cJSON *json = cJSON_ParseWithLength(text.data, text.len);
    struct message_push push;
    const bool is_counted = link->state == LINK_UP;
    message_read_push(json, &push);
    if (link->state == LINK_RESUMING)
        handle_resumed(link, json);
    else if (push.push[0] != '\0')
        handle_push(link, json, push.push);
    else
        handle_reply(link, json);
    cJSON_Delete(json);
    link->received += is_counted && link->token[0] != '\0';
    if (!link_is_over(link))
        confirm_received(link);
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* The owner must close every link, even a link that is lost. The owner may close the link inside a callback. The last
 * close callback of libuv frees the link. */

/* Return true if a long pause of this process, which ended recently, may have caused the loss. */
static bool stood_still(const struct store_link *link, uint64_t now_ms)
{
    const uint64_t limit_ms = link->options.silent_ms;
    return link->stood_ms > 0 && 2 * link->stood_ms >= limit_ms && now_ms - link->woke_ms <= limit_ms;
}

const struct link_fate *store_link_fate(const struct store_link *link)
{
    return &link->fate;
}

/* Give up the link: stop the heartbeats and call `lost`, the last callback of the link. Set calls.lost to NULL, which
 * marks the link as lost (link_is_over). The link stays allocated until its owner closes the link.
 *
 * `lost` is called from the loop or inside store_link_resume, but never inside another function that the owner calls.
 * The link is lost at the first failure that no new connection can repair, for example:
 *   - No process listens.
 *   - The store rejects this agent, closes the connection, sends invalid data or does not read.
 *   - The store is silent for the whole node timeout. */
static void link_lose(struct store_link *link, const char *why)
{
    if (link_is_over(link))
        return;
    void (*lost)(void *, const char *) = link->options.calls.lost;
    link->options.calls.lost = NULL;
    link->fate.stood_ms = stood_still(link, clock_ms()) ? link->stood_ms : 0;
    if (link->wire != NULL)
        uv_read_stop((uv_stream_t *)&link->wire->tcp);
    uv_timer_stop(&link->heartbeat);
    lost(link->options.user, why);
}

/* Free the link after the last of its three handles is closed, because libuv may use a handle until then. */
static void handle_closed(uv_handle_t *handle)
{
    struct store_link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    buf_free(&link->out.bytes);
    buf_free(&link->in);
    buf_free(&link->unanswered.bytes);
    cJSON_Delete(link->early);
    secret_unseal_end(link->call, NULL, NULL);
    secret_free(link->unsealed);
    auth_wipe(&link->auth);
    free(link);
}

/* Send the queued bytes. If a write is in progress, libuv accepts no further bytes, and the queued bytes are lost. */
static void send_last(struct store_link *link)
{
    struct link_wire *wire = link->wire;
    if (wire == NULL || !wire->connected)
        return;
    if (wire->tls != NULL) {
        encrypt(link);
        tls_end(wire->tls, &wire->cipher);
    }
    const struct buf *last = wire->tls != NULL ? &wire->cipher : &link->out.bytes;
    const uv_buf_t bytes = uv_buf_init((char *)last->data, (unsigned)last->len);
    if (bytes.len > 0)
        uv_try_write((uv_stream_t *)&wire->tcp, &bytes, 1);
}

/* Close the link. The last message is sent if the kernel has space for the message. */
void store_link_close(struct store_link *link)
{
    if (link == NULL || link->closing)
        return;
    link->options.calls.lost = NULL;
    send_last(link);
    link->closing = true;
    drop_wire(link, false);
    uv_close((uv_handle_t *)&link->heartbeat, handle_closed);
    uv_close((uv_handle_t *)&link->patience, handle_closed);
    uv_close((uv_handle_t *)&link->before_poll, handle_closed);
}
