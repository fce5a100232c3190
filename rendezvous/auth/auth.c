/* auth.c -- see auth.h. libsodium computes HMAC-SHA256 and SHA-256; this file implements no cipher and no hash. Proofs
 * and tags are compared in constant time (sodium_memcmp), because an attacker could otherwise measure how many bytes
 * are right. */
#include "auth/auth.h"

#include "store/encode.h"
#include "store/ops.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* Offsets of the fields. Both messages have AT_VERSION and AT_PRINT. The client's hello also has AT_ROLE, AT_JOB and
 * AT_NONCE, and the store's answer has AT_RESULT, AT_INSTANCE and AT_STORE_NONCE. */
enum {
    AT_VERSION = 0,
    AT_ROLE = 1,
    AT_PRINT = 2,
    AT_JOB = AT_PRINT + AUTH_PRINT_BYTES,
    AT_NONCE = AT_JOB + AUTH_JOB_BYTES,
    AT_RESULT = 1,
    AT_INSTANCE = AT_PRINT + AUTH_PRINT_BYTES,
    AT_STORE_NONCE = AT_INSTANCE + AUTH_INSTANCE_BYTES,
};

const char *auth_result_text(enum auth_result result)
{
    switch (result) {
#define X(name, value, text) \
    case AUTH_##name:        \
        return text;
        AUTH_RESULTS(X)
#undef X
    }
    return "unknown result";
}

/* Compute the HMAC-SHA256 of the concatenated parts. */
static void hmac(const uint8_t key[static AUTH_HASH_BYTES], const struct slice *parts, int n,
                 uint8_t out[static AUTH_HASH_BYTES])
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key, AUTH_HASH_BYTES);
    for (int i = 0; i < n; i++)
        crypto_auth_hmacsha256_update(&state, parts[i].data, parts[i].len);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof(state));
}

static void fingerprint(const struct secret *secret, uint8_t out[static AUTH_PRINT_BYTES])
{
    uint8_t hash[AUTH_HASH_BYTES];
    crypto_hash_sha256(hash, secret->key, sizeof(secret->key));
    memcpy(out, hash, AUTH_PRINT_BYTES);
}

static void print_text(const uint8_t print[static AUTH_PRINT_BYTES], char text[static AUTH_PRINT_TEXT])
{
    sodium_bin2hex(text, AUTH_PRINT_TEXT, print, AUTH_PRINT_BYTES);
}

void auth_fingerprint(const struct secret *secret, char text[static AUTH_PRINT_TEXT])
{
    uint8_t print[AUTH_PRINT_BYTES];
    fingerprint(secret, print);
    print_text(print, text);
}

void auth_hello_fingerprint(struct slice hello, char text[static AUTH_PRINT_TEXT])
{
    text[0] = '\0';
    if (hello.len == AUTH_HELLO_BYTES)
        print_text((const uint8_t *)hello.data + AT_PRINT, text);
}

static void hash_job(const char *job, uint8_t out[static AUTH_JOB_BYTES])
{
    uint8_t hash[AUTH_HASH_BYTES];
    crypto_hash_sha256(hash, (const uint8_t *)job, strlen(job));
    memcpy(out, hash, AUTH_JOB_BYTES);
}

bool auth_is_job(const struct auth *a, const char *job)
{
    uint8_t hash[AUTH_JOB_BYTES];
    hash_job(job, hash);
    return memcmp(hash, a->talk + AT_JOB, sizeof(hash)) == 0;
}

/* --- the secret of a tenant ------------------------------------------------------------------------------- */

const struct secret *auth_secret_of(const struct secret *first, const char *job)
{
    const struct secret *found = NULL;
    size_t longest = 0;
    for (const struct secret *s = first; s != NULL; s = s->next) {
        const size_t n = strlen(s->jobs);
        if (strncmp(job, s->jobs, n) == 0 && (found == NULL || n > longest)) {
            found = s;
            longest = n;
        }
    }
    return found;
}

