/* connector.h -- opens a TCP connection to a host name without blocking, for the launcher and the store's client. A
 * separate thread resolves the name, because the C library may take many seconds and cannot be interrupted. */
#ifndef BASE_CONNECTOR_H
#define BASE_CONNECTOR_H

#include "base/race.h"

enum { HOSTS_LINE_MAX = 160 }; /* bytes of a line of /etc/hosts, with the NUL */

/* The result of a lookup. */
struct name_found {
    int error; /* 0, or the error EAI_... of getaddrinfo */
    int n;     /* number of addresses; further addresses of the name are left out */
    char addresses[RACE_ADDRESSES_MAX][RACE_TEXT_MAX]; /* numeric, in the order of getaddrinfo */
    char hosts_line[HOSTS_LINE_MAX]; /* first line of /etc/hosts with the host's name, or "" */
};

/* The steps of a connection. The caller polls the descriptor of name_lookup_fd() in its loop.
 *
 *     name_lookup_begin -> addresses -> race.h chooses the next address -> connector_begin
 *     -> the socket becomes writable -> connector_error */
struct name_lookup;

/* Start a lookup of `host`, which is copied. Return 0 or an errno. After 0, the caller must free *out with
 * name_lookup_end. This is allowed even while the lookup runs. */
int name_lookup_begin(const char *host, struct name_lookup **out);

/* Return a descriptor that becomes readable when the lookup has its result. */
int name_lookup_fd(const struct name_lookup *lookup);

/* Copy the result. Return false while the lookup has no result. */
bool name_lookup_result(struct name_lookup *lookup, struct name_found *found);
void name_lookup_end(struct name_lookup *lookup); /* does not wait for the thread; `lookup` may be NULL */

/* Set *found and return true if `host` is a numeric address, such as "127.1" or "fe80::1%eth0". */
bool name_is_literal(const char *host, struct name_found *found);

/* Start to connect to a numeric address. Return the socket, which is non-blocking, close-on-exec and TCP_NODELAY; the
 * caller owns it. Return -errno if the kernel rejects the connect at once. If `max_segment` is not 0, TCP segments of
 * both directions have at most `max_segment` bytes. */
int connector_begin(const char *address, int port, int max_segment);

/* Return the result of a connect: 0 or an errno. Call this function when `fd` is writable. */
int connector_error(int fd);

#endif
