/* fuzz_hub.c -- a stateful fuzz target: nine connections talk to one hub.
 *
 * The input is a program: each byte selects a step (a request, an event) or one of its arguments. After the end of the
 * input, a random generator provides the bytes, with the input as its seed. So short inputs reach deep states, too.
 * Most requests are valid and use values that the hub has pushed: round, ranks, instance, connection ids. A request may
 * arrive in pieces, after other requests, or with one bit changed. The program checks that the hub sends nothing to a
 * closed connection, that no send is empty, and that deadlines advance. The sanitizers check the memory.
 *
 * Half of the hubs have secrets. Then each connection has a level of trust. Only an agent that has proven the secret of
 * a job may change the membership of this job. Only a local client, or a client that has proven the secret, may cancel
 * a barrier.
 *
 * Environment: with FUZZ_HUB_STEPS=N random programs run until N steps are done, without libFuzzer; FUZZ_HUB_SEED
 * (default: 1) selects the programs. FUZZ_HUB_TRACE=1 prints each step. The number of steps is printed at exit. */
#include "auth/auth.h"
#include "base/text.h"
#include "hub/session.h"
#include "job/rendezvous.h"
#include "store/encode.h"
#include "store/ops.h"
#include "ddp/context.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PEERS = 9, AGENTS = 4, SENT_MAX = 1 << 16, TICKS_MAX = 64, STRANGER_BYTES_MAX = 128 };

/* A job as its participants see it: the options of its launch, and the pushes of the hub. */
struct launch {
    const char *name;
    bool elastic;
    int min, max, attempt, round, world_size;
    char instance[64];
};

/* The hub's trust in a connection when the connection begins. */
enum trust { STRANGER, LOCAL, OPERATOR, AGENT, LEVELS };

/* A peer of the hub. After its connection has closed, the peer may connect again. */
struct peer {
    conn_id conn; /* 0 if not connected */
    enum dialect dialect;
    struct buf unsent;
    struct launch *launch;
    int first_rank, asked_conn;
    bool waits; /* may_reply has returned false, and hub_resume has not been called since then */
    enum trust trust;
    struct auth auth;
    const char *auth_job;            /* the job that AUTH has named */
    const struct secret *secret;     /* secret for `auth_job`; NULL if the peer sends no AUTH */
    uint8_t proof[AUTH_PROOF_BYTES]; /* valid if auth.state is AUTH_PROVEN */
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hub *hub;
static struct launch launches[2];
static struct peer peers[PEERS], *latest;
static conn_id last_conn;
static uint64_t now_ms;
static const uint8_t *input, *input_end;
static uint64_t seed; /* state of the random generator that replaces input bytes when the input has ended */
static uint64_t luck; /* state of a second random generator, for choices of the server (such as user ids) */
static unsigned long long steps;
static bool traces;
static const struct secret secret_of_all = { .key = { 1 } };
static struct secret secret_of_b = { .key = { 2 }, .jobs = "b" };
static const struct secret secret_of_a = { .key = { 3 }, .jobs = "a", .next = &secret_of_b };
static const struct secret *secrets; /* secrets of this hub, or NULL */

/* Return a random number below `limit` (splitmix64). */
static unsigned draw(uint64_t *state, unsigned limit)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (unsigned)(z >> 33) % limit;
}

static unsigned take(unsigned limit)
{
    return input < input_end ? *input++ % limit : draw(&seed, limit);
}

static void trace(const char *format, ...) DDP_PRINTF(1, 2);

static void trace(const char *format, ...)
{
    va_list ap;
    if (!traces)
        return;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
}

/* --- work of the hub ------------------------------------------------------------------------------------ */

static struct peer *find_peer(conn_id conn)
{
    for (int i = 0; i < PEERS; i++)
        if (conn != 0 && peers[i].conn == conn)
            return &peers[i];
    return NULL;
}