const struct secret *auth_choose(const struct secret *first, struct slice hello)
{
    uint8_t print[AUTH_PRINT_BYTES];
    if (hello.len != AUTH_HELLO_BYTES || first == NULL || first->next == NULL)
        return hello.len == AUTH_HELLO_BYTES ? first : NULL;
    for (const struct secret *s = first; s != NULL; s = s->next) {
        fingerprint(s, print);
        if (memcmp(print, (const uint8_t *)hello.data + AT_PRINT, sizeof(print)) == 0)
            return s;
    }
    return NULL;
}

/* --- proofs and keys -------------------------------------------------------------------------------------- */

/* Compute the proof of one side of the connection. The proof covers the name of the side. Otherwise an attacker could
 * send a proof back to its sender, as the proof of the other side. */
static void make_proof(const struct auth *a, const struct secret *secret, const char *side,
                       uint8_t out[static AUTH_HASH_BYTES])
{
    const struct slice parts[] = { slice_str(side), slice_of(a->talk, sizeof(a->talk)) };
    hmac(secret->key, parts, 2, out);
}

/* Derive the keys with HKDF (RFC 5869): extract with the hash of `talk` as salt, then expand to one block for each
 * direction. */
static void make_keys(const struct auth *a, const struct secret *secret,
                      uint8_t client[static AUTH_HASH_BYTES], uint8_t store[static AUTH_HASH_BYTES])
{
    /* `talk` has both nonces, so no two connections have the same keys */
    static const uint8_t block = 1;
    uint8_t salt[AUTH_HASH_BYTES], root[AUTH_HASH_BYTES];
    crypto_hash_sha256(salt, a->talk, sizeof(a->talk));
    hmac(salt, &(struct slice){ secret->key, sizeof(secret->key) }, 1, root);
    hmac(root, (const struct slice[]){ slice_str("ddprun client frames"), slice_of(&block, 1) }, 2, client);
    hmac(root, (const struct slice[]){ slice_str("ddprun store frames"), slice_of(&block, 1) }, 2, store);
    sodium_memzero(root, sizeof(root));
}

/* --- the client's side ------------------------------------------------------------------------------------ */

void auth_hello(struct auth *a, const struct secret *secret, enum auth_role role, const char *job,
                const uint8_t nonce[static AUTH_NONCE_BYTES], uint8_t out[static AUTH_HELLO_BYTES])
{
    out[AT_VERSION] = AUTH_VERSION;
    out[AT_ROLE] = (uint8_t)role;
    fingerprint(secret, out + AT_PRINT);
    hash_job(job, out + AT_JOB);
    memcpy(out + AT_NONCE, nonce, AUTH_NONCE_BYTES);
    *a = (struct auth){ .state = AUTH_GREETED, .role = (uint8_t)role };
    memcpy(a->talk, out, AUTH_HELLO_BYTES);
}

/* Read the result in a message from the store. A value that this version does not define counts as malformed. */
static enum auth_result read_result(const uint8_t *m)
{
    return m[AT_RESULT] <= AUTH_NOT_ENCRYPTED ? (enum auth_result)m[AT_RESULT] : AUTH_MALFORMED;
}

/* Wipe all keys, and let all later calls fail. Return `result`. */
static enum auth_result reject_with(struct auth *a, enum auth_result result)
{
    sodium_memzero(a, sizeof(*a));
    a->state = AUTH_FAILED;
    return result;
}

