/* port_holder.h -- who has a TCP port of this machine, for the message "port in use". */
#ifndef RENDEZVOUS_SERVER_PORT_HOLDER_H
#define RENDEZVOUS_SERVER_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* The kernel's tables of TCP sockets as text, and words for what is found there. Pure. */

struct port_holder {
    unsigned long inode; /* of the socket; 0 = nobody was found */
    unsigned uid;        /* whose socket it is */
    int pid;             /* 0 = not visible to us (another user's, another namespace's) */
    char name[64];       /* of the program; "" when pid is 0 */
    bool leftover;       /* only old connections were found, which no process owns any more */
    char user[32];       /* name of `uid`; "" = not known */
    long age_s;          /* of the process; 0 = not known */
    char job[64];        /* the job that it is a worker of; "" = of none, or not to be seen */
    bool by_torchrun;    /* a job of torchrun's, else of ddprun's */
    char rank[12];       /* in that job; "" = not known */
    char command[80];    /* its command line, printable, cut; "" = not known */
};

/* Look `port` up in `table`, the text of /proc/net/tcp or tcp6. A listening socket wins over others. Fills
 * inode and uid; false when nobody owns the port (but see `leftover`). Lines that make no sense are skipped. */
bool port_table_find(const char *table, int port, struct port_holder *out);

/* "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)", "a process of user id 1001 ...", "a process that
 * cannot be seen from here"; returns `text`. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size);

/* --- port holder ------------------------------------------------------------------------------------------ */

/* Ask the machine. False when nobody is known to own the port (but see `leftover`); pid may still be 0 when true. */
bool port_holder_find(int port, struct port_holder *out);

/* The process that holds the socket of this inode open, and what is known of it. False when it is not to be seen. */
bool port_holder_of_socket(unsigned long inode, struct port_holder *out);

#endif
