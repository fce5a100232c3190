/* own_addresses.h -- the addresses of this machine. */
#ifndef LAUNCHER_OWN_ADDRESSES_H
#define LAUNCHER_OWN_ADDRESSES_H

#include "plan/hosting.h"

enum { OWN_ADDRESSES_MAX = 64 };

/* Is --local_addr one of them, as a number? DDP_ERR_ARG: a sentence that lists those that would be. */
ddp_status own_address_check(const char *address, struct ddp_err *err);

/* Of interfaces that are up; how many were found. */
int own_addresses(struct own_address own[OWN_ADDRESSES_MAX]);

#endif
