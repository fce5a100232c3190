/* peer_lookup.h -- which of our workers is at the other end of a connection?
 *
 * The store asks (`who`) about connections of plain c10d clients, which cannot introduce themselves. The kernel knows:
 *
 *     10.0.0.2:41234 -> 10.0.0.1:29500  --sock_diag-->  inode 88213  --/proc/PID/fd-->  pid 77, of worker 3's tree
 *
 * The first step takes microseconds. The second one walks through /proc, at most every 100 ms. */
#ifndef LAUNCHER_NET_PEER_LOOKUP_H
#define LAUNCHER_NET_PEER_LOOKUP_H

#include "base/buf.h"
#include "server/socket_owner.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A worker and all that descends from it; also the answer: a process of that worker. */
struct vouch_process {
    pid_t pid;
    int rank;
};

/* A question that waits for the next walk. */
struct vouch_question {
    int64_t conn; /* the store's number */
    uint64_t inode;
    bool any; /* the store wants to know also which other process holds it */
};

/* The known sockets of our workers. Zeroed before first use; vouch_free frees it. */
struct vouch {
    struct socket_owners owners;
    struct buf sockets;   /* struct vouch_socket, by inode */
    struct buf questions; /* struct vouch_question */
    uint64_t next_walk_ms;
    unsigned walks; /* so far */
};

enum vouch_answer {
    VOUCH_FOUND,   /* a worker, or a child of one, holds it */
    VOUCH_CLOSED,  /* no process of this host holds it */
    VOUCH_FOREIGN, /* another user's process does */
    VOUCH_UNKNOWN  /* a process of this user does: walk to find out which */
};

/* Find the process that holds the connection from `ours` to `theirs` ("10.0.0.2:41234", "10.0.0.1:29500") in the
 * results of the last walk. `owner` is filled unless VOUCH_CLOSED. */
enum vouch_answer vouch_find(struct vouch *v, const char *ours, const char *theirs,
                             struct vouch_process *found, struct socket_owner *owner);

/* Keep a question until the next walk. Returns when to walk, `now_ms` = at once; UINT64_MAX: too many questions wait, or
 * memory is short, and this one is dropped. */
uint64_t vouch_put_off(struct vouch *v, const struct vouch_question *question, uint64_t now_ms);

/* Look for the sockets of `workers` and their descendants. Then take the questions with vouch_next, until false. */
void vouch_walk(struct vouch *v, const struct vouch_process *workers, size_t n, uint64_t now_ms);
bool vouch_next(struct vouch *v, struct vouch_question *question, bool *is_found,
                struct vouch_process *found);

/* Did the last walk find this socket? */
bool vouch_knows(const struct vouch *v, uint64_t inode);

void vouch_free(struct vouch *v);

/* Find the owner of that socket on this host. False: no process holds it. */
bool vouch_owner(struct vouch *v, const char *ours, const char *theirs, struct socket_owner *owner);

#endif
