/* port_holder.h -- who has a TCP port of this machine, for the message "port in use". */
#ifndef RENDEZVOUS_PORT_HOLDER_H
#define RENDEZVOUS_PORT_HOLDER_H

#include "server/port_table.h"

/* Ask the machine. False when nobody is known to own the port (but see `leftover`); pid may still be 0 when true. */
bool port_holder_find(int port, struct port_holder *out);

#endif