enum auth_result auth_prove(struct auth *a, const struct secret *secret, struct slice answer,
                            uint8_t out[static AUTH_PROOF_BYTES], char theirs[static AUTH_PRINT_TEXT])
{
    const uint8_t *m = answer.data;
    uint8_t proof[AUTH_HASH_BYTES];
    theirs[0] = '\0';
    if (a->state != AUTH_GREETED)
        return reject_with(a, AUTH_OUT_OF_ORDER);
    if (answer.len != AUTH_ANSWER_BYTES)
        return reject_with(a, AUTH_MALFORMED);
    if (m[AT_VERSION] != AUTH_VERSION)
        return reject_with(a, AUTH_OTHER_VERSION);
    print_text(m + AT_PRINT, theirs);
    if (m[AT_RESULT] != AUTH_OK)
        return reject_with(a, read_result(m));
    memcpy(a->talk + AUTH_HELLO_BYTES, m, AUTH_OFFER_BYTES);
    make_proof(a, secret, "ddprun store", proof);
    if (sodium_memcmp(proof, m + AUTH_OFFER_BYTES, sizeof(proof)) != 0)
        return reject_with(a, AUTH_BAD_PROOF);
    make_proof(a, secret, "ddprun client", out);
    make_keys(a, secret, a->out.key, a->in.key);
    a->state = AUTH_PROVEN;
    return AUTH_OK;
}

void auth_explain(enum auth_result result, const struct secret *secret, const char *theirs, char *text,
                  size_t size)
{
    char ours[AUTH_PRINT_TEXT];
    auth_fingerprint(secret, ours);
    if (result == AUTH_SECRET_DIFFERS)
        snprintf(text, size,
                 "the secrets differ: sha256 %.8s.. here, %.8s.. in the store; use the same "
                 "--secret_file (or PET_SECRET_FILE) on all nodes",
                 ours, theirs);
    else if (result == AUTH_NO_SECRET)
        snprintf(text, size,
                 "the store does not have this client's secret (sha256 %.8s..); use the same --secret_file "
                 "(or PET_SECRET_FILE) for store and client",
                 ours);
    else
        snprintf(text, size, "the store did not prove that it has the secret: %s", auth_result_text(result));
}

/* --- the store's side ------------------------------------------------------------------------------------- */

bool auth_is_other_version(uint8_t version)
{
    return version != AUTH_VERSION;
}

/* Check the client's hello. A different fingerprint lets the store report a wrong secret early. An equal fingerprint
 * does not show that the client has the secret: only the client's proof shows this. */
static enum auth_result check_hello(const struct auth *a, const struct secret *secret, struct slice hello,
                                    const uint8_t print[static AUTH_PRINT_BYTES])
{
    /* the hello of another version may have another size, so check the version first */
    const uint8_t *m = hello.data;
    if (a->state != AUTH_NEW)
        return AUTH_OUT_OF_ORDER;
    if (hello.len > AT_VERSION && auth_is_other_version(m[AT_VERSION]))
        return AUTH_OTHER_VERSION;
    if (hello.len != AUTH_HELLO_BYTES || (m[AT_ROLE] != AUTH_AGENT && m[AT_ROLE] != AUTH_OPERATOR))
        return AUTH_MALFORMED;
    if (secret == NULL)
        return AUTH_NO_SECRET;
    return memcmp(m + AT_PRINT, print, AUTH_PRINT_BYTES) == 0 ? AUTH_OK : AUTH_SECRET_DIFFERS;
}

enum auth_result auth_answer(struct auth *a, const struct secret *secret, const char *instance,
                             const uint8_t nonce[static AUTH_NONCE_BYTES], struct slice hello,
                             uint8_t out[static AUTH_ANSWER_BYTES])
{
    const size_t n = strlen(instance);
    memset(out, 0, AUTH_ANSWER_BYTES);
    out[AT_VERSION] = AUTH_VERSION;
    if (secret != NULL)
        fingerprint(secret, out + AT_PRINT);
    const enum auth_result result = check_hello(a, secret, hello, out + AT_PRINT);
    out[AT_RESULT] = (uint8_t)result;
    if (result != AUTH_OK)
        return reject_with(a, result);
    memcpy(out + AT_INSTANCE, instance, n < AUTH_INSTANCE_BYTES ? n : AUTH_INSTANCE_BYTES);
    memcpy(out + AT_STORE_NONCE, nonce, AUTH_NONCE_BYTES);
    memcpy(a->talk, hello.data, AUTH_HELLO_BYTES);
    memcpy(a->talk + AUTH_HELLO_BYTES, out, AUTH_OFFER_BYTES);
    a->role = a->talk[AT_ROLE];
    make_proof(a, secret, "ddprun store", out + AUTH_OFFER_BYTES);
    make_proof(a, secret, "ddprun client", a->expected);
    make_keys(a, secret, a->in.key, a->out.key);
    a->state = AUTH_GREETED;
    return AUTH_OK;
}