/* Forget a peer whose connection is closed. */
static void forget(struct peer *p)
{
    p->conn = 0;
    p->unsent.len = 0;
    p->waits = false;
    p->auth = (struct auth){ .state = AUTH_NEW };
    p->secret = NULL;
}

static void learn_number(struct slice bytes, const char *name, int *value)
{
    const char *at = memmem(bytes.data, bytes.len, name, strlen(name));
    const char *end = (const char *)bytes.data + bytes.len;
    if (at == NULL)
        return;
    *value = 0;
    for (at += strlen(name); at < end && *at >= '0' && *at <= '9' && *value < 1000000; at++)
        *value = *value * 10 + (*at - '0');
}

static void learn_instance(struct slice bytes, char instance[static 64])
{
    static const char name[] = "\"instance\":\"";
    const char *at = memmem(bytes.data, bytes.len, name, strlen(name));
    const char *end = (const char *)bytes.data + bytes.len;
    int n = 0;
    if (at == NULL)
        return;
    for (at += strlen(name); at < end && *at != '"' && n < 63; at++)
        instance[n++] = *at;
    instance[n] = '\0';
}

/* Check the bytes that the hub sends, and remember the values in its pushes. Find these values by the names of their
 * JSON members. A JSON parser would fail, because `bytes` may also contain binary replies to c10d requests. */
static void check_send(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    struct peer *p = find_peer(conn);
    (void)user;
    assert(p != NULL && bytes.len > 0);
    if (p->auth.state == AUTH_GREETED && bytes.len == sizeof(uint64_t) + AUTH_ANSWER_BYTES) {
        char theirs[AUTH_PRINT_TEXT];
        auth_prove(&p->auth, p->secret, slice_of((const char *)bytes.data + 8, AUTH_ANSWER_BYTES), p->proof,
                   theirs);
    }
    if (bytes.len < 16 || bytes.len > SENT_MAX)
        return;
    learn_number(bytes, "\"round\":", &p->launch->round);
    learn_number(bytes, "\"attempt\":", &p->launch->attempt);
    learn_number(bytes, "\"first_rank\":", &p->first_rank);
    learn_number(bytes, "\"world_size\":", &p->launch->world_size);
    learn_number(bytes, "\"conn\":", &p->asked_conn);
    learn_instance(bytes, p->launch->instance);
}

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    struct peer *p = find_peer(conn);
    (void)user, (void)is_news;
    assert(p != NULL && why[0] != '\0');
    trace("  closed %d: %s\n", (int)conn, why);
    forget(p);
}

/* Decide at random whether the hub may reply. After the result false, return false until hub_resume is called. */
static bool may_reply(void *user, conn_id conn, uint64_t bytes)
{
    struct peer *p = find_peer(conn);
    (void)user;
    assert(p != NULL);
    p->waits = p->waits || draw(&luck, bytes > 0 ? 2 : 64) == 1;
    return !p->waits;
}

static bool put_random(void *user, void *bytes, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)draw(&luck, 256);
    return true;
}

static void note_reading(void *user, conn_id conn, bool reads)
{
    (void)user, (void)reads;
    assert(find_peer(conn) != NULL);
}

static void put_here(void *user, conn_id conn, char text[static ENDPOINT_TEXT_MAX])
{
    (void)user, (void)conn;
    snprintf(text, ENDPOINT_TEXT_MAX, "10.0.0.1:29500");
}

static void check_event(void *user, const char *json)
{
    const struct peer *p = hub->processing != NULL ? find_peer(hub->processing->id) : NULL;
    (void)user;
    assert(p == NULL || secrets == NULL || p->trust == LOCAL || p->auth.state == AUTH_PROVEN ||
           strstr(json, "\"outcome\":\"cancelled\"") == NULL);
}

static void check_text(void *user, const char *text)
{
    (void)user;
    assert(text[0] != '\0');
}

/* --- requests ------------------------------------------------------------------------------------------- */

