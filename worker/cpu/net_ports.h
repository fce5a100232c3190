/* net_ports.h -- "20000-20100", the ports that the ranks of a job may listen on. Pure. */
#ifndef WORKER_NET_PORTS_H
#define WORKER_NET_PORTS_H

#include "ddp/error.h"

struct net_ports {
    int low, high; /* 0, 0: the kernel chooses */
};

/* "" = the kernel chooses, "20000" = one port. DDP_ERR_ENV says what was expected. */
ddp_status net_ports_parse(const char *text, struct net_ports *out, struct ddp_err *err);

/* The `turn`-th port that local rank `rank` tries, 0 = the kernel's choice, or -1 when it has tried all. Ranks begin
 * apart, so that they do not all try the same. */
int net_ports_try(const struct net_ports *ports, int rank, int turn);

#endif
