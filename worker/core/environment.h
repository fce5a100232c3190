/* environment.h -- the identity of a worker, read from the environment that ddprun or torchrun sets. The module is
 * pure: the caller passes the function that reads a variable, so a test needs no process. If only some of the four main
 * variables are set, the start fails, because a guess could make a rank wait forever. */
#ifndef WORKER_CORE_ENVIRONMENT_H
#define WORKER_CORE_ENVIRONMENT_H

#include "ddp/error.h"

#include <limits.h>
#include <stdbool.h>

enum { WORKER_WORLD_MAX = 1 << 20 };

/* Each row has: field, variable, smallest value, largest value, default, and whether the variable is one of the four
 * main variables. A default of -1 means "unset".
 *
 * - DDPRUN_ATTEMPT counts all earlier starts of the workers. TORCHELASTIC_RESTART_COUNT counts only the restarts
 *   after a failure.
 * - DDPRUN_STORE=1 means that the store at MASTER_ADDR is the store of ddprun or ddp-rendezvous, which supports named
 *   barriers. PyTorch's store does not support them.
 * - DDP_SHARE_GPU=1 allows several ranks on one GPU. */
#define WORKER_ENV_NUMBERS(X)                                               \
    X(rank, "RANK", 0, WORKER_WORLD_MAX - 1, 0, true)                       \
    X(world_size, "WORLD_SIZE", 1, WORKER_WORLD_MAX, 1, true)               \
    X(master_port, "MASTER_PORT", 1, 65535, 0, true)                        \
    X(local_rank, "LOCAL_RANK", 0, WORKER_WORLD_MAX - 1, -1, false)         \
    X(local_world_size, "LOCAL_WORLD_SIZE", 1, WORKER_WORLD_MAX, -1, false) \
    X(restart_count, "TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, 0, false)    \
    X(attempt, "DDPRUN_ATTEMPT", 0, INT_MAX, -1, false)                     \
    X(ddprun_store, "DDPRUN_STORE", 0, 1, 0, false)                         \
    X(share_gpu, "DDP_SHARE_GPU", 0, 1, 0, false)                           \
    X(init_timeout_ms, "DDPRUN_INIT_TIMEOUT_MS", 1, INT_MAX, 60000, false)  \
    X(step_timeout_ms, "DDPRUN_STEP_TIMEOUT_MS", 1, INT_MAX, 600000, false)

/* Each row has: field, variable, size in bytes with the NUL, default, and whether the variable is a main variable. The
 * four main variables (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) must be set together.
 *
 * - DDPRUN_FLIGHT_SHM is the memory that ddprun shares with this worker for the flight recorder (recorder.h).
 * - DDP_FLIGHT_RECORDER is the path of the recorder's file.
 * - DDP_TEST_HOST is only for tests: ranks with different values treat each other as ranks on other hosts. */
#define WORKER_ENV_TEXTS(X)                                    \
    X(master_addr, "MASTER_ADDR", 256, "", true)               \
    X(run_id, "TORCHELASTIC_RUN_ID", 256, "none", false)       \
    X(error_file, "TORCHELASTIC_ERROR_FILE", 4096, "", false)  \
    X(iface, "DDP_IFACE", 64, "", false)                       \
    X(port_range, "DDP_PORT_RANGE", 16, "", false)             \
    X(cuda_library, "DDP_CUDA_LIBRARY", 1024, "", false)       \
    X(nccl_library, "DDP_NCCL_LIBRARY", 1024, "", false)       \
    X(cudart_library, "DDP_CUDART_LIBRARY", 1024, "", false)   \
    X(test_host, "DDP_TEST_HOST", 32, "", false)               \
    X(page, "DDPRUN_FLIGHT_SHM", 128, "", false)               \
    X(flight_recorder, "DDP_FLIGHT_RECORDER", 4096, "", false) \
    X(debug, "DDPRUN_DEBUG", 16, "off", false)

struct worker_env {
#define X(field, name, least, most, missing, core) int field;
    WORKER_ENV_NUMBERS(X)
#undef X
#define X(field, name, bytes, missing, core) char field[bytes];
    WORKER_ENV_TEXTS(X)
#undef X
};

/* Return the value of a variable, or NULL if the variable is unset. The value is borrowed. */
typedef const char *(*env_lookup)(void *user, const char *name);

/* Read the environment of a worker into *out. DDP_ERR_ENV names the variable, its value and the expected value; *out is
 * then undefined. An empty variable counts as unset, because torchrun sets TORCHELASTIC_ERROR_FILE to "" if there is no
 * error file.
 *
 * The four main variables are RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. All other variables have defaults.
 *   - If no main variable is set, the worker runs alone, as a world of one.
 *   - If all four are set, the worker is a rank of a world.
 *   - If only some are set, the start fails and names the missing variables. */
ddp_status worker_env_read(struct worker_env *out, env_lookup lookup, void *user, struct ddp_err *err);

/* Return the number of this attempt; the first attempt is 0. With launchers other than ddprun, which do not set
 * DDPRUN_ATTEMPT, return the number of restarts. */
static inline int env_attempt(const struct worker_env *env)
{
    return env->attempt >= 0 ? env->attempt : env->restart_count;
}

#endif
