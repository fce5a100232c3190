/* free_port.h -- a port that a test can promise to several programs before the first of them listens on it. */
#ifndef TESTS_LIB_FREE_PORT_H
#define TESTS_LIB_FREE_PORT_H

/* On 127.0.0.1. Nobody listens there, the kernel hands it to nobody who asks for any, and no other test that runs at the
 * same time is given it. */
int free_port(void);

/* "OPTION" and a free port behind it; valid until the next call. */
const char *free_port_option(const char *option);

#endif
