/* store_link.c -- see store_link.h.
 *
 * Answers come in the order of the requests, so counting is enough: the first is IDENTIFY's, and of those
 * that follow the link remembers the numbers of the two kinds that are waited for. The store may push
 * objects of its own between them, they carry "push".
 *
 * It can go wrong when: nobody listens, we are refused, the store goes away, sends nonsense or does not read.
 * Each ends in `lost`, once, and never inside a call of the owner's: he may be in the middle of a step. */
#include "node/store_link.h"

#include "text/rank_set.h"

#include "base/buf.h"
#include "base/progress_key.h"
#include "core/ops.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    HEARTBEAT_MS = 1000,
    PATIENCE_MS = 3,
    READ_BYTES = 4096,
    LENGTH_BYTES = 8,
    WAITING_SHOWN = 60,
    QUEUE_BYTES_MAX = 4 << 20, /* ten times what the starts and ends of 1,000 workers take */
};

/* Two buffers for what goes out: libuv needs the bytes of a write to stay where they are until it
 * is done, so new words gather in `out` meanwhile. This also puts the words about many workers into
 * few writes. */
struct store_link {
    struct store_link_options options;
    uv_tcp_t tcp;
    uv_timer_t heartbeat, patience;
    uv_prepare_t before_poll;
    uv_connect_t connect;
    uv_write_t write;
    struct buf out;     /* not yet handed to libuv */
    struct buf sending; /* libuv's until on_written */
    struct buf in;
    char chunk[READ_BYTES];
    uint64_t asked, answered;           /* requests but IDENTIFY, and answers to them */
    uint64_t asked_job, asked_progress; /* numbers of the latest of their kind */
    bool urgent;                        /* something in `out` is */
    bool connected, writing, welcome, closing;
    bool full, no_memory; /* a request could not be queued: told to the owner by the next turn of the loop */
    int open_handles;
};

/* --- the end -------------------------------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct store_link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    buf_free(&link->out);
    buf_free(&link->sending);
    buf_free(&link->in);
    free(link);
}

void store_link_close(struct store_link *link)
{
    if (link == NULL || link->closing)
        return;
    link->closing = true;
    uv_close((uv_handle_t *)&link->tcp, handle_closed);
    uv_close((uv_handle_t *)&link->heartbeat, handle_closed);
    uv_close((uv_handle_t *)&link->patience, handle_closed);
    uv_close((uv_handle_t *)&link->before_poll, handle_closed);
}

/* After this nothing more is heard from the link. It stays allocated until its owner closes it, who
 * may do that from within the callback. */
static void lose(struct store_link *link, const char *why)
{
    if (link->closing || link->options.lost == NULL)
        return;
    void (*lost)(void *, const char *) = link->options.lost;
    link->options.lost = NULL;
    uv_read_stop((uv_stream_t *)&link->tcp);
    uv_timer_stop(&link->heartbeat);
    lost(link->options.user, why);
}

/* --- requests ------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status);

static bool can_flush(const struct store_link *link)
{
    return link->connected && !link->writing && !link->closing && link->out.len > 0;
}

static void flush(struct store_link *link)
{
    if (!can_flush(link))
        return;
    struct buf empty = link->sending;
    link->sending = link->out;
    link->out = empty;
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
        lose(link, uv_strerror(status));
    else
        flush(link);
}

/* It has stopped, or hangs: who keeps on telling it would need more and more memory. */
static void lose_because_full(struct store_link *link)
{
    char why[128];
    snprintf(why, sizeof(why), "it does not take our messages: %llu of them have no answer, %zu bytes wait",
             (unsigned long long)(link->asked - link->answered), link->out.len);
    lose(link, why);
}

static void on_patience_over(uv_timer_t *patience)
{
    flush(patience->data);
}

/* All that one turn of the loop had to tell goes out at once, and what is not urgent waits a moment for more of its kind:
 * 256 workers that start, or end well, would otherwise wake the store 256 times while they need the processor
 * themselves. */
