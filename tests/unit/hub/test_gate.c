/* Connections from other hosts. The tests check the rights of a stranger in three states: new, after a proof of the
 * secret, and after the confirmation by an agent. */
#include "auth/auth.c"
#include "ddp/context.h"
#include "sim_hub.h"
#include "store/encode.h"
#include "store/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define GREETING "00 cef7853c "
#define KEY_K    "0100000000000000 6b "
#define SET_K    "01 " KEY_K "0100000000000000 76 "
#define GET_K    "03 " KEY_K
#define HELLO    "82 0e00000000000000 7b226f70223a2268656c6c6f227d "

enum { AGENT = 1, AGENT_B, OPERATOR, FIRST = 10, CLAIM_MS = 300 };

static struct sim sim;
static struct secret secret = { .key = { 1, 2, 3 } };

/* Connect a stranger. Peers of the simulation are "10.0.0.N:port"; see sim_connect. */
static void stranger(conn_id conn)
{
    sim_connect(&sim, conn);
    hub_set_foreign(sim.hub, conn);
}

static uint32_t max_unconfirmed;
static uint64_t max_bytes;

static void begin_with(const struct secret *first, bool many_jobs)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.secret = first;
    limits.many_jobs = many_jobs;
    limits.guarded = true;
    limits.instance = "instance";
    if (max_unconfirmed > 0)
        limits.max_unconfirmed = max_unconfirmed;
    if (max_bytes > 0)
        limits.max_bytes = max_bytes;
    sim_init(&sim, &limits);
}

static void begin(void)
{
    begin_with(&secret, false);
}

static void end(void)
{
    sim_free(&sim);
}

TestSuite(gate, .init = begin, .fini = end);

/* --- an agent --------------------------------------------------------------------------------------------- */

static struct auth of[SIM_CONNS];

static void send_frame(conn_id conn, enum op_id op, struct slice bytes, bool with_tag)
{
    struct buf frame = { 0 };
    uint8_t tag[AUTH_TAG_BYTES];
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cr_assert(append_u8(&frame, code) && append_u64(&frame, bytes.len + (with_tag ? sizeof(tag) : 0)) &&
              buf_append(&frame, bytes.data, bytes.len));
    if (with_tag) {
        auth_seal(&of[conn], code, bytes, tag);
        cr_assert(buf_append(&frame, tag, sizeof(tag)));
    }
    sim_feed_bytes(&sim, conn, buf_slice(&frame));
    buf_free(&frame);
}

/* Remove the next blob that the hub has sent, together with the `before` bytes in front of it, and return the blob. */
static struct slice next_blob(conn_id conn, size_t before)
{
    static uint8_t bytes[8192];
    struct buf *out = &sim.conn[conn].out;
    cr_assert_geq(out->len, before + 8, "connection %d: closed '%s'", (int)conn, sim.conn[conn].closed);
    const uint64_t n = get_u64(out->data + before);
    cr_assert(n <= sizeof(bytes) && out->len >= before + 8 + n);
    memcpy(bytes, out->data + before + 8, n);
    buf_consume(out, before + 8 + n);
    return slice_of(bytes, n);
}

static enum auth_result begin_auth(conn_id conn, const struct secret *k, enum auth_role role, const char *job,
                                   uint8_t proof[AUTH_PROOF_BYTES])
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = { 7 };
    uint8_t hello[AUTH_HELLO_BYTES];
    char theirs[AUTH_PRINT_TEXT];
    auth_hello(&of[conn], k, role, job, nonce, hello);
    send_frame(conn, OP_AUTH, slice_of(hello, sizeof(hello)), false);
    return auth_prove(&of[conn], k, next_blob(conn, 0), proof, theirs);
}

static enum auth_result greet_for(conn_id conn, const struct secret *k, enum auth_role role, const char *job,
                                  uint8_t proof[AUTH_PROOF_BYTES])
{
    sim_feed(&sim, conn, GREETING);
    return begin_auth(conn, k, role, job, proof);
}

static enum auth_result greet(conn_id conn, const struct secret *k, enum auth_role role,
                              uint8_t proof[AUTH_PROOF_BYTES])
{
    stranger(conn);
    return greet_for(conn, k, role, "demo", proof);
}

static void authenticate(conn_id conn, enum auth_role role)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(conn, &secret, role, proof), AUTH_OK);
    send_frame(conn, OP_AUTH, slice_of(proof, sizeof(proof)), false);
}

static struct slice call(conn_id conn, const char *json)
{
    send_frame(conn, OP_CONTROL, slice_str(json), true);
    struct slice answer = next_blob(conn, 0);
    cr_assert(auth_open(&of[conn], 0, &answer));
    return answer;
}

static bool has(struct slice text, const char *words)
{
    return memmem(text.data, text.len, words, strlen(words)) != NULL;
}

static void identify(conn_id conn, const char *role)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"role\":\"%s\",\"job\":\"demo\"}", role);
    send_frame(conn, OP_IDENTIFY, slice_str(json), true);
}

/* Read the pushes, check that each push has a valid tag, and return the number of pushes. */
static unsigned read_pushes(void)
{
    unsigned n = 0;
    for (; sim.conn[AGENT].out.len > 0; n++) {
        struct slice push = next_blob(AGENT, 0);
        cr_assert(auth_open(&of[AGENT], 0, &push));
        cr_assert(has(push, "\"push\""));
    }
    return n;
}

/* Start the agent of one node with two ranks. Attempt 0 runs. */
static void start_job(void)
{
    authenticate(AGENT, AUTH_AGENT);
    identify(AGENT, "agent");
    cr_assert_eq(sim.conn[AGENT].out.data[0], 0);
    struct slice empty = next_blob(AGENT, 1);
    cr_assert(auth_open(&of[AGENT], 0, &empty) && empty.len == 0);
    cr_assert(has(call(AGENT, "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
                              "\",\"nproc\":2,\"nnodes_min\":1,\"nnodes_max\":1,"
                              "\"node_rank\":0,\"host\":\"n1\",\"pid\":7}"),
                  "\"ok\":true"));
    read_pushes();
}

static void expect_closed(conn_id conn, const char *words)
{
    cr_assert(!sim.conn[conn].open, "connection %d is open", (int)conn);
    cr_assert_not_null(strstr(sim.conn[conn].closed, words), "%s", sim.conn[conn].closed);
}

/* --- strangers -------------------------------------------------------------------------------------------- */

Test(gate, a_stranger_gets_no_answer_and_is_closed_after_three_seconds)
{
    static const char *const requests[] = { SET_K,       GET_K, "08 " KEY_K,
                                            "11",        "07",  "06 0100000000000000 " KEY_K,
                                            "10 " KEY_K, "83",  "12 " KEY_K "0200000000000000" };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const conn_id conn = FIRST + i;
        const uint64_t now_ms = sim.now_ms;
        stranger(conn);
        sim_feed(&sim, conn, GREETING);
        sim_feed(&sim, conn, requests[i]);
        sim_at(&sim, now_ms + 2999);
        cr_assert(sim.conn[conn].open, "%s", sim.conn[conn].closed);
        sim_at(&sim, now_ms + 5000);
        expect_closed(conn, i == 7 ? "has sent no request"
                                   : "no ddprun on the client's host has confirmed within 3 s");
        sim_expect(&sim, conn, "closed: ");
    }
    sim_client(&sim, AGENT);
    cr_assert_not_null(strstr(sim_control(&sim, AGENT, "{\"op\":\"status\"}"), "\"keys\":0"));
    cr_assert_not_null(strstr(sim_control(&sim, AGENT, "{\"op\":\"rejects\"}"), "has confirmed within 3 s"));
}

/* The oldest protocol has no greeting. */
Test(gate, a_stranger_of_the_oldest_protocol_is_held_too)
{
    stranger(FIRST);
    sim_feed(&sim, FIRST, "00 " KEY_K "0100000000000000 76 02 " KEY_K);
    sim_at(&sim, 3000);
    expect_closed(FIRST, "no ddprun on the client's host");
}

