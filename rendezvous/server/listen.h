/* listen.h -- the listening socket of a store: open it, accept clients from it, count the connections that
 * the kernel has dropped, and find the process that holds its port.
 *
 * The kernel reports dropped connections in its counters only. The counter of the socket excludes the
 * troubles of other programs. It costs one system call, while /proc/net/netstat would have to be printed as a
 * whole. */
#ifndef RENDEZVOUS_SERVER_LISTEN_H
#define RENDEZVOUS_SERVER_LISTEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

/* Return how many connections a listening socket has dropped because its queue was full; 0 where the kernel
 * does not report it (before Linux 4.12). A client that retries and is dropped again counts twice. */
uint64_t listen_queue_drops(int fd);

/* Return the longest possible queue: what listen(2) requested, cut to the host's net.core.somaxconn. 0 =
 * unknown. */
uint64_t listen_queue_limit(int fd);

/* --- listener --------------------------------------------------------------------------------------------- */

/* A listening TCP socket. If it cannot be opened, the error names the reason and the remedy. */

struct listener {
    int fd;            /* non-blocking, close-on-exec; the caller closes it */
    int port;          /* the real one */
    char address[288]; /* "HOST:PORT" as bound */
};

/* Bind and listen. `host`: NULL or "" = every address, IPv6 and IPv4 on one socket if the host has IPv6.
 * Otherwise a literal or a name. The C library resolves a name with its own timeouts; the first address that this
 * host has is used. `port` 0 = any free one. DDP_ERR_IO: err gives the reason, and the holder of a port in use. */
ddp_status listener_open(const char *host, int port, struct listener *out, struct ddp_err *err);

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* Accepts clients from a listening socket, and handles a shortage of descriptors. */

struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;
    int fd;
    unsigned open, max; /* clients accepted and not given back; the most allowed */
    uint64_t
        resume_ms; /* while paused: when to call acceptor_tick, in ms of the loop's clock; UINT64_MAX otherwise */
    bool short_of_fds; /* since the last client that could be taken */
    void *user;
    /* The callee owns `fd`. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Descriptors have run out while `waiting` clients (or none yet) are in the kernel's queue. The callback
     * closes up to that many clients that have sent no request. */
    void (*make_room)(struct acceptor *a, unsigned waiting);
    /* `waiting` clients must wait in the kernel's queue. Called once per shortage. */
    void (*on_short)(struct acceptor *a, unsigned waiting, const char *why);
};

/* Start on `fd` (listening, non-blocking; acceptor_close closes it). The caller sets the callbacks and `user`
 * first. Also raises the soft limit of descriptors to the hard one. Return 0, or a libuv error; then the
 * caller still owns `fd`. */
int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd);

/* Report that a client from on_client has been closed. Accepts again at once if descriptors had run out. */
void acceptor_put_back(struct acceptor *a);

void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop, and close the socket. `closed` is called when the memory may be freed. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The process that holds a TCP port of this host, from the kernel's tables, for the message "port in use". */
struct port_holder {
    unsigned long inode; /* of the socket; 0 = no owner was found */
    unsigned uid;        /* owner of the socket */
    int pid;             /* 0 = not visible (a process of another user or namespace) */
    char name[64];       /* of the program; "" when pid is 0 */
    bool leftover;       /* only old connections were found, which no process owns any more */
    char user[32];       /* name of `uid`; "" = not known */
    long age_s;          /* of the process; 0 = unknown */
    char job[64];        /* the job that the process is a worker of; "" = none, or not visible */
    bool by_torchrun;    /* torchrun's job, else ddprun's */
    char rank[12];       /* in that job; "" = not known */
    char command[80];    /* its command line, printable, cut; "" = not known */
};

/* Find `port` in `table`, the text of /proc/net/tcp or tcp6. A listening socket wins over others. Fills inode
 * and uid; false if no process owns the port (but see `leftover`). Malformed lines are skipped. */
bool port_table_find(const char *table, int port, struct port_holder *out);

/* Format "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)", "a process of user id 1001 ...",
 * "a process that cannot be seen from here". Return `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* Find the holder of `port` on this host. False if no owner is known (but see `leftover`). `pid` may be 0
 * when true. */
bool port_holder_find(int port, struct port_holder *out);

/* Find the process that has the socket of this inode open, and fill in its details. False if it is not
 * visible. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
