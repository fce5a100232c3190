/* auth.h -- mutual authentication of a connection with the secret of a job. The module is a state machine without a
 * socket, a clock or a source of random numbers. Each proof covers the hello and the answer, because an attacker could
 * otherwise record a message and send it again. */
#ifndef RENDEZVOUS_AUTH_AUTH_H
#define RENDEZVOUS_AUTH_AUTH_H

#include "auth/secret.h"
#include "base/buf.h"

/* The messages. The hello, the answer and the client's proof have a fixed size.
 *
 *     client                                   store
 *     version role print job nonce     ---->                                                        (hello)
 *                                      <----   version result print instance nonce PROOF("store")   (answer)
 *     PROOF("client")                  ---->
 *     JSON tag                         <--->   JSON tag                                             (frames)
 *
 * `print` is the fingerprint of the secret. By this fingerprint the store finds the secret of the client's tenant.
 * `job` is a hash of the job's name. `instance` identifies the store. PROOF(side) is an HMAC whose key is the secret.
 * The proof covers the name of the side, the hello, and the answer without its proof. So a recorded message is useless
 * to an attacker: it cannot be sent again, sent back, sent to another store, or sent with another role. Each frame ends
 * with a tag: an HMAC of the frame and its number. */
enum {
    AUTH_VERSION = 2,
    AUTH_NONCE_BYTES = 16,
    AUTH_PRINT_BYTES = 8,
    AUTH_JOB_BYTES = 8,   /* the first bytes of the SHA-256 of the job name */
    AUTH_HASH_BYTES = 32, /* bytes of SHA-256 and HMAC-SHA256 */
    AUTH_TAG_BYTES = 16,
    AUTH_INSTANCE_BYTES = 32,
    AUTH_HELLO_BYTES = 2 + AUTH_PRINT_BYTES + AUTH_JOB_BYTES + AUTH_NONCE_BYTES,
    AUTH_OFFER_BYTES = 2 + AUTH_PRINT_BYTES + AUTH_INSTANCE_BYTES +
                       AUTH_NONCE_BYTES,                    /* OFFER: the store's answer without its proof */
    AUTH_ANSWER_BYTES = AUTH_OFFER_BYTES + AUTH_HASH_BYTES, /* the store's answer with its proof */
    AUTH_PROOF_BYTES = AUTH_HASH_BYTES,
    AUTH_PRINT_TEXT = 2 * AUTH_PRINT_BYTES + 1,
    AUTH_ASK_BYTES = 2, /* the client's request for the credential */
    AUTH_GIFT_BYTES = AUTH_ASK_BYTES + SECRET_CREDENTIAL_MAX - 1, /* the longest answer with a credential */
    AUTH_ASK_TLS_BYTES = 5 + 1 + 8 + AUTH_ASK_BYTES, /* VALIDATE, an opcode, a length, then the request */
};

/* The role that a client claims before its proof. An operator may read and may cancel barriers, but has no rights of an
 * agent. ddpctl connects as an operator. */
enum auth_role { AUTH_AGENT = 1, AUTH_OPERATOR = 2 };

/* The result in the store's answer. Each result except OK ends the connection. */
#define AUTH_RESULTS(X)                                                                                   \
    X(OK, 0, "ok")                                                                                        \
    X(MALFORMED, 1, "malformed message")                                                                  \
    X(OTHER_VERSION, 2,                                                                                   \
      "the versions of the authentication differ; install the same version of ddprun on all hosts")       \
    X(NO_SECRET, 3, "the store has no secret for this job")                                               \
    X(SECRET_DIFFERS, 4, "the secret differs")                                                            \
    X(BAD_PROOF, 5,                                                                                       \
      "a message was not signed with the job's secret: the peer has another secret, or bytes changed on " \
      "the network")                                                                                      \
    X(OUT_OF_ORDER, 6, "authentication message out of order")                                             \
    X(NO_CREDENTIAL, 7, "the store cannot send its secret, because it does not use MUNGE")                \
    X(NOT_ENCRYPTED, 8, "the store does not encrypt")

enum auth_result {
#define X(name, value, text) AUTH_##name = value,
    AUTH_RESULTS(X)
#undef X
};

enum auth_state {
    AUTH_NEW,
    AUTH_GREETED, /* client: the hello was sent; store: the answer was sent */
    AUTH_PROVEN,  /* client: the store's proof was right; store: its own proof was sent, and the client's
                   * proof was right */
    AUTH_FAILED,
};

/* The state of the frames in one direction of a connection. */
struct auth_way {
    uint8_t key[AUTH_HASH_BYTES]; /* HMAC key for the tags; each frame ends with a tag */
    uint64_t count; /* number of frames; part of each tag, so that no frame can be repeated or left out */
};

/* One side of a connection. A zeroed struct is the initial state. */
struct auth {
    uint8_t state;                                     /* enum auth_state */
    uint8_t role;                                      /* enum auth_role of the client */
    uint8_t talk[AUTH_HELLO_BYTES + AUTH_OFFER_BYTES]; /* the hello, and the answer without its proof */
    uint8_t expected[AUTH_HASH_BYTES]; /* used only by the store: the proof that the client must send */
    struct auth_way out, in;           /* the frames that this side sends and receives */
};

/* Return the text of a result. The text is constant. */
const char *auth_result_text(enum auth_result result);

/* Format the fingerprint of a secret: the first bytes of its SHA-256, so that users can compare two secrets without
 * showing them. */
void auth_fingerprint(const struct secret *secret, char text[static AUTH_PRINT_TEXT]);

/* Return the secret whose `jobs` is the longest prefix of `job`, or NULL if no secret matches. The result is borrowed
 * from the list. */
