/* connector.h -- from a host name to a TCP connection without blocking, for the launcher and the store's
 * client.
 *
 *     name_lookup_begin -> addresses -> race.h names the next one -> connector_begin -> writable -> connector_error
 *
 * A thread asks the C library for a name, which may take many seconds and cannot be interrupted. The caller
 * polls the descriptor name_lookup_fd in its loop, and abandons the thread when it no longer needs the
 * answer. */
#ifndef BASE_CONNECTOR_H
#define BASE_CONNECTOR_H

#include "base/race.h"

enum { HOSTS_LINE_MAX = 160 };

struct name_found {
    int error; /* 0, or EAI_... */
    int n;
    char addresses[RACE_ADDRESSES_MAX][RACE_TEXT_MAX]; /* numeric */
    char hosts_line[HOSTS_LINE_MAX]; /* of /etc/hosts, which names the host; "" = no such line */
};

struct name_lookup;

/* Start a lookup of `host` (copied). Return 0, and the caller owns *out until name_lookup_end, which may be
 * called at any time. Otherwise return an errno. */
int name_lookup_begin(const char *host, struct name_lookup **out);

/* Return a descriptor that becomes readable with the answer. */
int name_lookup_fd(const struct name_lookup *lookup);

/* Copy the answer. False while there is no answer yet. */
bool name_lookup_take(struct name_lookup *lookup, struct name_found *found);
void name_lookup_end(struct name_lookup *lookup); /* NULL is allowed */

/* Resolve a literal address at once, without a name server. False if `host` is not a literal. The C library
 * defines the literals, which include 127.1 and scopes ("fe80::1%eth0"). */
bool name_is_literal(const char *host, struct name_found *found);

/* Return a socket that connects: non-blocking, close-on-exec, TCP_NODELAY; the caller owns it. -errno if the
 * kernel rejects it at once. */
int connector_begin(const char *address, int port);

/* Return the outcome of the connect once `fd` is writable: 0 or an errno. */
int connector_error(int fd);

#endif
