/* worker_env.h -- builds the environment of a worker. All variables that the launcher sets are rows of one table.
 * --dry_run, the manual page and the environments are made from these rows. */
#ifndef LAUNCHER_WORKER_ENV_H
#define LAUNCHER_WORKER_ENV_H

#include "record/flight.h"

#include <stdbool.h>
#include <stddef.h>

/* Two arguments for "%s%s", which print `path` as an absolute path, because a worker may change its working directory
 * before it uses `path`. If ddprun's own working directory is unknown, a relative path stays relative. */
#define ENV_PATH(path) \
    f->directory == NULL || (path) == NULL || (path)[0] == '/' || (path)[0] == '\0' ? "" : f->directory, path

/* Columns: name, printf format of the value, argument of this format, condition for setting the variable, meaning. `f`
 * is a struct env_facts. Names and values are torchrun's or PyTorch's; ddprun's own names begin with DDPRUN_ or
 * DDP_. */
#define WORKER_ENV_LIST(X)                                                                                   \
    X(RANK, "%d", f->rank, true, "rank in the job")                                                          \
    X(LOCAL_RANK, "%d", f->local_rank, true, "rank on this node, and index of the GPU")                      \
    X(WORLD_SIZE, "%d", f->world_size, true, "workers in the job")                                           \
    X(LOCAL_WORLD_SIZE, "%d", f->local_world_size, true, "workers on this node")                             \
    X(GROUP_RANK, "%d", f->node_rank, true, "rank of this node")                                             \
    X(GROUP_WORLD_SIZE, "%d", f->nnodes, true, "number of nodes")                                            \
    X(ROLE_RANK, "%d", f->role_rank, true, "rank among the workers of its role")                             \
    X(ROLE_WORLD_SIZE, "%d", f->role_size, true, "workers of its role")                                      \
    X(ROLE_NAME, "%s", f->role, true, "name of the role (--role)")                                           \
    X(MASTER_ADDR, "%s", f->master_addr, true, "host of the store")                                          \
    X(MASTER_PORT, "%d", f->master_port, true, "port of the store")                                          \
    X(TORCHELASTIC_RESTART_COUNT, "%d", f->restart_count, true, "number of restarts so far")                 \
    X(TORCHELASTIC_MAX_RESTARTS, "%d", f->max_restarts, true, "limit of restarts (--max_restarts)")          \
    X(TORCHELASTIC_RUN_ID, "%s", f->job, true, "job id (--rdzv_id)")                                         \
    X(TORCHELASTIC_USE_AGENT_STORE, "%s", f->rank0_store ? "False" : "True", true,                           \
      "True if the launcher hosts the store, False if rank 0 does")                                          \
    X(USE_LIBUV, "%s", "0", f->rank0_store, "the store in rank 0 runs without libuv")                        \
    X(TORCHELASTIC_ERROR_FILE, "%s%s", ENV_PATH(f->error_file), true,                                        \
      "JSON file for the worker's error message")                                                            \
    X(TORCHELASTIC_SIGNALS_TO_HANDLE, "%s", f->signals, true, "signals that stop the job")                   \
    X(TORCHELASTIC_TIMER_FILE, "%s%s", ENV_PATH(f->timer_file), f->timer_file != NULL,                       \
      "FIFO for the workers' timers, with TORCHELASTIC_ENABLE_FILE_TIMER=1")                                 \
    X(TORCH_NCCL_ASYNC_ERROR_HANDLING, "%s", f->nccl_async, true,                                            \
      "NCCL's error handling: 1 unless inherited")                                                           \
    X(NCCL_ASYNC_ERROR_HANDLING, "%s", f->nccl_async_old, true,                                              \
      "old name of TORCH_NCCL_ASYNC_ERROR_HANDLING (before PyTorch 2.2)")                                    \
    X(CUDA_VISIBLE_DEVICES, "%s", f->visible, f->visible != NULL,                                            \
      "the one GPU of this worker, with --virtual_local_rank")                                               \
    X(HIP_VISIBLE_DEVICES, "%s", f->visible, f->visible != NULL && f->hip,                                   \
      "CUDA_VISIBLE_DEVICES for AMD GPUs; replaces an inherited value")                                      \
    X(DDPRUN_OWN_GPU, "%s", "1", f->visible != NULL,                                                         \
      "each worker sees a separate GPU (--virtual_local_rank)")                                              \
    X(DDP_SHARE_GPU, "%s", "1", f->share_gpu, "several workers share one GPU (--share_gpu)")                 \
    X(OMP_NUM_THREADS, "%s", "1", f->set_omp, "1 with several workers, unless inherited")                    \
    X(DDPRUN_STORE, "%s", "1", !f->rank0_store, "the store supports ddprun's own requests")                  \
    X(DDPRUN_JOB, "%s", f->job, true, "job id")                                                              \
    X(DDPRUN_ATTEMPT, "%d", f->attempt, true, "number of earlier starts of the workers")                     \
    X(DDPRUN_INIT_TIMEOUT_MS, "%llu", (unsigned long long)f->timeout_ms, f->timeout_ms > 0,                  \
      "how long workers wait for each other (--timeout)")                                                    \
    X(DDPRUN_COOKIE, "%s", f->cookie, f->cookie != NULL, "random text that identifies this job's processes") \
    X(DDPRUN_FLIGHT_SHM, "%s", f->page, f->page[0] != '\0',                                                  \
      "shared memory where libddp records steps and calls")                                                  \
    X(DDP_FLIGHT_RECORDER, "%s%s", ENV_PATH(f->flight), f->flight != NULL,                                   \
      "directory of libddp's flight records")                                                                \
    X(TORCH_FR_BUFFER_SIZE, "%s", f->torch_calls, f->torch_flight != NULL,                                   \
      "--flight_recorder: number of calls in PyTorch's record (2000, or the inherited value)")               \
    X(TORCH_FR_DUMP_ON_TIMEOUT, "%s", "1", f->torch_flight != NULL,                                          \
      "--flight_recorder: at a timeout, PyTorch writes its record")                                          \
    X(TORCH_FR_DUMP_TEMP_FILE, "%s%s/" FLIGHT_TORCH_STEM, ENV_PATH(f->torch_flight),                         \
      f->torch_flight != NULL,                                                                               \
      "--flight_recorder: path prefix of PyTorch's records; PyTorch appends the rank")                       \
    X(TORCH_NCCL_DEBUG_INFO_PIPE_FILE, "%s%s/" FLIGHT_PIPE_STEM, ENV_PATH(f->torch_flight),                  \
      f->torch_flight != NULL && f->torch_pipes,                                                             \
      "--flight_recorder: prefix of FIFO paths; PyTorch appends the rank; ddprun writes to a "               \
      "FIFO to request a record")                                                                            \
    X(TORCH_NCCL_TRACE_BUFFER_SIZE, "%s", f->torch_calls, f->torch_flight != NULL,                           \
      "old name of TORCH_FR_BUFFER_SIZE (before PyTorch 2.9)")                                               \
    X(TORCH_NCCL_DUMP_ON_TIMEOUT, "%s", "1", f->torch_flight != NULL,                                        \
      "old name of TORCH_FR_DUMP_ON_TIMEOUT (before PyTorch 2.9)")                                           \
    X(TORCH_NCCL_DEBUG_INFO_TEMP_FILE, "%s%s/" FLIGHT_TORCH_STEM, ENV_PATH(f->torch_flight),                 \
      f->torch_flight != NULL, "old name of TORCH_FR_DUMP_TEMP_FILE (before PyTorch 2.9)")                   \
    X(DDPRUN_TERMINAL, "%s", "1", f->terminal, "stderr is shown on a terminal")

