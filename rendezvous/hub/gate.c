/* gate.c -- decides which connections from other hosts (strangers) are served, and authenticates clients that have the
 * secret. The hub holds the requests of a stranger until the stranger proves that it has the secret, or until an agent
 * confirms the stranger's user. Agents must confirm users, because the clients of PyTorch and libddp have no secret. */
#include "hub/session.h"

#include "auth/auth.h"
#include "store/encode.h"

#include <stdio.h>
#include <stdlib.h>

/* Limits on what the strangers can use before an agent confirms them, because a stranger may be an attacker. The bytes
 * of held requests also count against the store's memory limit. */
enum {
    FIRST_BYTES = 128,        /* limit of bytes that the hub decodes for a stranger until its AUTH ends */
    PENDING_MAX = 128,        /* maximum number of strangers in GREETING and HELD together */
    PENDING_PER_ADDRESS = 16, /* limit for one address, so that other hosts keep a part of PENDING_MAX */
    PER_RANK = 4,             /* each rank of a job raises the limits of ASKED and HANDSHAKE by this number */
    /* Limit of the held bytes of one stranger. If a stranger in ASKED exceeds this limit, the hub stops reading from
     * this stranger. A stranger in another state is then rejected. */
    HELD_BYTES = 64 << 10,
    HELD_SHARE = 16,       /* held bytes of all strangers: at most hub_limits.max_bytes / HELD_SHARE */
    ASKED_BYTES = 10 << 20 /* limit of held bytes in ASKED: more than the longest value, 8 MiB */
};

/* Longest time in each state, in ms. The limit of STRANGER_ASKED can be short, because an agent on the stranger's host
 * answers within milliseconds. */
static const uint32_t limit_ms[STRANGER_STATES] = {
    [STRANGER_GREETING] = 5000, [STRANGER_HELD] = 3000, [STRANGER_ASKED] = 3000, [STRANGER_HANDSHAKE] = 3000
};

/* --- the lists of strangers ------------------------------------------------------------------------------- */

/* The uid gate (server/socket_owner.h) admits users of this host. A connection from another host is a stranger until
 *
 *     - the stranger is an agent and proves that it has the secret, or
 *     - an agent that has the secret answers `vouch`: a process of the agent's user owns the connection.
 *
 * If the store encrypts, a stranger must first complete a TLS handshake, which proves tenant and job. It waits in
 * HANDSHAKE (not in the diagram) if an agent has the same address, otherwise in GREETING.
 *
 *     accepted --agent at the same address--> ASKED -----vouch------> admitted
 *        |                                      ^
 *        |-> GREETING --other request--> HELD --'  (an agent at the same address joins)
 *        |       '--AUTH--> admitted
 *
 * Each state has a list of its strangers, the oldest first (hub->gate[state].line). Beyond a limit the hub rejects
 * the oldest stranger, because an honest client needs only milliseconds. */

/* Return the stranger that has been longest in this state, or NULL. */
static struct session *oldest(const struct hub *hub, enum stranger_state state)
{
    const struct list *line = &hub->gate[state].line;
    return list_is_empty(line) ? NULL : LIST_ENTRY(line->next, struct session, stranger);
}

/* Return true if the held bytes of all strangers exceed their limit (HELD_SHARE). */
static bool is_full(const struct hub *hub)
{
    return hub->held_kib > hub->limits.max_bytes / HELD_SHARE / 1024;
}

/* Stop reading from a stranger in state ASKED until an agent confirms this stranger. */
static void stop(struct hub *hub, struct session *s)
{
    if (hub->sink.read == NULL)
        return;
    hub->sink.read(hub->sink.user, s->id, false);
    s->is_stopped = true;
}

/* Count the held bytes of a stranger. When the held bytes of all strangers rise above their limit, stop reading from
 * the strangers in ASKED. The loop runs only when the limit is crossed, which is rare, because a stopped stranger adds
 * no held bytes. */
static void count_held(struct hub *hub, struct session *s)
{
    const bool was_full = is_full(hub);
    hub->held_kib -= s->stranger_kib;
    s->stranger_kib = (uint16_t)((s->in.len + 1023) / 1024);
    hub->held_kib += s->stranger_kib;
    if (was_full || !is_full(hub))
        return;
    LIST_EACH(node, &hub->gate[STRANGER_ASKED].line)
    {
        struct session *other = LIST_ENTRY(node, struct session, stranger);
        /* Stop reading from the stranger, but do not reject it, because an honest client loses nothing by waiting.
         * enter_asked() explains which strangers are not stopped. */
        if (!other->is_stopped && (other->is_held || peer_is_answerable(hub, other)))
            stop(hub, other);
    }
}

