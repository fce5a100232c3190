/* tls.c -- see tls.h. OpenSSL does the handshake between two buffers in memory. The declarations of OpenSSL's functions
 * are copied, because the program must build and start without OpenSSL. */
#include "auth/tls.h"

#include "auth/auth.h"
#include "base/limits.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Declarations of OpenSSL, which are the same in OpenSSL 1.1.1 and OpenSSL 3. */
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_session_st SSL_SESSION;
typedef struct bio_st BIO;

typedef int (*use_session)(SSL *ssl, const void *md, const unsigned char **id, size_t *len,
                           SSL_SESSION **out);
typedef int (*find_session)(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **out);
typedef int (*verify)(int ok, void *store);

/* clang-format off */
#define TLS_FUNCTIONS(X)                                                                  \
    X(int, OPENSSL_init_ssl, (uint64_t options, const void *settings))                    \
    X(const void *, TLS_client_method, (void))                                            \
    X(const void *, TLS_server_method, (void))                                            \
    X(SSL_CTX *, SSL_CTX_new, (const void *method))                                       \
    X(void, SSL_CTX_free, (SSL_CTX *ctx))                                                 \
    X(long, SSL_CTX_ctrl, (SSL_CTX *ctx, int command, long number, void *pointer))        \
    X(int, SSL_CTX_set_ciphersuites, (SSL_CTX *ctx, const char *names))                   \
    X(int, SSL_CTX_set_num_tickets, (SSL_CTX *ctx, size_t n))                             \
    X(void, SSL_CTX_set_verify, (SSL_CTX *ctx, int mode, verify callback))                \
    X(void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX *ctx, use_session callback))   \
    X(void, SSL_CTX_set_psk_find_session_callback, (SSL_CTX *ctx, find_session callback)) \
    X(SSL *, SSL_new, (SSL_CTX *ctx))                                                     \
    X(void, SSL_free, (SSL *ssl))                                                         \
    X(int, SSL_set_ex_data, (SSL *ssl, int index, void *data))                            \
    X(void *, SSL_get_ex_data, (const SSL *ssl, int index))                               \
    X(void, SSL_set_bio, (SSL *ssl, BIO *in, BIO *out))                                   \
    X(void, SSL_set_accept_state, (SSL *ssl))                                             \
    X(void, SSL_set_connect_state, (SSL *ssl))                                            \
    X(int, SSL_do_handshake, (SSL *ssl))                                                  \
    X(int, SSL_read, (SSL *ssl, void *bytes, int n))                                      \
    X(int, SSL_write, (SSL *ssl, const void *bytes, int n))                               \
    X(int, SSL_shutdown, (SSL *ssl))                                                      \
    X(int, SSL_get_error, (const SSL *ssl, int result))                                   \
    X(int, SSL_version, (const SSL *ssl))                                                 \
    X(int, SSL_session_reused, (const SSL *ssl))                                          \
    X(void *, SSL_get_peer_cert_chain, (const SSL *ssl))                                  \
    X(const void *, SSL_CIPHER_find, (SSL *ssl, const unsigned char *id))                 \
    X(SSL_SESSION *, SSL_SESSION_new, (void))                                             \
    X(void, SSL_SESSION_free, (SSL_SESSION *session))                                     \
    X(int, SSL_SESSION_set1_master_key, (SSL_SESSION *session, const unsigned char *key, size_t len)) \
    X(int, SSL_SESSION_set_cipher, (SSL_SESSION *session, const void *cipher))            \
    X(int, SSL_SESSION_set_protocol_version, (SSL_SESSION *session, int version))         \
    X(const void *, BIO_s_mem, (void))                                                    \
    X(BIO *, BIO_new, (const void *method))                                               \
    X(int, BIO_free, (BIO *bio))                                                          \
    X(int, BIO_read, (BIO *bio, void *bytes, int n))                                      \
    X(int, BIO_write, (BIO *bio, const void *bytes, int n))                               \
    X(size_t, BIO_ctrl_pending, (BIO *bio))                                               \
    X(void, ERR_clear_error, (void))                                                      \
    X(unsigned long, ERR_peek_error, (void))                                              \
    X(const char *, ERR_reason_error_string, (unsigned long error))
/* clang-format on */

