/* Tests of the authentication with the test vectors of vectors.py, and with messages that are replayed, reflected,
 * changed by one bit, or sent by the wrong side. vectors.py is a second implementation, because one implementation
 * would accept its own mistakes. */
#include "auth/auth.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The values are from vectors.py, which shares no code with auth.c. */
static const char vector_hello[] = "0201630dcd2966c43366053ea4804ef1bb33404142434445464748494a4b4c4d4e4f";

static const char vector_answer[] =
    "0200630dcd2966c433663031323334353637383961626364656600000000000000000000000000000000808182838485"
    "868788898a8b8c8d8e8f7fee8cf11f32f491d28e480a3870eb05d8a5ddf07e4cc30bc4e985c036878166";

static const char vector_proof[] = "d08f0c25e01fbb6f785f32994eb59056ee34bb5865daaa45fa55c3e00f8d4b61";

static const char vector_client_tags[] = "89c3cd25fecac8dcef948c91698095338241480b376deec3c75e7febe9ec03c4";

static const char vector_store_tags[] = "52e53c336b4b0b06840b1530e403514f239dc247a54ffad2c79f9309700e852e";

enum { FRAME_MAX = 512 };

static struct secret secret;
static uint8_t nonce_c[AUTH_NONCE_BYTES], nonce_s[AUTH_NONCE_BYTES];
static uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
static struct auth client, store;
static char theirs[AUTH_PRINT_TEXT];

static void begin(void)
{
    for (int i = 0; i < SECRET_BYTES; i++)
        secret.key[i] = (uint8_t)i;
    for (int i = 0; i < AUTH_NONCE_BYTES; i++) {
        nonce_c[i] = (uint8_t)(0x40 + i);
        nonce_s[i] = (uint8_t)(0x80 + i);
    }
    client = store = (struct auth){ 0 };
}

TestSuite(auth, .init = begin);

static void greet(enum auth_role role, const char *job)
{
    auth_hello(&client, &secret, role, job, nonce_c, hello);
}

static enum auth_result get_answer(const struct secret *k)
{
    return auth_answer(&store, k, "0123456789abcdef", nonce_s, slice_of(hello, sizeof(hello)), answer);
}

static enum auth_result get_proof(void)
{
    return auth_prove(&client, &secret, slice_of(answer, sizeof(answer)), proof, theirs);
}

static enum auth_result check_proof(void)
{
    return auth_check(&store, slice_of(proof, sizeof(proof)));
}

static void authenticate(void)
{
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert_eq(get_proof(), AUTH_OK);
    cr_assert_eq(check_proof(), AUTH_OK);
}

static void expect_hex(const void *bytes, size_t n, const char *hex)
{
    char text[2 * FRAME_MAX + 1];
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
    cr_assert_str_eq(text, hex);
}

/* Write a frame with its tag to `out`. */
static struct slice sealed(struct auth *from, uint8_t kind, const char *text, uint8_t out[static FRAME_MAX])
{
    const size_t n = strlen(text);
    memcpy(out, text, n);
    auth_seal(from, kind, slice_str(text), out + n);
    return slice_of(out, n + AUTH_TAG_BYTES);
}

static bool opens(struct auth *to, uint8_t kind, struct slice frame)
{
    struct slice bare = frame;
    return auth_open(to, kind, &bare) && bare.len == frame.len - AUTH_TAG_BYTES;
}

Test(auth, messages_and_tags_are_those_of_the_vectors)
{
    uint8_t tags[2 * AUTH_TAG_BYTES];
    authenticate();
    expect_hex(hello, sizeof(hello), vector_hello);
    expect_hex(answer, sizeof(answer), vector_answer);
    expect_hex(proof, sizeof(proof), vector_proof);
    auth_seal(&client, 0x80, slice_str("{}"), tags);
    auth_seal(&client, 0x82, slice_str("{\"op\":\"hello\"}"), tags + AUTH_TAG_BYTES);
    expect_hex(tags, sizeof(tags), vector_client_tags);
    auth_seal(&store, 0, slice_str("{\"ok\":true}"), tags);
    auth_seal(&store, 0, slice_str(""), tags + AUTH_TAG_BYTES);
    expect_hex(tags, sizeof(tags), vector_store_tags);
}

