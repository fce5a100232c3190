/* tls_relay.h -- carries the store connections of this node's workers to an encrypted store (--encrypt).
 *
 *     worker --plain, never on a network--> relay in the agent --TLS with the job's secret--> store
 *
 * PyTorch's clients cannot use TLS, so the workers get the relay's address as MASTER_ADDR. The relay listens on this
 * node's own address, but accepts only connections that arrive through the loopback interface. So libraries that
 * derive an address from MASTER_ADDR or from their connection still find the address of this node. */
#ifndef LAUNCHER_NET_TLS_RELAY_H
#define LAUNCHER_NET_TLS_RELAY_H

#include "auth/tls.h"
#include "base/endpoint.h"
#include "ddp/error.h"

#include <uv.h>

struct tls_relay;

struct tls_relay_options {
    uv_loop_t *loop;
    const struct tls_context *tls; /* borrowed until the loop has closed all handles */
    const char *address;           /* of the store: numeric */
    int port;
    const char *own; /* address of this node's end of the connection to the store */
};

/* Begin to listen. After DDP_OK the caller owns *out. */
ddp_status tls_relay_open(const struct tls_relay_options *options, struct tls_relay **out,
                          struct ddp_err *err);

/* Return the address and port for the workers. */
const char *tls_relay_address(const struct tls_relay *relay);
int tls_relay_port(const struct tls_relay *relay);

enum tls_relay_found {
    TLS_RELAY_NONE,   /* the connection is not the relay's */
    TLS_RELAY_WORKER, /* a worker uses the connection */
    TLS_RELAY_GONE    /* the connection is the relay's, but its worker is gone */
};

/* Find the worker's connection that the relay carries over its own connection from `peer` ("ADDRESS:PORT", as the store
 * sees it). Write both ends of the worker's connection for TLS_RELAY_WORKER. NULL is allowed. */
enum tls_relay_found tls_relay_find(const struct tls_relay *relay, const char *peer,
                                    char worker[static ENDPOINT_TEXT_MAX],
                                    char here[static ENDPOINT_TEXT_MAX]);

/* Close all connections, those with last bytes of ended workers within a second. The loop's last close callback frees
 * the memory. NULL is allowed. */
void tls_relay_close(struct tls_relay *relay);

#endif