/* Numbers from OpenSSL's headers (ssl.h, tls1.h), with shorter names. */
enum {
    NO_LOAD_CONFIG = 0x80, /* ignore openssl.cnf of the host: it must not change the protocol */
    CTRL_MODE = 33,
    MODE_RELEASE_BUFFERS = 0x10, /* an idle connection keeps no buffers */
    CTRL_SESS_CACHE_MODE = 44,
    CTRL_SET_MIN_PROTO_VERSION = 123,
    CTRL_SET_MAX_PROTO_VERSION = 124,
    VERSION_TLS13 = 0x0304,
    VERIFY_PEER = 1,
    ERROR_WANT_READ = 2,
    ERROR_ZERO_RETURN = 6
};

enum { RECORD_BYTES = 16384 }; /* maximum size of a plain record in bytes (RFC 8446, 5.1) */

/* The identity is "ddprun1 FINGERPRINT JOB". */
static const char magic[] = "ddprun1 ";

enum {
    AT_PRINT = sizeof(magic) - 1,
    AT_JOB = AT_PRINT + AUTH_PRINT_TEXT, /* a space replaces the NUL that AUTH_PRINT_TEXT counts */
    IDENTITY_MAX = AT_JOB + LIMIT_TEXT
};

/* The functions of OpenSSL, which all contexts share. `lock` is held while the functions are loaded. */
static struct {
    pthread_mutex_t lock;
    void *handle; /* NULL if not loaded; never unloaded, because OpenSSL registers exit functions */
#define X(type, name, arguments) type(*name) arguments;
    TLS_FUNCTIONS(X)
#undef X
} ssl = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct tls_context {
    SSL_CTX *ctx;
    enum tls_side side;
    const struct secret *secrets; /* borrowed */
    char job[LIMIT_TEXT];
};

struct tls {
    const struct tls_context *context;
    SSL *ssl;
    BIO *in, *out; /* owned by `ssl` */
    enum tls_state state;
    size_t handshake_bytes; /* number of bytes that were passed to OpenSSL during the handshake */
    unsigned n_offers;      /* number of identities so far in the client message that OpenSSL is parsing */
    bool is_ddprun;         /* on a server: the client's identity begins with `magic` */
    bool has_key;           /* this side has given OpenSSL the key of this connection */
    const struct secret *secret; /* server: secret that the client claims to have, borrowed; NULL if none */
    char job[LIMIT_TEXT];        /* server: the job that the client has named */
    char why[TLS_WHY_MAX];       /* reason of TLS_FAILED; "" without a failure */
    char identity[IDENTITY_MAX]; /* client: the identity that this side sends */
};

/* --- OpenSSL ----------------------------------------------------------------------------------------------- */

/* Load OpenSSL 3, or else 1.1.1, and find all functions. The caller holds ssl.lock. */
static ddp_status find_functions(struct ddp_err *err)
{
    static const char *const names[] = { "libssl.so.3", "libssl.so.1.1" };
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "--encrypt: cannot load libssl.so.3 or libssl.so.1.1; install OpenSSL 1.1.1 or later "
                        "(Debian: libssl3)");
#define X(type, name, arguments)                 \
    *(void **)&ssl.name = dlsym(library, #name); \
    if (ssl.name == NULL)                        \
        return ddp_fail(                         \
            err, DDP_ERR_UNSUPPORTED,            \
            "--encrypt: the installed OpenSSL has no function %s; install OpenSSL 1.1.1 or later", #name);
    TLS_FUNCTIONS(X)
#undef X
    if (ssl.OPENSSL_init_ssl(NO_LOAD_CONFIG, NULL) != 1)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "--encrypt: cannot initialize OpenSSL; reinstall OpenSSL");
    ssl.handle = library;
    return DDP_OK;
}

static ddp_status load(struct ddp_err *err)
{
    pthread_mutex_lock(&ssl.lock);
    const ddp_status status = ssl.handle != NULL ? DDP_OK : find_functions(err);
    pthread_mutex_unlock(&ssl.lock);
    return status;
}

/* --- the key ----------------------------------------------------------------------------------------------- */

/* Return a session that contains the key of a job, because OpenSSL expects the key in a session. The caller owns the
 * session. Return NULL after a failure. */
static SSL_SESSION *make_session(SSL *connection, const struct secret *secret, const char *job)
{
    static const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
    uint8_t key[AUTH_HASH_BYTES];
    SSL_SESSION *session = ssl.SSL_SESSION_new();
    if (session == NULL)
        return NULL;
    auth_tls_key(secret, job, key);
    const bool ok =
        ssl.SSL_SESSION_set1_master_key(session, key, sizeof(key)) == 1 &&
        ssl.SSL_SESSION_set_cipher(session, ssl.SSL_CIPHER_find(connection, aes_128_gcm_sha256)) == 1 &&
        ssl.SSL_SESSION_set_protocol_version(session, VERSION_TLS13) == 1;
    sodium_memzero(key, sizeof(key));
    if (ok)
        return session;
    ssl.SSL_SESSION_free(session);
    return NULL;
}

