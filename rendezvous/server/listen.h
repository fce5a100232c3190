/* listen.h -- the listening socket of a store: open the socket, accept clients, count dropped connections, and find
 * the process that holds a port. */
#ifndef RENDEZVOUS_SERVER_LISTEN_H
#define RENDEZVOUS_SERVER_LISTEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

/* Return how many connections a listening socket has dropped because its queue was full. Return 0 if Linux is older
 * than 4.12. A client that retries may be counted more than once. */
uint64_t listen_queue_drops(int fd);

/* Return the limit of the queue of a listening socket: the backlog, but at most net.core.somaxconn. 0 = unknown. */
uint64_t listen_queue_limit(int fd);

/* --- listener --------------------------------------------------------------------------------------------- */

/* A listening TCP socket. */

struct listener {
    int fd;            /* non-blocking, close-on-exec; the caller closes it */
    int port;          /* the actual port, if port 0 was requested */
    char address[288]; /* "HOST:PORT" as bound */
};

/* Bind and listen. `host` is an address or a name; NULL or "" = all addresses. Of the addresses of a name, the first
 * one that belongs to this host is used. The C library resolves a name with its own timeouts. `port` 0 = any free
 * port. Return DDP_OK, or DDP_ERR_IO with the reason and a remedy in `err`. */
ddp_status listener_open(const char *host, int port, struct listener *out, struct ddp_err *err);

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* Accepts clients on a listening socket, and pauses while descriptors have run out. */

struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;
    int fd;
    unsigned open, max; /* accepted clients that are not put back, and their limit */
    uint64_t resume_ms; /* end of the pause, in ms of the loop's clock; UINT64_MAX = no pause */
    bool short_of_fds;  /* descriptors have run out, and no client was accepted since */
    void *user;
    /* Called for each accepted client. The callee owns `fd`. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Called when descriptors have run out. Closes up to `waiting` clients that have sent no request. `waiting` is
     * the length of the kernel's queue and may be 0. */
    void (*make_room)(struct acceptor *a, unsigned waiting);
    /* Called once for each shortage of descriptors, while `waiting` > 0 clients are in the kernel's queue. */
    void (*on_short)(struct acceptor *a, unsigned waiting, const char *why);
};

/* Start to accept on `fd`, which must listen and be non-blocking; acceptor_close closes `fd`. The caller sets the
 * callbacks and `user` before. Also raise the soft limit of descriptors to the hard limit. Return 0, or a libuv
 * error; after an error the caller still owns `fd`. */
int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd);

/* Report that a client passed to on_client was closed. This ends a pause. */
void acceptor_client_closed(struct acceptor *a);

void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop accepting and close the socket. After `closed` is called, the caller may free the acceptor. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The holder of a TCP port of this host, for the error message "port in use". */
struct port_holder {
    unsigned long inode; /* inode of the socket; 0 = no holder found */
    unsigned uid;        /* owner of the socket */
    int pid;             /* 0 = unknown, for example because the process belongs to another user */
    char name[64];       /* name of the program; "" if pid is 0 */
    bool leftover;       /* only old connections hold the port, and no process has them any more */
    char user[32];       /* name of `uid`; "" = unknown */
    long age_s;          /* age of the process; 0 = unknown */
    char job[64];        /* job of the worker; "" = no worker, or unknown */
    bool by_torchrun;    /* `job` is a job of torchrun; false = of ddprun */
    char rank[12];       /* rank of the worker in `job`; "" = unknown */
    char command[80];    /* command line, printable and cut; "" = unknown */
};

/* Format the holder, for example as "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)" or as "a
 * process that is hidden from you". Return `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* Find the holder of `port` on this host. Return true if the socket was found; `pid` may still be 0. Return false if
 * no process holds the port; then see `leftover`. */
bool port_holder_find(int port, struct port_holder *out);

/* Find the process that has the socket with this inode open. Return false if no such process is visible. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
