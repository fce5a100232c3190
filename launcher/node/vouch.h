/* vouch.h -- which of our workers is at the other end of a connection?
 *
 * The store asks (`who`) about connections of plain c10d clients, which cannot introduce themselves. The kernel knows:
 *
 *     10.0.0.2:41234 -> 10.0.0.1:29500  --sock_diag-->  inode 88213  --/proc/PID/fd-->  pid 77, of worker 3's tree
 *
 * Both steps take microseconds to a millisecond and wait for nothing. */
#ifndef LAUNCHER_VOUCH_H
#define LAUNCHER_VOUCH_H

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

/* What is known of the sockets of our workers. Zeroed before first use; vouch_free frees it. */
struct vouch {
    struct socket_owners owners;
    struct buf sockets; /* struct vouch_socket, by inode */
};

/* The process that holds the connection from `ours` to `theirs` ("10.0.0.2:41234", "10.0.0.1:29500") open, among those
 * of `workers`. False: none of them does (any more), or the kernel does not tell. */
bool vouch_find(struct vouch *v, const struct vouch_process *workers, size_t n, const char *ours,
                const char *theirs, struct vouch_process *found);
void vouch_free(struct vouch *v);

/* Find the owner of that socket on this host. False: no process holds it. */
bool vouch_owner(struct vouch *v, const char *ours, const char *theirs, struct socket_owner *owner);

#endif