/* Change the state of a stranger, and move the stranger to the list of this state. The time limit of the new state
 * starts now. */
static void enter_line(struct hub *hub, struct session *s, enum stranger_state state)
{
    session_leave_line(hub, s);
    list_insert(&hub->gate[state].line, &s->stranger);
    hub->gate[state].count++;
    s->stranger_state = (uint8_t)state;
    s->stranger_since_ms = hub->now_ms;
    if (s->is_held)
        count_held(hub, s);
}

/* Reject a stranger that no agent has confirmed in time. If its held request is IDENTIFY, first answer with an error
 * text that names a remedy. For other requests this is impossible, because no answer of PyTorch's protocol contains an
 * error text. */
static void give_up(struct hub *hub, struct session *s)
{
    static const char needs[] =
        "this store serves other hosts only with the secret of the job: pass the same --secret_file (or "
        "PET_SECRET_FILE) to all nodes and to ddpctl, or, under a scheduler, run munged on all nodes";
    char why[160];
    if (s->stranger_state == STRANGER_GREETING || s->awaits_tls)
        snprintf(why, sizeof(why), "%s",
                 s->awaits_tls     ? "a client on another host has not completed the TLS handshake"
                 : s->auth != NULL ? "the client has not completed its authentication"
                                   : "a client on another host has sent no request");
    else
        snprintf(why, sizeof(why),
                 "no ddprun on the client's host has confirmed within %g s that the job's user owns this "
                 "connection",
                 limit_ms[s->stranger_state] / 1000.0);
    if (s->is_held && s->in.len > 0 && s->in.data[0] == op_table[OP_IDENTIFY].code[DIALECT_C]) {
        struct buf answer = { 0 };
        if (append_u8(&answer, 1) && append_blob(&answer, slice_str(needs)))
            hub_send(hub, s, buf_slice(&answer));
        buf_free(&answer);
    }
    session_reject(hub, s, why);
}

/* Reject one stranger if too many strangers from the address of `newest` wait, or too many in total. Reject the oldest
 * stranger in GREETING, because a stranger in HELD is more likely a worker. If only `newest` is in GREETING, reject the
 * oldest stranger in HELD. */
static void drop_oldest_stranger(struct hub *hub, const struct session *newest)
{
    struct session *same = NULL;
    unsigned n = 0;
    for (int state = STRANGER_HELD; state >= STRANGER_GREETING; state--)
        LIST_EACH(node, &hub->gate[state].line)
        {
            struct session *s = LIST_ENTRY(node, struct session, stranger);
            if (s == newest || !slice_equal(session_address(s), session_address(newest)))
                continue;
            if (n++ == 0 || same->stranger_state != state)
                same = s;
        }
    if (n >= PENDING_PER_ADDRESS)
        session_reject(hub, same, "too many connections from this address wait for authentication");
    else if (hub->gate[STRANGER_GREETING].count + hub->gate[STRANGER_HELD].count > PENDING_MAX) {
        same = oldest(hub, STRANGER_GREETING);
        session_reject(hub, same != newest ? same : oldest(hub, STRANGER_HELD),
                       "too many connections wait for authentication");
    }
}

/* Return the limit for the number of strangers in ASKED. HANDSHAKE has the same limit. The limit grows with the ranks,
 * because all ranks may connect at once. */
static uint64_t max_unconfirmed(const struct hub *hub)
{
    uint64_t ranks = 0;
    EACH_NODE(node, &hub->jobs)
    ranks += TABLE_ENTRY(node, struct job, node)->members.world_size;
    return hub->limits.max_unconfirmed + PER_RANK * ranks;
}

/* Change the state of a stranger at the address of an agent. A stranger that must use TLS gets the state HANDSHAKE, and
 * any other stranger gets ASKED. If this state then has too many strangers, reject its oldest stranger. */
