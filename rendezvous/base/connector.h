/* connector.h -- from a host name to a TCP connection, without waiting: the launcher's and the store client's one way.
 *
 *     name_lookup_begin -> addresses -> race.h says which is next -> connector_begin -> writable -> connector_error
 *
 * A thread asks the C library for a name, which may take many seconds and cannot be interrupted. The caller waits for the
 * descriptor name_lookup_fd with its own loop, and leaves the thread alone when it no longer wants the answer. */
#ifndef BASE_CONNECTOR_H
#define BASE_CONNECTOR_H

#include "base/race.h"

enum { HOSTS_LINE_MAX = 160 };

struct name_found {
    int error; /* 0, or EAI_... */
    int n;
    char addresses[RACE_ADDRESSES_MAX][RACE_TEXT_MAX]; /* numeric */
    char hosts_line[HOSTS_LINE_MAX]; /* of /etc/hosts, which names the host; "" = none does */
};

struct name_lookup;

/* Begin to look `host` (copied) up. 0: *out is yours until name_lookup_end, which may be called at any time; else an
 * errno. */
int name_lookup_begin(const char *host, struct name_lookup **out);

/* Readable when the answer is there. */
int name_lookup_fd(const struct name_lookup *lookup);

/* False as long as there is no answer. */
bool name_lookup_take(struct name_lookup *lookup, struct name_found *found);
void name_lookup_end(struct name_lookup *lookup); /* NULL is allowed */

/* The same at once: false when `host` is no literal address, and nobody was asked. What is one the C library decides, which
 * also knows 127.1 and scopes ("fe80::1%eth0"). */
bool name_is_literal(const char *host, struct name_found *found);

/* A socket that connects: non-blocking, close-on-exec, TCP_NODELAY; yours. -errno when the kernel refuses on the spot. */
int connector_begin(const char *address, int port);

/* What became of it, once it is writable: 0 or an errno. */
int connector_error(int fd);

#endif
