/* acceptor.h -- takes clients from a listening socket, and knows what to do when there are no descriptors
 * left. */
#ifndef RENDEZVOUS_ACCEPTOR_H
#define RENDEZVOUS_ACCEPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

struct acceptor {
    uv_poll_t poll;
    uv_loop_t *loop;
    int fd;
    unsigned open, max; /* clients taken and not given back; at most so many */
    uint64_t resume_ms; /* while paused: when to try again; UINT64_MAX otherwise */
    bool short_of_fds;  /* since the last client that could be taken */
    void *user;
    /* `fd` is the callee's now. */
    void (*on_client)(struct acceptor *a, int fd, const struct sockaddr *peer);
    /* Descriptors have run out while `waiting` clients (or none yet) are in the kernel's queue: close up to so many that
     * are not needed, and look at acceptor_deadline again. */
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

/* When to call acceptor_tick, in ms of the loop's clock; UINT64_MAX = never. */
uint64_t acceptor_deadline(const struct acceptor *a);
void acceptor_tick(struct acceptor *a, uint64_t now_ms);

/* Stop, and close the socket. `closed` comes when the memory may go. */
void acceptor_close(struct acceptor *a, uv_close_cb closed);

#endif