static void on_before_poll(uv_prepare_t *prepare)
{
    struct store_link *link = prepare->data;
    if (link->full)
        lose_because_full(link);
    else if (link->no_memory)
        lose(link, "out of memory");
    else if (link->urgent)
        flush(link);
    else if (can_flush(link) && !uv_is_active((uv_handle_t *)&link->patience))
        uv_timer_start(&link->patience, on_patience_over, PATIENCE_MS, 0);
}

/* Lengths are little-endian on the wire, whatever machine this is. */
static void put_u64(struct buf *out, uint64_t value)
{
    uint8_t bytes[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    buf_append(out, bytes, sizeof(bytes));
}

/* Is there room for a whole request? Half of one would be taken for the beginning of the next. */
static bool has_room(struct store_link *link, size_t bytes)
{
    link->full = link->full || bytes > QUEUE_BYTES_MAX - link->out.len;
    link->no_memory = link->no_memory || (!link->full && buf_reserve(&link->out, bytes) == NULL);
    return !link->full && !link->no_memory;
}

/* Queue one request that consists of a JSON object; `json` is freed. After a loss nothing is queued: nobody would take
 * it away. */
static void put_request(struct store_link *link, enum op_id op, cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    const size_t len = text != NULL ? strlen(text) : 0;
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cJSON_Delete(json);
    link->no_memory = link->no_memory || text == NULL;
    if (link->options.lost != NULL && has_room(link, 1 + LENGTH_BYTES + len)) {
        buf_append(&link->out, &code, 1);
        put_u64(&link->out, len);
        buf_append(&link->out, text, len);
        link->asked += op == OP_CONTROL;
    }
    cJSON_free(text);
}

/* ... which leaves with the next turn of the loop, and what waits before it, too. */
static void request(struct store_link *link, enum op_id op, cJSON *json)
{
    link->urgent = true;
    put_request(link, op, json);
}

static cJSON *control(const char *op)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", op);
    return json;
}

/* PyTorch's greeting: it makes the connection one of dialect C, in which our requests have their
 * numbers. */
static void put_validate(struct store_link *link)
{
    const uint32_t magic = WIRE_MAGIC;
    const uint8_t bytes[] = { (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C], magic & 0xff,
                              (magic >> 8) & 0xff, (magic >> 16) & 0xff, magic >> 24 };
    buf_append(&link->out, bytes, sizeof(bytes));
}

/* Both requests go out together with the first bytes: the answer to the second says that the store
 * has heard the first. A job's attempt begins with an empty key space, so no worker may be started
 * before that answer. */
static void introduce(struct store_link *link)
{
    const struct store_link_options *o = &link->options;
    put_validate(link);
    cJSON *who = cJSON_CreateObject();
    cJSON_AddStringToObject(who, "role", "agent");
    cJSON_AddStringToObject(who, "job", o->job);
    cJSON_AddNumberToObject(who, "attempt", 0);
    cJSON_AddNumberToObject(who, "world_size", o->world_size);
    cJSON_AddStringToObject(who, "host", o->host);
    cJSON_AddNumberToObject(who, "pid", getpid());
    request(link, OP_IDENTIFY, who);
    store_link_attempt(link, 0);
}

/* The number of the request is kept, its answer is what the caller waits for. */
void store_link_attempt(struct store_link *link, int attempt)
{
    cJSON *job = control("job");
    cJSON_AddStringToObject(job, "job", link->options.job);
    cJSON_AddNumberToObject(job, "attempt", attempt);
    cJSON_AddNumberToObject(job, "world_size", link->options.world_size);
    request(link, OP_CONTROL, job);
    link->asked_job = link->asked;
}

/* One question for all ranks, asked once per attempt: cheaper than a report of every step. Clients of c10d put a '/' in
 * front of each key. */
void store_link_ask_progress(struct store_link *link)
{
    cJSON *keys = control("keys");
    cJSON_AddStringToObject(keys, "prefix", "/" PROGRESS_KEY);
    request(link, OP_CONTROL, keys);
    link->asked_progress = link->asked;
}