Test(auth, frames_pass_in_order_and_both_ways)
{
    uint8_t one[FRAME_MAX], two[FRAME_MAX];
    authenticate();
    const struct slice a = sealed(&client, 0x82, "one", one), b = sealed(&store, 0, "one", two);
    cr_assert(opens(&store, 0x82, a));
    cr_assert(opens(&client, 0, b));
    cr_assert(opens(&store, 0x82, sealed(&client, 0x82, "", one)));
    cr_assert(opens(&client, 0, sealed(&store, 0, "", two)));
}

Test(auth, the_store_learns_role_and_job)
{
    greet(AUTH_OPERATOR, "");
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert_eq(store.role, AUTH_OPERATOR);
    cr_assert(auth_is_job(&store, ""));
    cr_assert_not(auth_is_job(&store, "gpt"));
    begin();
    authenticate();
    cr_assert_eq(store.role, AUTH_AGENT);
    cr_assert(auth_is_job(&store, "gpt"));
    cr_assert_not(auth_is_job(&store, "gpt2"));
    cr_assert_not(auth_is_job(&store, ""));
}

Test(auth, one_flipped_bit_in_any_message_fails)
{
    for (size_t bit = 0; bit < 8 * sizeof(hello); bit++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (get_answer(&secret) == AUTH_OK)
            cr_assert_eq(get_proof(), AUTH_BAD_PROOF, "bit %zu of the first message", bit);
    }
    for (size_t bit = 0; bit < 8 * sizeof(answer); bit++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        cr_assert_eq(get_answer(&secret), AUTH_OK);
        answer[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_neq(get_proof(), AUTH_OK, "bit %zu of the answer", bit);
        cr_assert_eq(client.state, AUTH_FAILED);
    }
    for (size_t bit = 0; bit < 8 * sizeof(proof); bit++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        cr_assert_eq(get_answer(&secret), AUTH_OK);
        cr_assert_eq(get_proof(), AUTH_OK);
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_eq(check_proof(), AUTH_BAD_PROOF, "bit %zu of the proof", bit);
    }
}

Test(auth, one_flipped_bit_in_a_frame_fails)
{
    uint8_t bytes[FRAME_MAX];
    authenticate();
    for (size_t bit = 0; bit < 8 * (3 + AUTH_TAG_BYTES); bit++) {
        struct auth from = client, to = store;
        const struct slice frame = sealed(&from, 0x82, "one", bytes);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_not(opens(&to, 0x82, frame), "bit %zu", bit);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_not(opens(&to, 0x82, frame), "a connection with a false tag goes on");
    }
}

Test(auth, a_frame_is_not_valid_twice_or_out_of_order_or_as_another)
{
    uint8_t one[FRAME_MAX], two[FRAME_MAX];
    authenticate();
    const struct slice a = sealed(&client, 0x82, "one", one), b = sealed(&client, 0x82, "two", two);
    struct auth to = store;
    cr_assert(opens(&to, 0x82, a));
    cr_assert_not(opens(&to, 0x82, a), "replayed");
    to = store;
    cr_assert_not(opens(&to, 0x82, b), "the first frame is missing");
    to = store;
    cr_assert_not(opens(&to, 0x80, a), "another opcode");
    to = client;
    cr_assert_not(opens(&to, 0x82, a), "reflected to its sender");
    to = store;
    cr_assert_not(opens(&to, 0x82, slice_of(one, AUTH_TAG_BYTES - 1)), "too short for a tag");
}

/* A stranger replays a recorded connection to the same store, which now uses a new nonce. */
Test(auth, a_recorded_connection_is_not_valid_again)
{
    uint8_t old[AUTH_PROOF_BYTES], bytes[FRAME_MAX];
    authenticate();
    memcpy(old, proof, sizeof(old));
    const struct slice frame = sealed(&client, 0x82, "one", bytes);
    store = (struct auth){ 0 };
    nonce_s[0] ^= 1;
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert_not(opens(&store, 0x82, frame), "a frame before the proof");
    cr_assert_eq(auth_check(&store, slice_of(old, sizeof(old))), AUTH_BAD_PROOF);
    cr_assert_not(opens(&store, 0x82, frame), "a frame after a false proof");
}

/* A stranger without the secret sends the store's own proof back to the store. Another stranger answers an agent as if
 * the stranger were the store. */
Test(auth, a_proof_is_not_valid_for_the_other_side)
{
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert_eq(auth_check(&store, slice_of(answer + AUTH_OFFER_BYTES, AUTH_PROOF_BYTES)), AUTH_BAD_PROOF);
    begin();
    greet(AUTH_AGENT, "gpt");
    memset(answer, 0, sizeof(answer));
    memcpy(answer, hello, AUTH_OFFER_BYTES < AUTH_HELLO_BYTES ? AUTH_OFFER_BYTES : AUTH_HELLO_BYTES);
    answer[1] = 0;
    cr_assert_eq(get_proof(), AUTH_BAD_PROOF);
}

Test(auth, a_role_cannot_be_exchanged)
{
    greet(AUTH_OPERATOR, "gpt");
    hello[1] = AUTH_AGENT;
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert_eq(get_proof(), AUTH_BAD_PROOF);
}

/* A client has proved its secret to another store, which has the same secret as the tested store. A stranger sends the
 * proof of this client to the tested store, which must reject the proof. */
Test(auth, an_answer_of_another_instance_is_another_connection)
{
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(auth_answer(&store, &secret, "another", nonce_s, slice_of(hello, sizeof(hello)), answer),
                 AUTH_OK);
    struct auth second = { 0 };
    cr_assert_eq(get_proof(), AUTH_OK);
    cr_assert_eq(
        auth_answer(&second, &secret, "0123456789abcdef", nonce_s, slice_of(hello, sizeof(hello)), answer),
        AUTH_OK);
    cr_assert_eq(auth_check(&second, slice_of(proof, sizeof(proof))), AUTH_BAD_PROOF);
}

Test(auth, different_secrets_show_both_fingerprints)
{
    struct secret other = secret;
    char ours[AUTH_PRINT_TEXT];
    other.key[31] ^= 1;
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(get_answer(&other), AUTH_SECRET_DIFFERS);
    cr_assert_eq(get_proof(), AUTH_SECRET_DIFFERS);
    auth_fingerprint(&other, ours);
    cr_assert_str_eq(theirs, ours);
    auth_fingerprint(&secret, ours);
    cr_assert_str_neq(theirs, ours);
    cr_assert_eq(strlen(ours), 16);
}

Test(auth, a_store_without_a_secret_proves_nothing)
{
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(get_answer(NULL), AUTH_NO_SECRET);
    cr_assert_eq(get_proof(), AUTH_NO_SECRET);
    cr_assert_eq(check_proof(), AUTH_OUT_OF_ORDER);
}

Test(auth, a_store_gives_its_credential_to_a_client_without_a_secret)
{
    uint8_t ask[AUTH_ASK_BYTES], gift[AUTH_GIFT_BYTES];
    char longest[SECRET_CREDENTIAL_MAX + 8] = "";
    struct slice got = { 0 };
    auth_ask(ask);
    cr_assert(auth_is_ask(slice_of(ask, sizeof(ask))));
    cr_assert_not(auth_is_ask(slice_of(ask, 1)));
    size_t n = auth_give(&secret, "MUNGE:x:", gift);
    cr_assert_eq(auth_read_answer(slice_of(gift, n), &got), AUTH_OK);
    cr_assert(slice_equal(got, slice_str("MUNGE:x:")));
    cr_assert_eq(auth_read_answer(slice_of(gift, AUTH_ASK_BYTES), &got), AUTH_MALFORMED,
                 "an empty credential");
    cr_assert_eq(auth_read_answer(slice_of(gift, 1), &got), AUTH_MALFORMED);
    n = auth_give(&secret, NULL, gift);
    cr_assert_eq(auth_read_answer(slice_of(gift, n), &got), AUTH_NO_CREDENTIAL);
    n = auth_give(NULL, NULL, gift);
    cr_assert_eq(auth_read_answer(slice_of(gift, n), &got), AUTH_NO_SECRET);
    gift[0]++;
    cr_assert_eq(auth_read_answer(slice_of(gift, n), &got), AUTH_OTHER_VERSION);
    memset(longest, 'x', sizeof(longest) - 1);
    n = auth_give(&secret, longest, gift);
    cr_assert_eq(n, sizeof(gift));
    cr_assert_eq(auth_read_answer(slice_of(gift, n), &got), AUTH_OK);
    for (int bit = 0; bit < 16; bit++) {
        uint8_t other[AUTH_ASK_BYTES] = { ask[0], ask[1] };
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_not(auth_is_ask(slice_of(other, sizeof(other))), "bit %d", bit);
    }
}

Test(auth, a_store_without_tls_refuses_the_request_before_tls)
{
    static const uint8_t bytes[] = { 0, 0xce, 0xf7, 0x85, 0x3c, 0x83, 2, 0, 0, 0, 0, 0, 0, 0, 2, 4 };
    uint8_t ask[AUTH_ASK_TLS_BYTES], refusal[AUTH_ASK_BYTES];
    struct slice got;
    auth_ask_tls(ask);
    cr_assert_eq(sizeof(bytes), sizeof(ask));
    cr_assert_arr_eq(ask, bytes, sizeof(ask));
    const struct slice message = slice_of(ask + sizeof(ask) - AUTH_ASK_BYTES, AUTH_ASK_BYTES);
    cr_assert(auth_is_ask_tls(message) && !auth_is_ask(message));
    auth_refuse_tls(&secret, refusal);
    cr_assert_eq(auth_read_answer(slice_of(refusal, sizeof(refusal)), &got), AUTH_NOT_ENCRYPTED);
    for (size_t at = 0; at < sizeof(ask); at++) { /* one byte is changed; the message arrives in two parts */
        bool is_other = false;
        memcpy(ask, bytes, sizeof(ask));
        ask[at]++;
        const bool begins = auth_begins_ask_tls(slice_of(ask, 15), 0, &is_other) &&
                            auth_begins_ask_tls(slice_of(ask + 15, 1), 15, &is_other);
        cr_expect_eq(begins, at == 14, "byte %zu", at);
        cr_expect_eq(is_other, at == 14, "byte %zu", at);
    }
    uint8_t framed[8 + AUTH_GIFT_BYTES + 1] = { 2, 0, 0, 0, 0, 0, 0, 0, refusal[0], refusal[1] };
    enum auth_result result;
    for (size_t n = 0; n < 10; n++)
        cr_expect_eq(auth_read_answer_tls(slice_of(framed, n), &result, &got), 0, "%zu bytes", n);
    cr_expect_eq(auth_read_answer_tls(slice_of(framed, 10), &result, &got), 1);
    cr_expect_eq(result, AUTH_NOT_ENCRYPTED);
    cr_expect_eq(auth_read_answer_tls(slice_of(framed, 11), &result, &got), -1, "a byte follows");
    framed[2] = 2; /* a length above AUTH_GIFT_BYTES */
    cr_expect_eq(auth_read_answer_tls(slice_of(framed, 8), &result, &got), -1);
    auth_refuse_tls(NULL, refusal);
    cr_assert_eq(auth_read_answer(slice_of(refusal, sizeof(refusal)), &got), AUTH_NO_SECRET);
}

/* --- tenants ------------------------------------------------------------------------------------------------ */

static struct secret all = { .key = { 1 } };
static struct secret team_a = { .key = { 2 }, .next = &all, .jobs = "team-a" };
static struct secret team_ab = { .key = { 3 }, .next = &team_a, .jobs = "team-ab" };

Test(auth, the_longest_beginning_of_the_job_chooses_the_secret)
{
    cr_assert_eq(auth_secret_of(&team_ab, "team-ab1"), &team_ab);
    cr_assert_eq(auth_secret_of(&team_ab, "team-ab"), &team_ab);
    cr_assert_eq(auth_secret_of(&team_ab, "team-a1"), &team_a);
    cr_assert_eq(auth_secret_of(&team_ab, "team-"), &all);
    cr_assert_eq(auth_secret_of(&team_ab, ""), &all);
    cr_assert_null(auth_secret_of(NULL, "team-a"));
    team_a.next = NULL;
    cr_assert_null(auth_secret_of(&team_ab, "team-"));
    cr_assert_null(auth_secret_of(&team_ab, ""));
    team_a.next = &all;
}

static const struct secret *chosen(const struct secret *first, const struct secret *k, enum auth_role role,
                                   const char *job)
{
    auth_hello(&client, k, role, job, nonce_c, hello);
    return auth_choose(first, slice_of(hello, sizeof(hello)));
}

Test(auth, the_fingerprint_chooses_the_secret)
{
    cr_assert_eq(chosen(&team_ab, &team_a, AUTH_AGENT, "team-a1"), &team_a);
    cr_assert_eq(chosen(&team_ab, &team_ab, AUTH_OPERATOR, ""), &team_ab);
    cr_assert_eq(chosen(&team_ab, &all, AUTH_AGENT, "team-a1"), &all,
                 "the hub compares job and tenant later");
    cr_assert_null(auth_choose(&team_ab, slice_of(hello, sizeof(hello) - 1)));
    cr_assert_null(auth_choose(&all, slice_of(hello, sizeof(hello) - 1)));
    cr_assert_null(chosen(&team_ab, &secret, AUTH_AGENT, "team-a1"));
    cr_assert_null(chosen(NULL, &secret, AUTH_AGENT, "team-a1"));
    cr_assert_eq(chosen(&all, &team_a, AUTH_AGENT, "team-a1"), &all, "the answer can name the only secret");
}

/* The hash of a job name has the same size for a name of any length. */
Test(auth, a_long_job_is_another_job_than_its_beginning)
{
    char longest[LIMIT_TEXT] = "";
    memset(longest, 'x', sizeof(longest) - 1);
    greet(AUTH_AGENT, longest);
    cr_assert_eq(get_answer(&secret), AUTH_OK);
    cr_assert(auth_is_job(&store, longest));
    longest[sizeof(longest) - 2] = '\0';
    cr_assert_not(auth_is_job(&store, longest));
}

/* Another version may have messages of other sizes, but the answer has the same size in all versions. */
Test(auth, another_version_is_named)
{
    uint8_t longer[300] = { 1, AUTH_AGENT };
    greet(AUTH_AGENT, "gpt");
    hello[0] = AUTH_VERSION + 1;
    cr_assert_eq(get_answer(&secret), AUTH_OTHER_VERSION);
    cr_assert_eq(get_proof(), AUTH_OTHER_VERSION);
    for (size_t n = 1; n < sizeof(longer); n++) {
        begin();
        cr_assert_eq(auth_answer(&store, &secret, "i", nonce_s, slice_of(longer, n), answer),
                     AUTH_OTHER_VERSION);
    }
    /* An older store checks the size before the version. So its result may differ from AUTH_OTHER_VERSION. */
    for (int result = 0; result < 10; result++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        answer[0] = 1;
        answer[1] = (uint8_t)result;
        cr_assert_eq(get_proof(), AUTH_OTHER_VERSION);
    }
}

Test(auth, no_message_is_accepted_twice_or_early_or_with_another_size)
{
    greet(AUTH_AGENT, "gpt");
    cr_assert_eq(auth_check(&store, slice_of(proof, sizeof(proof))), AUTH_OUT_OF_ORDER);
    begin();
    authenticate();
    cr_assert_eq(get_answer(&secret), AUTH_OUT_OF_ORDER);
    begin();
    authenticate();
    cr_assert_eq(check_proof(), AUTH_OUT_OF_ORDER);
    begin();
    authenticate();
    cr_assert_eq(get_proof(), AUTH_OUT_OF_ORDER);
    for (size_t n = 0; n < sizeof(hello); n++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        cr_assert_eq(auth_answer(&store, &secret, "i", nonce_s, slice_of(hello, n), answer), AUTH_MALFORMED);
        cr_assert_eq(store.state, AUTH_FAILED);
    }
    for (size_t n = 0; n < sizeof(answer); n++) {
        begin();
        greet(AUTH_AGENT, "gpt");
        cr_assert_eq(get_answer(&secret), AUTH_OK);
        cr_assert_eq(auth_prove(&client, &secret, slice_of(answer, n), proof, theirs), AUTH_MALFORMED);
    }
    for (uint8_t role = 0; role < 4; role++) {
        begin();
        greet((enum auth_role)role, "gpt");
        cr_assert_eq(get_answer(&secret), role == 1 || role == 2 ? AUTH_OK : AUTH_MALFORMED, "role %d", role);
    }
}

Test(auth, nothing_secret_is_left_after_a_failure)
{
    authenticate();
    uint8_t bytes[FRAME_MAX] = { 0 };
    struct auth empty = { .state = AUTH_FAILED };
    cr_assert_not(opens(&store, 0x82, slice_of(bytes, 40)));
    cr_assert_eq(memcmp(&store, &empty, sizeof(empty)), 0);
}
