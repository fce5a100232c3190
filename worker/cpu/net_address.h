/* net_address.h -- where this rank listens for ranks of other hosts. */
#ifndef WORKER_NET_ADDRESS_H
#define WORKER_NET_ADDRESS_H

#include "ddp/store.h"

#include <stdbool.h>

enum { NET_ADDRESS = 64 };

/* The numeric address to offer: that of DDP_IFACE=`iface` (an interface's name or one of our addresses), or when it is
 * "" the one that leads to the store. DDP_ERR_ENV lists what there is. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err);

/* Listen on `address`, on a port that DDP_PORT_RANGE=`range` allows. */
ddp_status net_listen(const char *address, const char *range, int local_rank, int *fd, int *port,
                      struct ddp_err *err);

/* A non-blocking socket that connects to address:port, from `source` unless that is "". 0, or -1 with errno. */
int net_connect(const char *address, int port, const char *source, int *fd);

bool net_is_loopback(const char *address);

#endif