Test(gate, a_local_connection_is_served)
{
    sim_connect(&sim, FIRST);
    hub_set_uid(sim.hub, FIRST, 1000);
    sim_feed(&sim, FIRST, GREETING SET_K GET_K);
    sim_expect(&sim, FIRST, "0100000000000000 76");
}

Test(gate, a_stranger_gets_the_answers_by_which_a_launcher_finds_the_store)
{
    stranger(FIRST);
    sim_feed_cut(&sim, FIRST, GREETING "0d 01000000 " HELLO, 1);
    sim_expect(&sim, FIRST, "01000000 0b00000000000000 7b226f6b223a747275657d");
}

Test(gate, at_most_128_bytes_of_a_stranger_are_decoded)
{
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING);
    for (int i = 0; i < 24; i++)
        sim_feed(&sim, FIRST, "0d 01000000");
    cr_assert(sim.conn[FIRST].open);
    sim_feed(&sim, FIRST, "0d 01000000");
    expect_closed(FIRST, "more than 128 bytes");
}

Test(gate, a_stranger_keeps_little_memory)
{
    static uint8_t bytes[70000];
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING "01 " KEY_K "0000100000000000");
    sim_feed_bytes(&sim, FIRST, slice_of(bytes, sizeof(bytes)));
    expect_closed(FIRST, "before an agent confirmed the client's user: ");
}

Test(gate, half_an_authentication_is_closed_after_five_seconds)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &secret, AUTH_AGENT, proof), AUTH_OK);
    stranger(FIRST + 1);
    sim_at(&sim, 4999);
    cr_assert(sim.conn[FIRST].open && sim.conn[FIRST + 1].open);
    sim_at(&sim, 5000);
    expect_closed(FIRST, "has not completed its authentication");
    expect_closed(FIRST + 1, "has sent no request");
}

Test(gate, few_strangers_wait_and_the_oldest_goes)
{
    for (int i = 0; i < 17; i++)
        stranger((conn_id)(FIRST + i));
    expect_closed(FIRST, "too many connections from this address");
    int open = 0;
    for (int i = 0; i < 17; i++)
        open += sim.conn[FIRST + i].open;
    cr_assert_eq(open, 16);
    authenticate(AGENT, AUTH_AGENT);
    cr_assert(sim.conn[AGENT].open);
}

/* Open a new connection for agent `i`. Each agent has a separate host. */
static void arrive(int i)
{
    char peer[32];
    const conn_id conn = (conn_id)(FIRST + i);
    snprintf(peer, sizeof(peer), "10.1.%d.%d:4000", i / 250, i % 250);
    sim.conn[conn].open = true;
    sim.conn[conn].closed[0] = '\0';
    sim.conn[conn].out.len = 0;
    of[conn] = (struct auth){ 0 };
    cr_assert(hub_connect(sim.hub, conn, peer, sim.now_ms));
    hub_set_foreign(sim.hub, conn);
}

Test(gate, beyond_128_strangers_of_separate_addresses_the_oldest_goes)
{
    enum { PENDING = 128 };
    uint8_t proof[AUTH_PROOF_BYTES];
    for (int i = 0; i < PENDING; i++)
        arrive(i);
    for (int i = 0; i < PENDING; i++)
        cr_expect(sim.conn[FIRST + i].open, "%d: %s", i, sim.conn[FIRST + i].closed);
    arrive(PENDING);
    expect_closed(FIRST, "too many connections wait for authentication");
    for (int i = 1; i <= PENDING; i++)
        cr_expect(sim.conn[FIRST + i].open, "%d: %s", i, sim.conn[FIRST + i].closed);
    /* a stranger that has authenticated makes room for the next stranger */
    cr_assert_eq(greet_for(FIRST + PENDING, &secret, AUTH_AGENT, "demo", proof), AUTH_OK);
    send_frame(FIRST + PENDING, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    arrive(PENDING + 1);
    cr_expect(sim.conn[FIRST + 1].open, "%s", sim.conn[FIRST + 1].closed);
    arrive(PENDING + 2);
    expect_closed(FIRST + 1, "too many connections wait for authentication");
    cr_expect(sim.conn[FIRST + 2].open, "%s", sim.conn[FIRST + 2].closed);
}

/* 300 nodes connect before the store reads from the first of them. The store drops the oldest connections. Their agents
 * connect again, as real agents do (launcher/node/node.c). */
Test(gate, three_hundred_agents_that_arrive_at_once_all_join)
{
    enum { AGENTS = 300, ROUNDS = 3 };
    static bool has_joined[AGENTS];
    int joined = 0, round = 0;
    for (; joined < AGENTS; round++) {
        cr_assert_lt(round, ROUNDS, "%d agents have joined", joined);
        for (int i = 0; i < AGENTS; i++)
            if (!has_joined[i])
                arrive(i);
        for (int i = 0; i < AGENTS; i++) {
            uint8_t proof[AUTH_PROOF_BYTES];
            const conn_id conn = (conn_id)(FIRST + i);
            if (has_joined[i] || !sim.conn[conn].open)
                continue;
            cr_assert_eq(greet_for(conn, &secret, AUTH_AGENT, "demo", proof), AUTH_OK);
            send_frame(conn, OP_AUTH, slice_of(proof, sizeof(proof)), false);
            identify(conn, "agent");
            cr_expect_eq(sim.conn[conn].out.data[0], 0);
            has_joined[i] = true;
            joined++;
        }
    }
    cr_expect_geq(round, 2, "no agent was dropped, so this test tests nothing");
    for (int i = 0; i < AGENTS; i++)
        cr_expect(sim.conn[FIRST + i].open, "%d: %s", i, sim.conn[FIRST + i].closed);
}

/* A stranger connects again and again while an agent is between two messages. No time passes. */
Test(gate, a_stranger_that_reconnects_displaces_only_its_own_connections)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(AGENT, &secret, AUTH_AGENT, proof), AUTH_OK);
    for (int i = 0; i < 10000; i++) {
        const conn_id conn = (conn_id)(FIRST + i % 50);
        char peer[32];
        sim_disconnect(&sim, conn);
        snprintf(peer, sizeof(peer), "10.2.0.1:%d", 1024 + i);
        sim.conn[conn].open = true;
        sim.conn[conn].out.len = 0;
        cr_assert(hub_connect(sim.hub, conn, peer, sim.now_ms));
        hub_set_foreign(sim.hub, conn);
        if (i % 2 == 0) {
            uint8_t unused[AUTH_PROOF_BYTES];
            greet_for(conn, &secret, AUTH_AGENT, "demo", unused);
        }
        cr_assert(sim.conn[AGENT].open, "after %d connections: %s", i, sim.conn[AGENT].closed);
    }
    send_frame(AGENT, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    identify(AGENT, "agent");
    cr_expect_eq(sim.conn[AGENT].out.data[0], 0);
}

/* --- AUTH ------------------------------------------------------------------------------------------------- */

Test(gate, an_agent_with_the_secret_joins)
{
    start_job();
    cr_assert(has(call(AGENT, "{\"op\":\"heartbeat\"}"), "\"ok\":true") || sim.conn[AGENT].open);
    sim_at(&sim, 60000);
    cr_assert(sim.conn[AGENT].open, "%s", sim.conn[AGENT].closed);
}

Test(gate, another_secret_is_named_on_both_sides)
{
    struct secret other = { .key = { 9 } };
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &other, AUTH_AGENT, proof), AUTH_SECRET_DIFFERS);
    expect_closed(FIRST, "the secrets differ: sha256 ");
}

Test(gate, a_false_proof_closes)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &secret, AUTH_AGENT, proof), AUTH_OK);
    proof[5] ^= 1;
    send_frame(FIRST, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    expect_closed(FIRST, "a message was not signed with the job's secret");
}

