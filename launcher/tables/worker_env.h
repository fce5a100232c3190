/* worker_env.h -- the environment of one worker: the contract between launcher and worker.
 *
 * A worker inherits the launcher's environment. The variables of the table below replace inherited variables of the
 * same name, and --env replaces both; no name occurs twice. Names and values are torchrun's; the names of ddprun's
 * own variables begin with DDPRUN_. */
#ifndef LAUNCHER_WORKER_ENV_H
#define LAUNCHER_WORKER_ENV_H

#include "record/flight.h"

#include <stdbool.h>
#include <stddef.h>

/* Columns: name, printf format of the value, argument of that format (from `struct env_facts *f`), when the variable
 * is set, meaning. Dry run, manual page and block are all generated from these rows. */
#define WORKER_ENV_LIST(X)                                                                               \
    X(RANK, "%d", f->rank, true, "rank of this worker in the job")                                       \
    X(LOCAL_RANK, "%d", f->local_rank, true, "rank on this node, and index of its GPU")                  \
    X(WORLD_SIZE, "%d", f->world_size, true, "number of workers in the job")                             \
    X(LOCAL_WORLD_SIZE, "%d", f->local_world_size, true, "number of workers on this node")               \
    X(GROUP_RANK, "%d", f->node_rank, true, "rank of this node")                                         \
    X(GROUP_WORLD_SIZE, "%d", f->nnodes, true, "number of nodes")                                        \
    X(ROLE_RANK, "%d", f->role_rank, true, "rank among the workers of its role")                         \
    X(ROLE_WORLD_SIZE, "%d", f->role_size, true, "number of workers of its role")                        \
    X(ROLE_NAME, "%s", f->role, true, "name of the role (--role)")                                       \
    X(MASTER_ADDR, "%s", f->master_addr, true, "host where the store listens")                           \
    X(MASTER_PORT, "%d", f->master_port, true, "port of the store")                                      \
    X(TORCHELASTIC_RESTART_COUNT, "%d", f->restart_count, true, "number of restarts so far")             \
    X(TORCHELASTIC_MAX_RESTARTS, "%d", f->max_restarts, true, "largest number of restarts")              \
    X(TORCHELASTIC_RUN_ID, "%s", f->job, true, "job id (--rdzv_id)")                                     \
    X(TORCHELASTIC_USE_AGENT_STORE, "%s", f->rank0_store ? "False" : "True", true,                       \
      "whether the store of MASTER_ADDR runs in the launcher, or in rank 0")                             \
    X(USE_LIBUV, "%s", "0", f->rank0_store, "rank 0 hosts the store, with a PyTorch without libuv")      \
    X(TORCHELASTIC_ERROR_FILE, "%s", f->error_file, true,                                                \
      "file where a worker may write its error as JSON, for the report")                                 \
    X(TORCHELASTIC_SIGNALS_TO_HANDLE, "%s", f->signals, true, "signals that stop the job")               \
    X(TORCHELASTIC_TIMER_FILE, "%s", f->timer_file, f->timer_file != NULL,                               \
      "FIFO where workers set timers, with TORCHELASTIC_ENABLE_FILE_TIMER=1")                            \
    X(TORCH_NCCL_ASYNC_ERROR_HANDLING, "%s", f->nccl_async, true, "inherited, or 1")                     \
    X(NCCL_ASYNC_ERROR_HANDLING, "%s", f->nccl_async_old, true, "the same for PyTorch before 2.2")       \
    X(CUDA_VISIBLE_DEVICES, "%s", f->visible, f->visible != NULL,                                        \
      "the one GPU of this worker, with --virtual_local_rank")                                           \
    X(HIP_VISIBLE_DEVICES, "%s", f->visible, f->visible != NULL && f->hip,                               \
      "the same, if HIP_VISIBLE_DEVICES is set")                                                         \
    X(DDPRUN_OWN_GPU, "%s", "1", f->visible != NULL,                                                     \
      "each worker sees a separate GPU (--virtual_local_rank)")                                          \
    X(DDP_SHARE_GPU, "%s", "1", f->share_gpu, "several workers share one GPU (--share_gpu)")             \
    X(OMP_NUM_THREADS, "%s", "1", f->set_omp, "1, unless inherited or only one worker runs")             \
    X(DDPRUN_STORE, "%s", "1", !f->rank0_store, "the store supports ddprun's own requests")              \
    X(DDPRUN_JOB, "%s", f->job, true, "job id")                                                          \
    X(DDPRUN_ATTEMPT, "%d", f->attempt, true, "number of earlier starts of the workers, for any reason") \
    X(DDPRUN_INIT_TIMEOUT_MS, "%llu", (unsigned long long)f->timeout_ms, f->timeout_ms > 0,              \
      "how long workers wait for each other at the start (--timeout)")                                   \
    X(DDPRUN_COOKIE, "%s", f->cookie, f->cookie != NULL,                                                 \
      "random text that identifies processes of this job")                                               \
    X(DDPRUN_PAGE, "%s", f->page, f->page[0] != '\0',                                                    \
      "memory that a libddp worker shares with ddprun: its step, its last calls")                        \
    X(DDP_FLIGHT_RECORDER, "%s", f->flight, f->flight != NULL,                                           \
      "directory where libddp writes a rank's last calls when the job fails")                            \
    X(TORCH_FR_BUFFER_SIZE, "%s", "2000", f->torch_flight != NULL,                                       \
      "--flight_recorder: calls that PyTorch keeps")                                                     \
    X(TORCH_FR_DUMP_ON_TIMEOUT, "%s", "1", f->torch_flight != NULL,                                      \
      "--flight_recorder: PyTorch writes the calls at a timeout")                                        \
    X(TORCH_FR_DUMP_TEMP_FILE, "%s/flight_torch_", f->torch_flight, f->torch_flight != NULL,             \
      "--flight_recorder: the file, without the rank at its end")                                        \
    X(TORCH_NCCL_TRACE_BUFFER_SIZE, "%s", "2000", f->torch_flight != NULL,                               \
      "the same for PyTorch before 2.9")                                                                 \
    X(TORCH_NCCL_DUMP_ON_TIMEOUT, "%s", "1", f->torch_flight != NULL, "the same")                        \
    X(TORCH_NCCL_DEBUG_INFO_TEMP_FILE, "%s/flight_torch_", f->torch_flight, f->torch_flight != NULL,     \
      "the same")                                                                                        \
    X(DDPRUN_TERMINAL, "%s", "1", f->terminal, "stderr is shown on a terminal: progress bars work")

