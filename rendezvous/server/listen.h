/* listen.h -- the listening socket of a store: opens the socket, accepts clients, counts connections that the kernel
 * has dropped, and finds the process that uses a port. The error of listener_open names this process, so the search
 * belongs to this file. The caller owns the listening socket until acceptor_open succeeds; then acceptor_close closes
 * it. */
#ifndef RENDEZVOUS_SERVER_LISTEN_H
#define RENDEZVOUS_SERVER_LISTEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

/* Return how many connections the kernel has dropped because the queue of the listening socket `fd` was full. Return 0
 * if Linux is older than 4.12. A client that retries may be counted more than once. */
uint64_t listen_queue_drops(int fd);

/* Return how many connections the accept queue of the listening socket `fd` can hold; 0 = unknown. */
uint64_t listen_queue_limit(int fd);

/* --- listener --------------------------------------------------------------------------------------------- */

/* A listening TCP socket. */
struct listener {
    int fd;            /* non-blocking, close-on-exec; the caller of listener_open closes it */
    int port;          /* never 0; if port 0 was requested, this is the port that the kernel has chosen */
    char address[288]; /* "HOST:PORT" of the socket, with an IP address as HOST */
};

/* Open a listening socket on `host` and `port`. `host` is an address or a name; NULL or "" means all addresses. If
 * `host` is a name, the search for its addresses may block for many seconds. If a name has several addresses, use the
 * first one that belongs to this host. If `port` is 0, the kernel chooses a free port. `option` is the command-line
 * option for the port, or NULL. Error messages name this option in their remedy. Return DDP_OK. If the socket cannot be
 * opened, write the reason and a remedy to `err`, and return DDP_ERR_IO. */
ddp_status listener_open(const char *host, int port, const char *option, struct listener *out,
                         struct ddp_err *err);

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* Accepts clients on a listening socket, and pauses while descriptors have run out. All callbacks run on the thread
 * of the loop. */
struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;    /* borrowed */
    int fd;             /* the listening socket, owned after acceptor_open */
    unsigned open, max; /* open: number of accepted clients that are not closed yet; max: its limit */
    uint64_t resume_ms; /* end of the pause, in ms of the loop's clock; UINT64_MAX = no pause */
    bool short_of_fds;  /* on_short was called, and no client has been accepted since */
    void *user;
    /* Called for each accepted client. The callee owns `fd`. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Called when descriptors have run out. `waiting`, which may be 0, is the number of clients in the kernel's queue.
     * To make room for these clients, the callback closes up to `waiting` accepted clients, for example clients that
     * have sent no request. */
    void (*make_room)(struct acceptor *a, unsigned waiting);
    /* Called when descriptors have run out and `waiting` > 0 clients are in the kernel's queue. It is not called again
     * before a client is accepted. */
    void (*on_short)(struct acceptor *a, unsigned waiting, const char *why);
};

/* Start to accept clients on `fd`, which must be a listening and non-blocking socket. The caller must have set the
 * callbacks and `user`. Also raise the soft limit of descriptors to the hard limit. Return 0 if this succeeds;
 * acceptor_close then closes `fd`. Otherwise return a libuv error; the caller then still owns `fd`. */
int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd);

/* Record that a client from on_client is closed. If accepting is paused, resume it. */
void acceptor_client_closed(struct acceptor *a);

/* End a pause if `now_ms` has reached resume_ms. */
void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop accepting and close the socket. After `closed` is called, the caller may free the acceptor. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The process that uses a TCP port of this host. */
struct port_holder {
    unsigned long inode; /* inode of the socket; 0 = no socket found */
    unsigned uid;        /* user that owns the socket, if `inode` is not 0 */
    int pid;             /* 0 = unknown, for example because the process belongs to another user */
    char name[64];       /* name of the program; "" = unknown */
    bool leftover;    /* only closed connections (state TIME_WAIT) use the port; no process has them open */
    char user[32];    /* name of `uid`; "" = unknown */
    long age_s;       /* age of the process in seconds; 0 = unknown */
    char job[64];     /* job of the worker; "" = not a worker, or unknown */
    bool by_torchrun; /* true: `job` is a job of torchrun; false: `job` is a job of ddprun */
    char rank[12];    /* rank of the worker in `job`; "" = unknown */
    char command[80]; /* command line, truncated, with '?' for unprintable bytes; "" = unknown */
};

/* Format the process, for example as "redis-server (pid 812, user redis, running for 3 h: redis-server *:6379)" or as
 * "a process that is hidden from you". Return `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* Find the process that uses `port` on this host. Return true if a listening or connected socket with this port was
 * found; its process may be unknown (`pid` is 0). Otherwise return false, and set `leftover` if closed connections
 * still use the port. */
bool port_holder_find(int port, struct port_holder *out);

/* Find the process that has the socket with this inode open. Return false if no process of /proc shows this socket. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
