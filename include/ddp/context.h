/* context.h -- one worker of a job: start, identity and end.
 *
 *     ddp_ctx *ctx;
 *     if (ddp_init_from_env(NULL, &ctx) != DDP_OK)
 *         fprintf(stderr, "%s\n", ddp_last_error());
 *     ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
 *     ddp_finalize(ctx);
 *
 * ddprun (or torchrun, or the user) starts a worker with RANK, WORLD_SIZE, MASTER_ADDR and other variables in its
 * environment. Without these variables the worker is a world of one, so every program also runs without a launcher.
 *
 * Rules:
 *   - Every call that can fail returns a status. No call exits.
 *   - If a handle or a result pointer is NULL, a call returns DDP_ERR_ARG. The comment of a function states where NULL
 *     is allowed.
 *   - Option structs begin with their size.
 *   - Contexts share no state.
 *   - The library installs no signal handler, with one exception. If the environment requests a flight recorder
 *     (DDP_FLIGHT_RECORDER), the library installs a handler for SIGUSR1, unless the program already has a handler.
 *   - Only one thread at a time may use a context and the objects made from it. Any thread may call ddp_abort.
 *
 * After a failed call, a program should exit with ddp_exit_code(status), so that the launcher can find the rank that
 * failed first. After DDP_ERR_PEER_LOST, DDP_ERR_TIMEOUT, DDP_ERR_ABORTED, DDP_ERR_MISMATCH, DDP_ERR_NCCL or
 * DDP_ERR_CUDA in a collective, all later collectives of the context return the same error at once. */
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

/* The version as text, for example "0.1.0". */
#define DDP_VERSION                           DDP_VERSION_TEXT(DDP_VERSION_MAJOR, DDP_VERSION_MINOR, DDP_VERSION_PATCH)
#define DDP_VERSION_TEXT(major, minor, patch) DDP_VERSION_JOIN(major, minor, patch)
#define DDP_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch

/* Return the version of the loaded library, for example "0.1.0". */
DDP_API const char *ddp_version(void);

typedef struct ddp_ctx ddp_ctx;

typedef struct ddp_options {
    size_t size;              /* sizeof(ddp_options), set by DDP_OPTIONS_INIT */
    const char *backend;      /* "cpu" or "nccl"; NULL selects nccl if there is a device, otherwise cpu */
    uint32_t init_timeout_ms; /* time to connect; 0 means DDPRUN_INIT_TIMEOUT_MS, or 60 000 ms if unset */
    uint32_t step_timeout_ms; /* for a collective; 0 means DDPRUN_STEP_TIMEOUT_MS, or 600 000 ms if unset */
    int device;               /* index of this rank's GPU in CUDA, or a value of ddp_device_choice */
} ddp_options;

/* With a device, a group accepts buffers in the memory of the device and of the host (group.h). libddp then loads the
 * library libddp_cuda, which loads CUDA's runtime and NCCL. So neither the build nor a machine without a GPU needs
 * NVIDIA software. With backend "cpu", values pass through host memory, which is slower. But the results have the
 * same bits as on CPUs, and several ranks may share one GPU. */
typedef enum ddp_device_choice {
    DDP_DEVICE_NONE = -1, /* the default: this rank uses no device; with backend "nccl", this value means the
                           * same as DDP_DEVICE_LOCAL */
    DDP_DEVICE_AUTO = -2, /* the device with the number LOCAL_RANK, or no device if there is no usable GPU */
    DDP_DEVICE_LOCAL = -3 /* the device with number LOCAL_RANK, or DDP_ERR_UNSUPPORTED if no GPU is usable */
} ddp_device_choice;

/* The INIT macros list all members in order, because C++17 has no designated initializers. */
#define DDP_OPTIONS_INIT                                 \
    {                                                    \
        sizeof(ddp_options), NULL, 0, 0, DDP_DEVICE_NONE \
    }

/* Read the environment, connect to the store, and join the other ranks; collective. `options` may be NULL. After DDP_OK
 * the caller owns *out until ddp_finalize. DDP_ERR_ENV names the variable and its value; DDP_ERR_TIMEOUT names the
 * ranks that did not join. */
DDP_API ddp_status ddp_init_from_env(const ddp_options *options, ddp_ctx **out);

/* Wait for the other ranks, but at most for the step timeout. Then free `ctx`, its groups, its store and shared memory,
 * even if the wait has failed. If an earlier collective has failed, free everything without waiting. The program must
 * first free each ddp_reducer and ddp_zero1. NULL is allowed. */
DDP_API ddp_status ddp_finalize(ddp_ctx *ctx);