static void enter_asked(struct hub *hub, struct session *s)
{
    const enum stranger_state state = s->awaits_tls ? STRANGER_HANDSHAKE : STRANGER_ASKED;
    enter_line(hub, s, state);
    /* If the held bytes of all strangers exceed their limit, stop reading from this stranger. There is one exception:
     * the stranger has no held request (`is_held` is false), and no agent with a working connection can confirm the
     * stranger. Such a stranger may itself be an agent whose old connection is broken. The hub must then receive the
     * AUTH of this agent. */
    if (state == STRANGER_ASKED && is_full(hub) && (s->is_held || peer_is_answerable(hub, s)))
        stop(hub, s);
    if (hub->gate[state].count > hub->limits.max_unconfirmed && hub->gate[state].count > max_unconfirmed(hub))
        session_reject(hub, oldest(hub, state),
                       state == STRANGER_HANDSHAKE
                           ? "too many connections wait for the TLS handshake"
                           : "too many connections wait until their agents confirm them");
}

bool hub_drop_stranger(struct hub *hub, const char *address, uint64_t now_ms)
{
    struct session *first = NULL;
    hub->now_ms = now_ms;
    for (int state = STRANGER_GREETING; state < STRANGER_STATES; state++)
        LIST_EACH(node, &hub->gate[state].line)
        {
            struct session *s = LIST_ENTRY(node, struct session, stranger);
            if (address != NULL && !slice_equal(session_address(s), slice_str(address)))
                continue;
            if (first == NULL || s->stranger_since_ms < first->stranger_since_ms)
                first = s;
            break;
        }
    if (first != NULL)
        session_reject(
            hub, first,
            "no agent has confirmed this connection, so the store closed it to accept another client; raise "
            "the limit of connections with 'ulimit -n'");
    return first != NULL;
}

void gate_meet(struct hub *hub, struct session *s)
{
    if (peer_ask_user(hub, s)) {
        enter_asked(hub, s);
        return;
    }
    enter_line(hub, s, STRANGER_GREETING);
    drop_oldest_stranger(hub, s);
}

/* Ask the new agent about all strangers at its address. Read `next` first, because a stranger leaves the list when its
 * state changes. */
void gate_agent_joined(struct hub *hub, const struct session *agent)
{
    for (int state = STRANGER_GREETING; state <= STRANGER_HELD; state++)
        for (struct list *line = &hub->gate[state].line, *node = line->next, *next; node != line;
             node = next) {
            struct session *s = LIST_ENTRY(node, struct session, stranger);
            next = node->next;
            if (slice_equal(session_address(s), session_address(agent)) && peer_ask_user(hub, s))
                enter_asked(hub, s);
        }
}

uint64_t gate_deadline(const struct hub *hub)
{
    uint64_t at_ms = UINT64_MAX;
    for (int state = STRANGER_GREETING; state < STRANGER_STATES; state++) {
        const struct session *s = oldest(hub, state);
        if (s != NULL && s->stranger_since_ms + limit_ms[state] < at_ms)
            at_ms = s->stranger_since_ms + limit_ms[state];
    }
    return at_ms;
}

void gate_tick(struct hub *hub)
{
    for (int state = STRANGER_GREETING; state < STRANGER_STATES; state++)
        for (struct session *s;
             (s = oldest(hub, state)) != NULL && s->stranger_since_ms + limit_ms[state] <= hub->now_ms;)
            give_up(hub, s);
}

/* --- the bytes of a stranger ------------------------------------------------------------------------------ */

/* The hub decodes only VALIDATE, PING and AUTH of a stranger, and answers `hello`. The hub holds all other requests.
 * FIRST_BYTES limits the total size of the requests that are decoded for one stranger. */

/* The request CONTROL {"op":"hello"}, whose bytes are compared and not decoded. */
static const uint8_t hello[] = { 0x82, 14,  0,   0,   0,   0,   0,   0,   0,   '{', '"', 'o',
                                 'p',  '"', ':', '"', 'h', 'e', 'l', 'l', 'o', '"', '}' };
/* The request VALIDATE: opcode 0 and WIRE_MAGIC. The opcode alone is not enough, because opcode 0 means SET in
 * PyTorch's older protocols (dialects A and B). */
static const uint8_t validate[] = { 0, WIRE_MAGIC & 0xff, (WIRE_MAGIC >> 8) & 0xff, (WIRE_MAGIC >> 16) & 0xff,
                                    WIRE_MAGIC >> 24 };

