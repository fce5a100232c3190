/* server.h -- the store on a TCP port: libuv moves the bytes, hub.h decides.
 *
 * The server has one thread and one libuv loop, so the caller may block. All functions here must be called from the
 * thread that started the server. The server's thread handles no signals. Starting raises the process's soft limit of
 * descriptors to the hard limit; a caller that starts programs may restore the old limit for them. */
#ifndef RENDEZVOUS_SERVER_SERVER_H
#define RENDEZVOUS_SERVER_SERVER_H

#include "ddp/error.h"
#include "hub/hub.h"

struct store_server;

struct store_server_options {
    const char *host; /* NULL or "" = all addresses (IPv6 and IPv4); otherwise a name or an address */
    int port;         /* 0 = any free port */
    struct hub_limits limits;
    /* Called on the server's thread with each event for an event log, as JSON without the wall time. Must not block.
     * NULL = no event log. */
    void (*event)(void *user, const char *json);
    void *event_user;
    bool insecure;  /* accept connections of every user of this host; false: see socket_owner.h */
    bool log_peers; /* log connects and disconnects (base/log.h, level info) */
};

/* Bind, listen and start to serve. Return DDP_OK if *out runs, until store_server_stop. Return DDP_ERR_IO with the
 * reason in `err`, which names the holder of a port in use (pid and name, if visible). */
ddp_status store_server_start(const struct store_server_options *options, struct store_server **out,
                              struct ddp_err *err);

/* Return the port on which the store listens. If port 0 was requested, this is the real port. */
int store_server_port(const struct store_server *server);

/* Return "HOST:PORT" as bound, for messages: "127.0.0.1:29400", "[::]:29400". The text is borrowed and valid until
 * the stop. */
const char *store_server_address(const struct store_server *server);

/* Let the store serve after the stop request for at most `limit_ms`, until no node of a job is connected, so that the
 * other nodes can read how the job ended. After a second, the store logs that it waits. Call this before
 * store_server_begin_stop. */
void store_server_linger(struct store_server *server, uint64_t limit_ms);

/* Start to flush (for at most a second) and close every connection, on the server's thread. The caller may continue
 * meanwhile and calls store_server_stop later. NULL is allowed. End the workers first, because a torch 1.13 client
 * crashes if it loses its store. */
void store_server_begin_stop(struct store_server *server);

/* Begin the stop if it has not begun, wait for its end, and free the server. NULL is allowed. */
void store_server_stop(struct store_server *server);

#endif
