/* peer_lookup.h -- finds the worker that owns a connection. The store asks the agent for this worker with the message
 * `who`, because PyTorch's client does not send its rank. The agent asks the kernel. */
#ifndef LAUNCHER_NET_PEER_LOOKUP_H
#define LAUNCHER_NET_PEER_LOOKUP_H

#include "base/buf.h"
#include "server/socket_owner.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An argument of this type describes a worker. A result of this type describes the process that owns a socket. `rank`
 * is the rank of the worker, or of the worker from which the process descends. */
struct peer_process {
    pid_t pid;
    int rank;
};

/* A question from the store that waits for the next walk through /proc. */
struct peer_question {
    int64_t conn; /* the number by which the store identifies the connection */
    uint64_t inode;
    bool any; /* answer even if the owner of the connection is not a worker */
};

/* The known sockets of this agent's workers. The agent finds the worker of a connection in two steps:
 *
 *     10.0.0.2:41234 -> 10.0.0.1:29500  --sock_diag-->  inode 88213  --/proc/PID/fd-->  pid 77, a child of worker 3
 *
 * The first step takes microseconds. The second step reads /proc/PID/fd of all workers and their descendants. Such a
 * walk takes milliseconds, so at most one walk runs every 100 ms.
 *
 * Zero the struct before its first use, and free it with peer_lookup_free. */
struct peer_lookup {
    /* The address of this host on the connection to the store. If a router translates addresses, the store
     * receives another address. The owner of this struct sets `own`. "" means that the address is unknown. */
    char own[64];
    struct socket_owners owners;
    struct buf sockets;    /* array of struct owned_socket, sorted by inode */
    struct buf questions;  /* array of struct peer_question */
    uint64_t next_walk_ms; /* earliest time of the next walk through /proc */
    unsigned walks;        /* number of walks through /proc so far */
};

enum peer_answer {
    PEER_FOUND,   /* a worker, or its descendant, holds the socket */
    PEER_CLOSED,  /* no process of this host holds the socket */
    PEER_FOREIGN, /* a process of another user holds the socket */
    PEER_UNKNOWN  /* a process of this user holds the socket; the next search of /proc may find the process */
};

/* Search the results of the latest walk for the process that holds a connection. `ours` is the process's end of the
 * connection, and `theirs` is the store's end. Both are texts such as "10.0.0.2:41234". Set *found for PEER_FOUND. Set
 * *owner for every result except PEER_CLOSED. */
enum peer_answer peer_lookup_find(struct peer_lookup *v, const char *ours, const char *theirs,
                                  struct peer_process *found, struct socket_owner *owner);

/* Keep a question until the next walk through /proc. Return the time of this walk, which may be `now_ms`. Return
 * UINT64_MAX if the question was dropped, because too many questions wait or memory is short. */
uint64_t peer_lookup_put_off(struct peer_lookup *v, const struct peer_question *question, uint64_t now_ms);

/* Find the sockets of `workers` and their descendants. The caller then reads the answers with peer_lookup_next until
 * peer_lookup_next returns false. */
void peer_lookup_walk(struct peer_lookup *v, const struct peer_process *workers, size_t n, uint64_t now_ms);

/* Remove one question, and search the results of the latest walk for its socket. If a worker or its descendant holds
 * the socket, set *is_found to true and *found to this process. Return false if no question is left. */
bool peer_lookup_next(struct peer_lookup *v, struct peer_question *question, bool *is_found,
                      struct peer_process *found);

/* Return true if the latest walk found this socket. */
bool peer_lookup_knows(const struct peer_lookup *v, uint64_t inode);

void peer_lookup_free(struct peer_lookup *v);

#endif
