/* plan.h -- the plan of one node, made before any process starts: the place, command, environment and output of
 * each worker.
 *
 * The plan is made in two steps. plan_make decides what is known before the nodes join. plan_round adds the
 * results of a round: ranks, and the names and environments that contain ranks. --dry_run prints the plan, and the
 * agent executes it. The caller passes GPUs, CPUs, host and random texts, so this module reads no file. */
#ifndef LAUNCHER_PLAN_PLAN_H
#define LAUNCHER_PLAN_PLAN_H

#include "cli/cli.h"
#include "plan/gpus.h"
#include "plan/numa.h"
#include "plan/scheduler.h"
#include "tables/worker_env.h"
#include "tables/prefix.h"

#include <limits.h>

enum { PLAN_NOTES_MAX = 14, PLAN_PROGRAM_SIZE = 64, PLAN_SENTENCE_MAX = 240 };

/* The PyTorch that the workers will import; see torch_look() below. */
enum { TORCH_VERSION_SIZE = 32 };

struct torch_look {
    bool refuses_stores; /* rejects the launcher's store */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* directory that contains the package torch */
};

/* Facts about the machine. The caller owns the texts, which must outlive the plan. */
struct plan_facts {
    char *const *environ_block;
    int physical_gpus;
    int cpus; /* how many CPUs this process may use */
    const char *host;
    bool terminal;          /* ddprun's stderr is a terminal whose cursor can be moved */
    const char *cookie;     /* random text, new for each start; NULL = no random numbers are available */
    const char *nonce;      /* random text, valid in a file name, for job ids and log directories */
    const char *start_time; /* time of the start, valid in a file name */
    const char *tmp_dir;    /* directory for log files without --log_dir; NULL = no directory is safe */
    const char *tmp_note;   /* why TMPDIR is not used; NULL = TMPDIR is used */
    const struct scheduler *scheduler;  /* the scheduler that started this process; NULL = not read */
    const struct numa_look *numa;       /* for --numa_binding; NULL = not requested */
    const struct python_choice *python; /* Python for scripts and modules; NULL = python3 in PATH */
    const struct torch_look *torch;     /* the PyTorch that the program will import; NULL = not found */
    const char *error_stem;             /* start of error file paths without a log directory; NULL = none */
};

/* Where a stream of a worker goes. If neither console nor file is set, only the last lines are kept for the
 * report. */
struct plan_stream {
    bool console;
    bool shared; /* another stream uses the same file */
    char *file;  /* owned by the plan; NULL = no file */
};

struct plan_worker {
    int rank, local_rank;
    const char *gpu;      /* the GPU's name in CUDA_VISIBLE_DEVICES, owned by the plan; NULL = no GPU */
    struct rank_set cpus; /* CPUs that the worker may use; empty = inherited */
    char *visible;        /* owned; CUDA_VISIBLE_DEVICES of the worker; NULL = inherited */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the worker's files, created by the agent; NULL = none */
    struct plan_stream out, err;
    char *error_file; /* owned; "" = none */
};

/* Address and timeouts of the rendezvous. */
struct plan_meeting {
    bool elastic;         /* true = the rendezvous assigns the node ranks; false = the user does */
    bool elsewhere;       /* another node may host the store */
    const char *host;     /* name or address from the options; borrowed */
    int port;             /* 0 = any free port, only in a job of one node */
    bool port_may_change; /* if this default port is in use, ddprun may choose a free port */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1 = the rendezvous assigns it */
    enum host_store host_store;
    uint64_t join_ms;      /* how long to wait for all nodes */
    const char *join_knob; /* name of the option that sets join_ms, for messages */
    uint64_t last_call_ms, node_timeout_ms;
    /* The warning LOOPBACK_ADDRESS if other hosts cannot join at `host`, else "". The agent sets this text. */
    char local_only[PLAN_SENTENCE_MAX];
    char program[PLAN_PROGRAM_SIZE]; /* its name without directory, to detect nodes of another job */
};

/* The results of one round of the rendezvous for this node. */
struct plan_round {
    int attempt;  /* number of earlier rounds, used in the names of directories */
    int restarts; /* number of earlier rounds that failed: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* rank and world size among the workers with the same role */
    const char *master_addr;  /* numeric address, copied; NULL = unchanged */
    int master_port;          /* 0 = unchanged */
    const char *rank0_addr;   /* host of the store that rank 0 hosts, copied; NULL = none */
    int rank0_port; /* port of the store that rank 0 hosts; 0 = the workers use the launcher's store */
};

struct secret;

struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    struct secret *secret;          /* secret of the job, set and freed by the agent; NULL = none */
    char *credential; /* owned; the secret sealed by MUNGE, if this node hosts the store; NULL = none */
    char *job;
    struct plan_meeting meeting;
    bool encrypt;           /* --encrypt applies: the store may be on another host */
    const char *relay_addr; /* borrowed; where the workers find the relay to the store (net/tls_relay.h) */
    int relay_port;         /* 0 = the workers connect to the store itself */
    int nproc;
    /* Values of the round. Before the first round they are a guess, unless `settled` is true. */
    bool settled; /* the rendezvous cannot change the values below */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port;  /* 0 = any free port; the agent sets the real port before the first plan_env */
    bool rank0_store; /* this node offers a port where its rank 0 may host the workers' store */
    int offered_port; /* the offered port, set before the node joins; 0 = none */
    char rank0_addr[ENDPOINT_HOST_MAX]; /* host of the store that rank 0 hosts; "" = master_addr */
    int rank0_port; /* port of the store that rank 0 hosts; 0 = the workers use the launcher's store */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;
    int attempt, restarts;
    int first_nnodes;            /* number of nodes in the first round; 0 = no round yet */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* owned; the job's directory below --log_dir; NULL = none */
    bool prefix;                 /* lines on the console have a prefix */
    struct prefix line_prefix;   /* the prefix; borrows text of cli or the environment */
    char *filtered[2];           /* owned; files of filtered stdout and stderr lines; NULL = none */
    struct plan_worker *workers; /* owned; `nproc` workers */
    struct flight_page page;     /* where the workers find their flight records in memory; pid 0 = nowhere */
    bool can_fifo;       /* FIFOs can be created in the attempt's log directory; set by logdir_attempt */
    char *flight;        /* owned; start of the paths of the attempt's flight records; NULL = no log files */
    const char *script;  /* see program_script(); borrowed from cli */
    char *timer_file;    /* owned; FIFO of torchrun's file timer, created by the agent; NULL = none */
    char *stop_signals;  /* owned; names of the signals that stop the job */
    struct env_base env; /* common part of all workers' environments */
    const char *contained_by; /* the containment, for --dry_run and --verbose; borrowed, set by the agent */
    char *notes
        [PLAN_NOTES_MAX]; /* owned; sentences for the user; NULL after the last, unless the array is full */
};

/* Make the plan. After DDP_OK the caller frees it with plan_free. Return DDP_ERR_ARG for a usage error, or
 * DDP_ERR_NOMEM. After an error there is nothing to free. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Return true if lines of this worker's stream have a prefix on the console. `which` is STD_OUT or STD_ERR. If
 * ddprun was started as torchrun, only streams of --tee have a prefix. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Set the ranks and the paths of the workers for a round. The old paths become invalid. Return DDP_ERR_ARG if
 * --log_file gives two workers the same file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* Return the current round with another attempt number, for a job of one node. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* Record the port where this node's rank 0 may host the workers' store. Call this before the node joins. In a job
 * of one node, rank 0 uses the port. */
void plan_offer_port(struct plan *plan, int port);

/* Return true if MUNGE delivers the secret of a store at this address: the job has several nodes, which a scheduler has
 * started, and neither a secret nor --insecure. */
bool plan_uses_munge(const struct plan *plan, const char *address);

/* Return true if this node must get the key of --encrypt from MUNGE before it can encrypt. */
bool plan_asks_for_key(const struct plan *plan);

/* Return true if this worker reads ddprun's stdin. */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Return true if colours are allowed. NO_COLOR (https://no-color.org) and TERM=dumb forbid them. */
bool plan_wants_colour(const struct plan *plan);

/* Return the argument of flight_path() for the workers' flight records, or NULL if the job has no records. The
 * text is borrowed. */
const char *plan_flight(const struct plan *plan);

/* Build the environment of a worker. After DDP_OK the caller frees it with worker_env_free, before the plan is
 * freed. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* Append the plan for --dry_run to `out`, as text or as a JSON object. Return false if memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- facts about this machine (machine.c) ------------------------------------------------------------------- */

/* Return how many GPUs the driver shows to this process; 0 without a driver. */
int gpu_count(void);

/* The processes that compute on a GPU. */
struct gpu_users {
    int count;
    int pid;        /* the process with the most memory on this GPU */
    uint64_t bytes; /* memory of this process there; 0 = not known */
    char user[32];  /* owner of this process; "" = not known, because the process is hidden */
    int mode;       /* compute mode of nvml.h: 0 = any number of processes, 2 = none, 3 = one process */
};

/* Read which processes use each of `n` GPUs, named as in CUDA_VISIBLE_DEVICES. If a GPU cannot be read, its count
 * is 0. The driver may need seconds, or hang. */
void gpu_read_users(const char *const *gpus, int n, struct gpu_users *out);

/* Write the path of the running program, without links. Return false if the path is unknown. */
bool own_program(char path[PATH_MAX]);

/* Write PREFIX if the running program is PREFIX/bin/ddprun. Return false otherwise. */
bool own_prefix(char prefix[PATH_MAX]);

/* Return how many CPUs this process may use, at least 1. */
int cpu_count(void);

/* Fill `look` for --numa_binding. After DDP_OK the caller calls numa_look_close when `look` is no longer used. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

/* Return the text of a file, which the caller frees. Return NULL if `path` is NULL, the file cannot be read or is
 * not a plain file, or the file is longer than SCHEDULER_FILE_MAX. */
char *scheduler_read_file(const char *path);

/* --- PyTorch (machine.c) --------------------------------------------------------------------------------------- */

/* PyTorch 2.4 and later, if built without libuv, rejects every store except its own, and no variable changes this.
 * So the launcher checks PyTorch before any worker starts. The check reads a few files in the directories where
 * Python searches. It does not start Python, because importing torch takes seconds. */

/* Find the torch that the interpreter `python` imports in the workers' environment. `python` is a path, or a name
 * in PATH. Return false if no torch is in the usual directories. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look);

/* Find `python` in the workers' PATH and write its path. Return false if PATH does not contain it. */
bool torch_look_python(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
