/* plan.h -- the plan of one node: the GPU, CPUs, command, environment and output of each worker. The caller passes
 * the facts about the machine, so that a test can plan for any machine. */
#ifndef LAUNCHER_PLAN_PLAN_H
#define LAUNCHER_PLAN_PLAN_H

#include "cli/cli.h"
#include "plan/numa.h"
#include "plan/scheduler.h"
#include "tables/worker_env.h"
#include "tables/prefix.h"

#include <limits.h>

/* The GPUs that the workers see. */
enum { GPUS_MAX = 256, GPU_NAME_MAX = 96 };

struct gpu_list {
    int physical;                       /* GPUs in the machine */
    bool hidden;                        /* CUDA_VISIBLE_DEVICES is "" or negative */
    int n;                              /* visible GPUs */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* as in CUDA_VISIBLE_DEVICES: "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* mistake in CUDA_VISIBLE_DEVICES, or "" */
};

enum { PLAN_NOTES_MAX = 14, PLAN_PROGRAM_SIZE = 64, PLAN_SENTENCE_MAX = 240 };

enum { TORCH_VERSION_SIZE = 32 };

/* The PyTorch that the workers will import. */
struct torch_version {
    bool refuses_stores; /* works only with PyTorch's own store */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* directory of the package torch */
};

/* Facts about the machine, because plan.c and worker.c read no file. The caller owns the texts, which must outlive
 * the plan. */
struct plan_facts {
    char *const *environ_block; /* ddprun's environment, NULL-terminated */
    int physical_gpus;          /* result of gpu_count() */
    int cpus;                   /* CPUs that this process may use */
    const char *host;           /* name of this machine */
    bool terminal;              /* stderr is a terminal with a movable cursor */
    /* DDPRUN_COOKIE of the workers: random text that marks the processes of this start; NULL without random
     * numbers */
    const char *cookie;
    const char *directory;  /* working directory with a slash at the end; NULL if unknown */
    const char *nonce;      /* random text for job ids and file names */
    const char *start_time; /* start time of ddprun, valid in a file name */
    const char *tmp_dir;    /* directory for log files without --log_dir; NULL if no directory is safe */
    const char *tmp_note;   /* why TMPDIR is not used; NULL if it is */
    const struct scheduler *scheduler;  /* the scheduler that started ddprun; NULL if not read */
    const struct numa_source *numa;     /* reads /sys for --numa_binding; NULL without it */
    const struct python_choice *python; /* Python for scripts and modules; NULL: python3 in PATH */
    const struct torch_version *torch;  /* PyTorch that the program will import; NULL if not found */
    /* beginning of the paths of error files without a log directory; NULL: no error files */
    const char *error_stem;
};

/* The destination of a worker's stdout or stderr. Without console and file, only the last lines are kept. */
struct plan_stream {
    bool console; /* ddprun prints the lines */
    bool shared;  /* another stream uses the same file */
    char *file;   /* owned; NULL without a file */
};

struct plan_worker {
    int rank;
    int local_rank;       /* index in plan->workers; with --per_task the local rank of the task */
    const char *gpu;      /* the GPU's name in CUDA_VISIBLE_DEVICES, owned by the plan; NULL without a GPU */
    struct rank_set cpus; /* usable CPUs; empty: all of ddprun's */
    char *visible;        /* owned; the worker's CUDA_VISIBLE_DEVICES; NULL: ddprun's */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the worker's files, created by the agent; may be NULL */
    struct plan_stream out, err;
    char *error_file; /* owned; file that describes the worker's failure; may be "" */
};

/* Address and timeouts of the rendezvous. */
struct plan_meeting {
    bool elastic;         /* the rendezvous assigns the node ranks, not the user */
    bool elsewhere;       /* the store may be on another host */
    const char *host;     /* name or address from the options; borrowed */
    int port;             /* 0: any free port, if the job may start with one node */
    bool port_may_change; /* if `port` is in use, ddprun may choose another */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1: assigned by the rendezvous */
    enum host_store host_store;
    uint64_t join_ms;      /* longest wait for all nodes */
    const char *join_knob; /* option that sets join_ms; a string literal */
    /* Elastic jobs: how long to wait for more nodes after `nnodes_min` nodes have joined. */
    uint64_t last_call_ms;
    uint64_t node_timeout_ms; /* silence after which a node is lost */
    /* The warning LOOPBACK_ADDRESS if other hosts cannot join, else ""; set by the agent. */
    char local_only[PLAN_SENTENCE_MAX];
    /* PROGRAM without its directory; all nodes must have the same. */
    char program[PLAN_PROGRAM_SIZE];
};