enum worker_env_var {
#define X(name, ...) ENV_##name,
    WORKER_ENV_LIST(X)
#undef X
        WORKER_ENV_VARS
};

/* Return the name of a variable, "DDPRUN_COOKIE" for ENV_DDPRUN_COOKIE, to find it in an environment. */
const char *worker_env_name(enum worker_env_var var);

/* Digits of a job's cookie: 128 random bits in hexadecimal, so no two jobs have the same cookie. */
enum { COOKIE_CHARS = 32 };

/* The sources of the values. All texts are borrowed. */
struct env_facts {
    int rank, local_rank, world_size, local_world_size, node_rank, nnodes;
    int role_rank, role_size;
    int restart_count, max_restarts; /* restarts after a failure */
    int attempt;                     /* starts of the workers, including those because nodes joined or left */
    const char *master_addr;
    int master_port;
    bool rank0_store; /* rank 0 hosts the store, with PyTorch's own server; else the launcher */
    const char *job, *role;
    const char *timer_file; /* NULL = as inherited */
    const char *signals;    /* names, separated by commas */
    const char *visible;    /* the GPU that the worker sees, NULL = as inherited */
    bool hip;               /* set HIP's variable to `visible`, too */
    const char *cookie;     /* NULL = none */
    const char *error_file; /* "" = none */
    const char *nccl_async; /* values of the variable and of its older name */
    const char *nccl_async_old;
    bool share_gpu;
    bool set_omp;
    bool terminal;
    char page[FLIGHT_PAGE_TEXT];   /* "" = none */
    const char *flight;            /* NULL = as inherited */
    const char *torch_flight;      /* directory of PyTorch's flight records, NULL = as inherited */
    unsigned long long timeout_ms; /* 0 = as inherited */
};

/* The part of the environment that is the same for all workers of a node: the overrides and the inherited variables,
 * without those that rows of the table replace. Entries are borrowed from the launcher's environment and from
 * --env. */
struct env_base {
    const char **entries; /* overrides first; the array is owned */
    size_t n, n_overrides;
    bool replaced[WORKER_ENV_VARS]; /* rows that --env overrides */
};

/* A block for execve(2). `block` is NULL-terminated; block[0 .. n_ours) are the overrides and the rows of the table,
 * the inherited entries follow. */
struct worker_env {
    char **block;
    size_t n, n_ours;
    char *text; /* private: the text of the rows' entries */
};

/* Set the facts that depend on the launcher's environment: the NCCL values, and whether to set OMP_NUM_THREADS (more
 * than one worker, and the variable is neither inherited nor in `overrides`). Borrows from `inherited`. */
void env_facts_inherit(struct env_facts *facts, char *const *inherited, const char *const *overrides,
                       size_t n);

/* Compute the base. `overrides` are "KEY=VALUE"s; of several with the same name the last is used. The texts must
 * outlive the base. Return false when memory is short. */
bool env_base_init(struct env_base *base, const struct env_facts *facts, char *const *inherited,
                   const char *const *overrides, size_t n);
void env_base_free(struct env_base *base);

/* Make the block of one worker; `base` must outlive it. Return false when memory is short. */
bool worker_env_init(struct worker_env *env, const struct env_facts *facts, const struct env_base *base);
void worker_env_free(struct worker_env *env);

/* The sources of variables that are not in the table: --env, then ddprun's own environment. Borrowed. */
struct env_sources {
    const char *const *overrides; /* "KEY=VALUE"s; of several with the same name the last is used */
    size_t n;
    char *const *inherited;
};

/* Return the value that a worker gets; NULL when it is not set. Borrowed from the sources. */
const char *env_sources_find(const struct env_sources *sources, const char *name);

/* Return the value of `name` in an environment block, NULL when it is missing. Borrowed from the block. */
const char *env_find(char *const *environ_block, const char *name);

#endif
