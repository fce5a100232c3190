/* connector.h -- opens a TCP connection to a host name without blocking, for the launcher and the store's client.
 *
 *     name_lookup_begin -> addresses -> race.h names the next address -> connector_begin -> writable -> connector_error
 *
 * A thread looks up the name with the C library. This may take many seconds and cannot be interrupted. The caller
 * polls the descriptor name_lookup_fd in its loop. name_lookup_end does not wait for the thread. */
#ifndef BASE_CONNECTOR_H
#define BASE_CONNECTOR_H

#include "base/race.h"

enum { HOSTS_LINE_MAX = 160 };

struct name_found {
    int error; /* 0, or EAI_... */
    int n;
    char addresses[RACE_ADDRESSES_MAX][RACE_TEXT_MAX]; /* numeric */
    char hosts_line[HOSTS_LINE_MAX]; /* first line of /etc/hosts that names the host; "" = none */
};

struct name_lookup;

/* Start a lookup of `host` (copied). Return 0, or an errno. After 0, free *out with name_lookup_end at any time. */
int name_lookup_begin(const char *host, struct name_lookup **out);

/* Return a descriptor that becomes readable when the lookup has its answer. */
int name_lookup_fd(const struct name_lookup *lookup);

/* Copy the answer. Return false while the lookup has no answer. */
bool name_lookup_result(struct name_lookup *lookup, struct name_found *found);
void name_lookup_end(struct name_lookup *lookup); /* never waits; NULL is allowed */

/* Resolve a literal address at once, without a name server. Return false if `host` is no literal. The C library
 * defines which texts are literals. Examples are 127.1 and "fe80::1%eth0". */
bool name_is_literal(const char *host, struct name_found *found);

/* Start a connect, and return its socket: non-blocking, close-on-exec, TCP_NODELAY. If `max_segment`
 * is not 0, TCP segments of both directions have at most that many bytes. The caller owns the socket. Return -errno if the kernel rejects the connect at once. */
int connector_begin(const char *address, int port, int max_segment);

/* Return the result of the connect once `fd` is writable: 0 or an errno. */
int connector_error(int fd);

#endif