/* Return the identity and the key of this client to OpenSSL, which calls this function. OpenSSL copies the identity,
 * and owns the session that contains the key. */
static int on_use(SSL *connection, const void *md, const unsigned char **id, size_t *len, SSL_SESSION **out)
{
    struct tls *t = ssl.SSL_get_ex_data(connection, 0);
    char print[AUTH_PRINT_TEXT];
    (void)md; /* `md` is not needed, because both allowed cipher suites use SHA-256 */
    auth_fingerprint(t->context->secrets, print);
    *len = (size_t)snprintf(t->identity, sizeof(t->identity), "%s%s %s", magic, print, t->context->job);
    *id = (const unsigned char *)t->identity;
    *out = make_session(connection, t->context->secrets, t->context->job);
    t->has_key = *out != NULL;
    return *out != NULL;
}

/* Return the secret that a client claims to have, or set `why` and return NULL. If the client names no job, as an
 * operator does, search all secrets for the fingerprint `print`. */
static const struct secret *choose(struct tls *t, const char *print)
{
    const struct secret *first = t->context->secrets, *s = auth_secret_of(first, t->job);
    char ours[AUTH_PRINT_TEXT] = "";
    if (t->job[0] != '\0' && s == NULL) {
        snprintf(t->why, sizeof(t->why), "TLS: the store has no secret for this job");
        return NULL;
    }
    if (t->job[0] != '\0')
        first = s;
    for (s = first; s != NULL; s = t->job[0] == '\0' ? s->next : NULL) {
        auth_fingerprint(s, ours);
        if (strcmp(ours, print) == 0)
            return s;
    }
    snprintf(t->why, sizeof(t->why),
             "TLS: the secrets differ: sha256 %.8s.. in the store, %.8s.. in the "
             "client",
             ours, print);
    return NULL;
}

/* Find the key for the identity that a client has sent. OpenSSL calls this function. If there is no key, the handshake
 * fails. Reject a second identity in the same message, because the check of each identity costs several hashes. */
static int on_find(SSL *connection, const unsigned char *id, size_t len, SSL_SESSION **out)
{
    struct tls *t = ssl.SSL_get_ex_data(connection, 0);
    char print[AUTH_PRINT_TEXT] = "";
    *out = NULL;
    t->has_key = false;
    if (t->n_offers++ > 0) {
        snprintf(t->why, sizeof(t->why), "TLS: the client has offered more than one key");
        return 0;
    }
    t->is_ddprun = len >= AT_PRINT && memcmp(id, magic, AT_PRINT) == 0;
    if (len < AT_JOB || len >= IDENTITY_MAX || !t->is_ddprun || id[AT_JOB - 1] != ' ' ||
        memchr(id, 0, len) != NULL)
        return 1;
    for (int i = 0; i < AUTH_PRINT_TEXT - 1; i++)
        if (strchr("0123456789abcdef", id[AT_PRINT + i]) == NULL)
            return 1;
    memcpy(print, id + AT_PRINT, AUTH_PRINT_TEXT - 1);
    snprintf(t->job, sizeof(t->job), "%.*s", (int)(len - AT_JOB), (const char *)id + AT_JOB);
    t->secret = choose(t, print);
    *out = t->secret != NULL ? make_session(connection, t->secret, t->job) : NULL;
    t->has_key = *out != NULL;
    return 1;
}

/* Reject every certificate, because a store must authenticate with the secret (PSK) instead. By default, OpenSSL's
 * client also accepts a server that sends a certificate and does not use the key. OpenSSL calls this function in a
 * client. */
static int on_certificate(int ok, void *store)
{
    (void)ok, (void)store;
    return 0;
}

/* --- contexts ---------------------------------------------------------------------------------------------- */

/* Configure a context for TLS 1.3 with an external key and an ephemeral key exchange (psk_dhe_ke). So an attacker who
 * learns the secret later cannot decrypt recorded traffic. */
