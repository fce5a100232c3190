/* context.h -- one worker of a job: start, identity and end.
 *
 *     ddp_ctx *ctx;
 *     if (ddp_init_from_env(NULL, &ctx) != DDP_OK)
 *         fprintf(stderr, "%s\n", ddp_last_error());
 *     ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
 *     ddp_finalize(ctx);
 *
 * A worker is started by ddprun (or torchrun, or by hand) with RANK, WORLD_SIZE, MASTER_ADDR ... in its environment;
 * without these variables the worker is a world of one, so every program also runs without a launcher.
 *
 * Rules:
 *   - Every call that can fail returns a status. No call exits.
 *   - NULL for a handle or for the place of a result is DDP_ERR_ARG, unless the comment of a function allows NULL.
 *   - Option structs start with their size.
 *   - Contexts share no state.
 *   - The library installs no signal handler, with one exception: a handler for SIGUSR1, if the environment requests a
 *     flight recorder (DDP_FLIGHT_RECORDER) and the program has no handler.
 *   - One thread at a time may use a context and everything made from the context. Any thread may call ddp_abort.
 *
 * A program whose call failed may exit with ddp_exit_code(status), so that the launcher reports the rank that failed
 * first. After DDP_ERR_PEER_LOST, DDP_ERR_TIMEOUT, DDP_ERR_ABORTED or DDP_ERR_MISMATCH in a collective the context is
 * broken: later collectives return the same error at once. */
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
#define DDP_VERSION_DATE  "2026-11-22" /* date of this version, for the manual pages */

/* "0.1.0", from the three numbers. */
#define DDP_VERSION                           DDP_VERSION_TEXT(DDP_VERSION_MAJOR, DDP_VERSION_MINOR, DDP_VERSION_PATCH)
#define DDP_VERSION_TEXT(major, minor, patch) DDP_VERSION_JOIN(major, minor, patch)
#define DDP_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch

/* Return the version of the loaded library, "0.1.0". */
DDP_API const char *ddp_version(void);

typedef struct ddp_ctx ddp_ctx;

typedef struct ddp_options {
    size_t size;              /* sizeof(ddp_options), set by DDP_OPTIONS_INIT */
    const char *backend;      /* "cpu", "nccl", or NULL: nccl with a device, else cpu */
    uint32_t init_timeout_ms; /* 0 = DDPRUN_INIT_TIMEOUT_MS or 60 000 */
    uint32_t step_timeout_ms; /* deadline of one collective; 0 = DDPRUN_STEP_TIMEOUT_MS or 600 000 */
    int device;               /* the GPU of this rank, by CUDA's number, or one of ddp_device_choice */
} ddp_options;

/* A group with a device accepts buffers in the device's memory as well as in the host's (group.h). For a device,
 * libddp loads the library libddp_cuda, which loads CUDA's runtime and NCCL. So NVIDIA software is needed neither to
 * build nor on a machine without a GPU. With backend "cpu" values pass through host memory. This backend is slower,
 * but gives the same bits as on CPUs, and several ranks may share one GPU. */
typedef enum ddp_device_choice {
    DDP_DEVICE_NONE = -1, /* default: only host memory; with backend "nccl" like DDP_DEVICE_LOCAL */
    DDP_DEVICE_AUTO = -2, /* device LOCAL_RANK if a GPU can be used, else no device */
    DDP_DEVICE_LOCAL = -3 /* device LOCAL_RANK; DDP_ERR_UNSUPPORTED has the reason if there is no GPU */
} ddp_device_choice;

/* Every INIT macro of these headers lists all members in order, because C++17 has no designated initializers. */
#define DDP_OPTIONS_INIT                                 \
    {                                                    \
        sizeof(ddp_options), NULL, 0, 0, DDP_DEVICE_NONE \
    }

/* Read the environment, connect to the store, and join the other ranks; collective. `options` may be NULL. After
 * DDP_OK the caller owns *out until ddp_finalize. DDP_ERR_ENV names the variable and its value, DDP_ERR_TIMEOUT the
 * ranks that did not join. */
DDP_API ddp_status ddp_init_from_env(const ddp_options *options, ddp_ctx **out);

/* Wait for the other ranks (at most the step timeout), then free `ctx`, its groups, its store, and shared memory.
 * Everything is freed even after an error. A broken context does not wait. Free each ddp_reducer and ddp_zero1 before
 * this call, because they use shared memory of the context. NULL is allowed. */