static void put_op(struct peer *p, enum op_id op)
{
    trace("  %s\n", op_table[op].name);
    const int code = op_table[op].code[p->dialect];
    assert(append_u8(&p->unsent, (uint8_t)(code >= 0 ? code : 0x7f)));
}

static void put_text(struct peer *p, const char *text)
{
    assert(append_blob(&p->unsent, slice_str(text)));
}

static void put_json(struct peer *p, enum op_id op, const char *format, ...) DDP_PRINTF(3, 4);

static void put_json(struct peer *p, enum op_id op, const char *format, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    trace("  %s\n", text);
    put_op(p, op);
    if (p->auth.state == AUTH_PROVEN)
        assert(
            auth_append_frame(&p->auth, (uint8_t)op_table[op].code[DIALECT_C], slice_str(text), &p->unsent));
    else
        put_text(p, text);
}

/* Return `learnt`, which is usually a number that the hub has sent in a push message. Sometimes return a number near
 * `learnt`, a small number, or a multiple of 50000 instead. */
static int near(int learnt)
{
    switch (take(32)) {
    case 0:
        return learnt + 1;
    case 1:
        return learnt - 1;
    case 2:
        return (int)take(16);
    case 3:
        return (int)take(4) * 50000;
    default:
        return learnt;
    }
}

static int any_rank(const struct peer *p)
{
    return take(4) != 0 ? p->first_rank + (int)take(3) : (int)take(8);
}

static const char *any_job(struct peer *p)
{
    if (take(32) == 0)
        p->launch = &launches[p->launch == launches];
    return p->launch->name;
}

static void identify(struct peer *p)
{
    static const char *const roles[] = { "agent", "worker", "ctl", "plain" };
    const unsigned role = take(4) == 0 ? take(4) : p->trust == OPERATOR ? 2 : p - peers < AGENTS ? 0 : 1;
    if (role == 0 && take(8) != 0) {
        put_json(p, OP_IDENTIFY, "{\"role\":\"agent\",\"job\":\"%s\"}", any_job(p));
        return;
    }
    put_json(
        p, OP_IDENTIFY,
        "{\"role\":\"%s\",\"job\":\"%s\",\"rank\":%d,\"world_size\":%d,\"attempt\":%d,\"pid\":%u,\"host\":"
        "\"n%u\"}",
        roles[role], any_job(p), any_rank(p), near(p->launch->world_size), near(p->launch->attempt), take(4),
        take(3));
}

/* Join with the options of the job's launch, sometimes with a small difference. */
static void join(struct peer *p)
{
    static const char *const grows[] = { "agreed", "now", "never" };
    const char *job = any_job(p);
    const bool elastic = p->launch->elastic != (take(32) == 0);
    put_json(
        p, OP_CONTROL,
        "{\"op\":\"join\",\"job\":\"%s\",\"instance\":\"%s\",\"version\":\"" DDP_VERSION
        "\",\"host\":\"n%u\",\"pid\":%u,"
        "\"mode\":\"%s\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"nproc\":%u,\"uneven\":true,"
        "\"max_restarts\":%u,\"backoff_ms\":%u,\"last_call_ms\":%u,\"join_timeout_ms\":%u,"
        "\"node_timeout_ms\":%u,\"grace_ms\":%u,\"grow\":\"%s\",\"events\":%s,\"role\":\"%s\"}",
        job, take(4) ? p->launch->instance : "", take(4), 1 + take(200), elastic ? "elastic" : "static",
        near(p->launch->min), near(p->launch->max), elastic ? -1 : (int)take(4) - 1, 1 + take(3), take(8),
        take(3) * 500, take(3) * 500, take(3) * 20000, take(3) * 30000, take(3) * 500, grows[take(3)],
        take(2) ? "true" : "false", take(16) ? "" : "r");
}