static bool configure(struct tls_context *c)
{
    if (c->ctx == NULL || ssl.SSL_CTX_ctrl(c->ctx, CTRL_SET_MIN_PROTO_VERSION, VERSION_TLS13, NULL) != 1 ||
        ssl.SSL_CTX_ctrl(c->ctx, CTRL_SET_MAX_PROTO_VERSION, VERSION_TLS13, NULL) != 1 ||
        ssl.SSL_CTX_set_ciphersuites(c->ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") != 1 ||
        ssl.SSL_CTX_set_num_tickets(c->ctx, 0) != 1)
        return false;
    ssl.SSL_CTX_ctrl(c->ctx, CTRL_SESS_CACHE_MODE, 0, NULL);
    ssl.SSL_CTX_ctrl(c->ctx, CTRL_MODE, MODE_RELEASE_BUFFERS, NULL);
    if (c->side == TLS_CLIENT) {
        ssl.SSL_CTX_set_verify(c->ctx, VERIFY_PEER, on_certificate);
        ssl.SSL_CTX_set_psk_use_session_callback(c->ctx, on_use);
    } else /* no verify callback: this server requests no certificate from its clients */
        ssl.SSL_CTX_set_psk_find_session_callback(c->ctx, on_find);
    return true;
}

ddp_status tls_context_open(enum tls_side side, const struct secret *secrets, const char *job,
                            struct tls_context **out, struct ddp_err *err)
{
    *out = NULL;
    if (load(err) != DDP_OK)
        return DDP_ERR_UNSUPPORTED;
    struct tls_context *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "--encrypt: out of memory");
    c->side = side;
    c->secrets = secrets;
    snprintf(c->job, sizeof(c->job), "%s", job);
    c->ctx = ssl.SSL_CTX_new(side == TLS_CLIENT ? ssl.TLS_client_method() : ssl.TLS_server_method());
    if (configure(c)) {
        *out = c;
        return DDP_OK;
    }
    tls_context_close(c);
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "--encrypt: the installed OpenSSL rejects TLS 1.3 with TLS_AES_128_GCM_SHA256; install "
                    "OpenSSL 1.1.1 or later");
}

void tls_context_close(struct tls_context *c)
{
    if (c == NULL)
        return;
    if (c->ctx != NULL)
        ssl.SSL_CTX_free(c->ctx);
    free(c);
}

/* --- connections ------------------------------------------------------------------------------------------- */

struct tls *tls_new(const struct tls_context *context)
{
    struct tls *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    t->context = context;
    t->ssl = ssl.SSL_new(context->ctx);
    t->in = ssl.BIO_new(ssl.BIO_s_mem());
    t->out = ssl.BIO_new(ssl.BIO_s_mem());
    if (t->ssl == NULL || t->in == NULL || t->out == NULL || ssl.SSL_set_ex_data(t->ssl, 0, t) != 1) {
        if (t->in != NULL)
            ssl.BIO_free(t->in);
        if (t->out != NULL)
            ssl.BIO_free(t->out);
        if (t->ssl != NULL)
            ssl.SSL_free(t->ssl);
        free(t);
        return NULL;
    }
    ssl.SSL_set_bio(t->ssl, t->in, t->out);
    if (context->side == TLS_CLIENT)
        ssl.SSL_set_connect_state(t->ssl);
    else
        ssl.SSL_set_accept_state(t->ssl);
    return t;
}

void tls_free(struct tls *t)
{
    if (t == NULL)
        return;
    ssl.SSL_free(t->ssl);
    sodium_memzero(t, sizeof(*t));
    free(t);
}

enum tls_state tls_state(const struct tls *t)
{
    return t->state;
}

const struct secret *tls_secret(const struct tls *t)
{
    return t->secret;
}

const char *tls_job(const struct tls *t)
{
    return t->job;
}

bool tls_is_ddprun(const struct tls *t)
{
    return t->is_ddprun;
}

const char *tls_why(const struct tls *t)
{
    return t->why;
}

/* Fail the connection. If a reason is already stored, such as a wrong secret, keep this reason, because it is more
 * precise than the reason that OpenSSL reports. */
static void tls_fail(struct tls *t, const char *what, const char *reason)
{
    t->state = TLS_FAILED;
    if (t->why[0] == '\0')
        snprintf(t->why, sizeof(t->why), "TLS: %s%s%.100s", what, reason != NULL ? ": " : "",
                 reason != NULL ? reason : "");
}

/* Fail the connection with OpenSSL's reason, such as "bad record mac". */
static void tls_fail_by_openssl(struct tls *t, const char *what)
{
    tls_fail(t, what, ssl.ERR_reason_error_string(ssl.ERR_peek_error()));
    ssl.ERR_clear_error();
}

/* Append to `out` the bytes that OpenSSL wants to send. Return false if memory is short. */
static bool drain(struct tls *t, struct buf *out)
{
    for (size_t n; (n = ssl.BIO_ctrl_pending(t->out)) > 0;) {
        char *room = buf_reserve(out, n);
        if (room == NULL || ssl.BIO_read(t->out, room, (int)n) != (int)n)
            return false;
        out->len += n;
    }
    return true;
}

