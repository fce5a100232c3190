/* peer_lookup.h -- finds the worker that owns a connection.
 *
 * The store sends `who` to ask which worker owns the connection of a plain c10d client. The kernel knows the owner:
 *
 *     10.0.0.2:41234 -> 10.0.0.1:29500  --sock_diag-->  inode 88213  --/proc/PID/fd-->  pid 77, of worker 3's tree
 *
 * The first step takes microseconds. The second step walks through /proc, at most every 100 ms. */
#ifndef LAUNCHER_NET_PEER_LOOKUP_H
#define LAUNCHER_NET_PEER_LOOKUP_H

#include "base/buf.h"
#include "server/socket_owner.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A worker, whose descendants are searched too. As an answer: the process that owns the socket. */
struct vouch_process {
    pid_t pid;
    int rank;
};

/* A question that waits for the next walk. */
struct vouch_question {
    int64_t conn; /* the store's number of the connection */
    uint64_t inode;
    bool any; /* the store also asks for owners that are no workers */
};

/* The known sockets of this agent's workers. Zero the struct before its first use, and free it with vouch_free. */
struct vouch {
    char own[64]; /* address of this host, if a router translates addresses; set by the owner, "" = none */
    struct socket_owners owners;
    struct buf sockets;   /* array of struct vouch_socket, sorted by inode */
    struct buf questions; /* struct vouch_question */
    uint64_t next_walk_ms;
    unsigned walks; /* number of walks so far */
};

enum vouch_answer {
    VOUCH_FOUND,   /* a worker, or its descendant, holds the socket */
    VOUCH_CLOSED,  /* no process of this host holds the socket */
    VOUCH_FOREIGN, /* a process of another user holds the socket */
    VOUCH_UNKNOWN  /* unknown yet: a process of this user; the next scan of /proc finds it */
};

/* Find the process that holds the connection from `ours` to `theirs` ("10.0.0.2:41234", "10.0.0.1:29500") in the
 * results of the last walk. `owner` is filled in unless the result is VOUCH_CLOSED. */
enum vouch_answer vouch_find(struct vouch *v, const char *ours, const char *theirs,
                             struct vouch_process *found, struct socket_owner *owner);

/* Keep a question until the next walk. Return when to walk; `now_ms` = at once. Return UINT64_MAX if the question
 * was dropped, because too many questions wait or memory is short. */
uint64_t vouch_put_off(struct vouch *v, const struct vouch_question *question, uint64_t now_ms);

/* Find the sockets of `workers` and their descendants. The caller then reads the answers with vouch_next until
 * vouch_next returns false. */
void vouch_walk(struct vouch *v, const struct vouch_process *workers, size_t n, uint64_t now_ms);
bool vouch_next(struct vouch *v, struct vouch_question *question, bool *is_found,
                struct vouch_process *found);

/* Return true if the last walk found this socket. */
bool vouch_knows(const struct vouch *v, uint64_t inode);

void vouch_free(struct vouch *v);

#endif
