/* listen_queue.h -- has the kernel dropped connections that waited to be accepted? It tells nobody but its counters.
 *
 * The counters are the socket's own, so other programs' troubles are not taken for ours, and asking costs one system call,
 * not the printing of /proc/net/netstat. */
#ifndef RENDEZVOUS_LISTEN_QUEUE_H
#define RENDEZVOUS_LISTEN_QUEUE_H

#include <stdint.h>

/* Connections that a listening socket has dropped because its queue was full; 0 when the kernel does not tell
 * (before Linux 4.12). A client that tries again and is dropped again counts twice. */
uint64_t listen_queue_drops(int fd);

/* How long the queue may be: what listen(2) asked for, cut to the machine's net.core.somaxconn. 0 = not told. */
uint64_t listen_queue_limit(int fd);

#endif