/* FIRST_BYTES must be enough for all bytes that an agent sends until the end of AUTH. An agent under MUNGE sends the
 * most bytes: the greeting (VALIDATE, PING and `hello`), the request for the credential, and both messages of AUTH. */
enum { PING_BYTES = 1 + 4, AUTH_HEAD_BYTES = 1 + 8 };
_Static_assert((int)sizeof(validate) + PING_BYTES + (int)sizeof(hello) + 3 * AUTH_HEAD_BYTES +
                       AUTH_ASK_BYTES + AUTH_HELLO_BYTES + AUTH_PROOF_BYTES <=
                   FIRST_BYTES,
               "FIRST_BYTES must have room for the first messages of an agent");

/* Compare the bytes with a fixed request of `n` bytes. Return
 *
 *     GATE_HOLD if the bytes differ
 *     GATE_MORE if they are equal so far, but incomplete
 *     `whole` if they are equal */
static enum gate_verdict compare_fixed(struct slice bytes, const uint8_t *fixed, size_t n,
                                       enum gate_verdict whole)
{
    if (memcmp(bytes.data, fixed, bytes.len < n ? bytes.len : n) != 0)
        return GATE_HOLD;
    return bytes.len < n ? GATE_MORE : whole;
}

/* Return true if the bytes begin with the first AUTH of a session, and this AUTH has another version than the store's
 * AUTH. */
static bool is_other_version(const struct session *s, struct slice bytes)
{
    const uint8_t *b = bytes.data;
    return s->auth == NULL && bytes.len > AUTH_HEAD_BYTES && get_u64(b + 1) > 0 &&
           auth_is_other_version(b[AUTH_HEAD_BYTES]);
}

/* Compare the bytes without decoding them, because the JSON parser and most decoders must not process the bytes of a
 * stranger. */
enum gate_verdict gate_check(const struct session *s, struct slice bytes)
{
    const uint8_t *b = bytes.data;
    if (bytes.len == 0)
        return GATE_MORE;
    if (!s->wire.greeted)
        return compare_fixed(bytes, validate, sizeof(validate), GATE_PASS);
    if (s->wire.dialect != DIALECT_C)
        return GATE_HOLD;
    if (b[0] == op_table[OP_AUTH].code[DIALECT_C])
        return is_other_version(s, bytes) ? GATE_OTHER_VERSION : GATE_PASS;
    if (b[0] == op_table[OP_PING].code[DIALECT_C])
        return GATE_PASS;
    return compare_fixed(bytes, hello, sizeof(hello), GATE_HELLO);
}

bool gate_count(struct hub *hub, struct session *s, size_t bytes)
{
    if (bytes <= (size_t)(FIRST_BYTES - s->stranger_bytes)) {
        s->stranger_bytes = (uint16_t)(s->stranger_bytes + bytes);
        return true;
    }
    ddp_fail(&hub->err, DDP_ERR_LIMIT,
             "a client on another host sent more than %d bytes before it proved that it has the secret",
             FIRST_BYTES);
    return false;
}

bool gate_hello(struct hub *hub, struct session *s, struct slice *bytes)
{
    *bytes = slice_of((const uint8_t *)bytes->data + sizeof(hello), bytes->len - sizeof(hello));
    s->has_spoken = s->is_ddprun = true;
    hub->requests++;
    return gate_count(hub, s, sizeof(hello)) && append_blob(&hub->out, slice_str("{\"ok\":true}"));
}

/* Hold the stranger. Also remove the stranger from the list of unfinished requests, because now only the time limit of
 * the stranger's state applies. */
bool gate_hold(struct hub *hub, struct session *s)
{
    s->is_held = true;
    list_remove(&s->midway);
    if (s->stranger_state == STRANGER_GREETING)
        enter_line(hub, s, STRANGER_HELD);
    return gate_holds(hub, s);
}

bool gate_holds(struct hub *hub, struct session *s)
{
    const bool is_asked = s->stranger_state == STRANGER_ASKED;
    count_held(hub, s);
    if (is_asked && (s->in.len > HELD_BYTES || is_full(hub)))
        stop(hub, s);
    const size_t limit = is_asked ? ASKED_BYTES : HELD_BYTES;
    if (s->in.len <= limit)
        return true;
    ddp_fail(&hub->err, DDP_ERR_LIMIT,
             "a client on another host sent too much before an agent confirmed the client's user: %zu bytes, "
             "limit %zu",
             s->in.len, limit);
    return false;
}

