/* tls.h -- TLS 1.3 with a key that is derived from the secret of a job. This module uses no socket: the caller receives
 * and sends the bytes. OpenSSL is loaded when the first context is opened, because a job that does not encrypt must run
 * without OpenSSL. */
#ifndef RENDEZVOUS_AUTH_TLS_H
#define RENDEZVOUS_AUTH_TLS_H

#include "auth/secret.h"
#include "base/buf.h"

enum {
    TLS_FIRST_BYTE = 22,       /* first byte of a TLS handshake (RFC 8446, 5.1); not an opcode of the store */
    TLS_HANDSHAKE_MAX = 4096,  /* limit for the bytes of a peer's handshake; ddprun sends less than 600 */
    TLS_ALERT_BYTES = 7,       /* bytes of an alert that is not encrypted */
    TLS_ALERT_ENCRYPTED = 115, /* unknown_psk_identity: the alert that a store with TLS sends to a client that
                                * does not encrypt */
    TLS_ALERT_PLAIN = 120, /* no_application_protocol: the alert that a store without TLS sends to a client
                            * that encrypts */
    TLS_WHY_MAX = 160      /* maximum size of the text that tls_why returns, in bytes with the NUL */
};

/* The sides of a connection. Both sides authenticate only by the key, which depends on the job and the secret: no side
 * has a certificate, and certificates are rejected. The client sends an identity, which contains the job and the
 * fingerprint of the secret. */
enum tls_side { TLS_CLIENT, TLS_SERVER };

enum tls_state {
    TLS_HANDSHAKE, /* the peer has not proved yet that it has the secret */
    TLS_OPEN,
    TLS_ENDED, /* the peer has announced that no more bytes follow */
    TLS_FAILED /* the connection must be closed; tls_why has the reason */
};

/* The state that all connections of a client or a server share. */
struct tls_context;
struct tls;

/* Load OpenSSL with dlopen, and make a context. `secrets` is borrowed: one secret for a client, the secrets of all
 * tenants for a server. `job` is copied; a server passes "". Return DDP_ERR_UNSUPPORTED if OpenSSL is missing or too
 * old. */
ddp_status tls_context_open(enum tls_side side, const struct secret *secrets, const char *job,
                            struct tls_context **out, struct ddp_err *err);

/* Free the context after its last connection. NULL is allowed. */
void tls_context_close(struct tls_context *context);

/* Make a connection, which borrows the context. Return NULL if memory is short. */
struct tls *tls_new(const struct tls_context *context);

/* Wipe and free a connection. NULL is allowed. */
void tls_free(struct tls *t);

enum tls_state tls_state(const struct tls *t);

/* Process received bytes, and return the new state. Append the decrypted bytes to `plain`, and bytes for the peer to
 * `out`. In any state, the caller must send the bytes in `out`. To begin the handshake, a client calls this function
 * without bytes. */
enum tls_state tls_receive(struct tls *t, struct slice bytes, struct buf *plain, struct buf *out);

/* Append the encrypted form of `plain` to `out`, in the states TLS_OPEN and TLS_ENDED. Return false in other states, or
 * if memory is short. */
bool tls_send(struct tls *t, struct slice plain, struct buf *out);

/* Append the last message of TLS (close_notify), which announces that no more bytes follow. */
void tls_end(struct tls *t, struct buf *out);

/* Return the secret that the client has (tls_secret), or the job that the client has named (tls_job). Both are
 * borrowed, and valid only for a server in the states TLS_OPEN and TLS_ENDED. */
const struct secret *tls_secret(const struct tls *t);
const char *tls_job(const struct tls *t);

/* Return true if the client has sent an identity of ddprun, even without the right secret. */
bool tls_is_ddprun(const struct tls *t);

/* Return why the connection has failed. `t` owns the text. */
const char *tls_why(const struct tls *t);

/* Write a fatal alert that is not encrypted (RFC 8446, 6). */
static inline void tls_alert(uint8_t code, uint8_t out[static TLS_ALERT_BYTES])
{
    memcpy(out, (const uint8_t[TLS_ALERT_BYTES]){ 21, 3, 3, 0, 2, 2, code }, TLS_ALERT_BYTES);
}

/* Return the code of the alert if `bytes` begin with a fatal alert that is not encrypted, else -1. */
static inline int tls_alert_code(struct slice bytes)
{
    const uint8_t *b = bytes.data;
    if (bytes.len < TLS_ALERT_BYTES || b[0] != 21 || b[1] != 3 || b[3] != 0 || b[4] != 2 || b[5] != 2)
        return -1;
    return b[6];
}

#endif
