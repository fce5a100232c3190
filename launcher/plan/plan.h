/* plan.h -- the plan of one node: the GPU, CPUs, command, environment and output of each worker. --dry_run prints the
 * plan, and the agent executes the plan. The caller passes the facts about the machine, so that a test can plan for any
 * machine. */
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
    int physical;                       /* number of GPUs in the machine */
    bool hidden;                        /* CUDA_VISIBLE_DEVICES hides all GPUs because it is "" or negative */
    int n;                              /* visible GPUs */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* as in CUDA_VISIBLE_DEVICES: "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* what is wrong in CUDA_VISIBLE_DEVICES, or "" */
};

enum { PLAN_NOTES_MAX = 14, PLAN_PROGRAM_SIZE = 64, PLAN_SENTENCE_MAX = 240 };

enum { TORCH_VERSION_SIZE = 32 };

/* The PyTorch that the workers will import; see torch_find() below. */
struct torch_version {
    bool refuses_stores; /* rejects the launcher's store, and works only with PyTorch's own store */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* directory that contains the package torch */
};

/* Facts about the machine. The caller passes these facts, because plan.c and worker.c read no file. The caller owns
 * the texts, which must outlive the plan. */
struct plan_facts {
    char *const *environ_block; /* ddprun's environment, NULL-terminated */
    int physical_gpus;          /* number of GPUs, from gpu_count() */
    int cpus;                   /* how many CPUs this process may use */
    const char *host;           /* name of this machine */
    bool terminal;              /* stderr is a terminal with a movable cursor */
    /* Value of DDPRUN_COOKIE for the workers. This random text marks the processes of this start. NULL if the kernel
     * provides no random numbers. */
    const char *cookie;
    const char *directory;  /* working directory, with a slash at the end; NULL if unknown */
    const char *nonce;      /* random text, valid in a file name, for job ids and log directories */
    const char *start_time; /* start time of ddprun, valid in a file name */
    const char *tmp_dir;    /* directory for log files without --log_dir; NULL if no directory is safe */
    const char *tmp_note;   /* why TMPDIR is not used; NULL if TMPDIR is used */
    const struct scheduler *scheduler;  /* the scheduler that started ddprun; NULL if not read */
    const struct numa_source *numa;     /* reads /sys for --numa_binding; NULL if --numa_binding is not set */
    const struct python_choice *python; /* Python for scripts and modules; NULL means python3 in PATH */
    const struct torch_version *torch;  /* PyTorch that the program will import; NULL if not found */
    /* beginning of the paths of error files without a log directory; NULL: no error files */
    const char *error_stem;
};

/* The destination of a worker's stdout or stderr. If `console` is false and `file` is NULL, ddprun keeps only the
 * last lines, for the report of a failure. */
struct plan_stream {
    bool console; /* ddprun prints the lines of the stream */
    bool shared;  /* another stream uses the same file */
    char *file;   /* owned by the plan; NULL if the stream has no file */
};

struct plan_worker {
    int rank;
    int local_rank;       /* the index in plan->workers; with --per_task the local rank of the task */
    const char *gpu;      /* the GPU's name in CUDA_VISIBLE_DEVICES, owned by the plan; NULL without a GPU */
    struct rank_set cpus; /* CPUs that the worker may use; if empty, all CPUs that ddprun may use */
    char *visible;        /* owned; CUDA_VISIBLE_DEVICES of the worker; NULL leaves ddprun's value */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the worker's files, created by the agent; may be NULL */
    struct plan_stream out, err;
    char *error_file; /* owned; the file in which the worker describes its failure; may be "" */
};

/* Address and timeouts of the rendezvous. */
struct plan_meeting {
    bool elastic;         /* true: the rendezvous assigns the node ranks; false: the user sets them */
    bool elsewhere;       /* the store may be on another host */
    const char *host;     /* name or address from the options; borrowed */
    int port;             /* 0 means any free port, and is allowed only if the job may start with one node */
    bool port_may_change; /* if `port` is in use, ddprun may choose a free port instead */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1 if the rendezvous assigns the node rank */
    enum host_store host_store;
    uint64_t join_ms;      /* how long to wait for all nodes */
    const char *join_knob; /* option that sets join_ms; a string literal */
    /* Elastic jobs: how long to wait for more nodes after `nnodes_min` nodes have joined. */
    uint64_t last_call_ms;
    uint64_t node_timeout_ms; /* silence after which a node is lost */
    /* The warning LOOPBACK_ADDRESS if other hosts cannot join, else ""; set by the agent. */
    char local_only[PLAN_SENTENCE_MAX];
    /* PROGRAM without its directory; a node with another program is rejected. */
    char program[PLAN_PROGRAM_SIZE];
};