/* --- AUTH ------------------------------------------------------------------------------------------------- */

/* Set the reason of a refused AUTH and return false. The text may contain fingerprints of both secrets. A fingerprint
 * does not reveal the secret. */
static bool refuse(struct hub *hub, enum auth_result result, struct slice message)
{
    char ours[AUTH_PRINT_TEXT], theirs[AUTH_PRINT_TEXT];
    if (result == AUTH_SECRET_DIFFERS) {
        auth_fingerprint(auth_choose(hub->limits.secret, message), ours);
        auth_hello_fingerprint(message, theirs);
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "the secrets differ: sha256 %.8s.. in the store, %.8s.. in the client; use the same "
                 "--secret_file on all nodes",
                 ours, theirs);
    } else if (result == AUTH_NO_SECRET && hub->limits.secret != NULL &&
               auth_choose(hub->limits.secret, message) == NULL) {
        auth_hello_fingerprint(message, theirs);
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "this store does not have the client's secret (sha256 %.8s..); add this secret to the "
                 "secret file of the store, or use another --secret_file for the client",
                 theirs);
    } else if (result == AUTH_NO_SECRET && hub->limits.secret == NULL) {
        auth_hello_fingerprint(message, theirs);
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "the client has a secret (sha256 %.8s..), but this store has none; start the store with the "
                 "same --secret_file (or PET_SECRET_FILE)",
                 theirs);
    } else {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "AUTH: %s", auth_result_text(result));
    }
    return false;
}

/* Answer the first message of AUTH. A refused message is also answered, so that the agent can print the reason. */
static bool greet(struct hub *hub, struct session *s, struct slice message)
{
    uint8_t nonce[AUTH_NONCE_BYTES], answer[AUTH_ANSWER_BYTES];
    s->is_ddprun = true;
    s->auth = calloc(1, sizeof(*s->auth));
    if (s->auth == NULL)
        return false;
    if (hub->sink.random == NULL || !hub->sink.random(hub->sink.user, nonce, sizeof(nonce))) {
        ddp_fail(&hub->err, DDP_ERR_IO, "AUTH: the store cannot get random numbers from the kernel");
        return false;
    }
    const struct secret *tenant = auth_choose(hub->limits.secret, message);
    if (s->tls_job != NULL && tenant != s->tenant)
        tenant = NULL; /* the client has proved another tenant's secret in TLS: this AUTH gives no rights */
    s->tenant = tenant;
    const enum auth_result result =
        auth_answer(s->auth, s->tenant, hub->limits.instance, nonce, message, answer);
    return append_blob(&hub->out, slice_of(answer, sizeof(answer))) &&
           (result == AUTH_OK || refuse(hub, result, message));
}

/* Send the secret, encrypted by MUNGE, to a client that has no secret. The answer reveals nothing to other clients.
 * Only the daemon `munged` on a node with the same MUNGE key decrypts the answer, and only for processes of the store's
 * user. */
static bool give_credential(struct hub *hub, struct session *s, struct buf *out)
{
    uint8_t answer[AUTH_GIFT_BYTES];
    s->is_ddprun = true;
    return append_blob(out, slice_of(answer, auth_give(hub->limits.secret, hub->limits.credential, answer)));
}

bool hub_give_credential(struct hub *hub, conn_id conn, struct buf *out)
{
    struct session *s = session_find(hub, conn);
    return s != NULL && give_credential(hub, s, out);
}

/* Append the reason why the host of this store cannot serve the job. The reply to `join` contains this reason, too. But
 * a node with --encrypt sends no `join` to a store without TLS, and so would never receive that reply. */
static bool append_refusal(const struct hub *hub, struct buf *answer)
{
    const struct hub_refusal *refusal = hub->limits.refusal;
    refusal->on_refused(refusal->user);
    const bool ok = buf_printf(answer, "%.40s\n%.60s reports: %s; %s", refusal->code, hub->limits.host,
                               refusal->sentence, refusal->advice);
    answer->len = answer->len < AUTH_GIFT_BYTES ? answer->len : AUTH_GIFT_BYTES;
    return ok;
}

/* Answer a client that expects a store with TLS, and end the connection. If the store has no secret and its host cannot
 * serve the job, the answer also contains the reason why the host cannot serve the job. */
