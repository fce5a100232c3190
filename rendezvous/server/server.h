/* server.h -- serves a store on a TCP port. libuv moves the bytes; the hub (hub/hub.h) decides. The server has its own
 * thread with a libuv loop, so the caller may block. */
#ifndef RENDEZVOUS_SERVER_SERVER_H
#define RENDEZVOUS_SERVER_SERVER_H

#include "ddp/error.h"
#include "hub/hub.h"

/* A running server. Only the thread that has started the server may call the functions below. */
struct store_server;

struct store_server_options {
    const char *host;        /* an address or a name; NULL or "" = all addresses (IPv6 and IPv4) */
    int port;                /* 0 = any free port */
    const char *port_option; /* name of the option for `port`, for the remedy in errors; NULL = no option */
    struct hub_limits limits;
    /* Called on the server's thread with each event, as JSON without the wall time. The callback must not block. If it
     * is NULL, there is no event log. */
    void (*event)(void *user, const char *json);
    void *event_user;
    bool encrypt;   /* serve other hosts only by TLS with limits.secret (auth/tls.h) */
    bool insecure;  /* serve all users of this host; false = only root and the user of this process */
    bool log_peers; /* log connects and disconnects (base/log.h, level info) */
};

/* Bind, listen and start the server's thread, which receives no signals. `options` is copied, but its pointers stay
 * borrowed. Return DDP_OK. If this fails, write the reason to `err`, and return DDP_ERR_IO, DDP_ERR_NOMEM, or (if
 * OpenSSL is missing) DDP_ERR_UNSUPPORTED. If the port is in use, the reason names the process that uses the port.
 *
 * The start raises the soft limit of descriptors to the hard limit. A caller that starts programs may restore the old
 * limit for these programs. */
ddp_status store_server_start(const struct store_server_options *options, struct store_server **out,
                              struct ddp_err *err);

/* Return the port on which the store listens, never 0. */
int store_server_port(const struct store_server *server);

/* Return the address on which the store listens, as "127.0.0.1:29400" or "[::]:29400". The text is valid until
 * store_server_stop. */
const char *store_server_address(const struct store_server *server);

/* Set how long the store still serves connected nodes after the stop request. In this time, the nodes can read how the
 * job ended. Without this call, the limit is 0. Call this function before store_server_begin_stop. */
void store_server_wait_nodes(struct store_server *server, uint64_t limit_ms);

/* Begin to stop, and return at once. The server then writes the queued replies (for at most 1 s) and closes every
 * connection. The caller must end all workers before this call, because a torch 1.13 client crashes if its store
 * closes. The caller must also call store_server_stop later. NULL is allowed. */
void store_server_begin_stop(struct store_server *server);

/* Begin the stop if it has not begun, wait for its end, and free the server. NULL is allowed. */
void store_server_stop(struct store_server *server);

#endif
