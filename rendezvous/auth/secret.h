/* secret.h -- the secret of a job: 32 random bytes that agents and the store share. Workers never have the secret. A
 * pass phrase is rejected: an attacker who has recorded the proofs of a connection (auth.h) could try pass phrases
 * until one matches. */
#ifndef RENDEZVOUS_AUTH_SECRET_H
#define RENDEZVOUS_AUTH_SECRET_H

#include "base/limits.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SECRET_BYTES = 32,
    SECRET_TEXT = 2 * SECRET_BYTES + 1, /* the digits and the NUL */
    SECRET_CREDENTIAL_MAX = 480,        /* maximum size of a credential of MUNGE, in bytes with the NUL */
};

/* A secret in a separate memory page. The page is neither in core dumps nor in forked children, so each process must
 * read the secret itself. */
struct secret {
    uint8_t key[SECRET_BYTES];
    struct secret *next;   /* the secret of the next tenant, owned; NULL for the last tenant */
    char jobs[LIMIT_TEXT]; /* prefix of the tenant's job names; "" for all jobs */
};

/* Read the secret, one line of 64 hexadecimal digits, from a file or from stdin ("-"). A file must have no other line.
 * No byte of stdin after this line is read. The file must belong to this user or to root, and no other user may read
 * it. After DDP_OK, free *out with secret_free. */
ddp_status secret_read(const char *path, struct secret **out, struct ddp_err *err);

/* Read the secrets of all tenants from a file of ddp-rendezvous. The file must have the same owner and mode as a file
 * for secret_read. The file has one line for each tenant: `JOB_PREFIX DIGITS`. JOB_PREFIX is a prefix of the tenant's
 * job names. A line that contains only the digits is for all other jobs. Empty lines, and lines that begin with '#',
 * are ignored. After DDP_OK, free the list *out with secret_free. */
ddp_status secret_read_tenants(const char *path, struct secret **out, struct ddp_err *err);

/* Make a random secret. After DDP_OK, free *out with secret_free. */
ddp_status secret_make(struct secret **out, struct ddp_err *err);

/* Write a random secret to a new file with mode 0600. An existing file is an error. */
ddp_status secret_write(const char *path, struct ddp_err *err);

/* Format the 64 digits that secret_read accepts, without a newline. Pass the text to secret_wipe after use. */
void secret_format(const struct secret *secret, char text[static SECRET_TEXT]);

/* Wipe a text that secret_format has written. */
void secret_wipe(char text[static SECRET_TEXT]);

/* --- MUNGE ---------------------------------------------------------------------------------------------------
 *
 * MUNGE (https://github.com/dun/munge) proves to a process which user has sent a message. The store seals (encrypts)
 * its secret in a credential. On each node, the daemon munged unseals this credential only for the same user.
 *
 * A separate thread loads and calls libmunge, because munged may hang. A call fails after 3 s. */

/* Begin to seal (encrypt) the secret in a credential for this user. Return NULL if no memory or thread is available.
 * The caller owns the call until secret_seal_end. */
struct secret_call *secret_seal_begin(const struct secret *secret);

/* Begin to unseal (decrypt) a credential of `n` bytes. Return NULL if no memory or thread is available. The caller
 * owns the call until secret_unseal_end. */
struct secret_call *secret_unseal_begin(const char *credential, size_t n);

/* Return true if secret_seal_end or secret_unseal_end would return at once: libmunge has returned, or 3 s have passed
 * since the call began. */
bool secret_call_is_over(struct secret_call *call);

/* Copy the result of the call to `credential`, which has SECRET_CREDENTIAL_MAX bytes. If `credential` is NULL, discard
 * the result. Return DDP_ERR_TIMEOUT if libmunge has not returned yet, and DDP_ERR_NOMEM if `call` is NULL. This
 * function takes ownership of `call`. The caller must not use `call` again. */
ddp_status secret_seal_end(struct secret_call *call, char *credential, struct ddp_err *err);

/* Set *out to the result of the call. After DDP_OK, the caller frees *out with secret_free. If `out` is NULL, discard
 * the result. Return the same errors as secret_seal_end; *out is then NULL. This function takes ownership of `call`.
 * The caller must not use `call` again. */
ddp_status secret_unseal_end(struct secret_call *call, struct secret **out, struct ddp_err *err);

/* Wipe and free `secret` and all secrets after it in the list. NULL is allowed. */
void secret_free(struct secret *secret);

#endif