enum worker_env_var {
#define X(name, ...) ENV_##name,
    WORKER_ENV_LIST(X)
#undef X
        WORKER_ENV_VARS
};

/* Return the name of a variable, for example "DDPRUN_COOKIE" for ENV_DDPRUN_COOKIE. The text is constant. */
const char *worker_env_name(enum worker_env_var var);

/* Length of a job's cookie: 128 random bits in hexadecimal. */
enum { COOKIE_CHARS = 32 };

/* The facts from which the values of a worker's variables are computed. All texts are borrowed. */
struct env_facts {
    int rank, local_rank, world_size, local_world_size, node_rank, nnodes;
    int role_rank, role_size;
    int restart_count, max_restarts; /* number of restarts that --max_restarts limits, and this limit */
    int attempt;                     /* number of earlier starts of the workers, for any reason */
    const char *master_addr;
    int master_port;
    bool rank0_store; /* rank 0 hosts the workers' store; if false, the launcher hosts it */
    const char *job, *role;
    const char *timer_file;     /* path in TORCHELASTIC_TIMER_FILE; NULL to leave it unset */
    const char *signals;        /* names of the signals that stop the job, separated by commas */
    const char *visible;        /* value of CUDA_VISIBLE_DEVICES; NULL to leave it unset */
    bool hip;                   /* set HIP_VISIBLE_DEVICES to `visible` too */
    const char *cookie;         /* value of DDPRUN_COOKIE; NULL to leave it unset */
    const char *directory;      /* working directory with a slash at the end; NULL if not known */
    const char *error_file;     /* path in TORCHELASTIC_ERROR_FILE; may be "" */
    const char *nccl_async;     /* value of TORCH_NCCL_ASYNC_ERROR_HANDLING */
    const char *nccl_async_old; /* value of NCCL_ASYNC_ERROR_HANDLING */
    bool share_gpu;
    bool set_omp;
    bool terminal;                 /* stderr is shown on a terminal */
    char page[FLIGHT_PAGE_TEXT];   /* value of DDPRUN_FLIGHT_SHM; "" to leave it unset */
    const char *flight;            /* directory in DDP_FLIGHT_RECORDER; NULL to leave it unset */
    const char *torch_flight;      /* directory of PyTorch's flight records; NULL if not requested */
    const char *torch_calls;       /* calls that PyTorch's flight recorder keeps, as text */
    bool torch_pipes;              /* FIFOs work in `torch_flight` */
    unsigned long long timeout_ms; /* DDPRUN_INIT_TIMEOUT_MS; 0: unset */
};

