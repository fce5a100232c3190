/* scheduler.h -- reads a scheduler's values for this job, such as the number of nodes and the node rank, with their
 * origin. All functions are pure. */
#ifndef LAUNCHER_PLAN_SCHEDULER_H
#define LAUNCHER_PLAN_SCHEDULER_H

#include "cli/cli.h"
#include "diagnosis/findings.h"
#include "plan/hosts.h"
#include "cli/options.h"

#include <limits.h>

/* The values of schedulers, each with the option that it sets. */
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
    const char *host;    /* name of this machine */
    const char *file;    /* text of scheduler_file(); NULL if it cannot be read */
    bool per_task;       /* each task has one worker and counts as a node */
    const char *visible; /* CUDA_VISIBLE_DEVICES of the workers; may be NULL */
};

/* A value as a user would type it ("" if unknown), and its origin. */
struct scheduler_value {
    char text[SCHEDULER_TEXT_MAX];
    char from[SCHEDULER_TEXT_MAX];
};

/* The tasks of the scheduler, which are copies of ddprun. Indices count from 0. */
struct scheduler_tasks {
    /* The scheduler has started this process as a task; else the other members are not set. */
    bool known;
    int tasks, task; /* tasks of the job; index of this task */
    int here, local; /* tasks of this node; index of this task among them */
    int nodes, node; /* nodes with tasks; index of this node */
};

/* The nodes of the job on which the scheduler has started ddprun. */
enum scheduler_reach {
    REACH_ALL,
    REACH_PERHAPS_ONE, /* on one node or on all nodes */
    REACH_ONE
};

/* A mistake in how the job was started. */
struct scheduler_finding {
    struct finding found; /* found.code is FINDING_NONE without a mistake */
    bool fatal;           /* ddprun exits; otherwise it only prints a warning */
    bool mine;            /* this task prints the finding */
};

struct scheduler {
    int kind;                      /* row in SCHEDULERS; -1 without a scheduler */
    const char *name, *title;      /* static; "none" and "no scheduler" without a scheduler */
    char rule[SCHEDULER_TEXT_MAX]; /* how the scheduler was recognized */
    struct scheduler_value values[SCHEDULER_VALUE_COUNT];
    struct scheduler_tasks tasks;
    enum scheduler_reach reach;
    int job_nodes; /* nodes of the whole job; 0 if unknown */
    int restarts;  /* number of restarts by the scheduler */
    struct scheduler_finding finding;
    char notes[SCHEDULER_NOTES_MAX][SCHEDULER_WORDS_MAX]; /* notes for the user; "" if unused */
};

/* Return the path of the file for facts->file, or NULL. The path is static or borrowed from the environment. */
const char *scheduler_file(char *const *environ_block);

/* Read the scheduler's values. `wanted` is the value of --scheduler. Return DDP_ERR_ARG if that scheduler did not
 * start this process. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *facts,
                          struct ddp_err *err);

/* Set the options of `cli` that the user did not set. `cli` borrows texts of `s`. A later source overrides an
 * earlier one:
 *
 *     defaults  <  scheduler  <  PET_* variables  <  command line
 *
 * A wrong start is stored in s->finding, and a difference between user and scheduler in s->notes. Return
 * DDP_ERR_ARG for an invalid value. */
ddp_status scheduler_apply(struct scheduler *s, struct cli *cli, struct ddp_err *err);

/* Append the values of --explain, as text or as a JSON object. Return false if memory is short. Both are in
 * dry_run.c. */
struct python_choice;
bool scheduler_print(const struct scheduler *s, const struct cli *cli, const struct python_choice *python,
                     struct buf *out);
bool scheduler_print_json(const struct scheduler *s, const struct cli *cli,
                          const struct python_choice *python, struct buf *out);

/* The option that each value sets. */
extern const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT];

/* Return the command that starts one ddprun on each node. `s` must have a scheduler. */
const char *scheduler_launch(const struct scheduler *s);

#endif