/* The results of one round of the rendezvous for this node. */
struct plan_round {
    int attempt;  /* number of earlier rounds, used in the names of directories */
    int restarts; /* number of earlier rounds that failed: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes;
    int first_rank, world_size; /* first_rank: rank of this node's first worker */
    /* role_size: number of workers with this node's role. role_rank: rank of this node's first worker among these
     * workers. */
    int role_rank, role_size;
    const char *master_addr; /* numeric address, which plan_round copies; NULL keeps the old address */
    int master_port;         /* 0 keeps the old port */
    const char *rank0_addr;  /* host of the store of rank 0; plan_round copies this text; NULL means
                              * master_addr */
    int rank0_port; /* port of the store that rank 0 hosts; 0 if the workers use the launcher's store */
};

struct secret;

/* The plan of a node, which is made in two steps. plan_make decides everything that does not depend on other nodes.
 * plan_round adds the results of a round of the rendezvous: ranks, and the file names and environments that contain
 * ranks. */
struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    struct secret *secret;          /* secret of the job, set and freed by the agent; may be NULL */
    char *credential; /* owned; the secret sealed by MUNGE; NULL without MUNGE, or if no store runs here */
    char *job;        /* owned; the job id */
    struct plan_meeting meeting;
    /* True if --encrypt is set and the store may be on another host. Connections to the store are then encrypted. */
    bool encrypt;
    const char *relay_addr; /* borrowed; where the workers find the relay to the store (net/tls_relay.h) */
    int relay_port;         /* 0 if the workers connect directly to the store */
    int nproc;              /* workers on this node */
    /* The values of the latest round. Before the first round, these values are only a guess if `settled` is false. */
    bool settled; /* the rendezvous cannot change the values below */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port; /* 0: any free port, which the agent sets before the first plan_env */
    /* True if rank 0 hosts the workers' store. Each node then offers a port for this store, because any node may run
     * rank 0. */
    bool rank0_store;
    int offered_port;                   /* port that this node offers when it joins; 0 if it offers no port */
    char rank0_addr[ENDPOINT_HOST_MAX]; /* host of the store that rank 0 hosts; "" means master_addr */
    int rank0_port; /* port of the store that rank 0 hosts; 0 if the workers use the launcher's store */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;    /* see struct plan_round */
    int attempt, restarts;       /* see struct plan_round */
    int first_nnodes;            /* number of nodes in the first round; 0 before this round */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* owned; the job's directory below --log_dir; may be NULL */
    bool prefix;                 /* lines on the console have a prefix */
    struct prefix line_prefix;   /* the prefix; borrows text of cli or the environment */
    char *filtered[2];           /* owned; paths of the filtered stdout and stderr logs; may be NULL */
    struct plan_worker *workers; /* owned; `nproc` workers */
    /* Shared memory of the workers' flight records; page.pid is 0 without it. */
    struct flight_page page;
    bool can_fifo; /* FIFOs work in the attempt's log directory; set by logdir_attempt */
    /* Owned; beginning of the paths of flight records; NULL without a log directory. */
    char *flight;
    const char *script;  /* see program_script(); borrowed from cli */
    char *timer_file;    /* owned; FIFO of torchrun's file timer, created by the agent; may be NULL */
    char *stop_signals;  /* owned; names of the signals that stop the job */
    struct env_base env; /* common part of the workers' environments */
    /* How the workers' processes are kept together; borrowed, set by the agent. */
    const char *contained_by;
    /* Owned: sentences for the user. NULL follows the last sentence if the array is not full. */
    char *notes[PLAN_NOTES_MAX];
};

/* Make the plan. After DDP_OK the caller frees *plan with plan_free. Return DDP_ERR_ARG for a usage error, or
 * DDP_ERR_NOMEM. After an error there is nothing to free. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Return true if --rdzv_endpoint has an effect. --standalone overrides --rdzv_endpoint, as in torchrun. */
bool plan_has_endpoint(const struct cli *cli);

/* Choose address and port of the store. The caller has set m->elastic and m->nnodes_max. If a default port is in use
 * and no other node needs this port, ddprun may choose another port. A port that the user has set is never changed. */
void plan_choose_place(struct plan_meeting *m, const struct cli *cli);

