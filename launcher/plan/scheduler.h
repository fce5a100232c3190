/* scheduler.h -- the scheduler's values for this job: the number of nodes, this node's rank, the place of the rendezvous. Pure:
 * an environment block in, values out, each with a text about its origin.
 *
 *     defaults  <  scheduler  <  PET_* variables  <  command line         the later wins
 *
 * scheduler_read understands the environment, scheduler_apply fills in options that the user did not set, and
 * reports the differences. --explain prints both. */
#ifndef LAUNCHER_PLAN_SCHEDULER_H
#define LAUNCHER_PLAN_SCHEDULER_H

#include "cli/cli.h"
#include "diagnosis/findings.h"
#include "plan/hosts.h"
#include "tables/schedulers.h"

#include <limits.h>

/* A value that it may provide, and the corresponding option. */
#define SCHEDULER_VALUES(X)    \
    X(NODES, NNODES)           \
    X(NODE_RANK, NODE_RANK)    \
    X(ADDRESS, MASTER_ADDR)    \
    X(PORT, MASTER_PORT)       \
    X(WORKERS, NPROC_PER_NODE) \
    X(JOB, RDZV_ID)

enum scheduler_value_id {
#define X(id, option) SCHEDULER_##id,
    SCHEDULER_VALUES(X)
#undef X
        SCHEDULER_VALUE_COUNT
};

enum {
    SCHEDULER_TEXT_MAX = 256,
    SCHEDULER_WORDS_MAX = 640,
    SCHEDULER_NOTES_MAX = 4,
    SCHEDULER_FILE_MAX = 1048576
};

struct scheduler_facts {
    char *const *environ_block;
    const char *host; /* name of this machine */
    const char *file; /* text of scheduler_file(); NULL = missing or unreadable */
    bool per_task;    /* one worker for each task, so a task is a node to the rendezvous */
};

/* A text as it would be typed, "" = not known, and where it comes from. */
struct scheduler_value {
    char text[SCHEDULER_TEXT_MAX];
    char from[SCHEDULER_TEXT_MAX];
};

/* The layout of tasks: tasks are copies of ddprun that the scheduler has started. */
struct scheduler_tasks {
    bool known;
    int tasks, task; /* of all nodes; the number of this one */
    int here, local; /* of this node */
    int nodes, node;
};

/* Were we started on every node of the job? */
enum scheduler_reach { REACH_ALL, REACH_PERHAPS_ONE, REACH_ONE };

/* How the job was started, when that cannot work or is likely not meant. */
struct scheduler_finding {
    struct finding found; /* code FINDING_NONE = nothing is wrong */
    bool fatal;
    bool
        mine; /* this task reports it: the first of its node, so that it is printed once and not eight times */
};

struct scheduler {
    int kind;                      /* row of SCHEDULERS, -1 = none */
    const char *name, *title;      /* static; "none", "no scheduler" */
    char rule[SCHEDULER_TEXT_MAX]; /* why this one */
    struct scheduler_value values[SCHEDULER_VALUE_COUNT];
    struct scheduler_tasks tasks;
    enum scheduler_reach reach;
    int job_nodes; /* of the whole job, when we are only in a part of it; 0 = not known */
    int restarts;  /* how often the scheduler has started this job again */
    struct scheduler_finding finding;
    char notes[SCHEDULER_NOTES_MAX][SCHEDULER_WORDS_MAX]; /* for the user; "" after the last */
};

/* The file that has to be read, and to be handed over as facts->file; NULL = none. Borrowed from the block. */
const char *scheduler_file(char *const *environ_block);

/* `wanted` is --scheduler: "auto", "none", or a name. DDP_ERR_ARG: that scheduler is not here. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *facts,
                          struct ddp_err *err);

/* Fill in the options of `cli` that are not set. It borrows text of `s`, which must outlive it. s->finding has
 * problems of the layout, s->notes the options that the user has set differently. DDP_ERR_ARG: an impossible value. */
ddp_status scheduler_apply(struct scheduler *s, struct cli *cli, struct ddp_err *err);

/* --explain: the rule and each value with where it comes from, for a person or as one JSON object (dry_run.c). False when memory is
 * short. */
struct python_choice; /* of worker.h: which Python runs PROGRAM; NULL = none */
bool scheduler_print(const struct scheduler *s, const struct cli *cli, const struct python_choice *python,
                     struct buf *out);
bool scheduler_print_json(const struct scheduler *s, const struct cli *cli,
                          const struct python_choice *python, struct buf *out);

/* The option that sets the same as a value. */
extern const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT];

#endif
