/* plan.h -- the whole plan of one node before anything is started: who runs where, with what, and writes to
 * where.
 *
 * plan_make decides, --dry_run prints, the shell carries it out. Nothing is looked up here: GPUs, CPUs, host
 * and a random text are arguments. */
#ifndef LAUNCHER_PLAN_H
#define LAUNCHER_PLAN_H

#include "cli/cli.h"
#include "plan/gpus.h"
#include "tables/worker_env.h"
#include "text/prefix.h"

enum { PLAN_NOTES_MAX = 6 };

/* What the machine is like; all of it borrowed and must outlive the plan. */
struct plan_facts {
    char *const *environ_block;
    int physical_gpus;
    int cpus; /* usable by this process */
    const char *host;
    bool terminal;          /* our stderr is one that can move its cursor */
    const char *cookie;     /* random, new for each start; NULL = none: no random numbers to be had */
    const char *nonce;      /* random, fit for a file name: made-up job ids and log directories end in it */
    const char *start_time; /* for a file name, to the second */
    const char *tmp_dir;    /* parent of log files when --tee or --redirects come without --log_dir */
    const char *error_stem; /* how paths of error files begin without log directory; NULL = there are none */
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
    char **argv;     /* owned, NULL-terminated */
    char *log_dir;   /* owned; directory of the files below, to be made by the shell; NULL = none */
    struct plan_stream out, err;
    char *error_file; /* owned; "" = none */
};

struct plan {
    const struct cli *cli;          /* borrowed */
    const struct plan_facts *facts; /* borrowed */
    char *job;
    const char *master_addr; /* borrowed */
    int master_port; /* as asked for, 0 = any; the shell writes the real one here before the first plan_env */
    bool port_may_change; /* nobody asked for this port: take a free one when it is in use, and say so */
    int nproc, world_size, nnodes, node_rank;
    struct gpu_list *gpus;       /* owned */
    char *log_root;              /* the job's own directory below --log_dir; NULL = no files */
    int attempt;                 /* whose paths the workers have now, from 0 */
    bool prefix;                 /* lines on the console have one */
    struct prefix line_prefix;   /* ... and this; borrows from cli or the environment */
    struct plan_worker *workers; /* nproc of them */
    struct env_base env;         /* what the workers' environments have in common */
    const char *contained_by;    /* words for --dry_run and --verbose, borrowed; the shell writes them here */
    char *notes[PLAN_NOTES_MAX]; /* sentences for the user; NULL after the last unless full */
};

/* Decide. DDP_OK: free with plan_free. DDP_ERR_ARG (a usage error: exit 2) and DDP_ERR_NOMEM leave nothing to
 * free. */
ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err);
void plan_free(struct plan *plan);

/* Make the workers' paths anew for another attempt. What borrowed the old ones must be gone. */
ddp_status plan_attempt(struct plan *plan, int attempt, struct ddp_err *err);

/* Does this worker read ddprun's stdin? */
bool plan_gets_input(const struct plan *plan, int local_rank);

/* Does the user want colours on a terminal? NO_COLOR (https://no-color.org) and TERM=dumb say no. */
bool plan_wants_colour(const struct plan *plan);

/* The environment of one worker, with the port that the plan has now. DDP_OK: free with worker_env_free,
 * before the plan. */
ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err);

/* --dry_run, for a person or as one JSON object. False when memory is short. */
bool plan_print(const struct plan *plan, struct buf *out);
bool plan_print_json(const struct plan *plan, struct buf *out);

#endif
