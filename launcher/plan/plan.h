/* plan.h -- the plan of one node before anything is started: who runs where, with what, and writes to where.
 *
 * Two steps. plan_make decides all that is known before the nodes have met, plan_round what a round of the
 * rendezvous has brought: ranks, and the names and environments that hold them. The first round and every later
 * one go the same way. --dry_run prints, the shell carries out. Nothing is looked up here: GPUs, CPUs, host and a
 * random text are arguments. */
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

/* The facts of the machine; all of it borrowed and must outlive the plan. */
struct plan_facts {
    char *const *environ_block;
    int physical_gpus;
    int cpus; /* usable by this process */
    const char *host;
    bool terminal;          /* our stderr is one that can move its cursor */
    const char *cookie;     /* random, new for each start; NULL = none: no random numbers to be had */
    const char *nonce;      /* random, fit for a file name: made-up job ids and log directories end in it */
    const char *start_time; /* for a file name, to the second */
    const char *
        tmp_dir; /* parent of log files when --tee or --redirects come without --log_dir; NULL = none is safe */
    const char *tmp_note;               /* why that is not the one that the user has named, or NULL */
    const struct scheduler *scheduler;  /* around us; NULL = not read */
    const struct numa_look *numa;       /* for --numa_binding; NULL without it */
    const struct python_choice *python; /* of worker.h; NULL = python3 in PATH */
    const struct torch_look *torch; /* that the program will import; NULL = it does not, or none was found */
    const char *error_stem; /* the beginning of the paths of error files without log directory; NULL = none */
};

/* Where one stream of a worker goes. Both = tee; neither: only its last lines are kept, for the report. */
struct plan_stream {
    bool console;
    bool shared; /* another stream has the same file */
    char *file;  /* owned by the plan; NULL = no file */
};

struct plan_worker {
    int rank, local_rank;
    const char *gpu; /* its name in CUDA_VISIBLE_DEVICES' terms; NULL = no GPU. Borrowed from the plan. */
    struct rank_set cpus; /* owned; that it may use, empty = as inherited */
    char *visible;        /* owned; all that it shall see of CUDA_VISIBLE_DEVICES, NULL = as inherited */
    char **argv;          /* owned, NULL-terminated */
    char *log_dir;        /* owned; directory of the files below, to be made by the shell; NULL = none */
    struct plan_stream out, err;
    char *error_file; /* owned; "" = none */
};

/* Where, when and how the nodes meet. */
struct plan_meeting {
    bool elastic;     /* else static: node ranks are given */
    bool elsewhere;   /* another node hosts the store, or may: true with a --rdzv_endpoint or several nodes */
    const char *host; /* as the user wrote it, a literal or a name; borrowed */
    int port;         /* 0 = any, with one node only */
    bool port_may_change; /* a default port: take a free one when it is in use, and report it */
    int nnodes_min, nnodes_max;
    int node_rank; /* -1: the rendezvous decides */
    enum host_store host_store;
    uint64_t join_ms;      /* the one budget to come together ... */
    const char *join_knob; /* ... and what sets it, for messages; static */
    uint64_t last_call_ms, node_timeout_ms;
    /* The warning LOOPBACK_ADDRESS when other hosts cannot join through `host`, else ""; the shell writes it here. */
    char local_only[PLAN_SENTENCE_MAX];
    char program[PLAN_PROGRAM_SIZE]; /* its name without directories: are all nodes in one job? */
};

/* The decisions of one round of the rendezvous about this node. */
struct plan_round {
    int attempt;  /* rounds before this one: names directories */
    int restarts; /* those of them that a failure caused: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* the same among the workers of this node's role */
    const char *master_addr;  /* numeric; copied. NULL = as it was */
    int master_port;          /* 0 = as it was */
    const char
        *rank0_addr; /* where rank 0 hosts the workers' store; copied. NULL = where the launcher's is */
    int rank0_port;  /* 0 = it does not: the launcher's is theirs */
};

struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    char *job;
    struct plan_meeting meeting;
    int nproc;
    /* Of the round; before the first one a guess, unless `settled`. */
    bool settled; /* the rendezvous can change nothing of what follows */
    char master_addr[ENDPOINT_HOST_MAX];
    int master_port;  /* 0 = any; the shell writes the real one here before the first plan_env */
    bool rank0_store; /* what this node's workers run on can use no other: it offers a port to its rank 0 */
    int offered_port; /* of that, 0 = none; the shell writes it here before it joins */
    char rank0_addr
        [ENDPOINT_HOST_MAX]; /* of the round: where rank 0 hosts the workers' store; "" = at master_addr, */
    int rank0_port;          /* ... and its port; 0 = the workers use the launcher's */
    int world_size, nnodes, node_rank;
    int role_rank, role_size;
    int attempt, restarts;
    int first_nnodes;            /* nodes of the first round; 0 = no round yet */
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* the job's own directory below --log_dir; NULL = no files */
    bool prefix;                 /* lines on the console have one */
    struct prefix line_prefix;   /* ... and this; borrows from cli or the environment */
    char *filtered[2];           /* owned; files of --duplicate_stdout_filters and _stderr_; NULL = none */
    struct plan_worker *workers; /* nproc of them */
    struct flight_page page;  /* of the attempt, the first worker's; pid 0 = none, the shell writes it here */
    char *flight;             /* owned; where flight records of the attempt go, NULL = without log files */
    const char *script;       /* borrowed from cli; the file that Python is to run, see program_script() */
    char *timer_file;         /* owned; FIFO of torchrun's file timer, to be made by the shell; NULL = none */
    char *stop_signals;       /* owned; names of the signals that stop the job */
    struct env_base env;      /* what the workers' environments have in common */
    const char *contained_by; /* words for --dry_run and --verbose, borrowed; the shell writes them here */
    char *notes[PLAN_NOTES_MAX]; /* sentences for the user; NULL after the last unless full */
};

/* Decide. DDP_OK: free with plan_free. DDP_ERR_ARG (a usage error: exit 2) and DDP_ERR_NOMEM leave nothing to
 * free. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Do this worker's lines on the console have a prefix? `which` is STD_OUT or STD_ERR. Under the name torchrun those of a stream
 * that --tee leaves out have none, although `plan->prefix` is set. */
bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which);

/* Compute the workers' ranks and paths again for a round. All borrowers of the old ones must be gone. DDP_ERR_ARG:
 * only a pattern of --log_file that gives two workers one file. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err);

/* The round that this node has now, but the next attempt of it: for a job of one node. */
struct plan_round plan_same_round(const struct plan *plan, int attempt);

/* A port of this node at which its rank 0 may host the workers' store, before the node joins. A node that is alone needs no
 * round to know that it is taken. */
void plan_offer_port(struct plan *plan, int port);

/* Does this worker read ddprun's stdin? */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Does the user want colours on a terminal? NO_COLOR (https://no-color.org) and TERM=dumb say no. */
bool plan_wants_colour(const struct plan *plan);

/* The place of the workers' flight records: for flight_path(); NULL = nowhere. Borrowed from the plan, or the
 * environment. */
const char *plan_flight(const struct plan *plan);

/* The environment of one worker, with the port that the plan has now. DDP_OK: free with worker_env_free,
 * before the plan. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* --dry_run, for a person or as one JSON object. False when memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

/* --- what a plan needs from this machine (machine.c) -------------------------------------------------------- */

/* GPUs that the driver shows to this process, 0 when there is no driver. */
int gpu_count(void);

/* The program that runs, with links resolved. */
bool own_program(char path[PATH_MAX]);

/* The directory that ddprun is installed below, PREFIX of PREFIX/bin/ddprun. False: its program is in no directory called bin. */
bool own_prefix(char prefix[PATH_MAX]);

/* CPUs that this process may use, at least 1. */
int cpu_count(void);

/* For --numa_binding. DDP_OK: close with numa_look_close, after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

/* The text of the file at `path`; the caller frees it. NULL: it is missing or unreadable, it is no plain file, or it
 * is longer than SCHEDULER_FILE_MAX. A NULL path is allowed. */
char *scheduler_read_file(const char *path);

#endif
