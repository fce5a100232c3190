/* secret.h -- the secret of a job, 32 random bytes that agents and the store share and no worker ever has.
 *
 * A file of it is one line of 64 hexadecimal digits. There is no other format, so a pass phrase, which a listener
 * could guess, is rejected. The file of ddp-rendezvous has such a line for each tenant, with the beginning of the names of
 * its jobs in front. */
#ifndef RENDEZVOUS_AUTH_SECRET_H
#define RENDEZVOUS_AUTH_SECRET_H

#include "base/limits.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SECRET_BYTES = 32, SECRET_TEXT = 2 * SECRET_BYTES + 1 };

/* Lives in a page that is in no core dump. The page is missing in a forked child, so read the secret in the process
 * that uses it. */
struct secret {
    uint8_t key[SECRET_BYTES];
    struct secret *next;   /* owned; the secret of another tenant; NULL = there is none */
    char jobs[LIMIT_TEXT]; /* the beginning of the names of its jobs; "" = all jobs */
};

/* Read the secret of a file, or one line of stdin ("-") and no byte after it. The file must belong to this user or to
 * root, and no other user may read it. DDP_OK: free *out with secret_free. */
ddp_status secret_read(const char *path, struct secret **out, struct ddp_err *err);

/* Read the secrets of all tenants from a file with the same owner and mode. A line is `JOB_PREFIX DIGITS`, or only the
 * digits for all jobs; an empty line and a line that begins with '#' mean nothing. DDP_OK: free the list *out with
 * secret_free. */
ddp_status secret_read_tenants(const char *path, struct secret **out, struct ddp_err *err);

/* Make a random secret. DDP_OK: free *out with secret_free. */
ddp_status secret_make(struct secret **out, struct ddp_err *err);

/* Write a random secret to a new file with mode 0600. An existing file is an error. */
ddp_status secret_write(const char *path, struct ddp_err *err);

/* The 64 digits that secret_read accepts, without the end of the line. Wipe the text after use. */
void secret_format(const struct secret *secret, char text[static SECRET_TEXT]);

/* Wipe and free the whole list; NULL is allowed. */
void secret_free(struct secret *secret);

#endif