/* The part of the environment that all workers of a node share: the variables from --env, and the inherited variables.
 * An inherited variable is left out if --env, or a row of WORKER_ENV_LIST that applies, replaces this variable. Some
 * rows, such as USE_LIBUV, begin to apply only after env_base_init. worker_env_init leaves out the inherited variables
 * of these rows. The texts belong to the launcher's environment and to --env. */
struct env_base {
    const char **entries; /* owned array; the first n_overrides entries are from --env */
    size_t n, n_overrides;
    bool replaced[WORKER_ENV_VARS]; /* rows that --env overrides */
    bool dropped[WORKER_ENV_VARS];  /* rows whose inherited variable is not in `entries` */
};

/* The environment of a worker for execve(2). Each name occurs once. The value of a variable is from the first of these
 * sources that sets the variable:
 *
 *     --env K=V, then the rows of the table, then ddprun's own environment
 *
 * `block` is NULL-terminated. The first n_set entries come from the table and --env. The other entries are
 * inherited. */
struct worker_env {
    char **block;
    size_t n, n_set;
    char *text; /* private: memory for the entries of the table */
};

/* Set the facts that depend on the environment of the launcher: nccl_async, nccl_async_old, hip and set_omp. set_omp
 * becomes true if the node has several workers, and OMP_NUM_THREADS is neither in `inherited` nor in `overrides`. The
 * texts in `facts` may point into `inherited`. */
void env_facts_inherit(struct env_facts *facts, char *const *inherited, const char *const *overrides,
                       size_t n);

/* Compute *base. `overrides` contains "KEY=VALUE" texts. If several texts have the same name, the last text is used.
 * All texts must outlive the base. Return false when memory is short. */
bool env_base_init(struct env_base *base, const struct env_facts *facts, char *const *inherited,
                   const char *const *overrides, size_t n);
void env_base_free(struct env_base *base);

/* Build the environment of a worker. `base` must outlive `env`. Return false when memory is short. */
bool worker_env_init(struct worker_env *env, const struct env_facts *facts, const struct env_base *base);
void worker_env_free(struct worker_env *env);

/* The sources of variables that are not in the table: --env, then ddprun's own environment. All texts are
 * borrowed. */
struct env_sources {
    const char *const *overrides; /* "KEY=VALUE" texts from --env; of equal names, the last is used */
    size_t n;
    char *const *inherited;
};

/* Return the value that a worker gets, or NULL if the variable is not set. The value is borrowed. */
const char *env_sources_find(const struct env_sources *sources, const char *name);

/* Return the value of `name` in an environment block, or NULL. The value points into the block. */
const char *env_find(char *const *environ_block, const char *name);

#endif
