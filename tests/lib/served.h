/* served.h -- a store server inside the test, on a free port of 127.0.0.1. Criterion gives every test a process of
 * its own, so there is one. Its stop asserts that the loop is empty. */
#ifndef TESTS_LIB_SERVED_H
#define TESTS_LIB_SERVED_H

#include "server/server.h"

/* For `.init =` and `.fini =` of a test. */
void serve(void);
void serve_end(void);

/* The port of the running server; and start one with other options. */
int served_port(void);
void serve_with(const struct store_server_options *options);

#endif