Test(gate, a_flipped_bit_in_a_call_closes)
{
    start_job();
    of[AGENT].out.key[0] ^= 1;
    send_frame(AGENT, OP_CONTROL, slice_str("{\"op\":\"heartbeat\"}"), true);
    expect_closed(AGENT, "CONTROL: the authentication tag does not match");
}

Test(gate, a_call_without_a_tag_closes)
{
    start_job();
    send_frame(AGENT, OP_CONTROL, slice_str("{\"op\":\"heartbeat\"}"), false);
    expect_closed(AGENT, "CONTROL: the authentication tag does not match");
}

Test(gate, an_authenticated_connection_has_no_keys)
{
    start_job();
    sim_feed(&sim, AGENT, GET_K);
    expect_closed(AGENT, "GET is not allowed on a connection that has sent AUTH");
}

/* Ask the store for the credential. Set `credential` to the credential in the answer. Return the result of
 * auth_read_answer. */
static enum auth_result ask_for(conn_id conn, struct slice *credential)
{
    uint8_t ask[AUTH_ASK_BYTES];
    auth_ask(ask);
    send_frame(conn, OP_AUTH, slice_of(ask, sizeof(ask)), false);
    return auth_read_answer(next_blob(conn, 0), credential);
}

Test(gate, an_agent_without_the_secret_gets_the_credential_and_then_joins, .init = NULL)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    struct slice got;
    uint8_t proof[AUTH_PROOF_BYTES];
    limits.secret = &secret;
    limits.credential = "MUNGE:x:";
    limits.guarded = true;
    sim_free(&sim);
    sim_init(&sim, &limits);
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING "0d 01000000 " HELLO); /* an honest agent sends no more before AUTH */
    sim_expect(&sim, FIRST, "01000000 0b00000000000000 7b226f6b223a747275657d");
    cr_assert_eq(ask_for(FIRST, &got), AUTH_OK);
    cr_assert(slice_equal(got, slice_str("MUNGE:x:")));
    cr_assert_eq(begin_auth(FIRST, &secret, AUTH_AGENT, "demo", proof), AUTH_OK);
    send_frame(FIRST, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    identify(FIRST, "agent");
    cr_assert_eq(sim.conn[FIRST].out.data[0], 0);
}

Test(gate, a_store_without_tls_refuses_the_request_before_tls)
{
    struct slice got;
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING "83 0200000000000000 0204");
    cr_assert_eq(auth_read_answer(next_blob(FIRST, 0), &got), AUTH_NOT_ENCRYPTED);
    expect_closed(FIRST, "the store does not encrypt");
}

Test(gate, a_store_without_a_secret_names_its_remedy, .init = NULL)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    sim_free(&sim);
    sim_init(&sim, NULL);
    cr_assert_eq(greet(FIRST, &secret, AUTH_AGENT, proof), AUTH_NO_SECRET);
    expect_closed(FIRST, "but this store has none; start the store with the same --secret_file");
}

static void count_refused(void *user)
{
    ++*(int *)user;
}

/* The answer contains the reason, and is at most as long as a credential. */
Test(gate, a_store_that_only_rejects_answers_the_request_before_tls_with_the_reason, .init = NULL)
{
    static char advice[1000];
    int refused = 0;
    memset(advice, 'x', sizeof(advice) - 1);
    const struct hub_refusal refusal = { "NO_SECRET", "no secret", advice, count_refused, &refused };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    struct slice got;
    limits.host = "n0";
    limits.refusal = &refusal;
    sim_free(&sim);
    sim_init(&sim, &limits);
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING "83 0200000000000000 0204");
    cr_assert_eq(auth_read_answer(next_blob(FIRST, 0), &got), AUTH_NO_SECRET);
    cr_expect_eq(got.len, AUTH_GIFT_BYTES - AUTH_ASK_BYTES);
    cr_expect_eq(memcmp(got.data, "NO_SECRET\nn0 reports: no secret; xxx", 35), 0);
    cr_expect_eq(refused, 1);
    expect_closed(FIRST, "the store does not encrypt");
}

Test(gate, a_stranger_gets_few_credentials_and_no_more_time)
{
    struct slice got;
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING);
    cr_assert_eq(ask_for(FIRST, &got), AUTH_NO_CREDENTIAL);
    sim_at(&sim, 5000);
    expect_closed(FIRST, "no request");
    stranger(FIRST + 1);
    sim_feed(&sim, FIRST + 1, GREETING);
    for (int i = 0; sim.conn[FIRST + 1].open; i++) {
        cr_assert_lt(i, 50);
        sim_feed(&sim, FIRST + 1, "83 0200000000000000 0203 ");
    }
    expect_closed(FIRST + 1, "more than 128 bytes");
}

/* An AUTH of another version may have more bytes than a stranger may send. So the first byte must be enough for the
 * answer. */
Test(gate, an_agent_of_another_version_is_answered)
{
    uint8_t unused[AUTH_PROOF_BYTES];
    char theirs[AUTH_PRINT_TEXT];
    static const uint8_t nonce[AUTH_NONCE_BYTES] = { 7 };
    uint8_t hello[AUTH_HELLO_BYTES];
    for (conn_id conn = FIRST; conn < FIRST + 2; conn++) {
        stranger(conn);
        auth_hello(&of[conn], &secret, AUTH_AGENT, "demo", nonce, hello);
        sim_feed_cut(&sim, conn, GREETING "83 1a01000000000000 01", conn == FIRST ? 100 : 1);
        cr_expect_eq(auth_prove(&of[conn], &secret, next_blob(conn, 0), unused, theirs), AUTH_OTHER_VERSION);
        expect_closed(conn, "install the same version of ddprun");
    }
    sim_connect(&sim, FIRST + 2); /* for a client on the store's host, the store reads the whole message
                                   * before it answers */
    hub_set_uid(sim.hub, FIRST + 2, 1000);
    sim_feed(&sim, FIRST + 2, GREETING "83 1a01000000000000 01");
    cr_expect(sim.conn[FIRST + 2].open);
    static const uint8_t rest[281];
    sim_feed_bytes(&sim, FIRST + 2, slice_of(rest, sizeof(rest)));
    expect_closed(FIRST + 2, "install the same version of ddprun");
}

/* A client on the store's host has the same user as the job. This client does not have the secret, but the calls of
 * agents need the secret. */
Test(gate, agents_calls_need_the_secret_on_the_stores_host_too)
{
    struct buf text = { 0 };
    sim_client(&sim, FIRST);
    hub_set_uid(sim.hub, FIRST, 1000);
    cr_assert_eq(sim_identify(&sim, FIRST, "{\"role\":\"agent\",\"job\":\"demo\"}", &text), 1);
    cr_assert(has(buf_slice(&text), "--secret_file"));
    buf_free(&text);
    sim_client(&sim, FIRST + 1);
    cr_assert_not_null(
        strstr(sim_control(&sim, FIRST + 1, "{\"op\":\"join\",\"job\":\"demo\"}"), "is for agents"));
}

Test(gate, a_role_or_job_that_auth_has_not_named_is_refused)
{
    authenticate(FIRST, AUTH_OPERATOR);
    identify(FIRST, "agent");
    expect_closed(FIRST, "secret of the job");
    authenticate(FIRST + 1, AUTH_AGENT);
    identify(FIRST + 1, "worker");
    expect_closed(FIRST + 1, "IDENTIFY refused");
    authenticate(FIRST + 2, AUTH_AGENT);
    send_frame(FIRST + 2, OP_IDENTIFY, slice_str("{\"role\":\"agent\",\"job\":\"other\"}"), true);
    expect_closed(FIRST + 2, "authenticated for another job, not");
}

Test(gate, an_operator_with_the_secret_reads_and_changes_no_membership)
{
    authenticate(FIRST, AUTH_OPERATOR);
    cr_assert(has(call(FIRST, "{\"op\":\"status\"}"), "\"ok\":true"));
    cr_assert(has(call(FIRST, "{\"op\":\"join\",\"job\":\"demo\"}"), "is for agents"));
}

