/* auth.h -- mutual authentication of a connection by the secret of a job, as a state machine without a socket, a clock or
 * a source of random numbers.
 *
 *     client                                   store
 *     version role print job nonce     ---->
 *                                      <----   version result print instance nonce HMAC(K, "store", all before)
 *     HMAC(K, "client", all before)    ---->
 *     JSON tag                         <--->   JSON tag
 *
 * `print` is the fingerprint of the secret. Every message has a fixed size, and none is parsed further. Version, role,
 * job, instance and both nonces are part of each proof and of the keys, so a message that is replayed, reflected,
 * sent with another role or to another store fails. Afterwards each frame ends with a tag over its number. */
#ifndef RENDEZVOUS_AUTH_AUTH_H
#define RENDEZVOUS_AUTH_AUTH_H

#include "auth/secret.h"
#include "base/buf.h"

enum {
    AUTH_VERSION = 1,
    AUTH_NONCE_BYTES = 16,
    AUTH_PRINT_BYTES = 8,
    AUTH_JOB_BYTES = LIMIT_TEXT, /* the name and zeros; "" = none */
    AUTH_HASH_BYTES = 32,        /* of SHA-256 and HMAC-SHA256 */
    AUTH_TAG_BYTES = 16,
    AUTH_INSTANCE_BYTES = 32,
    AUTH_HELLO_BYTES = 2 + AUTH_PRINT_BYTES + AUTH_JOB_BYTES + AUTH_NONCE_BYTES,
    AUTH_OFFER_BYTES =
        2 + AUTH_PRINT_BYTES + AUTH_INSTANCE_BYTES + AUTH_NONCE_BYTES, /* the store's answer ... */
    AUTH_ANSWER_BYTES = AUTH_OFFER_BYTES + AUTH_HASH_BYTES,            /* ... with its proof */
    AUTH_PROOF_BYTES = AUTH_HASH_BYTES,
    AUTH_PRINT_TEXT = 2 * AUTH_PRINT_BYTES + 1,
};

/* The role that a client claims before its proof. An operator may read, and has no rights of an agent; no program of ours
 * connects as one yet. */
enum auth_role { AUTH_AGENT = 1, AUTH_OPERATOR = 2 };

/* The number in the store's answer; all but OK end the connection. */
#define AUTH_RESULTS(X)                                                     \
    X(OK, 0, "ok")                                                          \
    X(MALFORMED, 1, "malformed message")                                    \
    X(OTHER_VERSION, 2, "this version of the authentication is not served") \
    X(NO_SECRET, 3, "the store has no secret for this job")                 \
    X(SECRET_DIFFERS, 4, "the secret differs")                              \
    X(BAD_PROOF, 5, "the proof is wrong")                                   \
    X(OUT_OF_ORDER, 6, "message out of order")

enum auth_result {
#define X(name, value, text) AUTH_##name = value,
    AUTH_RESULTS(X)
#undef X
};

enum auth_state { AUTH_NEW, AUTH_GREETED, AUTH_PROVEN, AUTH_FAILED };

struct auth_way {
    uint8_t key[AUTH_HASH_BYTES];
    uint64_t count;
};

/* One side of a connection. All zero is a valid beginning. */
struct auth {
    uint8_t state;                                     /* enum auth_state */
    uint8_t role;                                      /* enum auth_role of the client */
    uint8_t talk[AUTH_HELLO_BYTES + AUTH_OFFER_BYTES]; /* both messages before the proofs */
    uint8_t expected[AUTH_HASH_BYTES];                 /* the client's proof */
    struct auth_way out, in;
};

/* Return the text of a result. */
const char *auth_result_text(enum auth_result result);

/* Return the first bytes of the hash of a secret as text, by which users compare two of them. */
void auth_fingerprint(const struct secret *secret, char text[static AUTH_PRINT_TEXT]);

/* Return the secret for a job: that with the longest matching beginning of `job`; NULL = there is none. */
const struct secret *auth_secret_of(const struct secret *first, const char *job);

/* Return the secret for the job in a first message. An operator without a job gets the secret whose fingerprint it has
 * sent. NULL = there is none, or the message is malformed. */
const struct secret *auth_choose(const struct secret *first, struct slice hello);

/* The client's first message. `job` has at most LIMIT_TEXT - 1 bytes; it may be "" for an operator. */
void auth_hello(struct auth *a, const struct secret *secret, enum auth_role role, const char *job,
                const uint8_t nonce[static AUTH_NONCE_BYTES], uint8_t out[static AUTH_HELLO_BYTES]);

/* The store's answer to it. `secret` NULL: the store has none. Unless the result is OK, the answer carries the result
 * and the store's fingerprint, no proof. */
enum auth_result auth_answer(struct auth *a, const struct secret *secret, const char *instance,
                             const uint8_t nonce[static AUTH_NONCE_BYTES], struct slice hello,
                             uint8_t out[static AUTH_ANSWER_BYTES]);

/* Format why the store's answer, after which auth_prove returned `result`, ends the connection. */
void auth_explain(enum auth_result result, const struct secret *secret, const char *theirs, char *text,
                  size_t size);

/* The client's proof, once the store has proven that it has the secret. With SECRET_DIFFERS `theirs` is the store's
 * fingerprint. */
enum auth_result auth_prove(struct auth *a, const struct secret *secret, struct slice answer,
                            uint8_t out[static AUTH_PROOF_BYTES], char theirs[static AUTH_PRINT_TEXT]);

/* The store checks the proof. */
enum auth_result auth_check(struct auth *a, struct slice proof);

/* The fingerprint in a first message, "" if that has another size. */
void auth_hello_fingerprint(struct slice hello, char text[static AUTH_PRINT_TEXT]);

/* Wipe the keys. */
void auth_wipe(struct auth *a);

/* True if the client has named this job in its first message. */
bool auth_is_job(const struct auth *a, const char *job);

/* The tag of the next frame that is sent; `kind` is the opcode of a request and 0 of an answer or a push. */
void auth_seal(struct auth *a, uint8_t kind, struct slice frame, uint8_t tag[static AUTH_TAG_BYTES]);

/* Check the tag at the end of the next frame that was received, and remove it from *frame. False: close the
 * connection. */
bool auth_open(struct auth *a, uint8_t kind, struct slice *frame);

#endif
