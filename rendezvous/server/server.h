/* server.h -- the store on a TCP port: libuv moves the bytes, hub.h decides.
 *
 * The server runs on a thread and a libuv loop of its own, so the caller may block. All functions here are
 * called from the thread that started it. The thread takes no signals. Starting raises this process's soft
 * limit of descriptors to the hard limit; a caller that starts programs may want to give them the old one
 * back. */
#ifndef RENDEZVOUS_SERVER_SERVER_H
#define RENDEZVOUS_SERVER_SERVER_H

#include "ddp/error.h"
#include "hub/hub.h"

struct store_server;

struct store_server_options {
    const char *host; /* NULL or "" = all addresses (IPv6 and IPv4); a name or a literal otherwise */
    int port;         /* 0 = any free one */
    struct hub_limits limits;
    /* One event of an event log, as JSON without the wall time; on the server's thread, and must not block. NULL = none
     * is kept here. */
    void (*event)(void *user, const char *json);
    void *event_user;
    bool insecure;  /* accept connections of every user of this host; false: see socket_owner.h */
    bool log_peers; /* log connects and disconnects (base/log.h, level info) */
};

/* Bind, listen and start serving. DDP_OK: *out is running, stop it with store_server_stop.
 * DDP_ERR_IO: err says why; for a port in use, who holds it (pid and name, where they can be seen). */
ddp_status store_server_start(const struct store_server_options *options, struct store_server **out,
                              struct ddp_err *err);

/* The port it listens on (the real one when 0 was asked for). */
int store_server_port(const struct store_server *server);

/* "HOST:PORT" as bound, for messages: "127.0.0.1:29400", "[::]:29400". Borrowed, valid until the stop. */
const char *store_server_address(const struct store_server *server);

/* Before the end is begun: it shall serve on until no node of a job is connected any more, at most `limit_ms`: the others may
 * still be told how the job ended. After a second it says that it waits. */
void store_server_linger(struct store_server *server, uint64_t limit_ms);

/* Flush (for a second at most) and close every connection, on the server's thread: the caller may do something else
 * meanwhile, and then stop it. NULL is allowed. A torch 1.13 client does not survive the loss of its store: end the workers
 * first. */
void store_server_begin_stop(struct store_server *server);

/* The same if it was not begun; wait for its end, free. NULL is allowed. */
void store_server_stop(struct store_server *server);

#endif