/* The results of one round of the rendezvous. */
struct plan_round {
    int attempt;  /* number of earlier rounds */
    int restarts; /* number of failed rounds: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes;
    int first_rank, world_size; /* first_rank: of this node's first worker */
    /* The same among the workers of this node's role. */
    int role_rank, role_size;
    const char *master_addr; /* numeric, copied; NULL: no change */
    int master_port;         /* 0: no change */
    const char *rank0_addr;  /* host of rank 0's store, copied; NULL: master_addr */
    int rank0_port;          /* port of rank 0's store; 0: the launcher's store is used */
};

struct secret;

/* The plan of a node. plan_make decides everything that does not depend on other nodes. plan_round adds the ranks of
 * a round, and the names and environments that contain them. */
struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    struct secret *secret;          /* secret of the job, set and freed by the agent; may be NULL */
    char *credential; /* owned; the secret sealed by MUNGE, for a store on this node; may be NULL */
    char *job;        /* owned */
    struct plan_meeting meeting;
    /* True with --encrypt if the store may be on another host. */
    bool encrypt;
    const char *relay_addr; /* borrowed; the relay to the store (net/tls_relay.h) */
    int relay_port;         /* 0: the workers connect directly */
    int nproc;              /* workers on this node */
    /* Values of the round. Before the first round, they are a guess unless `settled`. */
    bool settled; /* the rendezvous cannot change these values */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port; /* 0: any free port, which the agent sets before the first plan_env */
    /* Rank 0 hosts the workers' store. Each node offers a port, because rank 0 may run there. */
    bool rank0_store;
    int offered_port;                   /* port of this node's offer; 0: none */
    char rank0_addr[ENDPOINT_HOST_MAX]; /* host of rank 0's store; "": master_addr */
    int rank0_port;                     /* port of rank 0's store; 0: the launcher's store is used */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;    /* see struct plan_round */
    int attempt, restarts;       /* see struct plan_round */
    int first_nnodes;            /* nodes in the first round; 0 before it */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* owned; the job's directory below --log_dir; may be NULL */
    bool prefix;                 /* lines on the console have a prefix */
    struct prefix line_prefix;   /* the prefix; borrows text of cli or the environment */
    char *filtered[2];           /* owned; filtered stdout and stderr logs; may be NULL */
    struct plan_worker *workers; /* owned; `nproc` workers */
    /* Shared memory of the workers' flight records; page.pid is 0 without it. */
    struct flight_page page;
    bool can_fifo; /* FIFOs work in the attempt's log directory; set by logdir_attempt */
    /* Owned; beginning of the paths of flight records; NULL without a log directory. */
    char *flight;
    const char *script;  /* borrowed from cli; see program_script() */
    char *timer_file;    /* owned; FIFO of torchrun's file timer, created by the agent; may be NULL */
    char *stop_signals;  /* owned; names of the signals that stop the job */
    struct env_base env; /* common part of the workers' environments */
    /* How the workers' processes are kept together; borrowed, set by the agent. */
    const char *contained_by;
    /* Owned: sentences for the user. NULL follows the last one, unless the array is full. */
    char *notes[PLAN_NOTES_MAX];
};

/* Make the plan. After DDP_OK, the caller frees *plan with plan_free. Return DDP_ERR_ARG for a usage error, or
 * DDP_ERR_NOMEM, with nothing to free. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Return true if --rdzv_endpoint has an effect. As in torchrun, --standalone overrides it. */
bool plan_has_endpoint(const struct cli *cli);

/* Choose address and port of the store. The caller has set m->elastic and m->nnodes_max. Only a default port that no
 * other node needs may be replaced. */
