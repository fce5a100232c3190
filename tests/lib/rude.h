/* rude.h -- servers that are no store, each on a free port of 127.0.0.1 and on a thread of its own, and networks that
 * lead nowhere. */
#ifndef TESTS_LIB_RUDE_H
#define TESTS_LIB_RUDE_H

#include <stdbool.h>

enum rude_kind {
    RUDE_SILENT, /* takes connections and says nothing */
    RUDE_CLOSER, /* takes and closes them */
    RUDE_HTTP,
    RUDE_TLS,
    RUDE_SSH,
    RUDE_TORCH, /* greets back like PyTorch's store, and closes at what it does not know */
    RUDE_OTHER
};

/* Its port. The thread lives until the test's process ends. */
int rude_start(enum rude_kind kind);

/* A port of 127.0.0.1 where nobody listens. */
int rude_closed_port(void);

/* A listener whose queue is full: it takes no further connection. */
int rude_full_port(void);

/* Run the rest of this test in a network (or mount) namespace of its own; skips the test where that is not allowed. */
void rude_own_network(void);
void rude_own_mounts(void);

/* `ip ...`; skips the test when it fails. */
void rude_ip(const char *arguments);

/* Put `text` in place of a file, for this mount namespace. */
void rude_replace(const char *path, const char *text);

#endif
