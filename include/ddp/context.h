/* context.h -- one worker: who it is, and the others it meets.
 *
 *     ddp_ctx *ctx;
 *     if (ddp_init_from_env(NULL, &ctx) != DDP_OK)
 *         fprintf(stderr, "%s\n", ddp_last_error());
 *     ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
 *     ddp_finalize(ctx);
 *
 * A worker is started by ddprun (or torchrun, or by hand) with RANK, WORLD_SIZE, MASTER_ADDR ... in its environment;
 * with none of them it is a world of one, so every program also runs bare.
 *
 * Rules: every call that can fail returns a status, and none exits; NULL for a handle or for the place of a result is
 * DDP_ERR_ARG there, in all headers, unless they say otherwise; option structs start with their size; no state shared
 * between contexts; no signal handlers, but for SIGUSR1 where the environment asks for a flight recorder
 * (DDP_FLIGHT_RECORDER) and the program has none; a context and all that was made from it belong to one thread at a time,
 * only ddp_abort may be called from any thread. A program whose call failed may exit with ddp_exit_code(status), so that
 * the launcher blames the rank that was the cause. After DDP_ERR_PEER_LOST, DDP_ERR_TIMEOUT, DDP_ERR_ABORTED or
 * DDP_ERR_MISMATCH in a collective the context is broken: later collectives return the same error at once. */
#ifndef DDP_CONTEXT_H
#define DDP_CONTEXT_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_VERSION_MAJOR 0
#define DDP_VERSION_MINOR 1
#define DDP_VERSION_PATCH 0
#define DDP_VERSION       "0.1.0"
#define DDP_VERSION_DATE  "2026-11-22" /* of this version, on the manual pages; it changes with the version */

/* The version of the library that is loaded, "0.1.0". */
DDP_API const char *ddp_version(void);

typedef struct ddp_ctx ddp_ctx;

typedef struct ddp_options {
    size_t size;              /* sizeof(ddp_options), set by DDP_OPTIONS_INIT */
    const char *backend;      /* "cpu", "nccl", or NULL: nccl with a device, else cpu */
    uint32_t init_timeout_ms; /* 0 = DDPRUN_INIT_TIMEOUT_MS or 60 000 */
    uint32_t step_timeout_ms; /* deadline of one collective; 0 = DDPRUN_STEP_TIMEOUT_MS or 600 000 */
    int device;               /* the GPU of this rank, as CUDA counts them; or one of ddp_device_choice */
} ddp_options;

/* A group with a device takes buffers in its memory as well as in the host's (group.h). The library libddp_cuda is loaded for it,
 * and in turn CUDA's runtime and NCCL: nothing of NVIDIA's is needed to build, or on a machine without a GPU. With backend "cpu"
 * values go through memory of the host: slower, but the same bits as on CPUs, and several ranks may have one GPU. */
typedef enum ddp_device_choice {
    DDP_DEVICE_NONE = -1, /* the default: host memory alone; with backend "nccl" as DDP_DEVICE_LOCAL */
    DDP_DEVICE_AUTO = -2, /* device LOCAL_RANK if a GPU can be used, else no device */
    DDP_DEVICE_LOCAL = -3 /* device LOCAL_RANK; DDP_ERR_UNSUPPORTED gives the reason without a GPU */
} ddp_device_choice;

/* Every INIT macro of these headers lists all members in their order, because C++17 has no designated initializers. */
#define DDP_OPTIONS_INIT                                 \
    {                                                    \
        sizeof(ddp_options), NULL, 0, 0, DDP_DEVICE_NONE \
    }

/* Read the environment, connect to the store, meet the other ranks. Collective: returns when all ranks are there.
 * `options` may be NULL. DDP_OK: *out is yours until ddp_finalize. DDP_ERR_ENV names the variable and its value,
 * DDP_ERR_TIMEOUT the ranks that did not come. */
DDP_API ddp_status ddp_init_from_env(const ddp_options *options, ddp_ctx **out);

/* Wait for the other ranks (at most the step time-out), then free `ctx`, its groups, its store, and shared memory. Frees in
 * every case, also when it returns an error; a broken context does not wait. ddp_reducer and ddp_zero1 are freed before:
 * they give back shared memory of the context. NULL is allowed. */
