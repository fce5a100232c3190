/* port_holder.h -- who listens on a TCP port of this machine, for the message "port in use". */
#ifndef RENDEZVOUS_PORT_HOLDER_H
#define RENDEZVOUS_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

struct port_holder {
    unsigned long inode; /* of the socket; 0 = nobody was found */
    unsigned uid;        /* whose socket it is */
    int pid;             /* 0 = not visible to us (another user's, another namespace's) */
    char name[64];       /* of the program; "" when pid is 0 */
    bool leftover;       /* only old connections were found, which no process owns any more */
};

/* Look `port` up in `table`, the text of /proc/net/tcp or tcp6. A listening socket wins over others. Fills
 * inode and uid; false when the port is not in there. Lines that make no sense are skipped. Pure. */
bool port_holder_parse(const char *table, int port, struct port_holder *out);

/* Ask the machine. False when nothing is known of the port; pid may still be 0 when true. */
bool port_holder_find(int port, struct port_holder *out);

/* "redis-server (pid 812)", "a process of user id 1001 ...", "a process that cannot be seen from here";
 * returns `text`. Pure. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

#endif
