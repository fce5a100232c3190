/* hosts_net.h -- the addresses of hosts and the cables between them; for hosts.c. */
#ifndef TESTS_LIB_HOSTS_NET_H
#define TESTS_LIB_HOSTS_NET_H

#include "hosts.h"

/* The address of host `h`, by its index. */
void hosts_net_address(enum hosts_kind kind, struct host *h);

/* Cables from all hosts to the bridge, whose network namespace is there already; addresses, routes and names. */
bool hosts_net_join(const struct hosts *net);

#endif