static cJSON *about_worker(const char *op, int rank, int pid)
{
    cJSON *json = control(op);
    cJSON_AddNumberToObject(json, "rank", rank);
    cJSON_AddNumberToObject(json, "pid", pid);
    return json;
}

void store_link_started(struct store_link *link, int rank, int local_rank, int pid)
{
    cJSON *json = about_worker("worker_started", rank, pid);
    cJSON_AddStringToObject(json, "host", link->options.host);
    cJSON_AddNumberToObject(json, "local_rank", local_rank);
    put_request(link, OP_CONTROL, json);
}

void store_link_exited(struct store_link *link, int rank, int pid, int exit_code, int signal)
{
    cJSON *json = about_worker("worker_exited", rank, pid);
    cJSON_AddNumberToObject(json, signal != 0 ? "signal" : "exit_code", signal != 0 ? signal : exit_code);
    put_request(link, OP_CONTROL, json);
    link->urgent = link->urgent || signal != 0 || exit_code != 0;
}

bool store_link_ask_status(struct store_link *link)
{
    if (link == NULL || link->answered == 0 || link->closing || link->options.lost == NULL)
        return false;
    request(link, OP_CONTROL, control("status"));
    return true;
}

/* So that a store that serves many hosts can tell a silent agent from a dead one. */
static void on_heartbeat(uv_timer_t *timer)
{
    request(timer->data, OP_CONTROL, control("heartbeat"));
}

/* --- answers -------------------------------------------------------------------------------------------- */

/* A length is compared with its limit before anything is done with it.
 * The blob at `at` of what has come: 1 and *blob, 0 = not all of it is here, -1 = no sane length. */
static int blob_at(const struct buf *in, size_t at, struct slice *blob)
{
    uint64_t len = 0;
    if (in->len < at + LENGTH_BYTES)
        return 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        len |= (uint64_t)in->data[at + (size_t)i] << (8 * i);
    if (len > WIRE_MAX_JSON)
        return -1;
    *blob = slice_of(in->data + at + LENGTH_BYTES, (size_t)len);
    return in->len - at - LENGTH_BYTES >= len;
}

static void take_welcome(struct store_link *link, uint8_t status, struct slice text)
{
    char why[512];
    if (status == 0) {
        link->welcome = true;
        return;
    }
    snprintf(why, sizeof(why), "the store refused this agent: %.*s", (int)text.len, (const char *)text.data);
    lose(link, why);
}

/* A step as a worker has written it, -1 when it is no number. */
static int64_t step_of(const cJSON *row)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, "value");
    char *end = NULL;
    const char *text = cJSON_IsString(value) ? value->valuestring : "";
    long long step = strtoll(text, &end, 10);
    return end != text && *end == '\0' && step >= 0 ? (int64_t)step : -1;
}

/* The job has come as far as the rank that came furthest: the others are at most one step behind it. */
static void take_progress(struct store_link *link, const cJSON *answer)
{
    int64_t furthest = -1;
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(answer, "keys"))
    {
        int64_t step = step_of(row);
        furthest = step > furthest ? step : furthest;
    }
    link->options.progress(link->options.user, furthest);
}

/* -1 is what rank_set.h leaves out. */
static int rank_in_array(const void *array, int i)
{
    const cJSON *item = cJSON_GetArrayItem(array, i);
    return cJSON_IsNumber(item) ? item->valueint : -1;
}

/* What the store tells unasked. Kinds that we do not know are of a newer store and passed over. */
static void take_push(struct store_link *link, const cJSON *push)
{
    struct buf text = { 0 };
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(push, "push");
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(push, "rank");
    const cJSON *barrier = cJSON_GetObjectItemCaseSensitive(push, "barrier");
    const cJSON *waiting = cJSON_GetObjectItemCaseSensitive(push, "waiting");
    if (cJSON_IsString(kind) && strcmp(kind->valuestring, "left_waiting") == 0 && cJSON_IsNumber(rank) &&
        cJSON_IsString(barrier) &&
        rank_set_print_each(rank_in_array, waiting, cJSON_GetArraySize(waiting), WAITING_SHOWN, &text) &&
        buf_append(&text, "", 1))
        link->options.left_waiting(link->options.user, rank->valueint, barrier->valuestring,
                                   (const char *)text.data);
    buf_free(&text);
}