/* --- confirmation by an agent ----------------------------------------------------------------------------- */

Test(gate, an_agent_at_its_address_opens_a_connection)
{
    char json[96];
    start_job();
    stranger(FIRST);
    sim_feed(&sim, FIRST, GREETING SET_K GET_K);
    sim_expect(&sim, FIRST, "");
    cr_assert_eq(read_pushes(), 1);
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":-1,\"pid\":0}", FIRST);
    cr_assert(has(call(AGENT, json), "\"ok\":true"));
    sim_expect(&sim, FIRST, "0100000000000000 76");
    sim_at(&sim, 60000);
    cr_assert(sim.conn[FIRST].open, "%s", sim.conn[FIRST].closed);
}

/* Until an agent confirms a stranger, the store reads only the beginning of a long request. Otherwise a few strangers
 * with long requests could use up the store's memory limit. */
Test(gate, of_a_large_value_only_the_beginning_is_read_before_the_agents_word)
{
    static uint8_t value[100 << 10];
    struct buf set = { 0 };
    char json[96];
    start_job();
    stranger(FIRST);
    cr_assert(append_u8(&set, 1) && append_blob(&set, slice_str("k")) &&
              append_blob(&set, slice_of(value, sizeof(value))));
    sim_feed(&sim, FIRST, GREETING);
    sim_feed_bytes(&sim, FIRST, slice_of(set.data, 60 << 10));
    cr_expect_not(sim.conn[FIRST].is_stopped);
    sim_feed_bytes(&sim, FIRST, slice_of(set.data + (60 << 10), 10 << 10));
    cr_expect(sim.conn[FIRST].is_stopped);
    cr_assert_eq(read_pushes(), 1);
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":-1,\"pid\":0}", FIRST);
    cr_assert(has(call(AGENT, json), "\"ok\":true"));
    cr_expect_not(sim.conn[FIRST].is_stopped);
    sim_feed_bytes(&sim, FIRST, slice_of(set.data + (70 << 10), set.len - (70 << 10)));
    sim_feed(&sim, FIRST, "0d 01000000");
    sim_expect(&sim, FIRST, "01000000");
    cr_expect(sim.conn[FIRST].open, "%s", sim.conn[FIRST].closed);
    buf_free(&set);
}

Test(gate, a_silent_agent_opens_nothing)
{
    start_job();
    stranger(FIRST);
    stranger(FIRST + 1);
    sim_feed(&sim, FIRST, GREETING SET_K);
    sim_at(&sim, 3000);
    expect_closed(FIRST, "no ddprun on the client's host has confirmed within 3 s");
    expect_closed(FIRST + 1, "no ddprun on the client's host has confirmed within 3 s");
}

/* A client of torch 1.13 opens a second connection and sends nothing through it. `rejects` lists this connection until
 * an agent confirms it. */
Test(gate, an_unused_connection_of_a_worker_is_not_listed)
{
    char json[96];
    start_job();
    stranger(FIRST);
    stranger(FIRST + 1);
    cr_assert_eq(read_pushes(), 2);
    for (int i = 1; i >= 0; i--) {
        cr_assert(has(call(AGENT, "{\"op\":\"rejects\"}"), "sent nothing"));
        snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":-1,\"pid\":0}", FIRST + i);
        cr_assert(has(call(AGENT, json), "\"ok\":true"));
    }
    cr_expect(has(call(AGENT, "{\"op\":\"rejects\"}"), "\"rejects\":[]"));
    sim_disconnect(&sim, FIRST);
    cr_expect(has(call(AGENT, "{\"op\":\"rejects\"}"), "\"rejects\":[]"));
}

/* Two hundred ranks of one host connect at once. The limit for strangers of an unknown address is lower. */
Test(gate, many_connections_of_an_agents_address_pass)
{
    char json[96];
    start_job();
    for (int i = 0; i < 200; i++) {
        stranger((conn_id)(FIRST + i));
        sim_feed(&sim, (conn_id)(FIRST + i), GREETING "0d 01000000");
    }
    cr_assert_eq(read_pushes(), 200);
    for (int i = 0; i < 200; i++) {
        snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":-1,\"pid\":0}", FIRST + i);
        cr_assert(has(call(AGENT, json), "\"ok\":true"));
        sim_feed(&sim, (conn_id)(FIRST + i), SET_K);
        sim_expect(&sim, (conn_id)(FIRST + i), "01000000");
    }
}

/* --- another user of a worker's host ------------------------------------------------------------------------ */

/* Begin again with these limits, and start a node with `nproc` ranks. */
static void start_with(uint32_t unconfirmed, uint64_t bytes, int nproc)
{
    char json[256];
    max_unconfirmed = unconfirmed;
    max_bytes = bytes;
    end();
    begin();
    authenticate(AGENT, AUTH_AGENT);
    identify(AGENT, "agent");
    struct slice empty = next_blob(AGENT, 1);
    cr_assert(auth_open(&of[AGENT], 0, &empty));
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"nproc\":%d,\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"host\":\"n1\",\"pid\":7}",
             nproc);
    cr_assert(has(call(AGENT, json), "\"ok\":true"));
    read_pushes();
}

static void admit(conn_id conn)
{
    char json[96];
    read_pushes();
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":-1,\"pid\":0}", (int)conn);
    cr_assert(has(call(AGENT, json), "\"ok\":true"));
}

/* No agent confirms the connections of another user. Beyond the limit for strangers, the store closes the oldest of
 * these connections, and still serves a worker from the same address. */
Test(gate, the_strangers_of_agents_addresses_have_a_limit)
{
    enum { BASE = 12, MOST = BASE + 4 * 2, WORKER = FIRST + MOST + 10 };
    int open = 0;
    start_with(BASE, 0, 2);
    for (conn_id conn = FIRST; conn < WORKER; conn++)
        stranger(conn);
    stranger(WORKER);
    sim_feed(&sim, WORKER, GREETING SET_K GET_K);
    for (int i = 1; i < MOST; i++)
        stranger((conn_id)(WORKER + i));
    admit(WORKER);
    sim_expect(&sim, WORKER, "0100000000000000 76");
    stranger(WORKER + MOST);
    expect_closed(FIRST, "wait until their agents confirm them");
    for (int i = FIRST; i <= WORKER + MOST; i++)
        open += sim.conn[i].open;
    cr_expect_eq(open, MOST + 1);
}

/* All ranks connect before the agent confirms the first of them. */
Test(gate, as_many_strangers_wait_as_the_ranks_need)
{
    enum { RANKS = 100 };
    start_with(10, 0, RANKS);
    for (conn_id conn = FIRST; conn < FIRST + 4 * RANKS; conn++) {
        stranger(conn);
        sim_feed(&sim, conn, GREETING SET_K GET_K);
    }
    for (conn_id conn = FIRST; conn < FIRST + 4 * RANKS; conn++) {
        admit(conn);
        sim_expect(&sim, conn, "0100000000000000 76");
    }
}

/* The strangers from the addresses of agents reach their limit, 1/16 of the memory. The store reads no more from them,
 * but closes none of them, and still serves a worker. */
