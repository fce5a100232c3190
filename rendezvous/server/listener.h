/* listener.h -- a listening TCP socket, and good words when there can be none. */
#ifndef RENDEZVOUS_LISTENER_H
#define RENDEZVOUS_LISTENER_H

#include "ddp/error.h"

struct listener {
    int fd;            /* non-blocking, close-on-exec; the caller closes it */
    int port;          /* the real one */
    char address[288]; /* "HOST:PORT" as bound */
};

/* Bind and listen. `host`: NULL or "" = every address, IPv6 and IPv4 on one socket where there is IPv6; a
 * literal or a name otherwise (a name is resolved by the C library, which may take its own time-outs, and its
 * first address that this machine has is used). `port` 0 = any free one. DDP_ERR_IO: err says why, and who
 * holds a port in use. */
ddp_status listener_open(const char *host, int port, struct listener *out, struct ddp_err *err);

#endif