static void report_failure(struct peer *p)
{
    put_json(
        p, OP_CONTROL,
        "{\"op\":\"%s\",\"round\":%d,\"rank\":%d,\"local_rank\":%u,\"pid\":%u,\"%s\":%u,\"no_retry\":\"%s\","
        "\"victim\":%s,\"words\":\"w\",\"log\":\"/l\",\"stderr\":[\"x\",3,\"y\"]}",
        take(2) ? "failed" : "cause", near(p->launch->round), any_rank(p), take(3), take(4),
        take(3) ? "exit_code" : "signal", take(130), take(6) ? "" : "usage", take(4) ? "false" : "true");
}

/* Report the end of a node: `done`, `stopped` or `leave`. */
static void report_end(struct peer *p)
{
    static const char *const ops[] = { "done", "stopped", "stopped", "leave" };
    put_json(p, OP_CONTROL,
             "{\"op\":\"%s\",\"round\":%d,\"unkillable\":%s,\"max_code\":%u,\"rank0_code\":%s,\"signal\":%u,"
             "\"by\":"
             "\"u\"}",
             ops[take(4)], near(p->launch->round), take(8) ? "false" : "true", take(4),
             take(2) ? "null" : "3", take(20));
}

static void report_worker(struct peer *p)
{
    put_json(p, OP_CONTROL,
             "{\"op\":\"%s\",\"round\":%d,\"rank\":%d,\"pid\":%u,\"host\":\"n%u\",\"%s\":%u,\"told\":%s%s}",
             take(2) ? "worker_started" : "worker_exited", near(p->launch->round), any_rank(p), 1 + take(3),
             take(3), take(2) ? "exit_code" : "signal", take(3), take(3) ? "false" : "true",
             take(8) ? "" : ",\"job\":\"b\"");
}

static void beat(struct peer *p)
{
    put_json(p, OP_CONTROL,
             "{\"op\":\"heartbeat\",\"round\":%d,\"workers\":[[%u,\"%c\",%u,\"futex\"]],\"steps\":[[%u,%u,%u,"
             "\"%s\"]]"
             "}",
             near(p->launch->round), take(5), "RSDT"[take(4)], take(101), take(5), take(200), take(50),
             take(2) ? "all_reduce" : "");
}

static const char *const names[] = { "x", "y", "z" };

static void named_barrier(struct peer *p)
{
    struct buf members = { 0 };
    for (unsigned n = take(4); n > 0; n--)
        assert(append_u32(&members, take(6)));
    put_op(p, OP_BARRIER_NAMED);
    put_text(p, names[take(3)]);
    assert(append_i64(&p->unsent, (int64_t)take(5) * 700 - 1) &&
           append_blob(&p->unsent, buf_slice(&members)));
    buf_free(&members);
}

static void report_words(struct peer *p)
{
    static const char *const codes[] = { "PORTS_CLOSED", "LIMIT_NOFILE", "RANK_EXITED_EARLY", "?" };
    put_json(p, OP_CONTROL,
             "{\"op\":\"%s\",\"code\":\"%s\",\"subject\":\"n%u\",\"sentence\":\"%s\",\"advice\":\"v\","
             "\"words\":\"w\"}",
             take(2) ? "notice" : "trouble", codes[take(4)], take(4), take(4) ? "t" : "");
}

/* Vouch for a connection about which the hub has asked, or for any recent connection. */
static void vouch(struct peer *p)
{
    const long long conn = take(4) ? p->asked_conn : (long long)last_conn - (long long)take(PEERS);
    put_json(p, OP_CONTROL, "{\"op\":\"%s\",\"conn\":%lld,\"rank\":%d,\"pid\":%u,\"words\":\"python\"}",
             take(4) ? "vouch" : "owner", conn, any_rank(p) - (int)take(2), take(4));
}

