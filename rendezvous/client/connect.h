/* connect.h -- from a host name to a connection on which requests can be made.
 *
 * How long a client waits between two tries to reach a store. Pure. */
#ifndef RENDEZVOUS_CLIENT_CONNECT_H
#define RENDEZVOUS_CLIENT_CONNECT_H

#include "ddp/error.h"

#include <netdb.h>
#include <stdint.h>

/* Before try number `round` (from 0): growing, and spread by `luck` (any number) so that a thousand workers that
 * were refused together do not come back together. */
uint32_t client_pause_ms(unsigned round, uint32_t luck);

/* --- client dial ------------------------------------------------------------------------------------------ */

/* From a host name to a connected socket, within a deadline. One try; who calls tries
 * again. */

#endif
