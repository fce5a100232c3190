/* plan.h -- the plan of one node before anything starts: the place, command, environment and output of each worker.
 *
 * Two steps. plan_make decides what is known before the nodes join; plan_round adds the results of a round: ranks,
 * and the names and environments that contain them. The first round and every later one work the same way. --dry_run
 * prints, the shell carries out. Nothing is looked up here: GPUs, CPUs, host and a random text are arguments. */
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

/* The facts about the machine; all of it is borrowed and must outlive the plan. */
struct plan_facts {
    char *const *environ_block;
    int physical_gpus;
    int cpus; /* usable by this process */
    const char *host;
    bool terminal;          /* our stderr is a terminal that can move its cursor */
    const char *cookie;     /* random, new for each start; NULL = no random numbers are available */
    const char *nonce;      /* random, fit for a file name; random job ids and log directories end in it */
    const char *start_time; /* for a file name, to the second */
    const char *
        tmp_dir; /* parent of log files when --tee or --redirects come without --log_dir; NULL = none is safe */
    const char *tmp_note;               /* why the directory that the user named is not used, or NULL */
    const struct scheduler *scheduler;  /* of this process; NULL = not read */
    const struct numa_look *numa;       /* for --numa_binding; NULL without it */
    const struct python_choice *python; /* of worker.h; NULL = python3 in PATH */
    const struct torch_look *torch;     /* PyTorch that the program will import; NULL = none was found */
    const char *error_stem; /* prefix of the paths of error files without log directory; NULL = none */
};

/* Target of one stream of a worker. Both = tee; neither: only its last lines are kept, for the report. */
struct plan_stream {
    bool console;
    bool shared; /* another stream has the same file */
    char *file;  /* owned by the plan; NULL = no file */
};

struct plan_worker {
    int rank, local_rank;
    const char *gpu;      /* its name as in CUDA_VISIBLE_DEVICES; NULL = no GPU. Borrowed from the plan. */
    struct rank_set cpus; /* owned; CPUs that it may use, empty = inherited */
    char *visible;        /* owned; its CUDA_VISIBLE_DEVICES, NULL = inherited */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the files below, which the shell makes; NULL = none */
    struct plan_stream out, err;
    char *error_file; /* owned; "" = none */
};

/* Address and timeouts of the rendezvous. */
struct plan_meeting {
    bool elastic; /* else static: node ranks are given */
    bool
        elsewhere; /* another node hosts the store, or may host it: true with --rdzv_endpoint or several nodes */
    const char *host;     /* as the user wrote it, a literal or a name; borrowed */
    int port;             /* 0 = any, with one node only */
    bool port_may_change; /* a default port: take a free one if it is in use, and report it */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1: assigned by the rendezvous */
    enum host_store host_store;
    uint64_t join_ms;      /* the time for all nodes to join ... */
    const char *join_knob; /* ... and the option that sets it, for messages; static */
    uint64_t last_call_ms, node_timeout_ms;
    /* The warning LOOPBACK_ADDRESS if other hosts cannot join through `host`, else ""; the shell writes it here. */
    char local_only[PLAN_SENTENCE_MAX];
    char program[PLAN_PROGRAM_SIZE]; /* its name without directories, to detect nodes of another job */
};

/* The decisions of one round of the rendezvous for this node. */
struct plan_round {
    int attempt;  /* rounds before this one; in directory names */
    int restarts; /* those of them that ended in a failure: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* the same among the workers of this node's role */
    const char *master_addr;  /* numeric; copied. NULL = unchanged */
    int master_port;          /* 0 = unchanged */
    const char *rank0_addr; /* host of the workers' store if rank 0 hosts it; copied. NULL = the launcher's */
    int rank0_port;         /* 0 = the workers use the launcher's store */
};

struct secret;

struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    const struct secret *secret;    /* of the job; the agent's, which reads --secret_file; NULL = none */
    char *job;
    struct plan_meeting meeting;
    int nproc;
    /* Of the round; before the first one a guess, unless `settled`. */
    bool settled; /* the rendezvous cannot change any of the following */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port; /* 0 = any; the shell writes the real one here before the first plan_env */
    bool
        rank0_store; /* the workers' PyTorch can use no other store, so the node offers a port to its rank 0 */
    int offered_port; /* of that, 0 = none; the shell writes it here before it joins */
    char rank0_addr
        [ENDPOINT_HOST_MAX]; /* of the round: host of the workers' store if rank 0 hosts it; "" = master_addr, */
    int rank0_port;          /* ... and its port; 0 = the workers use the launcher's */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;
    int attempt, restarts;
    int first_nnodes;            /* nodes of the first round; 0 = no round yet */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* the job's own directory below --log_dir; NULL = no files */
    bool prefix;                 /* lines on the console have a prefix */
    struct prefix line_prefix;   /* ... and this one; borrowed from cli or the environment */
    char *filtered[2];           /* owned; files of --duplicate_stdout_filters and _stderr_; NULL = none */
    struct plan_worker *workers; /* nproc of them */
    struct flight_page page;     /* owned; directory of the attempt's flight records, NULL = no log files */
    char *flight;                /* owned; where flight records of the attempt go, NULL = without log files */
    const char *script;          /* borrowed from cli; the file that Python runs, see program_script() */
    char *timer_file;         /* owned; FIFO of torchrun's file timer, which the shell makes; NULL = none */
    char *stop_signals;       /* owned; names of the signals that stop the job */
    struct env_base env;      /* what the workers' environments have in common */
    const char *contained_by; /* words for --dry_run and --verbose, borrowed; the shell writes them here */
    char *notes[PLAN_NOTES_MAX]; /* sentences for the user; NULL after the last unless full */
};

/* Make the plan. DDP_OK: free with plan_free. DDP_ERR_ARG (a usage error: exit 2) and DDP_ERR_NOMEM: nothing needs to
 * be freed. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Return whether this worker's lines on the console have a prefix. `which` is STD_OUT or STD_ERR. Under the name
 * torchrun, streams that --tee does not name have none, although `plan->prefix` is set. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Compute the workers' ranks and paths again for a round. No borrower of the old ones may remain. DDP_ERR_ARG: only
 * for a --log_file pattern that gives two workers the same file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* Return the current round of this node with the next attempt, for a job of one node. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* Choose a port of this node at which its rank 0 may host the workers' store, before the node joins. A single node
 * needs no round for this decision. */
void plan_offer_port(struct plan *plan, int port);

/* Return whether this worker reads ddprun's stdin. */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Return whether the user accepts colours on a terminal. NO_COLOR (https://no-color.org) and TERM=dumb mean no. */
bool plan_wants_colour(const struct plan *plan);

/* Return the place of the workers' flight records, for flight_path(); NULL = none. Borrowed from the plan or the
 * environment. */
const char *plan_flight(const struct plan *plan);

/* Build the environment of one worker, with the current port. DDP_OK: free with worker_env_free, before the plan. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* Print --dry_run as text or as one JSON object. False if out of memory. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- facts about this machine (machine.c) ------------------------------------------------------------------- */

/* Return the number of GPUs that the driver shows to this process, 0 without a driver. */
int gpu_count(void);

/* Return the running program, with links resolved. */
bool own_program(char path[PATH_MAX]);

/* Find the directory below which ddprun is installed, PREFIX of PREFIX/bin/ddprun. False: its program is not in a
 * directory called bin. */
bool own_prefix(char prefix[PATH_MAX]);

/* Return the number of CPUs that this process may use, at least 1. */
int cpu_count(void);

/* For --numa_binding. DDP_OK: close with numa_look_close, after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

/* Return the text of the file at `path`; the caller frees it. NULL: it is missing, unreadable, not a plain file, or
 * longer than SCHEDULER_FILE_MAX. A NULL path is allowed. */
char *scheduler_read_file(const char *path);

#endif
