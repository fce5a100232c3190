/* scheduler.h -- the scheduler's values for this job: number of nodes, node rank, address of the rendezvous. Pure:
 * the input is an environment block, the output is values, each with a text about its origin.
 *
 *     defaults  <  scheduler  <  PET_* variables  <  command line         a later source overrides an earlier one
 *
 * scheduler_read parses the environment. scheduler_apply sets options that the user did not set, and reports
 * differences. --explain prints both. */
#ifndef LAUNCHER_PLAN_SCHEDULER_H
#define LAUNCHER_PLAN_SCHEDULER_H

#include "cli/cli.h"
#include "diagnosis/findings.h"
#include "plan/hosts.h"
#include "tables/schedulers.h"

#include <limits.h>

/* A value that a scheduler may provide, and its option. */
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
    bool per_task;    /* run one worker for each task, so that each task is a node in the rendezvous */
};

/* A value as a user would type it ("" = unknown), and its origin. */
struct scheduler_value {
    char text[SCHEDULER_TEXT_MAX];
    char from[SCHEDULER_TEXT_MAX];
};

/* The layout of tasks. A task is a copy of ddprun that the scheduler started. */
struct scheduler_tasks {
    bool known;
    int tasks, task; /* number of tasks on all nodes; number of this task */
    int here, local; /* number of tasks on this node; number of this task among them */
    int nodes, node;
};

/* Whether the scheduler has started ddprun on every node of the job. */
enum scheduler_reach { REACH_ALL, REACH_PERHAPS_ONE, REACH_ONE };

/* A problem in the way the job was started. */
struct scheduler_finding {
    struct finding found; /* code FINDING_NONE = no problem */
    bool fatal;
    bool mine; /* this task reports the problem, as only the first task of a node does */
};

struct scheduler {
    int kind;                      /* row of SCHEDULERS, -1 = none */
    const char *name, *title;      /* static; "none", "no scheduler" */
    char rule[SCHEDULER_TEXT_MAX]; /* why this scheduler was chosen */
    struct scheduler_value values[SCHEDULER_VALUE_COUNT];
    struct scheduler_tasks tasks;
    enum scheduler_reach reach;
    int job_nodes; /* nodes of the whole job, if this step is only a part of the job; 0 = unknown */
    int restarts;  /* how often the scheduler restarted this job */
    struct scheduler_finding finding;
    char notes[SCHEDULER_NOTES_MAX][SCHEDULER_WORDS_MAX]; /* for the user; "" after the last note */
};

/* Return the path of the file that the caller must read for facts->file, or NULL if no file is needed. The path is
 * borrowed from the block. */
const char *scheduler_file(char *const *environ_block);

/* Read the scheduler's values. `wanted` is --scheduler: "auto", "none", or a name. Return DDP_ERR_ARG if the named
 * scheduler did not start this process. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *facts,
                          struct ddp_err *err);

/* Set the options of `cli` that the user did not set. `cli` borrows text of `s`, so `s` must outlive `cli`. A problem
 * of the layout is stored in s->finding, and options that the user set to other values are stored in s->notes. Return
 * DDP_ERR_ARG for an impossible value. */
ddp_status scheduler_apply(struct scheduler *s, struct cli *cli, struct ddp_err *err);

/* Print --explain as text or as one JSON object: the rule, and each value with its origin (dry_run.c). Return false
 * if memory is short. */
struct python_choice;
bool scheduler_print(const struct scheduler *s, const struct cli *cli, const struct python_choice *python,
                     struct buf *out);
bool scheduler_print_json(const struct scheduler *s, const struct cli *cli,
                          const struct python_choice *python, struct buf *out);

/* The option of each value. */
extern const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT];

/* Return the command that starts one ddprun on each node, for a scheduler that was found. */
const char *scheduler_launch(const struct scheduler *s);

#endif