/* Stop all waiting peers: their calls return DDP_ERR_ABORTED with the text `why`. Write {"message": ...} to
 * TORCHELASTIC_ERROR_FILE, if this variable is set. If ranks run on other hosts, the call first notifies the store, and
 * waits at most one second for the store. If another rank has just begun to stop the peers, the call waits at most two
 * seconds for the reason of that rank. In all other cases the call returns at once. The function does not exit, so the
 * program must call exit(code) afterwards. Any thread may call this function. NULL is allowed and does nothing. */
DDP_API void ddp_abort(ddp_ctx *ctx, int code, const char *why);

/* Subnormal numbers are the smallest numbers: f32 and bf16 below 1.2e-38, f64 below 2.2e-308. Some processors compute
 * with them many times more slowly.
 *
 *     treated as zero    SUM, AVG, PROD, the reducer, optimizers, norms, ddp_unscale, batch normalization
 *     exact              copies, MIN, MAX, the scale of a ddp_scaler, conversions, and all f16 (computed in f32)
 *
 * Each call sets the processor's flush mode for its thread (x86: FTZ and DAZ, Arm: FZ), and then restores the old mode.
 * A communication hook and a loader's `fill` run in the flush mode, too. Processors without a flush mode compute with
 * subnormals. On a GPU, NCCL and the program determine whether subnormals are treated as zero. */

/* Treat subnormals as zero in this thread from now on, and in threads that this thread creates later. If your program
 * computes on the CPU, call ddp_flush_subnormals first in main. The equivalent in PyTorch is
 * torch.set_flush_denormal(True). */
DDP_API void ddp_flush_subnormals(void);

/* Return one of the numbers that identify this worker, or -1 if ctx is NULL. All numbers except the device come from
 * torchrun's variables: ddp_rank returns RANK, ddp_local_rank returns LOCAL_RANK, and so on. */
DDP_API int ddp_rank(const ddp_ctx *ctx);
DDP_API int ddp_world_size(const ddp_ctx *ctx);
DDP_API int ddp_local_rank(const ddp_ctx *ctx);
DDP_API int ddp_local_world_size(const ddp_ctx *ctx);
DDP_API int ddp_device(const ddp_ctx *ctx); /* index of the GPU in CUDA, or -1 without a device */
DDP_API int ddp_restart_count(const ddp_ctx *ctx);

/* Report to the launcher that step `step` is done. `step` counts the steps of all attempts, as in a checkpoint. With
 * --max_restarts, the launcher ends a job whose attempts make no progress. The program calls this function after every
 * step. The function sends a few bytes at most five times a second, without waiting for an answer. In a world of one,
 * the first call connects to the store. Without ddprun the call sends nothing, but a flight recorder
 * (DDP_FLIGHT_RECORDER) still records the step. Errors may be ignored. */
DDP_API ddp_status ddp_progress(ddp_ctx *ctx, uint64_t step);

/* How an elastic job grows (--nnodes=MIN:MAX). A node that joins a running job waits. With --grow=agreed, the default
 * of ddprun, the launcher stops all workers (SIGTERM) after every rank has agreed, and starts them on the old and new
 * nodes with an empty store. This does not count as a restart. Agree right after a checkpoint, and continue until the
 * launcher stops the program:
 *
 *     uint32_t nodes = 0;                                  // rank 0 asks the store, all ranks use its answer
 *     if (rank == 0) ddp_grow_waiting(ctx, &nodes);
 *     ddp_broadcast(ddp_world(ctx), &nodes, 1, DDP_I32, 0, NULL, NULL);
 *     if (nodes > 0) ddp_grow_agree(ctx); */

/* Ask the store how many nodes could join now, and set *nodes to this number. The call does not wait for nodes. Without
 * ddprun, set *nodes to 0 and return DDP_ERR_UNSUPPORTED. */
DDP_API ddp_status ddp_grow_waiting(ddp_ctx *ctx, uint32_t *nodes);
/* Report that this rank agrees to a restart that adds the waiting nodes. Without ddprun, return DDP_ERR_UNSUPPORTED. */
DDP_API ddp_status ddp_grow_agree(ddp_ctx *ctx);

/* Return the context's connection to the store at MASTER_ADDR:MASTER_PORT (store.h), owned by the context. Return
 * NULL in a world of one, or if ctx is NULL. */
struct ddp_store;
DDP_API struct ddp_store *ddp_context_store(ddp_ctx *ctx);

/* Wait at a named barrier until all ranks have arrived. Use each name only once. Only ddprun's store has barriers. With
 * another store this function uses a counter, and a timeout reports only how many ranks have arrived. If timeout_ms is
 * 0, the step timeout applies. */
DDP_API ddp_status ddp_barrier_named(ddp_ctx *ctx, const char *name, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