static bool refuse_tls(struct hub *hub, struct session *s, struct slice message)
{
    uint8_t result[AUTH_ASK_BYTES];
    struct buf answer = { 0 };
    s->is_ddprun = true;
    auth_refuse_tls(hub->limits.secret, result);
    const bool ok =
        buf_append(&answer, result, sizeof(result)) &&
        (hub->limits.secret != NULL || hub->limits.refusal == NULL || append_refusal(hub, &answer)) &&
        append_blob(&hub->out, buf_slice(&answer));
    buf_free(&answer);
    return ok && refuse(hub, AUTH_NOT_ENCRYPTED, message);
}

/* Handle AUTH. The second message (the proof) gets no answer: if the store serves the next request, the proof was
 * accepted. */
bool gate_auth(struct hub *hub, struct session *s, struct slice message)
{
    if (s->role != ROLE_PLAIN || s->job != NULL)
        return refuse(hub, AUTH_OUT_OF_ORDER, message);
    if (s->auth == NULL && auth_is_ask_tls(message))
        return refuse_tls(hub, s, message);
    if (s->auth == NULL)
        return auth_is_ask(message) ? give_credential(hub, s, &hub->out) : greet(hub, s, message);
    const enum auth_result result = auth_check(s->auth, message);
    if (result != AUTH_OK)
        return refuse(hub, result, message);
    session_admit(hub, s);
    return true;
}

bool gate_refuse_version(struct hub *hub, struct session *s, struct slice bytes)
{
    return gate_auth(hub, s, slice_of((const uint8_t *)bytes.data + AUTH_HEAD_BYTES, 1));
}

/* Check the tag of a frame. A wrong tag ends the connection: the bytes of the frame have changed on the network, or are
 * from another client. */
bool gate_check_tag(struct hub *hub, struct session *s, const struct op *op, struct slice *frame)
{
    if (s->auth == NULL || auth_open(s->auth, (uint8_t)op->code[DIALECT_C], frame))
        return true;
    ddp_fail(&hub->err, DDP_ERR_CORRUPT,
             "%s: the authentication tag does not match; the bytes changed on the network, or are from "
             "another client",
             op->name);
    return false;
}

bool gate_is_agent(const struct hub *hub, const struct session *s)
{
    return hub->limits.secret == NULL ||
           (s->auth != NULL && s->auth->state == AUTH_PROVEN && s->auth->role == AUTH_AGENT);
}

/* See session.h. A session whose user is known needs no proof of the secret. The kernel reports the user only for a
 * client on the store's host. */
bool gate_may_change(const struct hub *hub, const struct session *s)
{
    return hub->limits.secret == NULL || s->uid != SESSION_NO_UID ||
           (s->auth != NULL && s->auth->state == AUTH_PROVEN);
}

bool gate_is_job(const struct session *s, const char *job)
{
    return (s->auth == NULL || auth_is_job(s->auth, job)) &&
           (s->tls_job == NULL || s->tls_job[0] == '\0' || strcmp(s->tls_job, job) == 0);
}

/* Check that the connection may use the job. If the client has sent AUTH, two conditions must be true: AUTH contains
 * the hash of this job's name, and the client has the secret of the job's tenant. If the client has named a job in
 * the TLS handshake, that job must be `job`. A tenant has the jobs whose names begin with the tenant's prefix. A hash
 * does not show the prefix, so the tenant is checked only here, where the name is known. */
bool gate_check_job(struct hub *hub, const struct session *s, const char *job)
{
    const struct secret *of = auth_secret_of(hub->limits.secret, job);
    char ours[AUTH_PRINT_TEXT], theirs[AUTH_PRINT_TEXT];
    if (!gate_is_job(s, job)) {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "this connection was authenticated for another job, not "
                 "for job '%s'",
                 job);
    } else if (s->auth == NULL || (of != NULL && s->tenant == of)) {
        return true;
    } else if (of == NULL || s->tenant == NULL) {
        ddp_fail(
            &hub->err, DDP_ERR_MISMATCH,
            "the store has no secret for job '%s'; add a line for this job to the secret file of the store",
            job);
    } else {
        auth_fingerprint(of, ours);
        auth_fingerprint(s->tenant, theirs);
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "the secrets differ: sha256 %.8s.. in the store for job '%s', %.8s.. in the client; use "
                 "the secret of this job",
                 ours, job, theirs);
    }
    return false;
}