const struct secret *auth_secret_of(const struct secret *first, const char *job);

/* Return the secret whose fingerprint is in the client's first message `hello`. If the list has only one secret, return
 * it even if the fingerprint differs. Return NULL if no secret matches, or if `hello` is malformed. The result is
 * borrowed from the list. */
const struct secret *auth_choose(const struct secret *first, struct slice hello);

/* A client without the secret may first request it. A store that uses MUNGE answers with its credential (secret.h).
 *
 *     version kind                     ---->
 *                                      <----   version result credential
 *
 * In auth_ask, `kind` is 3. With --encrypt, the client sends the request before the TLS handshake (auth_ask_tls), and
 * `kind` is 4. */

/* Build the client's request for the credential. */
void auth_ask(uint8_t out[static AUTH_ASK_BYTES]);

/* Build the message with which a client requests the credential before TLS starts. The message begins with VALIDATE,
 * and the request follows. */
void auth_ask_tls(uint8_t out[static AUTH_ASK_TLS_BYTES]);

/* Return true if the message is a request for the credential. */
bool auth_is_ask(struct slice message);

/* Build the store's answer to a request from auth_ask. `credential` is NULL if the store does not use MUNGE. Return
 * the number of bytes. */
size_t auth_give(const struct secret *first, const char *credential, uint8_t out[static AUTH_GIFT_BYTES]);

/* Compare a part of a message with a request from auth_ask_tls. `part` contains the bytes of the message that begin at
 * byte `at`. Return true if these bytes are equal to the bytes of the request at the same place. The version is not
 * compared. If `part` contains the version, set *is_other_version: true if the versions differ, else false. */
bool auth_begins_ask_tls(struct slice part, size_t at, bool *is_other_version);

/* Return true if the message is a request from auth_ask_tls. */
bool auth_is_ask_tls(struct slice message);

/* Build the answer to a request from auth_ask_tls, for a store that does not use TLS. If the store rejects all nodes
 * and has no secret, the caller appends the reason in place of the credential. The reason is the code of a finding, a
 * newline and a sentence. */
void auth_refuse_tls(const struct secret *first, uint8_t out[static AUTH_ASK_BYTES]);

/* Find the credential in the store's answer to a request from auth_ask. Each result except OK is the reason why no
 * credential was found. */
enum auth_result auth_read_answer(struct slice answer, struct slice *credential);

/* Parse the bytes that the store has sent after a request from auth_ask_tls: a length, then the answer. For a complete
 * answer return 1 and set *result and *credential. Return 0 if more bytes must arrive, and -1 if the bytes are
 * not an answer. */
int auth_read_answer_tls(struct slice bytes, enum auth_result *result, struct slice *credential);

/* Build the client's first message. `job` may be "" for an operator. The hello contains only a hash of the job's name,
 * because the store parses at most 128 bytes from an unknown client (hub/gate.c). 64 bits of the hash are enough,
 * because only a client with the secret can send a valid hash. The secret is valid for all jobs of the tenant. */
void auth_hello(struct auth *a, const struct secret *secret, enum auth_role role, const char *job,
                const uint8_t nonce[static AUTH_NONCE_BYTES], uint8_t out[static AUTH_HELLO_BYTES]);

/* Return true if `version` is not AUTH_VERSION. The hello, the answer, the request for the credential, and the answer
 * to this request begin with a version. If a client's version differs, the store answers with its own version and
 * AUTH_OTHER_VERSION. This answer may precede the rest of the client's message. */
bool auth_is_other_version(uint8_t version);

/* Build the store's answer. `secret` is NULL if the store does not have the client's secret. If the result is not OK,
 * the answer contains the result and the store's fingerprint, but no proof. */
enum auth_result auth_answer(struct auth *a, const struct secret *secret, const char *instance,
                             const uint8_t nonce[static AUTH_NONCE_BYTES], struct slice hello,
                             uint8_t out[static AUTH_ANSWER_BYTES]);

/* Format the reason why the client closes the connection. `result` and `theirs`, the fingerprint of the store, are
 * from auth_prove. */
void auth_explain(enum auth_result result, const struct secret *secret, const char *theirs, char *text,
                  size_t size);

/* Check the store's proof, and build the client's proof in `out`. After SECRET_DIFFERS, `theirs` is the store's
 * fingerprint. */
enum auth_result auth_prove(struct auth *a, const struct secret *secret, struct slice answer,
                            uint8_t out[static AUTH_PROOF_BYTES], char theirs[static AUTH_PRINT_TEXT]);

/* Check the client's proof. The store calls this function. */
enum auth_result auth_check(struct auth *a, struct slice proof);

/* Format the fingerprint in the client's first message, or "" if the message has the wrong size. */
void auth_hello_fingerprint(struct slice hello, char text[static AUTH_PRINT_TEXT]);

/* Derive the key of TLS (tls.h) for this job from the secret. */
void auth_tls_key(const struct secret *secret, const char *job, uint8_t key[static AUTH_HASH_BYTES]);

/* Wipe the keys of a connection. */
void auth_wipe(struct auth *a);

/* Return true if the client's first message named this job. */
bool auth_is_job(const struct auth *a, const char *job);

/* Append a frame as a blob with its tag. `kind` is the opcode of a request, or 0 for a reply or a push. The tag covers
 * `kind`, but `kind` is not sent. If memory is short, return false and do not count the frame. */
bool auth_append_frame(struct auth *a, uint8_t kind, struct slice frame, struct buf *out);

/* Check the tag at the end of the next received frame, and remove the tag from *frame. `kind` must be the value that
 * the sender passed to auth_append_frame. If the result is false, the caller must close the connection. */
bool auth_open(struct auth *a, uint8_t kind, struct slice *frame);

#endif