Test(gate, the_strangers_of_agents_addresses_hold_few_bytes)
{
    enum { MEMORY = 16 << 20, SHARE = MEMORY / 16, STRANGERS = 100, WORKER = FIRST + STRANGERS };
    static uint8_t value[60 << 10];
    size_t fed = 0;
    start_with(0, MEMORY, 2);
    for (conn_id conn = FIRST; conn < WORKER; conn++) {
        stranger(conn);
        sim_feed(&sim, conn, GREETING);
    }
    for (conn_id conn = FIRST; conn < WORKER; conn++) {
        if (sim.conn[conn].is_stopped)
            continue;
        sim_feed(&sim, conn, "01 " KEY_K "0000100000000000");
        sim_feed_bytes(&sim, conn, slice_of(value, sizeof(value)));
        fed += sizeof(value);
    }
    cr_expect(fed + sizeof(value) > SHARE && fed < SHARE + sizeof(value), "%zu bytes are held", fed);
    stranger(WORKER);
    for (conn_id conn = FIRST; conn <= WORKER; conn++)
        cr_expect(sim.conn[conn].open && sim.conn[conn].is_stopped, "%d", (int)conn);
    admit(WORKER);
    cr_assert_not(sim.conn[WORKER].is_stopped);
    sim_feed(&sim, WORKER, GREETING SET_K GET_K);
    sim_expect(&sim, WORKER, "0100000000000000 76");
    for (conn_id conn = FIRST; conn < FIRST + 20; conn++)
        sim_disconnect(&sim, conn);
    stranger(FIRST); /* there is room again */
    cr_expect_not(sim.conn[FIRST].is_stopped);
    sim_at(&sim, 3000);
    expect_closed(WORKER - 1, "no ddprun on the client's host has confirmed within 3 s");
}

/* --- several nodes and tenants ------------------------------------------------------------------------------ */

static struct secret team_b = { .key = { 5 }, .jobs = "b" };
static struct secret team_a = { .key = { 4 }, .next = &team_b, .jobs = "a" };

static void begin_tenants(void)
{
    begin_with(&team_a, true);
}

TestSuite(tenants, .init = begin_tenants, .fini = end);

/* Connect a stranger from `host`. sim_connect cannot be used for this, because sim_connect gives every connection
 * another address. */
static void stranger_from(const char *host, conn_id conn)
{
    char peer[64];
    snprintf(peer, sizeof(peer), "%s:%d", host, (int)conn);
    sim.conn[conn].open = true;
    cr_assert(hub_connect(sim.hub, conn, peer, sim.now_ms));
    hub_set_foreign(sim.hub, conn);
}

/* The server has no free descriptor for a new client, so it closes the connection of a stranger. */
Test(gate, the_server_takes_the_descriptor_of_the_oldest_stranger)
{
    start_with(0, 0, 2);
    cr_expect_not(hub_drop_stranger(sim.hub, NULL, sim.now_ms));
    stranger_from("10.8.8.8", FIRST + 3); /* no agent has this address */
    sim_at(&sim, sim.now_ms + 10);
    stranger(FIRST);
    stranger(FIRST + 1);
    stranger(FIRST + 2);
    admit(FIRST);
    cr_expect_not(hub_drop_stranger(sim.hub, "10.9.9.9", sim.now_ms));
    cr_expect(hub_drop_stranger(sim.hub, NULL, sim.now_ms));
    expect_closed(FIRST + 3, "no agent has confirmed this connection");
    cr_expect(hub_drop_stranger(sim.hub, NULL, sim.now_ms));
    expect_closed(FIRST + 1, "no agent has confirmed this connection");
    cr_expect(sim.conn[FIRST].open && sim.conn[FIRST + 2].open);
}

static void skip_output(conn_id conn)
{
    while (sim.conn[conn].out.len > 0) {
        struct slice push = next_blob(conn, 0);
        cr_assert(auth_open(&of[conn], 0, &push));
    }
}

static void connect_as(const char *host, conn_id conn, const struct secret *k, enum auth_role role,
                       const char *job)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    stranger_from(host, conn);
    cr_assert_eq(greet_for(conn, k, role, job, proof), AUTH_OK);
    send_frame(conn, OP_AUTH, slice_of(proof, sizeof(proof)), false);
}

/* Start the agent of node `node_rank` of `nodes` nodes, with two ranks. */
static void start_node(const char *host, conn_id conn, const struct secret *k, const char *job, int node_rank,
                       int nodes)
{
    char json[256];
    connect_as(host, conn, k, AUTH_AGENT, job);
    snprintf(json, sizeof(json), "{\"role\":\"agent\",\"job\":\"%s\"}", job);
    send_frame(conn, OP_IDENTIFY, slice_str(json), true);
    struct slice empty = next_blob(conn, 1);
    cr_assert(auth_open(&of[conn], 0, &empty) && empty.len == 0);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"%s\",\"version\":\"" DDP_VERSION
             "\",\"nproc\":2,\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"host\":\"%s\",\"pid\":7}",
             job, nodes, nodes, node_rank, host);
    const struct slice answer = call(conn, json);
    cr_assert(has(answer, "\"ok\":true"), "%.*s", (int)answer.len, (const char *)answer.data);
    skip_output(AGENT);
    skip_output(conn);
}

static bool calls(conn_id conn, const char *json, const char *words)
{
    skip_output(conn);
    const struct slice answer = call(conn, json);
    const bool found = has(answer, words);
    cr_expect(found, "%s: %.*s", json, (int)answer.len, (const char *)answer.data);
    skip_output(conn);
    return found;
}

static void vouch(conn_id agent, conn_id conn, int rank, int pid, const char *words)
{
    char json[96];
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":%d,\"pid\":%d}", (int)conn, rank,
             pid);
    calls(agent, json, words);
}

static void identify_worker(conn_id conn, const char *job, int rank, int world)
{
    struct buf frame = { 0 };
    char json[128];
    snprintf(json, sizeof(json),
             "{\"role\":\"worker\",\"job\":\"%s\",\"attempt\":0,\"rank\":%d,\"world_size\":%d}", job, rank,
             world);
    cr_assert(append_u8(&frame, 0x80) && append_blob(&frame, slice_str(json)));
    sim_feed_bytes(&sim, conn, buf_slice(&frame));
    buf_free(&frame);
}

#define WELCOME "00 0000000000000000"

static void start_two_nodes(void)
{
    start_node("10.0.0.1", AGENT, &secret, "demo", 0, 2);
    start_node("10.0.0.2", AGENT_B, &secret, "demo", 1, 2);
}

Test(gate, a_confirmed_connection_is_a_rank_of_its_node)
{
    start_two_nodes();
    for (int pid = 0; pid < 2; pid++) { /* if pid is 1, the agent also names the process */
        const conn_id own = (conn_id)(FIRST + 2 * pid), foreign = own + 1;
        stranger_from("10.0.0.2", own);
        sim_feed(&sim, own, GREETING);
        vouch(AGENT_B, own, -1, pid, "\"ok\":true");
        identify_worker(own, "demo", 3, 4);
        sim_expect(&sim, own, WELCOME);
        stranger_from("10.0.0.2", foreign);
        sim_feed(&sim, foreign, GREETING);
        vouch(AGENT_B, foreign, -1, pid, "\"ok\":true");
        identify_worker(foreign, "demo", 1, 4);
        expect_closed(foreign,
                      "rank 1 of job 'demo' is not on the node whose agent has confirmed this connection");
    }
    connect_as("10.0.0.3", OPERATOR, &secret, AUTH_OPERATOR, "");
    calls(OPERATOR, "{\"op\":\"rejects\"}", "rank 1 of job 'demo' is not on the node");
}

/* There are two agents on one host. Only the agent that has found the process knows the node of the connection. */
Test(gate, a_named_process_is_a_rank_of_the_agent_that_has_named_it)
{
    start_node("10.0.0.1", AGENT, &secret, "demo", 0, 2);
    start_node("10.0.0.1", AGENT_B, &secret, "demo", 1, 2);
    for (conn_id conn = FIRST; conn < FIRST + 2; conn++) {
        stranger_from("10.0.0.1", conn);
        sim_feed(&sim, conn, GREETING);
        vouch(AGENT, conn, -1, 0, "\"ok\":true");
    }
    identify_worker(FIRST, "demo", 2, 4);
    sim_expect(&sim, FIRST, WELCOME);
    vouch(AGENT, FIRST + 1, -1, 9, "\"ok\":true");
    identify_worker(FIRST + 1, "demo", 2, 4);
    expect_closed(FIRST + 1, "rank 2 of job 'demo' is not on the node");
}

/* --- an operator -------------------------------------------------------------------------------------------- */