enum auth_result auth_check(struct auth *a, struct slice proof)
{
    if (a->state != AUTH_GREETED)
        return reject_with(a, AUTH_OUT_OF_ORDER);
    if (proof.len != AUTH_PROOF_BYTES)
        return reject_with(a, AUTH_MALFORMED);
    if (sodium_memcmp(proof.data, a->expected, AUTH_PROOF_BYTES) != 0)
        return reject_with(a, AUTH_BAD_PROOF);
    a->state = AUTH_PROVEN;
    return AUTH_OK;
}

void auth_tls_key(const struct secret *secret, const char *job, uint8_t key[static AUTH_HASH_BYTES])
{
    uint8_t name[LIMIT_TEXT] = { 0 };
    memcpy(name, job, strnlen(job, sizeof(name) - 1));
    hmac(secret->key, (const struct slice[]){ slice_str("ddprun tls key"), slice_of(name, sizeof(name)) }, 2,
         key);
}

void auth_wipe(struct auth *a)
{
    sodium_memzero(a, sizeof(*a));
}

/* --- the credential --------------------------------------------------------------------------------------- */

/* Values of the byte at AT_ROLE in a request for the credential. They are not values of enum auth_role. */
enum { ASKS_FOR_CREDENTIAL = 3, ASKS_BEFORE_TLS = 4 };

void auth_ask(uint8_t out[static AUTH_ASK_BYTES])
{
    out[AT_VERSION] = AUTH_VERSION;
    out[AT_ROLE] = ASKS_FOR_CREDENTIAL;
}

void auth_ask_tls(uint8_t out[static AUTH_ASK_TLS_BYTES])
{
    uint8_t *end = out;
    *end++ = (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C];
    write_le(end, WIRE_MAGIC, 4);
    end[4] = (uint8_t)op_table[OP_AUTH].code[DIALECT_C];
    write_le(end + 5, AUTH_ASK_BYTES, 8);
    end[13 + AT_VERSION] = AUTH_VERSION;
    end[13 + AT_ROLE] = ASKS_BEFORE_TLS;
}

bool auth_begins_ask_tls(struct slice part, size_t at, bool *is_other_version)
{
    enum { ASK_AT_VERSION = AUTH_ASK_TLS_BYTES - AUTH_ASK_BYTES + AT_VERSION };
    uint8_t ask[AUTH_ASK_TLS_BYTES];
    auth_ask_tls(ask);
    if (at <= ASK_AT_VERSION && ASK_AT_VERSION - at < part.len) {
        ask[ASK_AT_VERSION] = ((const uint8_t *)part.data)[ASK_AT_VERSION - at];
        *is_other_version = auth_is_other_version(ask[ASK_AT_VERSION]);
    }
    return part.len <= sizeof(ask) - at && memcmp(part.data, ask + at, part.len) == 0;
}

static bool is_request(struct slice message, uint8_t role)
{
    const uint8_t *m = message.data;
    return message.len == AUTH_ASK_BYTES && m[AT_VERSION] == AUTH_VERSION && m[AT_ROLE] == role;
}

bool auth_is_ask(struct slice message)
{
    return is_request(message, ASKS_FOR_CREDENTIAL);
}

bool auth_is_ask_tls(struct slice message)
{
    return is_request(message, ASKS_BEFORE_TLS);
}

void auth_refuse_tls(const struct secret *first, uint8_t out[static AUTH_ASK_BYTES])
{
    out[AT_VERSION] = AUTH_VERSION;
    out[AT_RESULT] = first != NULL ? AUTH_NOT_ENCRYPTED : AUTH_NO_SECRET;
}