/* The answer to `job` makes us ready; most others only matter when they say no. */
static void take_reply(struct store_link *link, const cJSON *json)
{
    char why[512];
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    link->answered++;
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "ok"))) {
        snprintf(why, sizeof(why), "the store said no: %s",
                 cJSON_IsString(error) ? error->valuestring : "(no reason)");
        lose(link, why);
    } else if (link->answered == link->asked_job) {
        link->options.ready(link->options.user);
    } else if (link->answered == link->asked_progress) {
        take_progress(link, json);
    } else if (cJSON_GetObjectItemCaseSensitive(json, "members") != NULL) { /* only this answer has them */
        link->options.status(link->options.user, json);
    }
}

/* Pushed objects are no answers and must not be counted as such. */
static void take_answer(struct store_link *link, struct slice text)
{
    cJSON *json = cJSON_ParseWithLength(text.data, text.len);
    if (cJSON_GetObjectItemCaseSensitive(json, "push") != NULL)
        take_push(link, json);
    else
        take_reply(link, json);
    cJSON_Delete(json);
}

/* Take one whole answer off the front. False when there is none, or no more is wanted. */
static bool take_one(struct store_link *link)
{
    const size_t at = link->welcome ? 0 : 1; /* IDENTIFY's answer has a status in front */
    struct slice blob;
    int found = link->closing || link->options.lost == NULL ? 0 : blob_at(&link->in, at, &blob);
    if (found < 0)
        lose(link, "what answers there is not a store of ddprun");
    if (found <= 0)
        return false;
    if (link->welcome)
        take_answer(link, blob);
    else
        take_welcome(link, link->in.data[0], blob);
    buf_consume(&link->in, at + LENGTH_BYTES + blob.len);
    return true;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct store_link *link = handle->data;
    *buf = uv_buf_init(link->chunk, sizeof(link->chunk));
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct store_link *link = tcp->data;
    if (n < 0)
        lose(link, n == UV_EOF ? "the store closed the connection" : uv_strerror((int)n));
    else if (!buf_append(&link->in, buf->base, (size_t)n))
        lose(link, "out of memory");
    while (take_one(link))
        continue;
}

/* --- connecting ----------------------------------------------------------------------------------------- */

static void on_connected(uv_connect_t *connect, int status)
{
    struct store_link *link = connect->data;
    if (status < 0) {
        lose(link, uv_strerror(status));
        return;
    }
    link->connected = true;
    uv_tcp_nodelay(&link->tcp, 1);
    uv_read_start((uv_stream_t *)&link->tcp, on_alloc, on_read);
    uv_timer_start(&link->heartbeat, on_heartbeat, HEARTBEAT_MS, HEARTBEAT_MS);
}

/* Only literals: the store has told us the address that it listens on, and a name server may take
 * seconds. */
static int resolve(const char *address, int port, struct sockaddr_storage *out)
{
    int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err)
{
    struct sockaddr_storage to;
    if (resolve(options->address, options->port, &to) != 0)
        return ddp_fail(err, DDP_ERR_ARG, "'%s' is not an address", options->address);
    struct store_link *link = calloc(1, sizeof(*link));
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
    int rc = uv_tcp_connect(&link->connect, &link->tcp, (const struct sockaddr *)&to, on_connected);
    if (rc == 0) {
        *out = link;
        return DDP_OK;
    }
    store_link_close(link);
    return ddp_fail(err, DDP_ERR_IO, "cannot connect to the store at %s:%d: %s", options->address,
                    options->port, uv_strerror(rc));
}
