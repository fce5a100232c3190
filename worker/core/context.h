/* context.h -- the structs behind ddp_ctx and ddp_group, for the files that implement
 * include/ddp/{context,group,reducer}.h. */
#ifndef WORKER_CORE_CONTEXT_H
#define WORKER_CORE_CONTEXT_H

#include "core/backend.h"
#include "core/collective_check.h"
#include "core/environment.h"
#include "core/comm_thread.h"
#include "core/recorder.h"

struct ddp_group {
    struct ddp_ctx *ctx; /* the context that owns the group */
    struct comm *comm;   /* owned */
};

enum { CTX_PREFIX = 320 };

struct ddp_ctx {
    struct worker_env env;
    int device;                                /* number of the GPU, -1 = none */
    uint32_t init_timeout_ms, step_timeout_ms; /* from the options, otherwise from the environment */
    struct ddp_store *store;                   /* owned; NULL in a world of one */
    struct ddp_store *late_store; /* owned; the connection that ctx_any_store opens in a world of one */
    bool late_tried;              /* ctx_any_store has tried to connect; a second try is not made */
    uint64_t progress_set_ms;     /* when the progress key was last set; 0 = never */
    struct ddp_group world;
    struct comm_thread
        *thread; /* owned; NULL before ctx_start_thread, and with a backend that does not block */
    struct recorder recorder;
    struct collective_check check; /* used only by the thread that calls collectives */
    uint64_t
        calls; /* number of the last call; equal to the backend's count if the backend counts every call */
    char prefix[CTX_PREFIX]; /* prefix of our keys in the store: "ddp/<job>/<attempt>" */
    /* Code DDP_OK = collectives may be called. Written only by the thread that calls collectives. */
    struct ddp_err broken;
};

/* Start a thread for collectives, if the backend blocks and needs a thread so that the program can continue. */
ddp_status ctx_start_thread(struct ddp_ctx *ctx, struct ddp_err *err);

/* Wait until the communication thread has finished its jobs, and return the error that broke the context, if any.
 * Call this before using the communicator or `broken`. Then only one thread at a time runs a collective, and the collectives run in the program's order. */
struct ddp_err ctx_enter(struct ddp_ctx *ctx);

/* Keep `err`, with "rank N: " in front, as this thread's last error; return its code. */
ddp_status ctx_fail(const struct ddp_ctx *ctx, struct ddp_err *err);

/* Pass `call` to the backend, with an entry in the flight recorder. */
ddp_status ctx_call(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err);

/* Run one collective call. Fails in a broken context, and breaks the context if the error means that ranks are out of
 * step. */
ddp_status ctx_run(struct ddp_ctx *ctx, const struct call *call);

/* Break the context by the rule of ctx_run after a collective step that did not use ctx_run. */
ddp_status ctx_settle(struct ddp_ctx *ctx, ddp_status status, struct ddp_err *err);

#endif
