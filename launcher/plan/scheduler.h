/* scheduler.h -- reads a scheduler's values for this job: number of nodes, node rank, address of the rendezvous, and
 * other values. Each value has a text that names its origin. All functions are pure: the input is an environment
 * block. */
#ifndef LAUNCHER_PLAN_SCHEDULER_H
#define LAUNCHER_PLAN_SCHEDULER_H

#include "cli/cli.h"
#include "diagnosis/findings.h"
#include "plan/hosts.h"
#include "cli/options.h"

#include <limits.h>

/* The values that a scheduler may provide, each with the option that the value sets. */
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

/* The facts from which the values are read; all pointers are borrowed. */
struct scheduler_facts {
    char *const *environ_block;
    const char *host;    /* name of this machine */
    const char *file;    /* text of the file that scheduler_file() names; NULL if the file cannot be read */
    bool per_task;       /* --per_task: each task has one worker and counts as a node */
    const char *visible; /* CUDA_VISIBLE_DEVICES of the workers; NULL if it is not set */
};

/* A value in the form that a user would type ("" if unknown), and its origin. */
struct scheduler_value {
    char text[SCHEDULER_TEXT_MAX];
    char from[SCHEDULER_TEXT_MAX];
};

/* The tasks of the scheduler. A task is a copy of ddprun that the scheduler has started. Indices count from 0. */
struct scheduler_tasks {
    /* True if the scheduler has started this process as a task. If false, the other members are not set. */
    bool known;
    int tasks, task; /* how many tasks the job has; index of this task */
    int here, local; /* how many tasks this node has; index of this task on this node */
    int nodes, node; /* how many nodes run tasks; index of this node */
};

/* This enum states on how many nodes of the job the scheduler has started ddprun. */
enum scheduler_reach {
    REACH_ALL,
    REACH_PERHAPS_ONE, /* started on one node or on all nodes; the variables do not show which of the two */
    REACH_ONE
};

/* A mistake in how the job was started. */
struct scheduler_finding {
    struct finding found; /* found.code is FINDING_NONE if there is no mistake */
    bool fatal;           /* if true, ddprun exits; if false, ddprun only prints a warning */
    bool mine;            /* if true, this task prints the finding; if false, another task prints it */
};

struct scheduler {
    int kind;                      /* row of the scheduler in SCHEDULERS; -1 without a scheduler */
    const char *name, *title;      /* static texts; without a scheduler: "none" and "no scheduler" */
    const char *host;              /* name of this machine; borrowed from scheduler_facts */
    char rule[SCHEDULER_TEXT_MAX]; /* how the scheduler was recognized */
    struct scheduler_value values[SCHEDULER_VALUE_COUNT];
    struct scheduler_tasks tasks;
    enum scheduler_reach reach;
    int job_nodes; /* number of nodes of the whole job; 0 if unknown */
    int restarts;  /* how often the scheduler has restarted this job */
    struct scheduler_finding finding;
    char notes[SCHEDULER_NOTES_MAX][SCHEDULER_WORDS_MAX]; /* notes for the user; unused notes are "" */
};

/* Return the path of the file whose text the caller stores in facts->file, or NULL if no file is needed. The path is
 * static, or borrowed from the environment. */
const char *scheduler_file(char *const *environ_block);

/* Read the scheduler's values. `wanted` is the value of --scheduler: "auto", "none", or a name. Return DDP_ERR_ARG if
 * the named scheduler did not start this process. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *facts,
                          struct ddp_err *err);

/* Set the options of `cli` that the user did not set. `cli` then points to texts of `s`, so `s` must outlive `cli`. A
 * later source overrides an earlier source:
 *
 *     defaults  <  scheduler  <  PET_* variables  <  command line
 *
 * If the job was started in a wrong way, store a finding in s->finding. If the user and the scheduler have set an
 * option to different values, add a note to s->notes. Return DDP_ERR_ARG for an invalid value. */
ddp_status scheduler_apply(struct scheduler *s, struct cli *cli, struct ddp_err *err);

/* Append to `out` the values that --explain prints: scheduler_print as text, scheduler_print_json as a JSON object.
 * Return false if memory is short. Both functions are in dry_run.c. */
struct python_choice;
bool scheduler_print(const struct scheduler *s, const struct cli *cli, const struct python_choice *python,
                     struct buf *out);
bool scheduler_print_json(const struct scheduler *s, const struct cli *cli,
                          const struct python_choice *python, struct buf *out);

/* The option that each value sets. */
extern const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT];

/* Return the command that starts one ddprun on each node. Call this function only if `s` has a scheduler. The text is
 * constant. */
const char *scheduler_launch(const struct scheduler *s);

#endif