size_t auth_give(const struct secret *first, const char *credential, uint8_t out[static AUTH_GIFT_BYTES])
{
    const size_t n = credential != NULL ? strnlen(credential, SECRET_CREDENTIAL_MAX - 1) : 0;
    out[AT_VERSION] = AUTH_VERSION;
    out[AT_RESULT] = n > 0 ? AUTH_OK : first != NULL ? AUTH_NO_CREDENTIAL : AUTH_NO_SECRET;
    if (n > 0)
        memcpy(out + AUTH_ASK_BYTES, credential, n);
    return AUTH_ASK_BYTES + n;
}

enum auth_result auth_read_answer(struct slice answer, struct slice *credential)
{
    const uint8_t *m = answer.data;
    if (answer.len < AUTH_ASK_BYTES || answer.len > AUTH_GIFT_BYTES)
        return AUTH_MALFORMED;
    if (m[AT_VERSION] != AUTH_VERSION)
        return AUTH_OTHER_VERSION;
    *credential = slice_of(m + AUTH_ASK_BYTES, answer.len - AUTH_ASK_BYTES);
    const enum auth_result result = read_result(m);
    return result == AUTH_OK && credential->len == 0 ? AUTH_MALFORMED : result;
}

int auth_read_answer_tls(struct slice bytes, enum auth_result *result, struct slice *credential)
{
    enum { LENGTH_BYTES = 8 };
    const uint64_t len = bytes.len >= LENGTH_BYTES ? get_u64(bytes.data) : AUTH_GIFT_BYTES;
    if (len > AUTH_GIFT_BYTES || bytes.len > LENGTH_BYTES + len)
        return -1;
    if (bytes.len < LENGTH_BYTES + len)
        return 0;
    *result = auth_read_answer(slice_of((const uint8_t *)bytes.data + LENGTH_BYTES, (size_t)len), credential);
    return 1;
}

/* --- frames ------------------------------------------------------------------------------------------------ */

/* Compute the tag of the next frame in one direction, and count the frame. */
static void make_tag(struct auth_way *way, uint8_t kind, struct slice frame,
                     uint8_t tag[static AUTH_TAG_BYTES])
{
    uint8_t number[9], full[AUTH_HASH_BYTES];
    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)(way->count >> (8 * i));
    number[8] = kind;
    way->count++;
    hmac(way->key, (const struct slice[]){ slice_of(number, sizeof(number)), frame }, 2, full);
    memcpy(tag, full, AUTH_TAG_BYTES);
}

/* Compute the tag of the next frame to send. */
static void auth_seal(struct auth *a, uint8_t kind, struct slice frame, uint8_t tag[static AUTH_TAG_BYTES])
{
    make_tag(&a->out, kind, frame, tag);
}

/* Append a frame with its tag. Reserve the memory before make_tag counts the frame: if a frame is counted but not
 * sent, the receiver rejects all later frames. */
bool auth_append_frame(struct auth *a, uint8_t kind, struct slice frame, struct buf *out)
{
    uint8_t tag[AUTH_TAG_BYTES];
    if (buf_reserve(out, sizeof(uint64_t) + frame.len + sizeof(tag)) == NULL)
        return false;
    auth_seal(a, kind, frame, tag);
    return append_u64(out, frame.len + sizeof(tag)) && buf_append(out, frame.data, frame.len) &&
           buf_append(out, tag, sizeof(tag));
}

bool auth_open(struct auth *a, uint8_t kind, struct slice *frame)
{
    uint8_t tag[AUTH_TAG_BYTES];
    if (a->state != AUTH_PROVEN || frame->len < AUTH_TAG_BYTES)
        return false;
    const struct slice bare = slice_of(frame->data, frame->len - AUTH_TAG_BYTES);
    make_tag(&a->in, kind, bare, tag);
    if (sodium_memcmp(tag, (const uint8_t *)frame->data + bare.len, sizeof(tag)) != 0) {
        reject_with(a, AUTH_BAD_PROOF);
        return false;
    }
    *frame = bare;
    return true;
}
