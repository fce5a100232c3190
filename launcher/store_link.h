/* store_link.h -- the agent's connection to the store: an ordinary TCP client, whoever hosts the
 * store.
 *
 * connect -> IDENTIFY as agent -> CONTROL job -> ready; then worker_started and worker_exited as
 * they happen, and a heartbeat each second. Nothing here waits; what is asked for before the
 * connection stands goes out when it does. */
#ifndef LAUNCHER_STORE_LINK_H
#define LAUNCHER_STORE_LINK_H

#include "ddp/error.h"

#include <stdbool.h>
#include <uv.h>

struct cJSON;
struct store_link;

struct store_link_options {
    uv_loop_t *loop;
    const char *address; /* a literal: the store's own address */
    int port;
    const char *job; /* borrowed, like `host`, until the link is closed */
    const char *host;
    int world_size;
    void (*ready)(void *user); /* the store knows the job */
    void (*status)(void *user,
                   const struct cJSON *answer); /* the answer to store_link_ask_status, borrowed */
    void (*lost)(void *user, const char *why);  /* the connection is gone or senseless; called at most once */
    void *user;
};

/* Begin to connect. DDP_OK: *out is yours, end it with store_link_close. */
ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err);

void store_link_started(struct store_link *link, int rank, int local_rank, int pid);

/* `signal` not 0: it was killed by it, else it ended with `exit_code`. */
void store_link_exited(struct store_link *link, int rank, int pid, int exit_code, int signal);

/* Ask what the store knows of each worker. False when it cannot be asked: it is not there yet, or lost. */
bool store_link_ask_status(struct store_link *link);

/* Close at once; the memory goes with the last close callback of the loop. No callback of yours
 * comes any more. NULL is allowed. */
void store_link_close(struct store_link *link);

#endif
