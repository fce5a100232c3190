/* context.h -- the structs behind ddp_ctx and ddp_group, for the files of libddp. Programs have only pointers to these
 * structs, so members may change without a new ABI. Only one thread at a time runs collectives, so ctx_enter waits for
 * the communication thread before a call. */
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
    int device;                                /* CUDA's number of the GPU; -1 without a GPU */
    uint32_t init_timeout_ms, step_timeout_ms; /* from the options, else from the environment; never 0 */
    struct ddp_store *store;                   /* owned; NULL in a world of one */
    /* Owned; used only in a world of one. ctx_any_store opens this connection when the first key is needed. Before
     * that, late_store is NULL. */
    struct ddp_store *late_store;
    bool late_tried;          /* ctx_any_store has tried to open late_store, and does not try again */
    uint64_t progress_set_ms; /* time (clock_ms) when the progress key was last set; 0 = never set */
    struct ddp_group world;
    /* Owned; NULL if ctx_start_thread was not called or if the backend does not block. */
    struct comm_thread *thread;
    struct recorder recorder;
    struct collective_check check; /* used only on the thread that runs collectives */
    uint64_t calls;                /* number of the last call; the start of the backend is call 1 */
    char prefix[CTX_PREFIX];       /* prefix of the keys in the store: "ddp/<job>/<attempt>" */
    /* The error that broke the context, or DDP_OK. Written only by the thread that runs collectives. */
    struct ddp_err broken;
};

/* Start a thread for collectives, if the backend blocks. The program can then compute during a collective. */
ddp_status ctx_start_thread(struct ddp_ctx *ctx, struct ddp_err *err);

/* Wait until the communication thread has run all its jobs, and return ctx->broken. Call this function before using
 * the communicator or `broken`, because only one thread at a time may run collectives. */
struct ddp_err ctx_enter(struct ddp_ctx *ctx);

/* Put "rank N: " in front of `err`, store it as the last error of this thread, and return its code. */
ddp_status ctx_fail(const struct ddp_ctx *ctx, struct ddp_err *err);

/* Pass `call` to the backend, and record it in the flight recorder. */
ddp_status ctx_call(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err);

/* Run a collective call. In a broken context, fail at once. If an error leaves the ranks at different calls, break
 * the context. */
ddp_status ctx_run(struct ddp_ctx *ctx, const struct call *call);

/* Handle the result of a collective that did not use ctx_run. Break the context if the ranks may be at different
 * calls. Return `status`; on failure, *err is also the last error of this thread. */
ddp_status ctx_finish(struct ddp_ctx *ctx, ddp_status status, struct ddp_err *err);

#endif
