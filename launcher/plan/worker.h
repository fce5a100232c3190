/* worker.h -- what a worker is started with: its command, its environment, and where its output goes. Steps of plan_make(). */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"
#include "plan/plan.h"

/* The Pythons that may run scripts and modules, by the workers' environment. Texts are borrowed; NULL or "" = none. */
struct python_facts {
    const char *virtual_env, *python_exec; /* the variables VIRTUAL_ENV and PYTHON_EXEC */
    const char *active;                    /* the interpreter of VIRTUAL_ENV */
    const char *beside;  /* that of the environment that ddprun is installed in, as by pip */
    const char *in_path; /* python3 */
};

struct python_choice {
    const char *program; /* a path, or a name in PATH; borrowed */
    char why[600];       /* the reason, and which variable is not followed */
};

/* Choose the first of: the active virtual environment's, the one that ddprun is installed in, $PYTHON_EXEC, python3 in PATH.
 * torchrun takes the one that runs torchrun; a C program has none. */
void python_choose(struct python_choice *choice, const struct python_facts *facts);

/* What python_look finds: the choice, and the paths that it borrows. */
struct python_look {
    struct python_choice choice;
    char active[PATH_MAX], beside[PATH_MAX], in_path[PATH_MAX];
};
void python_look(struct python_look *look, const struct env_sources *env); /* machine.c */

/* The command of worker `local_rank`: NULL-terminated, one allocation, free() it. PROGRAM as it is; one that
 * ends in .py, or -m, runs as "PYTHON -u ...". "${local_rank}" in an
 * argument becomes the number, as torchrun does; every other dollar stays, unless we were started as torchrun. NULL when
 * memory is short. */
char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank);

/* The interpreter of PROGRAM, a name in PATH or a path: that of a script or module, or PROGRAM itself when it is called
 * python. NULL = by its name it is no Python program. Borrowed. */
const char *program_python(const struct cli *cli, const struct python_choice *python);

/* True if PROGRAM is a script or a module, so that the chosen Python runs it. */
bool program_needs_python(const struct cli *cli);

/* The file that a Python is to run: PROGRAM, or NULL when it is a module, "-", or no Python program. NULL also with an
 * interpreter whose name does not begin with "python", because a wrapper may run it where other files are. Borrowed. */
const char *program_script(const struct cli *cli, const struct python_choice *python);

enum { PLAN_RANKS_WORDS = 160 };
/* Does any worker need a file? */
bool plan_any_file(const struct plan *plan);

/* The job's own directory for logs. False when memory is short. */
bool plan_log_root(struct plan *plan);

/* DDP_ERR_ARG if log files would need a temporary directory and none is safe, or flight records have no directory. */
ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err);

/* The common part of all workers' environments. */
ddp_status plan_environment(struct plan *plan);

/* New text; NULL when memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A sentence for the user, left out when memory is short. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A round's values for the worker; the next one sets them again. */
void plan_output_free(struct plan_worker *w);

#endif
