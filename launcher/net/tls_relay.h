/* tls_relay.h -- encrypts the connections of this node's workers to the store, for --encrypt. The workers get the
 * relay's address as MASTER_ADDR, because PyTorch's clients cannot use TLS. The relay accepts only connections from
 * this host, so the workers' unencrypted bytes are never on a network. */
#ifndef LAUNCHER_NET_TLS_RELAY_H
#define LAUNCHER_NET_TLS_RELAY_H

#include "auth/tls.h"
#include "base/endpoint.h"
#include "ddp/error.h"

#include <uv.h>

/* The relay of a node, in the agent:
 *
 *     worker --plain, never on a network--> relay in the agent --TLS with the job's secret--> store */
struct tls_relay;

struct tls_relay_options {
    uv_loop_t *loop;
    const struct tls_context *tls; /* borrowed until the loop has closed all handles */
    const char *address;           /* numeric address of the store */
    int port;
    /* Numeric address of this node's end of the connection to the store. The relay listens at this
     * address. */
    const char *own;
};

/* Begin to listen at the address `own`, at which other nodes reach this node. Some libraries need this address, and
 * derive it from MASTER_ADDR or from the local end of their connection. Listen on 127.0.0.1 only if binding to `own`
 * fails. After DDP_OK the caller owns *out. */
ddp_status tls_relay_open(const struct tls_relay_options *options, struct tls_relay **out,
                          struct ddp_err *err);

/* Return the address and the port at which workers connect to the relay. The relay owns the text. */
const char *tls_relay_address(const struct tls_relay *relay);
int tls_relay_port(const struct tls_relay *relay);

enum tls_relay_found {
    TLS_RELAY_NONE,   /* the relay does not own the connection */
    TLS_RELAY_WORKER, /* the relay owns the connection, and a worker uses it */
    TLS_RELAY_GONE    /* the relay owns the connection, but the worker has disconnected */
};

/* Find the worker that uses the relay's connection to the store. `peer` is the relay's end of this connection
 * ("ADDRESS:PORT", as the store sees it). For TLS_RELAY_WORKER, set `worker` and `here` to the two ends of the
 * connection between the worker and the relay. A NULL relay is allowed. */
enum tls_relay_found tls_relay_find(const struct tls_relay *relay, const char *peer,
                                    char worker[static ENDPOINT_TEXT_MAX],
                                    char here[static ENDPOINT_TEXT_MAX]);

/* Close all connections. If a worker has ended, but its last bytes are not sent yet, its connection stays open for at
 * most 1 s. The last close callback of libuv frees the memory. NULL is allowed. */
void tls_relay_close(struct tls_relay *relay);

#endif
