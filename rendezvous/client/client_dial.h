/* client_dial.h -- from a host name to a connected socket, within a deadline. One try; who calls tries
 * again. */
#ifndef RENDEZVOUS_CLIENT_DIAL_H
#define RENDEZVOUS_CLIENT_DIAL_H

#include "ddp/error.h"

#include <netdb.h>
#include <stdint.h>

/* Resolve `host` (copied) and `port`. *found is yours: freeaddrinfo. DDP_ERR_CLOSED: the name is not known
 * (now). DDP_ERR_TIMEOUT: the name service did not answer by `deadline_ms`. */
ddp_status client_resolve(const char *host, int port, uint64_t deadline_ms, struct addrinfo **found,
                          struct ddp_err *err);

/* Connect to whichever address of the name answers first. *fd is yours, non-blocking, close-on-exec,
 * TCP_NODELAY. DDP_ERR_CLOSED, DDP_ERR_TIMEOUT: err says what was met there; worth another try. DDP_ERR_IO:
 * the fault is on our side (no descriptors left ...) and will not go away. */
ddp_status client_dial(const char *host, int port, uint64_t deadline_ms, int *fd, struct ddp_err *err);

#endif
