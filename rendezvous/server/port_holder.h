/* port_holder.h -- who has a TCP port of this machine, for the message "port in use". */
#ifndef RENDEZVOUS_PORT_HOLDER_H
#define RENDEZVOUS_PORT_HOLDER_H

#include "server/port_table.h"

/* Ask the machine. False when nobody is known to own the port (but see `leftover`); pid may still be 0 when true. */
bool port_holder_find(int port, struct port_holder *out);

/* The process that holds the socket of this inode open, and what is known of it. False when it is not to be seen. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
