/* context.h -- the insides of ddp_ctx and ddp_group, for the files that implement
 * include/ddp/{context,group,reducer}.h. */
#ifndef WORKER_CORE_CONTEXT_H
#define WORKER_CORE_CONTEXT_H

#include "core/comm.h"
#include "core/collective_check.h"
#include "core/environment.h"
#include "core/comm_thread.h"
#include "core/recorder.h"

struct ddp_group {
    struct ddp_ctx *ctx; /* the context it belongs to */
    struct comm *comm;   /* owned */
};

enum { CTX_PREFIX = 320 };

struct ddp_ctx {
    struct worker_env env;
    int device;                                /* of the GPU, -1 = none */
    uint32_t init_timeout_ms, step_timeout_ms; /* options, or else the environment's */
    struct ddp_store *store;                   /* owned; NULL in a world of one */
    struct ddp_store *late_store;              /* owned; for ctx_any_store in a world of one */
    bool late_tried;                           /* ... to connect it; once is enough */
    uint64_t progress_told_ms;                 /* 0 = not yet */
    struct ddp_group world;
    struct lane *lane; /* owned; NULL until ctx_want_lane, and with a backend that does not block */
    struct recorder recorder;
    struct detail detail; /* used by the thread that calls collectives */
    uint64_t calls; /* number of the last one, by the backend's count where it has one of all its calls */
    char prefix[CTX_PREFIX]; /* of our keys in the store: "ddp/<job>/<attempt>" */
    struct ddp_err
        broken; /* code DDP_OK while collectives may be called; written on the thread that calls them */
};

/* Have a thread for collectives, if the backend needs one to let the program go on meanwhile. */
ddp_status ctx_want_lane(struct ddp_ctx *ctx, struct ddp_err *err);

/* Before the communicator or `broken` is touched: what the lane has to do comes first, so that only one thread at a time
 * is in a collective, in the order of the program. Returns why no more collectives can be called. */
struct ddp_err ctx_enter(struct ddp_ctx *ctx);

/* ctx_store.c: connect to the store that the environment names; *out is the caller's. */
ddp_status ctx_connect(const struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err);

/* The same without a name, for any thread and any time: to the store, the end of a connection with a name is the end of the
 * rank. */
ddp_status ctx_reconnect(const struct ddp_ctx *ctx, uint32_t timeout_ms, struct ddp_store **out,
                         struct ddp_err *err);

/* The connection of this context. A world of one has none of its own: it is made when there is something to tell. A store
 * that cannot be reached is not asked again, since each step would wait for it: then *out is NULL. */
ddp_status ctx_any_store(struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err);

/* Keep `err`, with "rank N: " in front, as this thread's last error; returns its code. */
ddp_status ctx_fail(const struct ddp_ctx *ctx, struct ddp_err *err);

/* Give `call` to the backend, with an entry in the flight recorder. */
ddp_status ctx_call(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err);

/* Run one collective call: refuses in a broken context, and breaks it when the error says that ranks are
 * out of step. */
ddp_status ctx_run(struct ddp_ctx *ctx, const struct call *call);

/* After a collective step of another kind has ended with `status`: the same rule. */
ddp_status ctx_settle(struct ddp_ctx *ctx, ddp_status status, struct ddp_err *err);

#endif