static void declare(struct peer *p)
{
    put_json(p, OP_CONTROL, "{\"op\":\"job\",\"job\":\"%s\",\"attempt\":%d,\"world_size\":%d}", any_job(p),
             near(p->launch->attempt), near(p->launch->world_size));
}

static void ask(struct peer *p)
{
    static const char *const ops[] = { "why",   "status", "waiters", "barriers",      "keys",
                                       "hello", "jobs",   "rejects", "barrier_cancel" };
    const char *op = ops[take(9)];
    if (take(2))
        put_json(p, OP_CONTROL, "{\"op\":\"%s\",\"job\":\"%s\",\"name\":\"%s\"}", op, any_job(p),
                 names[take(3)]);
    else
        put_json(p, OP_CONTROL, "{\"op\":\"%s\",\"name\":\"%s\"}", op, names[take(3)]);
}

/* --- c10d requests -------------------------------------------------------------------------------------- */

/* Append a key of PyTorch or ddprun, or a plain key. If the key ends with '/', usually append a number, too. */
static void put_key(struct peer *p)
{
    static const char *const keys[] = {
        "/k",
        "/q",
        "//worker/attempt_0/default_pg/store_based_barrier_key:1",
        "//worker/attempt_0/default_pg/store_based_barrier_key:1:last_worker",
        "/default_pg/0//cpu//0/",
        "/default_pg/0//cuda//0",
        "/ddprun/grow/",
        "/ddprun/progress/",
        "/init/",
        "/",
    };
    char key[96];
    const char *name = keys[take(10)];
    if (name[strlen(name) - 1] == '/' && take(8) != 0)
        snprintf(key, sizeof(key), "%s%u", name, take(6));
    else
        snprintf(key, sizeof(key), "%s", name);
    put_text(p, key);
}

static void put_keys(struct peer *p, bool pairs)
{
    const unsigned n = take(16) == 0 ? 17 + take(20) : take(4);
    assert(append_u64(&p->unsent, n));
    for (unsigned i = 0; i < n; i++) {
        put_key(p);
        if (pairs)
            put_text(p, "v");
    }
}

static void put_field(struct peer *p, const struct field *field)
{
    static const char *const values[] = { "", "1", "2", "v", "abcdefghijklmnop" };
    static const char big[70000]; /* long enough that the hub calls may_reply before it returns such a value
                                   * */
    switch (field->shape) {
    case SHAPE_U32:
        assert(append_u32(&p->unsent, field == &field_table[FIELD_MAGIC] ? WIRE_MAGIC : take(256)));
        break;
    case SHAPE_I64:
        assert(append_i64(&p->unsent, (int64_t)take(6) - 1));
        break;
    case SHAPE_BLOB:
        if (field->limit == WIRE_MAX_KEY)
            put_key(p);
        else if (take(16) == 0)
            assert(append_blob(&p->unsent, slice_of(big, draw(&luck, 2) ? 5000 : sizeof(big))));
        else
            put_text(p, values[take(5)]);
        break;
    case SHAPE_LIST:
        put_keys(p, false);
        break;
    case SHAPE_PAIRS:
        put_keys(p, true);
        break;
    case SHAPE_NOTHING:
        break;
    }
}

static void c10d_request(struct peer *p)
{
    const struct op *op = &op_table[take(OP_IDENTIFY)];
    put_op(p, op->id);
    for (int i = 0; i < OP_FIELDS; i++)
        put_field(p, &field_table[op->field[i]]);
}

/* --- steps ---------------------------------------------------------------------------------------------- */

/* --- membership ------------------------------------------------------------------------------------------ */

static uint64_t add_number(uint64_t digest, uint64_t number)
{
    return hash_bytes(digest, &number, sizeof(number));
}

