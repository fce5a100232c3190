/* listen.h -- the listening socket of a store: open it, take clients from it, see what the kernel has dropped, and who has the port
 * when it cannot be opened.
 *
 * Whether the kernel has dropped connections that waited to be accepted it tells nobody but its counters. They are the socket's own, so other programs' troubles are not taken for ours, and asking costs one system call,
 * not the printing of /proc/net/netstat. */
#ifndef RENDEZVOUS_SERVER_LISTEN_H
#define RENDEZVOUS_SERVER_LISTEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

/* Connections that a listening socket has dropped because its queue was full; 0 when the kernel does not tell
 * (before Linux 4.12). A client that tries again and is dropped again counts twice. */
uint64_t listen_queue_drops(int fd);

/* How long the queue may be: what listen(2) asked for, cut to the machine's net.core.somaxconn. 0 = not told. */
uint64_t listen_queue_limit(int fd);

/* --- listener --------------------------------------------------------------------------------------------- */

/* A listening TCP socket, and good words when there can be none. */

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

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* Takes clients from a listening socket, and knows what to do when there are no descriptors
 * left. */

struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;
    int fd;
    unsigned open, max; /* clients taken and not given back; at most so many */
    uint64_t
        resume_ms; /* while paused: when to call acceptor_tick, in ms of the loop's clock; UINT64_MAX otherwise */
    bool short_of_fds; /* since the last client that could be taken */
    void *user;
    /* `fd` is the callee's now. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Descriptors have run out while `waiting` clients (or none yet) are in the kernel's queue: close up to so many that
     * are not needed. */
    void (*make_room)(struct acceptor *a, unsigned waiting);
    /* Clients must wait: `waiting` of them are in the kernel's queue. Once for each time we run out. */
    void (*on_short)(struct acceptor *a, unsigned waiting, const char *why);
};

/* Start on `fd` (listening, non-blocking; closed by acceptor_close). The callbacks and `user` are set before.
 * Also raises the soft limit of descriptors to the hard one. 0, or a libuv error (`fd` is still the caller's
 * then). */
int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd);

/* A client that on_client brought has been closed. Accepts again at once if descriptors had run out. */
void acceptor_put_back(struct acceptor *a);

void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop, and close the socket. `closed` comes when the memory may go. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The process that has a TCP port of this machine, from the kernel's tables, for the message "port in use". */
struct port_holder {
    unsigned long inode; /* of the socket; 0 = nobody was found */
    unsigned uid;        /* whose socket it is */
    int pid;             /* 0 = not visible to us (another user's, another namespace's) */
    char name[64];       /* of the program; "" when pid is 0 */
    bool leftover;       /* only old connections were found, which no process owns any more */
    char user[32];       /* name of `uid`; "" = not known */
    long age_s;          /* of the process; 0 = not known */
    char job[64];        /* the job that it is a worker of; "" = of none, or not to be seen */
    bool by_torchrun;    /* a job of torchrun's, else of ddprun's */
    char rank[12];       /* in that job; "" = not known */
    char command[80];    /* its command line, printable, cut; "" = not known */
};

/* Look `port` up in `table`, the text of /proc/net/tcp or tcp6. A listening socket wins over others. Fills
 * inode and uid; false when nobody owns the port (but see `leftover`). Lines that make no sense are skipped. */
bool port_table_find(const char *table, int port, struct port_holder *out);

/* "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)", "a process of user id 1001 ...", "a process that
 * cannot be seen from here"; returns `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* Ask the machine. False when nobody is known to own the port (but see `leftover`); pid may still be 0 when true. */
bool port_holder_find(int port, struct port_holder *out);

/* The process that holds the socket of this inode open, and what is known of it. False when it is not to be seen. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