DDP_API ddp_status ddp_finalize(ddp_ctx *ctx);

/* Give up: writes {"message": ...} to TORCHELASTIC_ERROR_FILE when it is set, frees every peer that waits (they get
 * DDP_ERR_ABORTED with `why`), and returns at once; with ranks on other hosts it tells the store first, which takes
 * half a second at most. Any thread. The caller then exits with `code`. NULL is allowed and does nothing. */
DDP_API void ddp_abort(ddp_ctx *ctx, int code, const char *why);

/* Subnormal numbers: f32 and bf16 below 1.2e-38, f64 below 2.2e-308. Some processors compute with them many times more slowly,
 * and a model that converges produces many.
 *
 * The library's arithmetic on the host treats them as zero, as operands and as results: SUM, AVG, PROD, the reducer, optimizers, norms,
 * ddp_unscale, batch normalization. f16 loses nothing, because it is computed in f32. Copies, MIN, MAX, the scale of a ddp_scaler and
 * conversions between types are exact. A call sets the mode of its thread (x86: FTZ and DAZ, Arm: FZ), also for a communication hook
 * and for a loader's `fill`, and restores it: results have the same bits whatever the caller's mode. Processors without such a mode
 * compute with subnormals. On a GPU, NCCL and the program decide.
 *
 * ddp_flush_subnormals sets the mode for the rest of this thread and for the threads that it creates afterwards. Call it first in main
 * if your program computes on the CPU. PyTorch calls it torch.set_flush_denormal(True). */
DDP_API void ddp_flush_subnormals(void);

/* Of a ctx that is NULL: -1. */
DDP_API int ddp_rank(const ddp_ctx *ctx);
DDP_API int ddp_world_size(const ddp_ctx *ctx);
DDP_API int ddp_local_rank(const ddp_ctx *ctx);
DDP_API int ddp_local_world_size(const ddp_ctx *ctx);
DDP_API int ddp_device(const ddp_ctx *ctx); /* as CUDA counts it; -1 = none */
DDP_API int ddp_restart_count(const ddp_ctx *ctx);

/* Tell the launcher that step `step` is done, counted over all attempts (a checkpoint's number goes on).
 * With --max_restarts it ends a job whose attempts come no further. Call it after every step: it looks at a
 * clock, and five times a second at most it sends a few bytes and waits for nothing (in a world of one the
 * first call connects). Without ddprun it does nothing. An error can be ignored, the job goes on as well
 * without. */
DDP_API ddp_status ddp_progress(ddp_ctx *ctx, uint64_t step);

/* A larger world. Nodes that come late to an elastic job (--nnodes=MIN:MAX) wait; with ddprun's --grow=agreed, the default,
 * they are taken in once every rank has agreed: then the launcher stops all workers (SIGTERM) and starts them again, more
 * of them, with an empty store; --max_restarts is not charged. A program agrees where a restart costs nothing, right after
 * a checkpoint, and goes on meanwhile:
 *
 *     uint32_t nodes = 0;                                  // rank 0 asks, all do the same
 *     if (rank == 0) ddp_grow_waiting(ctx, &nodes);
 *     ddp_broadcast(ddp_world(ctx), &nodes, 1, DDP_I32, 0, NULL, NULL);
 *     if (nodes > 0) ddp_grow_agree(ctx);
 *
 * ddp_grow_waiting: *nodes = how many nodes could be taken in now; one short call to the store. Without ddprun both are
 * DDP_ERR_UNSUPPORTED, and *nodes is 0. */
DDP_API ddp_status ddp_grow_waiting(ddp_ctx *ctx, uint32_t *nodes);
DDP_API ddp_status ddp_grow_agree(ddp_ctx *ctx);

/* The store behind MASTER_ADDR:MASTER_PORT (store.h), connected; NULL in a world of one, or of a ctx that is NULL. Owned by the
 * context. */
struct ddp_store;
DDP_API struct ddp_store *ddp_context_store(ddp_ctx *ctx);

/* A named barrier of all ranks, each name good for one use (see ddp_store_barrier). Against a store that is not
 * ddprun's it is built from a counter, and a time-out then only tells how many came. timeout_ms 0 = the step's. */
DDP_API ddp_status ddp_barrier_named(ddp_ctx *ctx, const char *name, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