DDP_API ddp_status ddp_finalize(ddp_ctx *ctx);

/* Give up and make every waiting peer's call return DDP_ERR_ABORTED with `why`. Writes {"message": ...} to
 * TORCHELASTIC_ERROR_FILE if that variable is set. Returns at once, except with ranks on other hosts. Then this call
 * first notifies the store, which takes at most half a second. May be called on any thread. The caller then exits
 * with `code`. NULL is allowed and does nothing. */
DDP_API void ddp_abort(ddp_ctx *ctx, int code, const char *why);

/* Subnormal numbers: f32 and bf16 below 1.2e-38, f64 below 2.2e-308. Some processors compute with them many times
 * more slowly, and a model that converges produces many.
 *
 * The library's arithmetic on the host treats subnormals as zero, as operands and as results: SUM, AVG, PROD, the
 * reducer, optimizers, norms, ddp_unscale, batch normalization. f16 loses nothing, because it is computed in f32.
 * Copies, MIN, MAX, the scale of a ddp_scaler and conversions between types are exact. A call sets the mode of its
 * thread (x86: FTZ and DAZ, Arm: FZ), also for a communication hook and for a loader's `fill`, and restores it:
 * results have the same bits whatever the caller's mode. Processors without such a mode compute with subnormals. On a
 * GPU, NCCL and the program decide.
 *
 * ddp_flush_subnormals sets the mode for the rest of this thread and for the threads that it creates afterwards. Call
 * it first in main if your program computes on the CPU. PyTorch calls it torch.set_flush_denormal(True). */
DDP_API void ddp_flush_subnormals(void);

/* Return a number of this worker, or -1 for a NULL ctx. */
DDP_API int ddp_rank(const ddp_ctx *ctx);
DDP_API int ddp_world_size(const ddp_ctx *ctx);
DDP_API int ddp_local_rank(const ddp_ctx *ctx);
DDP_API int ddp_local_world_size(const ddp_ctx *ctx);
DDP_API int ddp_device(const ddp_ctx *ctx); /* CUDA's number; -1 = none */
DDP_API int ddp_restart_count(const ddp_ctx *ctx);

/* Report to the launcher that step `step` is done, counted over all attempts (like a checkpoint's number). With
 * --max_restarts the launcher ends a job whose attempts make no progress. Call this after every step. Each call reads
 * the clock. At most five times a second a call sends a few bytes, without waiting (in a world of one the first call
 * connects). Without ddprun the call does nothing. An error may be ignored. */
DDP_API ddp_status ddp_progress(ddp_ctx *ctx, uint64_t step);

/* How a job grows. Nodes that join a running elastic job (--nnodes=MIN:MAX) wait. With ddprun's --grow=agreed, the
 * default, the waiting nodes take part after every rank has agreed. Then the launcher stops all workers (SIGTERM) and
 * starts a larger number of workers with an empty store. This start is not counted as a restart. A program should
 * agree when a restart costs nothing, right after a checkpoint, and continue until it is stopped:
 *
 *     uint32_t nodes = 0;                                  // rank 0 asks, all do the same
 *     if (rank == 0) ddp_grow_waiting(ctx, &nodes);
 *     ddp_broadcast(ddp_world(ctx), &nodes, 1, DDP_I32, 0, NULL, NULL);
 *     if (nodes > 0) ddp_grow_agree(ctx);
 *
 * ddp_grow_waiting sets *nodes to the number of nodes that could join now, with one short call to the store. Without
 * ddprun both functions return DDP_ERR_UNSUPPORTED, and *nodes is 0. */
DDP_API ddp_status ddp_grow_waiting(ddp_ctx *ctx, uint32_t *nodes);
DDP_API ddp_status ddp_grow_agree(ddp_ctx *ctx);

/* Return the context's connection to the store at MASTER_ADDR:MASTER_PORT (store.h). The context owns the connection.
 * Return NULL in a world of one, or for a NULL ctx. */
struct ddp_store;
DDP_API struct ddp_store *ddp_context_store(ddp_ctx *ctx);

/* Wait at a named barrier of all ranks. Each name can be used only once (see ddp_store_barrier). Other stores than
 * ddprun's have no barriers. With such a store this function uses a counter, and a timeout only reports how many
 * ranks arrived. timeout_ms 0 = the step timeout. */
DDP_API ddp_status ddp_barrier_named(ddp_ctx *ctx, const char *name, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
