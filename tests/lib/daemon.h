/* daemon.h -- a ddp-rendezvous process for a test. */
#ifndef TESTS_LIB_DAEMON_H
#define TESTS_LIB_DAEMON_H

#include "run.h"

struct daemon {
    struct run_process *process;
    int port;
};

/* Start it on `listen`, with one more option unless NULL, and wait for its ready line; fails the test otherwise. */
struct daemon daemon_start(const char *listen, const char *option);

/* The same on 127.0.0.1:0 for every user of this host, with that --max-bytes. */
struct daemon daemon_start_insecure(const char *max_bytes);

/* The same on 127.0.0.1:0, with no more than `max_fds` descriptors. */
struct daemon daemon_start_limited(int max_fds);

/* SIGTERM; fails the test unless it ends with 0. */
void daemon_stop(struct daemon *d);

#endif
