/* Connections from other hosts: what a stranger gets before and after a proof of the secret, and what an agent's word
 * opens. */
#include "auth/auth.h"
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

enum { AGENT = 1, FIRST = 10 };

static struct sim sim;
static struct secret secret = { { 1, 2, 3 } };

/* Peers of the simulation are "10.0.0.N:port"; see sim_connect. */
static void stranger(conn_id conn)
{
    sim_connect(&sim, conn);
    hub_set_foreign(sim.hub, conn);
}

static void begin(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.secret = &secret;
    limits.guarded = true;
    limits.instance = "instance";
    sim_init(&sim, &limits);
}

static void end(void)
{
    sim_free(&sim);
}

TestSuite(gate, .init = begin, .fini = end);

/* --- an agent --------------------------------------------------------------------------------------------- */

static struct auth agent;

static void send_frame(conn_id conn, enum op_id op, struct slice bytes, bool with_tag)
{
    struct buf frame = { 0 };
    uint8_t tag[AUTH_TAG_BYTES];
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cr_assert(put_u8(&frame, code) && put_u64(&frame, bytes.len + (with_tag ? sizeof(tag) : 0)) &&
              buf_append(&frame, bytes.data, bytes.len));
    if (with_tag) {
        auth_seal(&agent, code, bytes, tag);
        cr_assert(buf_append(&frame, tag, sizeof(tag)));
    }
    sim_feed_bytes(&sim, conn, buf_slice(&frame));
    buf_free(&frame);
}

/* Take the next blob that the hub has sent, after `before` other bytes. */
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

static enum auth_result greet(conn_id conn, const struct secret *k, enum auth_role role,
                              uint8_t proof[AUTH_PROOF_BYTES])
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = { 7 };
    uint8_t hello[AUTH_HELLO_BYTES];
    char theirs[AUTH_PRINT_TEXT];
    stranger(conn);
    sim_feed(&sim, conn, GREETING);
    auth_hello(&agent, k, role, "demo", nonce, hello);
    send_frame(conn, OP_AUTH, slice_of(hello, sizeof(hello)), false);
    return auth_prove(&agent, k, next_blob(conn, 0), proof, theirs);
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
    cr_assert(auth_open(&agent, 0, &answer));
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

/* Every push has a tag, too. */
static unsigned read_pushes(void)
{
    unsigned n = 0;
    for (; sim.conn[AGENT].out.len > 0; n++) {
        struct slice push = next_blob(AGENT, 0);
        cr_assert(auth_open(&agent, 0, &push));
        cr_assert(has(push, "\"push\""));
    }
    return n;
}

/* The agent of one node with two ranks: attempt 0 runs. */
static void start_job(void)
{
    authenticate(AGENT, AUTH_AGENT);
    identify(AGENT, "agent");
    cr_assert_eq(sim.conn[AGENT].out.data[0], 0);
    struct slice empty = next_blob(AGENT, 1);
    cr_assert(auth_open(&agent, 0, &empty) && empty.len == 0);
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
        expect_closed(conn, i == 7 ? "has sent no request" : "no agent of the job has confirmed within 3 s");
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
    expect_closed(FIRST, "no agent of the job");
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
    expect_closed(FIRST, "bytes from another host before an agent");
}

Test(gate, half_an_authentication_is_closed_after_five_seconds)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &secret, AUTH_AGENT, proof), AUTH_OK);
    stranger(FIRST + 1);
    sim_at(&sim, 4999);
    cr_assert(sim.conn[FIRST].open && sim.conn[FIRST + 1].open);
    sim_at(&sim, 5000);
    expect_closed(FIRST, "began an authentication");
    expect_closed(FIRST + 1, "has sent no request");
}

Test(gate, few_strangers_wait_and_the_oldest_goes)
{
    for (int i = 0; i < 17; i++)
        stranger((conn_id)(FIRST + i));
    expect_closed(FIRST, "too many connections of its address");
    int open = 0;
    for (int i = 0; i < 17; i++)
        open += sim.conn[FIRST + i].open;
    cr_assert_eq(open, 16);
    authenticate(AGENT, AUTH_AGENT);
    cr_assert(sim.conn[AGENT].open);
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
    struct secret other = { { 9 } };
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &other, AUTH_AGENT, proof), AUTH_SECRET_DIFFERS);
    expect_closed(FIRST, "secret differs: sha256 ");
}

Test(gate, a_false_proof_closes)
{
    uint8_t proof[AUTH_PROOF_BYTES];
    cr_assert_eq(greet(FIRST, &secret, AUTH_AGENT, proof), AUTH_OK);
    proof[5] ^= 1;
    send_frame(FIRST, OP_AUTH, slice_of(proof, sizeof(proof)), false);
    expect_closed(FIRST, "the proof is wrong");
}

Test(gate, a_flipped_bit_in_a_call_closes)
{
    start_job();
    agent.out.key[0] ^= 1;
    send_frame(AGENT, OP_CONTROL, slice_str("{\"op\":\"heartbeat\"}"), true);
    expect_closed(AGENT, "CONTROL: its tag is wrong");
}

Test(gate, a_call_without_a_tag_closes)
{
    start_job();
    send_frame(AGENT, OP_CONTROL, slice_str("{\"op\":\"heartbeat\"}"), false);
    expect_closed(AGENT, "CONTROL: its tag is wrong");
}

Test(gate, an_authenticated_connection_has_no_keys)
{
    start_job();
    sim_feed(&sim, AGENT, GET_K);
    expect_closed(AGENT, "GET on a connection with AUTH");
}

/* The user of the store's host is the job's, but only agents have the secret. */
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
    expect_closed(FIRST + 2, "AUTH named another job");
}

Test(gate, an_operator_with_the_secret_reads_and_changes_no_membership)
{
    authenticate(FIRST, AUTH_OPERATOR);
    cr_assert(has(call(FIRST, "{\"op\":\"status\"}"), "\"ok\":true"));
    cr_assert(has(call(FIRST, "{\"op\":\"join\",\"job\":\"demo\"}"), "is for agents"));
}

/* --- an agent's word -------------------------------------------------------------------------------------- */

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

Test(gate, a_silent_agent_opens_nothing)
{
    start_job();
    stranger(FIRST);
    stranger(FIRST + 1);
    sim_feed(&sim, FIRST, GREETING SET_K);
    sim_at(&sim, 3000);
    expect_closed(FIRST, "no agent of the job has confirmed within 3 s");
    expect_closed(FIRST + 1, "no agent of the job has confirmed within 3 s");
}

/* Two hundred ranks of one host connect at once: more than the strangers of an unknown address. */
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
