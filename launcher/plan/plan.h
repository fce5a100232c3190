/* plan.h -- the plan of one node, made before any process starts: the place, command, environment and output of each
 * worker.
 *
 * The plan has two steps. plan_make decides what is known before the nodes join. plan_round adds the results of a
 * round: ranks, and the names and environments that contain ranks. The first round and every later round work in the
 * same way. --dry_run prints the plan. The shell carries out the plan. GPUs, CPUs, host and a random text are
 * arguments, so this module reads no file itself. */
#ifndef LAUNCHER_PLAN_PLAN_H
#define LAUNCHER_PLAN_PLAN_H

#include "cli/cli.h"
#include "plan/gpus.h"
#include "plan/numa.h"
#include "plan/scheduler.h"
#include "plan/torch_look.h"
#include "tables/worker_env.h"
#include "tables/prefix.h"

enum { PLAN_NOTES_MAX = 14, PLAN_PROGRAM_SIZE = 64, PLAN_SENTENCE_MAX = 240 };

/* Facts about the machine. All texts are borrowed and must outlive the plan. */
struct plan_facts {
    char *const *environ_block;
    int physical_gpus;
    int cpus; /* number of CPUs that this process may use */
    const char *host;
    bool terminal;          /* ddprun's stderr is a terminal that can move its cursor */
    const char *cookie;     /* random, new for each start; NULL = no random numbers are available */
    const char *nonce;      /* random, valid in a file name; random job ids and log directories end in it */
    const char *start_time; /* for a file name, to the second */
    const char *
        tmp_dir; /* parent of log files if --tee or --redirects are set without --log_dir; NULL = no directory
                  * is safe */
    const char *tmp_note;               /* why the user's TMPDIR is not used; NULL = TMPDIR is used */
    const struct scheduler *scheduler;  /* the scheduler of this process; NULL = not read */
    const struct numa_look *numa;       /* for --numa_binding; NULL = not requested */
    const struct python_choice *python; /* see worker.h; NULL = python3 in PATH */
    const struct torch_look *torch;     /* PyTorch that the program will import; NULL = none was found */
    const char *error_stem; /* first part of the error files' paths if there is no log directory; NULL
                             * = none */
};

/* Target of one stream of a worker. Both console and file = tee. Without both, only the last lines are kept for the
 * report. */
struct plan_stream {
    bool console;
    bool shared; /* another stream uses the same file */
    char *file;  /* owned by the plan; NULL = no file */
};

struct plan_worker {
    int rank, local_rank;
    const char *gpu;      /* the GPU's name in CUDA_VISIBLE_DEVICES; NULL = no GPU. Borrowed from the plan. */
    struct rank_set cpus; /* owned; CPUs that the worker may use, empty = inherited */
    char *visible;        /* owned; the worker's CUDA_VISIBLE_DEVICES, NULL = inherited */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the files below, created by the shell; NULL = none */
    struct plan_stream out, err;
    char *error_file; /* owned; "" = none */
};

/* Address and timeouts of the rendezvous. */
struct plan_meeting {
    bool elastic; /* true = elastic; false = static, the user gives the node ranks */
    bool
        elsewhere; /* another node may host the store: --rdzv_endpoint is set, or the job has several nodes */
    const char *host;     /* as the user wrote it, an address or a name; borrowed */
    int port;             /* 0 = any free port (only for one node) */
    bool port_may_change; /* a default port: if the port is in use, choose and report a free port */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1 = assigned by the rendezvous */
    enum host_store host_store;
    uint64_t join_ms;      /* time for all nodes to join */
    const char *join_knob; /* the option that sets join_ms, for messages; static */
    uint64_t last_call_ms, node_timeout_ms;
    /* The warning LOOPBACK_ADDRESS if other hosts cannot join through `host`, else "". The shell writes it. */
    char local_only[PLAN_SENTENCE_MAX];
    char program[PLAN_PROGRAM_SIZE]; /* the program's name without directories, to detect nodes of
                                      * another job */
};

/* The results of one round of the rendezvous for this node. */
struct plan_round {
    int attempt;  /* number of rounds before this round; a part of directory names */
    int restarts; /* number of earlier rounds that ended in a failure: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* rank and size among the workers with this node's role */
    const char *master_addr;  /* numeric; copied. NULL = unchanged */
    int master_port;          /* 0 = unchanged */
    const char *rank0_addr;   /* host of the workers' store if rank 0 hosts it; copied. NULL = the launcher's
                             * store is used */
    int rank0_port;           /* 0 = the workers use the launcher's store */
};

struct secret;

struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    const struct secret
        *secret; /* secret of the job, set by the agent, which reads --secret_file; NULL = none */
    char *job;
    struct plan_meeting meeting;
    int nproc;
    /* The round's values. Before the first round they are a guess, unless `settled`. */
    bool settled; /* the rendezvous cannot change the values below */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port;  /* 0 = any free port; the shell writes the real port here before the first plan_env */
    bool rank0_store; /* the workers' PyTorch rejects other stores, so the node offers a port to its rank 0 */
    int offered_port; /* port offered to rank 0 for its store, 0 = none; set by the shell before the node joins */
    char rank0_addr[ENDPOINT_HOST_MAX]; /* host of the workers' store if rank 0 hosts it; "" = master_addr */
    int rank0_port; /* port of the workers' store if rank 0 hosts it; 0 = the workers use the
                              * launcher's store */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;
    int attempt, restarts;
    int first_nnodes;            /* number of nodes in the first round; 0 = no round yet */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* the job's own directory below --log_dir; NULL = none */
    bool prefix;                 /* lines on the console have a prefix */
    struct prefix line_prefix;   /* the prefix, if `prefix` is true; borrowed from cli or the environment */
    char *filtered[2];           /* owned; files of --duplicate_stdout_filters and _stderr_; NULL = none */
    struct plan_worker *workers; /* array of `nproc` workers */
    struct flight_page page;     /* owned; directory of the attempt's flight records, NULL = no log files */
    char *flight;                /* owned; path for the flight records of the attempt, NULL = no log files */
    const char *script;          /* borrowed from cli; the file that Python runs, see program_script() */
    char *timer_file;            /* owned; FIFO of torchrun's file timer, created by the shell; NULL = none */
    char *stop_signals;          /* owned; names of the signals that stop the job */
    struct env_base env;         /* the common part of the workers' environments */
    const char
        *contained_by; /* description of the containment for --dry_run and --verbose; borrowed, set by the
                                  * shell */
    char *notes
        [PLAN_NOTES_MAX]; /* sentences for the user; NULL after the last sentence, unless the array is full */
};

/* Make the plan. After DDP_OK the caller frees the plan with plan_free. Return DDP_ERR_ARG for a usage error (exit
 * 2), or DDP_ERR_NOMEM if memory is short. After an error, the caller frees nothing. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Return true if this worker's lines on the console have a prefix. `which` is STD_OUT or STD_ERR. If ddprun was
 * started as torchrun, streams that --tee does not name have no prefix, even if `plan->prefix` is set. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Compute ranks and paths of the workers for a round. No caller may still borrow the old paths. Return DDP_ERR_ARG if
 * a --log_file pattern gives two workers the same file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* Return the current round of this node with another attempt number, for a job of one node. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* Offer a port of this node at which its rank 0 may host the workers' store. Call this before the node joins. A
 * single node decides at once, without a round. */
void plan_offer_port(struct plan *plan, int port);

/* Return true if this worker reads ddprun's stdin. */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Return true if the user accepts colours on a terminal. NO_COLOR (https://no-color.org) and TERM=dumb forbid
 * them. */
bool plan_wants_colour(const struct plan *plan);

/* Return the path of the workers' flight records for flight_path(), or NULL if the job has none. The path is borrowed
 * from the plan or the environment. */
const char *plan_flight(const struct plan *plan);

/* Build the environment of one worker, with the current port. After DDP_OK the caller frees the environment with
 * worker_env_free, before the plan is freed. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* Print the plan for --dry_run, as text or as one JSON object. Return false if memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- facts about this machine (machine.c) ------------------------------------------------------------------- */

/* Return the number of GPUs that the driver shows to this process, or 0 without a driver. */
int gpu_count(void);

/* The processes that compute on a GPU. */
struct gpu_users {
    int count;
    int pid;        /* of the process with the most memory */
    uint64_t bytes; /* its memory on the GPU; 0 = not known */
    char user[32];  /* its owner; "" = not known, because the process is hidden */
};

/* Read the processes on `n` GPUs, by their names in CUDA_VISIBLE_DEVICES. A GPU whose processes cannot be read has
 * count 0. The driver may need seconds, or hang. */
void gpu_read_users(const char *const *gpus, int n, struct gpu_users *out);

/* Write the path of the running program, with links resolved. */
bool own_program(char path[PATH_MAX]);

/* Find PREFIX, if the program is PREFIX/bin/ddprun. Return false if the program is not in a directory called bin. */
bool own_prefix(char prefix[PATH_MAX]);

/* Return the number of CPUs that this process may use, at least 1. */
int cpu_count(void);

/* Prepare reading for --numa_binding. After DDP_OK the caller calls numa_look_close after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

/* Return the text of a file, which the caller frees. Return NULL if the file is missing, unreadable, not a plain
 * file, or longer than SCHEDULER_FILE_MAX, or if `path` is NULL. */
char *scheduler_read_file(const char *path);

#endif