static uint64_t members_of(const struct job *job)
{
    struct rdzv_facts facts;
    struct rdzv_node_facts node;
    rdzv_facts(job->rdzv, &facts);
    uint64_t digest = hash_bytes(HASH_START, job->name, strlen(job->name));
    digest = add_number(add_number(add_number(digest, facts.state), facts.round), facts.restarts);
    for (uint64_t id = 0; (id = rdzv_next_node(job->rdzv, id)) != 0;)
        if (rdzv_node_facts(job->rdzv, id, &node))
            digest = add_number(add_number(add_number(digest, id), node.state), node.leaving);
    for (uint32_t rank = 0; rank < job->members.world_size; rank++) {
        const struct member *member = members_at(&job->members, rank);
        digest = add_number(add_number(digest, member->exited), (uint64_t)member->process_pid);
    }
    return digest;
}

/* Return a digest of the membership of all jobs except job `but`: nodes, rounds, and which ranks have ended. */
static uint64_t membership(const char *but)
{
    uint64_t sum = 0;
    EACH_NODE(node, &hub->jobs)
    {
        const struct job *job = TABLE_ENTRY(node, struct job, node);
        if (job->rdzv != NULL && (but == NULL || strcmp(job->name, but) != 0))
            sum += members_of(job);
    }
    return sum;
}

/* The only job whose membership the bytes of the current connection may change. NULL means that these bytes may change
 * no membership. Without secrets, nothing is checked. An agent with secret_of_all is not checked, because this secret
 * is valid for every job name. */
static const char *own_job;
static bool is_checked;
static uint64_t others_before;

static void begin_bytes(const struct peer *p)
{
    const bool is_agent = p->trust == AGENT && p->auth.state == AUTH_PROVEN &&
                          auth_secret_of(secrets, p->auth_job) == p->secret;
    own_job = is_agent ? p->auth_job : NULL;
    is_checked = secrets != NULL && !(is_agent && secrets == &secret_of_all);
    others_before = is_checked ? membership(own_job) : 0;
}

static void end_bytes(void)
{
    assert(!is_checked || membership(own_job) == others_before);
}

/* Feed bytes from an exact copy on the heap, so that a sanitizer detects a read past the end. */
static void feed(struct peer *p, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    assert(copy != NULL);
    if (n > 0)
        memcpy(copy, p->unsent.data, n);
    buf_consume(&p->unsent, n);
    const conn_id conn = p->conn;
    begin_bytes(p);
    hub_receive(hub, conn, slice_of(copy, n), now_ms);
    end_bytes();
    free(copy);
    const struct session *s = session_find(hub, conn);
    assert(s == NULL || s->stranger_bytes <= STRANGER_BYTES_MAX);
}

/* --- connections ----------------------------------------------------------------------------------------- */

/* Choose the trust of a connection. Most of the first AGENTS peers are agents. */
static enum trust any_trust(const struct peer *p)
{
    return p - peers < AGENTS && take(8) != 0 ? AGENT : (enum trust)take(LEVELS);
}

/* Authenticate, sometimes with the secret of another tenant, and sometimes without the proof. */
static void authenticate(struct peer *p)
{
    uint8_t nonce[AUTH_NONCE_BYTES], hello[AUTH_HELLO_BYTES];
    p->auth_job = p->launch->name;
    p->secret = take(16) == 0   ? &secret_of_all
                : take(16) == 0 ? auth_secret_of(secrets, launches[p->launch == launches].name)
                                : auth_secret_of(secrets, p->auth_job);
    put_random(NULL, nonce, sizeof(nonce));
    auth_hello(&p->auth, p->secret, p->trust == AGENT ? AUTH_AGENT : AUTH_OPERATOR, p->auth_job, nonce,
               hello);
    assert(append_u8(&p->unsent, 0x83) && append_blob(&p->unsent, slice_of(hello, sizeof(hello))));
    feed(p, p->unsent.len);
    if (p->auth.state != AUTH_PROVEN)
        return;
    trace("  AUTH as %s of %s\n", p->trust == AGENT ? "agent" : "operator", p->auth_job);
    if (take(16) == 0)
        return;
    assert(append_u8(&p->unsent, 0x83) && append_blob(&p->unsent, slice_of(p->proof, sizeof(p->proof))));
    feed(p, p->unsent.len);
}

