/* listen.h -- the listening socket of a store: open it, accept clients, count the connections that the kernel has
 * dropped, and find the process that holds its port.
 *
 * The kernel reports dropped connections only in counters. The counter of the socket does not include connections of
 * other programs, and reading it is one system call. For /proc/net/netstat, the kernel would print the whole file. */
#ifndef RENDEZVOUS_SERVER_LISTEN_H
#define RENDEZVOUS_SERVER_LISTEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

/* Return how many connections a listening socket has dropped because its queue was full. Return 0 if the kernel does
 * not report the number (before Linux 4.12). A client that retries and is dropped again is counted twice. */
uint64_t listen_queue_drops(int fd);

/* Return the largest possible length of the queue: the value passed to listen(2), but at most the host's
 * net.core.somaxconn. 0 = unknown. */
uint64_t listen_queue_limit(int fd);

/* --- listener --------------------------------------------------------------------------------------------- */

/* A listening TCP socket. If the socket cannot be opened, the error has the reason and the remedy. */

struct listener {
    int fd;            /* non-blocking, close-on-exec; the caller closes it */
    int port;          /* the real port */
    char address[288]; /* "HOST:PORT" as bound */
};

/* Bind and listen. `host` NULL or "" = every address; IPv6 and IPv4 use one socket if the host has IPv6. Otherwise
 * `host` is an address or a name. The C library resolves a name with its own timeouts. The first address that belongs
 * to this host is used. `port` 0 = any free port. Return DDP_OK, or DDP_ERR_IO with the reason in `err`, which names
 * the holder of a port in use. */
ddp_status listener_open(const char *host, int port, struct listener *out, struct ddp_err *err);

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* Accept clients from a listening socket, and handle a shortage of descriptors. */

struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;
    int fd;
    unsigned open, max; /* clients that were accepted and not put back; the limit */
    uint64_t resume_ms; /* while paused: when to call acceptor_tick, in ms of the loop's clock; otherwise
                    * UINT64_MAX */
    bool short_of_fds;  /* descriptors have run out since the last accepted client */
    void *user;
    /* Called for each client. The callee owns `fd`. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Called if descriptors have run out. `waiting` clients (possibly 0) are in the kernel's queue. The callback
     * closes up to that many clients that have sent no request. */
    void (*make_room)(struct acceptor *a, unsigned waiting);
    /* Called once for each shortage, while `waiting` clients are in the kernel's queue. */
    void (*on_short)(struct acceptor *a, unsigned waiting, const char *why);
};

/* Start on `fd` (listening, non-blocking), which acceptor_close closes. The caller first sets the callbacks and
 * `user`. Also raise the soft limit of descriptors to the hard limit. Return 0, or a libuv error; after an error the
 * caller still owns `fd`. */
int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd);

/* Report that a client from on_client was closed. If descriptors had run out, accept again at once. */
void acceptor_put_back(struct acceptor *a);

void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop, and close the socket. When `closed` is called, the caller may free the memory. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The process that holds a TCP port of this host, from the kernel's tables, for the message "port in use". */
struct port_holder {
    unsigned long inode; /* inode of the socket; 0 = no owner was found */
    unsigned uid;        /* owner of the socket */
    int pid;             /* 0 = hidden (a process of another user or namespace) */
    char name[64];       /* name of the program; "" if pid is 0 */
    bool leftover;       /* only old connections were found, which no process owns any more */
    char user[32];       /* name of `uid`; "" = not known */
    long age_s;          /* age of the process; 0 = unknown */
    char job[64];        /* the job to which the worker belongs; "" = none, or hidden */
    bool by_torchrun;    /* the job is torchrun's; otherwise ddprun's */
    char rank[12];       /* rank in that job; "" = unknown */
    char command[80];    /* command line, printable, truncated; "" = unknown */
};

/* Find `port` in `table`, the text of /proc/net/tcp or tcp6, and set inode and uid. Prefer a listening socket to any
 * other socket. Skip malformed lines. Return false if no process owns the port (but see `leftover`). */
bool port_table_find(const char *table, int port, struct port_holder *out);

/* Format the holder as "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)", "a process of user id 1001
 * ..." or "a process that is hidden from you". Return `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* Find the holder of `port` on this host. Return true if the owner of the socket is known; its `pid` may still be 0.
 * Return false if no owner is known (but see `leftover`). */
bool port_holder_find(int port, struct port_holder *out);

/* Find the process that has the socket of this inode open, and set its details. Return false if the process is
 * hidden. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
