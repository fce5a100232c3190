/* listen_queue.h -- has the kernel dropped connections that waited to be accepted? It tells nobody but its counters. */
#ifndef RENDEZVOUS_LISTEN_QUEUE_H
#define RENDEZVOUS_LISTEN_QUEUE_H

#include <stdint.h>

/* Overflows of queues of this network namespace since it began, and the limit of a queue; 0 when they cannot be read. */
uint64_t listen_queue_overflows(void);
uint64_t listen_queue_limit(void);

/* The number under `name` in a text like /proc/net/netstat, 0 when it is not there. */
uint64_t listen_queue_find(const char *netstat, const char *name);

#endif