/* Connect from one of two addresses, so that an agent shares its address with only some connections. The hub asks the
 * agent only about these connections. */
static void connect_peer(struct peer *p)
{
    char text[32];
    const int i = (int)(p - peers);
    p->trust = secrets != NULL ? any_trust(p) : LOCAL;
    p->dialect = take(4) != 0 || i < AGENTS || p->trust > LOCAL ? DIALECT_C : DIALECT_A;
    snprintf(text, sizeof(text), "10.0.0.%d:%d", i % 2 + 1, 40000 + i);
    p->conn = ++last_conn;
    p->unsent.len = 0;
    if (!hub_connect(hub, p->conn, text, now_ms))
        p->conn = 0;
    else if (p->dialect == DIALECT_C)
        assert(append_u8(&p->unsent, 0) && append_u32(&p->unsent, WIRE_MAGIC));
    if (p->conn == 0)
        return;
    if (p->trust != LOCAL)
        hub_set_foreign(hub, p->conn);
    else if (draw(&luck, 2) || secrets != NULL)
        hub_set_uid(hub, p->conn, draw(&luck, 2) * 1000);
    if (p->conn != 0 && p->trust > LOCAL)
        authenticate(p);
}

/* Send all unsent bytes. Sometimes send only half of them or none, or change one byte. */
static void send_unsent(struct peer *p)
{
    const unsigned how = take(32);
    if (how == 1 && p->unsent.len > 0)
        p->unsent.data[(take(256) * 256 + take(256)) % p->unsent.len] ^= (uint8_t)(1u << take(8));
    if (how == 2 || how == 3)
        return;
    feed(p, how == 4 ? p->unsent.len / 2 : p->unsent.len);
}

static void pass_time(void)
{
    static const unsigned steps_ms[] = { 0, 1, 100, 1000, 3000, 10000, 31000, 400000 };
    const unsigned which = take(16);
    const uint64_t due = hub_deadline(hub);
    if (which < 8)
        now_ms += steps_ms[which];
    else if (due != UINT64_MAX && due > now_ms)
        now_ms = due;
    for (int i = 0; hub_deadline(hub) <= now_ms; i++) {
        assert(i < TICKS_MAX);
        hub_tick(hub, now_ms);
    }
    if (which == 15) { /* drop a stranger, as the server does if it has no descriptor for a new client */
        const uint64_t before = membership(NULL);
        hub_drop_stranger(hub, draw(&luck, 2) ? NULL : "10.0.0.1", now_ms);
        assert(membership(NULL) == before);
    }
}

static void disconnect(struct peer *p)
{
    const conn_id conn = p->conn;
    begin_bytes(p);
    forget(p);
    hub_disconnect(hub, conn, "closed by the peer", now_ms);
    end_bytes();
}

/* The requests. The input selects an entry, so a request with more entries is sent more often. */
static void (*const requests[])(struct peer *p) = {
    identify,      identify,       identify,       join,          join,          join,
    join,          report_failure, report_failure, report_end,    report_end,    report_end,
    report_worker, report_worker,  beat,           named_barrier, named_barrier, report_words,
    vouch,         vouch,          declare,        ask,           c10d_request,  c10d_request,
    c10d_request,  c10d_request,   c10d_request,
};