/* Process messages of the handshake. At the end of the handshake, accept only a peer that has proved that it has the
 * secret. Both sides check that OpenSSL has used the key. */
static void shake_hands(struct tls *t)
{
    /* after a HelloRetryRequest, the client sends its identity again */
    t->n_offers = 0;
    const int result = ssl.SSL_do_handshake(t->ssl);
    if (result == 1 && t->has_key && ssl.SSL_session_reused(t->ssl) == 1 &&
        ssl.SSL_version(t->ssl) == VERSION_TLS13 && ssl.SSL_get_peer_cert_chain(t->ssl) == NULL)
        t->state = TLS_OPEN;
    else if (result == 1)
        tls_fail(t, "the peer has not proved that it has the secret", NULL);
    else if (ssl.SSL_get_error(t->ssl, result) != ERROR_WANT_READ)
        tls_fail_by_openssl(t, "handshake failed");
}

/* Decrypt all complete records that were received. An incomplete record stays in OpenSSL's buffer. */
static void decrypt(struct tls *t, struct buf *plain)
{
    int n;
    do {
        char *room = buf_reserve(plain, RECORD_BYTES);
        if (room == NULL) {
            tls_fail(t, "out of memory" MEMORY_REMEDY, NULL);
            return;
        }
        n = ssl.SSL_read(t->ssl, room, RECORD_BYTES);
        plain->len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    const int error = ssl.SSL_get_error(t->ssl, n);
    if (error == ERROR_ZERO_RETURN)
        t->state = TLS_ENDED;
    else if (error != ERROR_WANT_READ)
        tls_fail_by_openssl(t, "invalid message");
}

/* Append received bytes to the buffer from which OpenSSL reads. */
static void append_input(struct tls *t, struct slice bytes)
{
    if (bytes.len > 0 && ssl.BIO_write(t->in, bytes.data, (int)bytes.len) != (int)bytes.len)
        tls_fail(t, "out of memory" MEMORY_REMEDY, NULL);
}

/* Pass at most TLS_HANDSHAKE_MAX bytes to OpenSSL until the peer has proved that it has the secret. OpenSSL must not
 * get long messages from an unknown peer. Pass the remaining bytes after the handshake. */
static void receive_handshake(struct tls *t, struct slice bytes)
{
    const size_t room = TLS_HANDSHAKE_MAX - t->handshake_bytes, n = bytes.len < room ? bytes.len : room;
    append_input(t, slice_of(bytes.data, n));
    t->handshake_bytes += n;
    if (t->state == TLS_HANDSHAKE)
        shake_hands(t);
    if (n == bytes.len)
        return;
    if (t->state == TLS_HANDSHAKE)
        tls_fail(t, "the peer sent too many bytes during the handshake", NULL);
    else
        append_input(t, slice_of((const char *)bytes.data + n, bytes.len - n));
}

enum tls_state tls_receive(struct tls *t, struct slice bytes, struct buf *plain, struct buf *out)
{
    if (t->state == TLS_ENDED || t->state == TLS_FAILED)
        return t->state;
    ssl.ERR_clear_error();
    if (t->state == TLS_HANDSHAKE)
        receive_handshake(t, bytes);
    else
        append_input(t, bytes);
    if (t->state == TLS_OPEN)
        decrypt(t, plain);
    if (!drain(t, out))
        tls_fail(t, "out of memory" MEMORY_REMEDY, NULL);
    return t->state;
}

/* Encrypt one record at a time, so that OpenSSL's own buffer stays small. */
bool tls_send(struct tls *t, struct slice plain, struct buf *out)
{
    const char *at = plain.data;
    if (t->state != TLS_OPEN && t->state != TLS_ENDED)
        return false;
    ssl.ERR_clear_error();
    for (size_t left = plain.len; left > 0;) {
        const int n = left < RECORD_BYTES ? (int)left : RECORD_BYTES;
        if (ssl.SSL_write(t->ssl, at, n) != n || !drain(t, out)) {
            tls_fail_by_openssl(t, "cannot encrypt");
            return false;
        }
        at += n;
        left -= (size_t)n;
    }
    return true;
}

void tls_end(struct tls *t, struct buf *out)
{
    if (t->state != TLS_OPEN && t->state != TLS_ENDED)
        return;
    ssl.ERR_clear_error();
    ssl.SSL_shutdown(t->ssl);
    (void)drain(t, out);
}