/* Let rank 2 wait for rank 3 in the barrier `name` ("b" or "c"). */
static void open_barrier(conn_id conn, char name)
{
    char request[96];
    stranger_from("10.0.0.2", conn);
    sim_feed(&sim, conn, GREETING);
    vouch(AGENT_B, conn, 2, 9, "\"ok\":true");
    identify_worker(conn, "demo", 2, 4);
    sim_expect(&sim, conn, WELCOME);
    snprintf(request, sizeof(request),
             "81 0100000000000000 %02x 60ea000000000000 0800000000000000 0200000003000000", name);
    sim_feed(&sim, conn, request);
    sim_expect(&sim, conn, "");
}

static void expect_answer(conn_id conn, const char *json, const char *words)
{
    const char *answer = sim_control(&sim, conn, json);
    cr_expect_not_null(strstr(answer, words), "%s: %s", json, answer);
}

/* The agent of node 1 confirms the user of ddpctl. */
Test(gate, an_operator_on_another_host_reads_and_changes_nothing)
{
    static const char *const reads[] = { "jobs", "rejects",  "why",     "status",
                                         "keys", "barriers", "waiters", "hello" };
    static const char cancel[] = "{\"op\":\"barrier_cancel\",\"name\":\"b\"}";
    char json[64];
    start_two_nodes();
    open_barrier(FIRST, 'b');
    stranger_from("10.0.0.2", FIRST + 1);
    sim_feed(&sim, FIRST + 1, GREETING);
    vouch(AGENT_B, FIRST + 1, -1, 0, "\"ok\":true");
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        snprintf(json, sizeof(json), "{\"op\":\"%s\"}", reads[i]);
        expect_answer(FIRST + 1, json, "\"ok\":true");
    }
    expect_answer(FIRST + 1, cancel, "has not proved that it has the secret");
    expect_answer(FIRST + 1, "{\"op\":\"barriers\"}", "\"b\"");
    sim_expect(&sim, FIRST, "");
}

Test(gate, an_operator_with_the_secret_or_on_the_stores_host_cancels_a_barrier)
{
    static const char cancel[] = "{\"op\":\"barrier_cancel\",\"name\":\"b\"}";
    start_two_nodes();
    open_barrier(FIRST, 'b');
    connect_as("10.0.0.3", OPERATOR, &secret, AUTH_OPERATOR, "demo");
    calls(OPERATOR, cancel, "\"ok\":true");
    cr_expect_gt(sim.conn[FIRST].out.len, 0, "the rank gets an error");
    open_barrier(FIRST + 1, 'c');
    sim_client(&sim, FIRST + 2);
    hub_set_uid(sim.hub, FIRST + 2, 1000);
    expect_answer(FIRST + 2, "{\"op\":\"barrier_cancel\",\"name\":\"c\"}", "\"ok\":true");
    cr_expect_gt(sim.conn[FIRST + 1].out.len, 0);
}

/* --- findings of a node -------------------------------------------------------------------------------------- */

/* A faulty agent has the secret, too. */
Test(gate, an_agent_sends_findings_of_its_own_node_only)
{
    static const char full[] =
        "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"10.0.0.1\",\"sentence\":\"is full\"}";
    start_two_nodes();
    calls(AGENT, full, "\"ok\":true");
    calls(AGENT_B, full, "NOTICE_REFUSED");
    calls(AGENT_B, full, "own host");
    calls(AGENT_B, "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"10.0.0.1\",\"sentence\":\"\"}",
          "NOTICE_REFUSED");
    calls(AGENT_B,
          "{\"op\":\"notice\",\"code\":\"GPU_BUSY\",\"subject\":\"GPU 0 of 10.0.0.1\",\"sentence\":\"x\"}",
          "NOTICE_REFUSED");
    calls(AGENT_B,
          "{\"op\":\"notice\",\"code\":\"GPU_BUSY\",\"subject\":\"GPU 0 of 10.0.0.21\",\"sentence\":\"x\"}",
          "NOTICE_REFUSED");
    calls(
        AGENT_B,
        "{\"op\":\"notice\",\"code\":\"PATH_LOSES_LARGE\",\"subject\":\"the path from 10.0.0.2 to 10.0.0.1\","
        "\"sentence\":\"loses\"}",
        "\"ok\":true");
    calls(AGENT, "{\"op\":\"why\"}", "is full");
    calls(AGENT, "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"10.0.0.1\",\"sentence\":\"\"}",
          "\"ok\":true");
    calls(AGENT, "{\"op\":\"why\"}", "loses");
    skip_output(AGENT);
    const struct slice answer = call(AGENT, "{\"op\":\"why\"}");
    cr_expect_not(has(answer, "is full") || has(answer, "GPU_BUSY"));
}

/* A second agent of a host can replace the finding of the first agent only after the first agent has left. */
Test(gate, a_finding_of_a_lost_agent_belongs_to_the_next_agent_of_its_host)
{
    static const char first[] =
        "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"10.0.0.1\",\"sentence\":\"first\"}";
    static const char second[] =
        "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"10.0.0.1\",\"sentence\":\"second\"}";
    start_node("10.0.0.1", AGENT, &secret, "demo", 0, 3);
    start_node("10.0.0.1", AGENT_B, &secret, "demo", 1, 3);
    calls(AGENT, first, "\"ok\":true");
    calls(AGENT_B, second, "NOTICE_REFUSED");
    calls(AGENT_B, second, "another node has already sent this finding");
    sim_disconnect(&sim, AGENT);
    calls(AGENT_B, second, "\"ok\":true");
    calls(AGENT_B, "{\"op\":\"why\"}", "second");
}

/* Agents report which rank owns a connection whose client has not identified itself. An agent may report only a
 * connection from the agent's host, and only a rank of the agent's node. */
Test(gate, a_rank_that_an_agent_has_named_is_no_rank_of_another_agent)
{
    start_two_nodes();
    stranger_from("10.0.0.2", FIRST);
    sim_feed(&sim, FIRST, GREETING SET_K);
    vouch(AGENT, FIRST, 2, 9, "does not belong to this agent");
    vouch(AGENT_B, FIRST, 1, 9, "rank 1 is not on this node");
    sim_feed(&sim, FIRST, GET_K);
    sim_expect(&sim, FIRST, "");
    vouch(AGENT_B, FIRST, 2, 9, "\"ok\":true");
    sim_expect(&sim, FIRST, "0100000000000000 76");
}

Test(gate, an_agent_reports_its_own_ranks_only)
{
    start_two_nodes();
    calls(AGENT_B, "{\"op\":\"worker_started\",\"round\":1,\"rank\":2,\"pid\":9}", "\"ok\":true");
    calls(AGENT_B, "{\"op\":\"worker_started\",\"round\":1,\"rank\":1,\"pid\":9}",
          "rank 1 is not on this node");
    calls(AGENT_B, "{\"op\":\"worker_exited\",\"round\":1,\"rank\":1,\"pid\":9,\"exit_code\":1}",
          "rank 1 is not on this node");
    calls(AGENT_B, "{\"op\":\"failed\",\"round\":1,\"rank\":1,\"local_rank\":0,\"pid\":9,\"exit_code\":1}",
          "rank 1 is not on this node");
    calls(AGENT_B, "{\"op\":\"cause\",\"round\":1,\"rank\":1,\"local_rank\":0,\"pid\":9,\"exit_code\":1}",
          "\"ok\":false");
    calls(AGENT_B, "{\"op\":\"heartbeat\",\"round\":1,\"workers\":[[2,\"T\",0,\"x\"]]}", "\"ok\":true");
    calls(AGENT, "{\"op\":\"status\"}", "\"state\":\"running\"");
}

