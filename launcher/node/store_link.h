/* store_link.h -- the agent's connection to the store: an ordinary TCP client, whoever hosts the
 * store.
 *
 * connect -> IDENTIFY as agent -> CONTROL job -> ready; then worker_started and worker_exited as
 * they happen, and a heartbeat each second. Nothing here waits; what is asked for before the
 * connection stands goes out when it does. What the store does not take is kept for it up to a limit of a few MiB. */
#ifndef LAUNCHER_STORE_LINK_H
#define LAUNCHER_STORE_LINK_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stdint.h>
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
    /* The store knows the job, or its next attempt: it holds no keys of an older one. */
    void (*ready)(void *user);
    /* The answer to store_link_ask_status, borrowed. */
    void (*status)(void *user, const struct cJSON *answer);
    /* The connection is gone or senseless, or the store does not read; called at most once, out of the loop. */
    void (*lost)(void *user, const char *why);
    /* The answer to store_link_ask_progress; -1 = no worker told a step. */
    void (*progress)(void *user, int64_t step);
    /* Worker `rank` has ended with 0, and `barrier` will not open for the ranks `waiting` ("1-3,7"). */
    void (*left_waiting)(void *user, int rank, const char *barrier, const char *waiting);
    void *user;
};

/* Begin to connect. DDP_OK: *out is yours, end it with store_link_close. */
ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err);

/* Begin attempt `attempt`: the store drops all keys and barriers of the one before, and lets go of whoever still
 * belonged to that. `ready` is called when it is done. */
void store_link_attempt(struct store_link *link, int attempt);

/* How far have the workers come? They say it under PROGRESS_KEY, as ddp_progress does. */
void store_link_ask_progress(struct store_link *link);

/* Told within a few milliseconds, together with others. */
void store_link_started(struct store_link *link, int rank, int local_rank, int pid);

/* `signal` not 0: it was killed by it, else it ended with `exit_code`. A failure is told at once, in the order of the calls;
 * an end with 0 within a few milliseconds. */
void store_link_exited(struct store_link *link, int rank, int pid, int exit_code, int signal);

/* Ask what the store knows of each worker. False when it cannot be asked: it is not there yet, or lost. */
bool store_link_ask_status(struct store_link *link);

/* Close at once; the memory goes with the last close callback of the loop. No callback of yours
 * comes any more. NULL is allowed. */
void store_link_close(struct store_link *link);

#endif