/* Return true if lines of this worker's stream have a prefix on the console. `which` is STD_OUT or STD_ERR. If
 * ddprun was started as torchrun, only streams of --tee have a prefix. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Set the ranks and the paths of the workers for a round. The old paths become invalid. Return DDP_ERR_ARG if
 * --log_file gives two workers the same file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* Return the current round with another attempt number, for a job of one node. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* Record the port that this node offers for the workers' store. The port is used if rank 0 runs on this node. Call this
 * function before the node joins. */
void plan_offer_port(struct plan *plan, int port);

/* Return true if MUNGE delivers the secret of a store at this address. MUNGE delivers the secret if a scheduler has
 * started a job of several nodes, and neither --secret_file nor --insecure is set. */
bool plan_uses_munge(const struct plan *plan, const char *address);

/* Return true if this node must get the key of --encrypt from MUNGE before the node can encrypt. */
bool plan_asks_for_key(const struct plan *plan);

/* Return true if this worker reads ddprun's stdin. */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Return true if colours are allowed. NO_COLOR (https://no-color.org) and TERM=dumb forbid colours. */
bool plan_wants_colour(const struct plan *plan);

/* Return the pattern of the paths of the workers' flight records, for flight_path(). Return NULL if no records are
 * written to files. The text is borrowed. */
const char *plan_flight(const struct plan *plan);

/* Build the environment of a worker. After DDP_OK the caller frees *env with worker_env_free, before the plan is
 * freed. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* Append the plan for --dry_run to `out`, as text or as a JSON object. Return false if memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- facts about this machine (machine.c) ------------------------------------------------------------------- */

/* Return the number of GPUs that the driver shows, or 0 without a driver. */
int gpu_count(void);

/* The processes that compute on a GPU. */
struct gpu_users {
    int count;
    /* Number of processes whose owner is unknown; 1 if the GPU cannot be read. `count` does not include these
     * processes. If this number is not 0, `mode` may be unknown. */
    int unknown;
    int pid;        /* the process with the most memory on this GPU */
    uint64_t bytes; /* memory that process `pid` uses on this GPU; 0 if unknown */
    char user[32];  /* owner of process `pid`; "" if /proc hides it */
    /* Compute mode of the GPU, as in nvml.h: 0 allows any number of processes, 2 allows no process, and 3 allows one
     * process. If the mode is unknown, `mode` is 0, too. */
    int mode;
};

enum gpu_owner { GPU_OWNER_OTHER, GPU_OWNER_JOB, GPU_OWNER_UNKNOWN };

/* `find` returns whether a process belongs to this job. The first argument of `find` is `user`. */
struct gpu_owners {
    enum gpu_owner (*find)(const void *user, int pid);
    const void *user;
};

/* Read which processes use each of `n` GPUs, named as in CUDA_VISIBLE_DEVICES. Leave out the processes of this job,
 * which `owners` finds. If `owners` is NULL, leave out no process. The driver may need seconds, or hang. */
void gpu_read_users(const char *const *gpus, int n, const struct gpu_owners *owners, struct gpu_users *out);

/* Write the path of the running program, with all links resolved. Return false if the path is unknown. */
bool own_program(char path[PATH_MAX]);

/* Write PREFIX if the running program is PREFIX/bin/ddprun. Return false otherwise. */
bool own_prefix(char prefix[PATH_MAX]);

/* Return how many CPUs this process may use, at least 1. */
int cpu_count(void);

/* Open the source of NUMA facts for --numa_binding. After DDP_OK the caller closes *source with numa_source_close. */
ddp_status numa_source_open(struct numa_source *source, struct ddp_err *err);
void numa_source_close(struct numa_source *source);

/* Return the text of a file, which the caller frees. Return NULL if `path` is NULL, or if the file cannot be read, is
 * not a plain file or is longer than SCHEDULER_FILE_MAX. Store the length in *len. If `len` is NULL, also return NULL
 * for a text with a NUL byte, because the text after the NUL would be ignored. */
char *scheduler_read_file(const char *path, size_t *len);

/* --- PyTorch (machine.c) --------------------------------------------------------------------------------------- */

/* PyTorch 2.4 or later without libuv accepts only its own store, and rejects the launcher's store. So the launcher
 * checks the version of PyTorch, and whether it has libuv, before the start. The check only reads a few files of
 * PyTorch, because an import of torch takes seconds. */

/* Find the package torch that `python` imports in the workers' environment. `python` is a path, or a name in PATH.
 * Return false if torch is in none of the usual directories. */
bool torch_find(const char *python, const struct env_sources *env, struct torch_version *torch);

/* Find a program in the workers' PATH and write its path. If the name contains a '/', use the name itself as the path.
 * Return false if no executable file is found. */
bool env_find_program(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