static void step(void)
{
    enum {
        REQUESTS = sizeof(requests) / sizeof(requests[0]),
        TIME = REQUESTS,
        GO = TIME + 3,
        KINDS = GO + 1
    };
    const unsigned kind = take(KINDS);
    struct peer *p = latest;
    steps++;
    if (take(2))
        p = latest = &peers[take(PEERS)];
    if (kind >= TIME && kind < GO) {
        pass_time();
        return;
    }
    if (p->conn == 0)
        connect_peer(p);
    if (p->conn == 0)
        return;
    trace("[%llu] connection %d\n", (unsigned long long)now_ms, (int)p->conn);
    if (kind == GO) {
        disconnect(p);
        return;
    }
    if (p->waits) {
        p->waits = false;
        begin_bytes(p);
        hub_resume(hub, p->conn, now_ms);
        end_bytes();
        return;
    }
    /* Rarely send a request that closes an authenticated connection. */
    if (p->auth.state == AUTH_PROVEN && (requests[kind] == c10d_request || requests[kind] == named_barrier) &&
        take(16) != 0)
        beat(p);
    else
        requests[kind](p);
    send_unsent(p);
}

/* --- libFuzzer ------------------------------------------------------------------------------------------ */

static void print_steps(void)
{
    fprintf(stderr, "fuzz_hub: %llu steps\n", steps);
}

/* Run random programs until `n` steps are done. The input of the k-th program is a hash of `run` + k. */
static void run_random(unsigned long long n, unsigned long long run)
{
    while (steps < n) {
        uint64_t program = ++run * 0x9e3779b97f4a7c15;
        program ^= program >> 29;
        LLVMFuzzerTestOneInput((const uint8_t *)&program, sizeof(program));
        if (run % 16384 == 0)
            print_steps();
    }
    exit(0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *n = getenv("FUZZ_HUB_STEPS"), *first = getenv("FUZZ_HUB_SEED");
    (void)argc, (void)argv;
    traces = getenv("FUZZ_HUB_TRACE") != NULL;
    atexit(print_steps);
    if (n != NULL)
        run_random(strtoull(n, NULL, 10), first != NULL ? strtoull(first, NULL, 10) << 32 : 1ull << 32);
    return 0;
}

/* Launch the jobs. The first bytes of the input select the options of each job. */
static void launch_jobs(void)
{
    for (int i = 0; i < 2; i++) {
        launches[i] =
            (struct launch){ .name = i == 0 ? "a" : "b", .elastic = take(2), .min = 1 + (int)take(3) };
        launches[i].max = launches[i].elastic ? launches[i].min + (int)take(3) : launches[i].min;
    }
    for (int i = 0; i < PEERS; i++)
        peers[i].launch = &launches[take(4) == 0];
    latest = peers;
}

/* Make the hub. The next byte selects the limits: a small quota, and one job or many jobs. */
static struct hub *make_hub(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    const struct hub_sink sink = { .send = check_send,
                                   .close = note_close,
                                   .may_reply = may_reply,
                                   .read = note_reading,
                                   .here = put_here,
                                   .log = check_text,
                                   .event = check_event,
                                   .random = put_random };
    const unsigned which = take(32);
    limits.instance = "feed";
    limits.many_jobs = which & 1;
    limits.dialect_b = which & 2;
    limits.max_bytes = (which & 12) == 0 ? 100000 : 1000000;
    limits.max_unconfirmed = (which & 4) == 0 ? 1 : 8192;
    limits.keep_ms = 60000;
    secrets = (which & 16) == 0 ? NULL : limits.many_jobs ? &secret_of_a : &secret_of_all;
    limits.secret = secrets;
    limits.guarded = secrets != NULL;
    return hub_new(&limits, &sink);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    input_end = data + size;
    seed = size;
    for (size_t i = 0; i < size; i++)
        seed = (seed ^ data[i]) * 0x100000001b3;
    luck = ~seed;
    now_ms = 1000;
    last_conn = 0;
    launch_jobs();
    hub = make_hub();
    assert(hub != NULL);
    for (unsigned more = take(256) * 4; input < input_end || more-- > 0;)
        step();
    hub_free(hub);
    for (int i = 0; i < PEERS; i++) {
        buf_free(&peers[i].unsent);
        peers[i] = (struct peer){ 0 };
    }
    return 0;
}