Test(gate, an_agent_sends_stacks_of_its_own_ranks_only)
{
    start_two_nodes();
    connect_as("10.0.0.3", OPERATOR, &secret, AUTH_OPERATOR, "demo");
    send_frame(OPERATOR, OP_CONTROL, slice_str("{\"op\":\"stacks\"}"), true);
    calls(AGENT,
          "{\"op\":\"sampled\",\"id\":1,\"stacks\":[{\"does\":\"x\",\"threads\":[{\"rank\":0,\"pid\":5},{"
          "\"rank\":3,"
          "\"pid\":5}]}]}",
          "\"ok\":true");
    calls(AGENT_B,
          "{\"op\":\"sampled\",\"id\":1,\"stacks\":[{\"does\":\"y\",\"threads\":[{\"rank\":0,\"pid\":6}]}]}",
          "\"ok\":true");
    struct slice answer = next_blob(OPERATOR, 0);
    cr_assert(auth_open(&of[OPERATOR], 0, &answer));
    cr_assert(has(answer, "\"stacks\":[{\"does\":\"x\",\"threads\":[{\"rank\":0,\"pid\":5}]}]"), "%.*s",
              (int)answer.len, (const char *)answer.data);
}

static void start_tenants(void)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    start_node("10.0.0.2", AGENT_B, &team_b, "b1", 0, 1);
}

Test(tenants, a_secret_is_valid_for_its_jobs_only)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    static const struct {
        const struct secret *secret;
        const char *job, *refusal;
    } cases[] = { { &team_a, "a1", NULL },
                  { &secret, "a1", NULL },
                  { &team_a, "b1", "the secrets differ: sha256 " },
                  { &team_a, "c1", "the store has no secret for job 'c1'" },
                  { &team_a, "", "the store has no secret for job ''" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const conn_id conn = (conn_id)(FIRST + i);
        char json[64];
        stranger(conn);
        cr_assert_eq(greet_for(conn, cases[i].secret, AUTH_AGENT, cases[i].job, proof),
                     cases[i].secret == &secret ? AUTH_NO_SECRET : AUTH_OK);
        if (cases[i].secret == &secret) {
            expect_closed(conn, "this store does not have the client's secret (sha256 ");
            continue;
        }
        send_frame(conn, OP_AUTH, slice_of(proof, sizeof(proof)), false);
        snprintf(json, sizeof(json), "{\"role\":\"agent\",\"job\":\"%s\"}", cases[i].job);
        send_frame(conn, OP_IDENTIFY, slice_str(json), true);
        if (cases[i].refusal != NULL)
            expect_closed(conn, cases[i].refusal);
        cr_expect_eq(sim.conn[conn].open, cases[i].refusal == NULL);
    }
}

/* An agent may make a call without IDENTIFY, so each call checks job and tenant. */
Test(tenants, no_call_reaches_a_job_of_another_secret)
{
    static const char *const tries[] = {
        "{\"op\":\"join\",\"job\":\"b1\",\"version\":\"" DDP_VERSION
        "\",\"nproc\":2,\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"host\":\"h\",\"pid\":7}",
        "{\"op\":\"resume\",\"job\":\"b1\",\"token\":\"00000000000000000000000000000000\",\"heard\":0}",
        "{\"op\":\"job\",\"job\":\"b1\",\"attempt\":1,\"world_size\":2}"
    };
    start_tenants();
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        const conn_id conn = (conn_id)(FIRST + i);
        connect_as("10.0.0.3", conn, &team_a, AUTH_AGENT, "b1");
        calls(conn, tries[i], "\"ok\":false");
        skip_output(AGENT_B);
        calls(AGENT_B, "{\"op\":\"status\"}", "\"attempt\":0");
    }
}

Test(tenants, an_operator_reads_its_own_jobs_only)
{
    static const char *const reads[] = { "status", "keys",   "waiters",       "barriers",
                                         "why",    "stacks", "barrier_cancel" };
    char json[96];
    start_tenants();
    connect_as("10.0.0.3", OPERATOR, &team_a, AUTH_OPERATOR, "");
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        snprintf(json, sizeof(json), "{\"op\":\"%s\",\"job\":\"b1\",\"name\":\"x\"}", reads[i]);
        calls(OPERATOR, json, "no job 'b1' in this store");
    }
    calls(OPERATOR, "{\"op\":\"status\",\"job\":\"a1\"}", "\"world_size\":2");
    calls(OPERATOR, "{\"op\":\"status\"}", "\"job\":\"a1\"");
    calls(OPERATOR, "{\"op\":\"jobs\"}",
          "{\"jobs\":[{\"job\":\"a1\",\"attempt\":0,\"world_size\":2,\"keys\":0,"
          "\"connections\":1}]");
    calls(AGENT, "{\"op\":\"keys\",\"job\":\"b1\"}", "no job 'b1'");
}

Test(tenants, a_confirmed_connection_stays_with_its_tenant)
{
    static const char ask[] = "{\"op\":\"keys\",\"job\":\"b1\"}";
    start_tenants();
    for (conn_id conn = FIRST; conn < FIRST + 3; conn++) {
        stranger_from("10.0.0.1", conn);
        sim_feed(&sim, conn, GREETING);
        vouch(AGENT, conn, -1, conn == FIRST, "\"ok\":true");
    }
    cr_assert_not_null(strstr(sim_control(&sim, FIRST, ask), "no job 'b1'"));
    identify_worker(FIRST, "b1", 0, 2);
    expect_closed(FIRST, "rank 0 of job 'b1' is not on the node");
    identify_worker(FIRST + 1, "b1", 0, 2);
    expect_closed(FIRST + 1, "rank 0 of job 'b1' is not on the node");
    sim_feed(&sim, FIRST + 2, SET_K GET_K); /* a1 is the only job of its tenant */
    sim_expect(&sim, FIRST + 2, "0100000000000000 76");
    connect_as("10.0.0.2", OPERATOR, &team_b, AUTH_OPERATOR, "b");
    calls(OPERATOR, "{\"op\":\"status\"}", "\"keys\":0");
    calls(OPERATOR, "{\"op\":\"rejects\"}", "\"job\":\"b1\"");
    sim_disconnect(&sim, OPERATOR);
    connect_as("10.0.0.1", OPERATOR, &team_a, AUTH_OPERATOR, "a");
    calls(OPERATOR, "{\"op\":\"rejects\"}", "{\"rejects\":[],\"refused\":[],\"ok\":true}");
}

/* Both agents have the same user, so the user does not identify the job of a connection. Only the agent that finds the
 * connection among its processes can claim the connection. */
Test(tenants, two_tenants_share_a_host)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    start_node("10.0.0.1", AGENT_B, &team_b, "b1", 0, 1);
    for (conn_id conn = FIRST; conn < FIRST + 3; conn++) {
        stranger_from("10.0.0.1", conn);
        sim_feed(&sim, conn, GREETING "0d 01000000");
        sim_expect(&sim, conn, "01000000");
        sim_feed(&sim, conn, SET_K GET_K);
        vouch(AGENT, conn, -1, 0, "\"ok\":true");
        vouch(AGENT_B, conn, -1, 0, "\"ok\":true");
    }
    vouch(AGENT_B, FIRST, 0, 9, "\"ok\":true");
    vouch(AGENT, FIRST + 1, 0, 9, "\"ok\":true");
    sim_expect(&sim, FIRST, "");
    vouch(AGENT_B, FIRST + 1, 0, 9, "another job claims this connection, too");
    expect_closed(FIRST + 1, "job 'a1' and job 'b1' (agent on 10.0.0.1) both claim this connection");
    sim_at(&sim, CLAIM_MS);
    sim_expect(&sim, FIRST, "0100000000000000 76");
    connect_as("10.0.0.2", OPERATOR, &team_b, AUTH_OPERATOR, "b1");
    calls(OPERATOR, "{\"op\":\"status\"}", "\"keys\":1");
    sim_disconnect(&sim, OPERATOR);
    connect_as("10.0.0.2", OPERATOR, &team_a, AUTH_OPERATOR, "a1");
    calls(OPERATOR, "{\"op\":\"status\"}", "\"keys\":0");
    sim_at(&sim, 3000);
    expect_closed(FIRST + 2, "no ddprun on the client's host has confirmed within 3 s");
}