void plan_choose_place(struct plan_meeting *m, const struct cli *cli);

/* Return true if this worker's stream has a prefix on the console. If ddprun was started as torchrun, only streams of
 * --tee have one. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Set the ranks and the paths of the workers for a round; the old paths become invalid. Return DDP_ERR_ARG if
 * --log_file gives two workers the same file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* Return the current round of a one-node job with another attempt number. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* Record the port that this node offers for the workers' store, before the node joins. Rank 0's node uses its port. */
void plan_offer_port(struct plan *plan, int port);

/* Return true if MUNGE delivers the secret of a store at `address`: in a scheduler's job of several nodes, without
 * --secret_file and --insecure. */
bool plan_uses_munge(const struct plan *plan, const char *address);

/* Return true if this node needs the key of --encrypt from MUNGE. */
bool plan_asks_for_key(const struct plan *plan);

/* Return true if this worker reads ddprun's stdin. */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Return true unless NO_COLOR (https://no-color.org) or TERM=dumb forbids colours. */
bool plan_wants_colour(const struct plan *plan);

/* Return the pattern of the flight records' paths, for flight_path(), or NULL. The text is borrowed. */
const char *plan_flight(const struct plan *plan);

/* Build the environment of a worker. After DDP_OK, the caller frees *env with worker_env_free, before the plan. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* Append the plan for --dry_run, as text or as a JSON object. Return false if memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- facts about this machine (machine.c) ------------------------------------------------------------------- */

/* Return the number of GPUs that the driver shows, or 0 without a driver. */
int gpu_count(void);

/* The processes that compute on a GPU. */
struct gpu_users {
    int count;
    /* Number of processes, not in `count`, whose owner is unknown; 1 if the GPU cannot be read. `mode` may
     * then be unknown. */
    int unknown;
    int pid;        /* the process with the most memory on this GPU */
    uint64_t bytes; /* memory of process `pid` on this GPU; 0 if unknown */
    char user[32];  /* owner of process `pid`; "" if /proc hides it */
    /* Compute mode of nvml.h: 0 allows any number of processes (or is unknown), 2 none, 3 one. */
    int mode;
};

enum gpu_owner { GPU_OWNER_OTHER, GPU_OWNER_JOB, GPU_OWNER_UNKNOWN };

/* `find` returns whether a process belongs to this job. */
struct gpu_owners {
    enum gpu_owner (*find)(const void *user, int pid);
    const void *user;
};

/* Read which processes use each of `n` GPUs, named as in CUDA_VISIBLE_DEVICES, without those of this job (`owners`;
 * may be NULL). The driver may need seconds, or hang. */
void gpu_read_users(const char *const *gpus, int n, const struct gpu_owners *owners, struct gpu_users *out);

/* Write the path of the running program, with links resolved. Return false if it is unknown. */
bool own_program(char path[PATH_MAX]);

/* Write PREFIX if the running program is PREFIX/bin/ddprun, else return false. */
bool own_prefix(char prefix[PATH_MAX]);

/* Return the number of CPUs that this process may use, at least 1. */
int cpu_count(void);

/* Open the source of NUMA facts. After DDP_OK, the caller closes *source with numa_source_close. */
ddp_status numa_source_open(struct numa_source *source, struct ddp_err *err);
void numa_source_close(struct numa_source *source);

/* Return the text of a file, which the caller frees, and its length in *len. Return NULL if `path` is NULL, not a
 * readable plain file, or longer than SCHEDULER_FILE_MAX. If `len` is NULL, also reject a NUL byte. */
char *scheduler_read_file(const char *path, size_t *len);

/* --- PyTorch (machine.c) --------------------------------------------------------------------------------------- */

/* PyTorch 2.4 or later without libuv accepts only its own store, so the launcher checks it before the start. The
 * check reads a few files, because an import of torch takes seconds. */

/* Find the torch that `python`, a path or a name in PATH, imports in the workers' environment. Return false if none
 * is in the usual directories. */
bool torch_find(const char *python, const struct env_sources *env, struct torch_version *torch);

/* Find a program in the workers' PATH and write its path; a name with '/' is the path. Return false if no executable
 * file is found. */
bool env_find_program(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