/* The first report of the agent of tenant a confirms only the user of the connection. So the connection belongs to
 * tenant a, but its job is unknown. Tenant a has two jobs, so the connection waits until an agent reports its process.
 * Then tenant b starts a node on the same host. The agent of tenant b must not claim the connection, because the
 * connection already belongs to tenant a. */
Test(tenants, a_later_tenant_claims_no_connection_of_an_earlier_one)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    start_node("10.0.0.3", OPERATOR, &team_a, "a2", 0, 1);
    stranger_from("10.0.0.1", FIRST);
    sim_feed(&sim, FIRST, GREETING);
    vouch(AGENT, FIRST, -1, 0, "\"ok\":true");
    sim_feed(&sim, FIRST, SET_K GET_K);
    start_node("10.0.0.1", AGENT_B, &team_b, "b1", 0, 1);
    vouch(AGENT_B, FIRST, 0, 9, "does not belong to this agent");
    sim_expect(&sim, FIRST, "");
    vouch(AGENT, FIRST, 0, 9, "\"ok\":true");
    sim_expect(&sim, FIRST, "0100000000000000 76");
}

/* --- TLS -------------------------------------------------------------------------------------------------------- */

static void stranger_by_tls(const char *host, conn_id conn)
{
    char peer[64];
    snprintf(peer, sizeof(peer), "%s:%d", host, (int)conn);
    sim.conn[conn].open = true;
    cr_assert(hub_connect(sim.hub, conn, peer, sim.now_ms));
    hub_expect_tls(sim.hub, conn);
    hub_set_foreign(sim.hub, conn);
}

static void proven(conn_id conn, const struct secret *k, const char *job)
{
    hub_set_secret(sim.hub, conn, k, job, sim.now_ms);
}

/* Both agents have the same user and address. The TLS handshake of the client proves its job. Only the agent of this
 * job may confirm the connection. */
Test(tenants, tls_decides_which_agent_may_confirm)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    start_node("10.0.0.1", AGENT_B, &team_b, "b1", 0, 1);
    stranger_by_tls("10.0.0.1", FIRST);
    vouch(AGENT, FIRST, -1, 0, "\"ok\":true");
    vouch(AGENT, FIRST, 0, 9, "does not belong to this agent");
    proven(FIRST, &team_a, "a1");
    sim_feed(&sim, FIRST, GREETING SET_K GET_K);
    vouch(AGENT_B, FIRST, -1, 0, "\"ok\":true");
    vouch(AGENT_B, FIRST, 0, 9, "does not belong to this agent");
    sim_expect(&sim, FIRST, "");
    vouch(AGENT, FIRST, 0, 9, "\"ok\":true");
    sim_expect(&sim, FIRST, "0100000000000000 76");
    connect_as("10.0.0.2", OPERATOR, &team_b, AUTH_OPERATOR, "b1");
    calls(OPERATOR, "{\"op\":\"status\"}", "\"keys\":0");
}

Test(tenants, tls_of_one_job_opens_no_other_job_of_the_tenant)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    start_node("10.0.0.1", AGENT_B, &team_a, "a2", 0, 1);
    stranger_by_tls("10.0.0.1", FIRST);
    proven(FIRST, &team_a, "a2");
    sim_feed(&sim, FIRST, GREETING SET_K);
    vouch(AGENT, FIRST, 0, 9, "does not belong to this agent");
    vouch(AGENT_B, FIRST, -1, 0, "\"ok\":true");
    calls(AGENT_B, "{\"op\":\"status\"}", "\"keys\":1");
    calls(AGENT, "{\"op\":\"status\"}", "\"keys\":0");
}

Test(tenants, auth_inside_tls_names_the_same_tenant_and_job)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    stranger_by_tls("10.0.0.1", FIRST);
    proven(FIRST, &team_b, "b1");
    cr_assert_eq(greet_for(FIRST, &team_a, AUTH_AGENT, "a1", proof), AUTH_NO_SECRET);
    stranger_by_tls("10.0.0.1", FIRST + 1);
    proven(FIRST + 1, &team_a, "a1");
    cr_assert_eq(greet_for(FIRST + 1, &team_a, AUTH_AGENT, "a2", proof), AUTH_OK);
    send_frame(FIRST + 1, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    send_frame(FIRST + 1, OP_IDENTIFY, slice_str("{\"role\":\"agent\",\"job\":\"a2\"}"), true);
    expect_closed(FIRST + 1, "authenticated for another job, not");
}

Test(tenants, a_tls_handshake_has_the_limits_of_a_stranger)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    for (int i = 0; i < 17; i++)
        stranger_by_tls("10.0.0.9", (conn_id)(FIRST + i));
    expect_closed(FIRST, "too many connections from this address");
    stranger_by_tls("10.0.0.1", FIRST + 20);
    sim_at(&sim, 2999);
    cr_assert(sim.conn[FIRST + 20].open && sim.conn[FIRST + 1].open);
    sim_at(&sim, 3000);
    expect_closed(FIRST + 20, "has not completed the TLS handshake");
    sim_at(&sim, 5000);
    expect_closed(FIRST + 1, "has not completed the TLS handshake");
}

Test(tenants, many_tls_handshakes_of_an_agents_address_may_wait)
{
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    for (int i = 0; i < 200; i++)
        stranger_by_tls("10.0.0.1", (conn_id)(FIRST + i));
    for (int i = 0; i < 200; i++) {
        cr_assert(sim.conn[FIRST + i].open);
        proven((conn_id)(FIRST + i), &team_a, "a1");
    }
}

/* Beyond the limit, the store ends the oldest unfinished handshake. Finished handshakes do not count. */
Test(tenants, the_tls_handshakes_of_agents_addresses_have_a_limit)
{
    enum { BASE = 12, MOST = BASE + 4 * 2 };
    max_unconfirmed = BASE;
    end();
    begin_tenants();
    start_node("10.0.0.1", AGENT, &team_a, "a1", 0, 1);
    for (int i = 0; i <= MOST; i++)
        stranger_by_tls("10.0.0.1", (conn_id)(FIRST + i));
    expect_closed(FIRST, "too many connections wait for the TLS handshake");
    proven(FIRST + 1, &team_a, "a1");
    stranger_by_tls("10.0.0.1", FIRST + MOST + 1);
    cr_assert(sim.conn[FIRST + 1].open && sim.conn[FIRST + 2].open);
}

/* Any client may begin a TLS handshake. Only a known identity shows that the client is a ddprun. */
Test(tenants, only_a_known_identity_is_a_ddprun)
{
    connect_as("10.0.0.2", OPERATOR, &team_b, AUTH_OPERATOR, "b1");
    stranger_by_tls("10.0.0.9", FIRST);
    hub_reject(sim.hub, FIRST, slice_str("\x16\x03"), false, "TLS: handshake failed", sim.now_ms);
    calls(OPERATOR, "{\"op\":\"rejects\"}", "\"kind\":\"tls\"");
    stranger_by_tls("10.0.0.8", FIRST + 1);
    hub_reject(sim.hub, FIRST + 1, slice_str("\x16\x03"), true, "TLS: the secrets differ", sim.now_ms);
    calls(OPERATOR, "{\"op\":\"rejects\"}", "\"kind\":\"ddprun\"");
}

Test(tenants, the_shell_can_reject_a_connection)
{
    stranger_by_tls("10.0.0.9", FIRST);
    hub_reject(sim.hub, FIRST, slice_str("\x16\x03"), true, "TLS: handshake failed", sim.now_ms);
    expect_closed(FIRST, "TLS: handshake failed");
    connect_as("10.0.0.2", OPERATOR, &team_b, AUTH_OPERATOR, "b1");
    calls(OPERATOR, "{\"op\":\"rejects\"}", "TLS: handshake failed");
}
