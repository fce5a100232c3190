/* worker.h -- command, environment and output of a worker. Steps of plan_make(). */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"
#include "plan/plan.h"

/* The Pythons that may run scripts and modules, from the workers' environment. Texts are borrowed; NULL or "" = none. */
struct python_facts {
    const char *virtual_env, *python_exec; /* the variables VIRTUAL_ENV and PYTHON_EXEC */
    const char *active;                    /* the interpreter of VIRTUAL_ENV */
    const char *beside;  /* that of the environment that ddprun is installed in, as by pip */
    const char *in_path; /* python3 */
};

struct python_choice {
    const char *program; /* a path, or a name in PATH; borrowed */
    char why[600];       /* the reason, and the variable that is not used */
};

/* Choose the first of: the active virtual environment's, the one that ddprun is installed in, $PYTHON_EXEC, python3
 * in PATH. torchrun uses the Python that runs it, which a C program does not have. */
void python_choose(struct python_choice *choice, const struct python_facts *facts);

/* The result of python_look: the choice, and the paths that it borrows. */
struct python_look {
    struct python_choice choice;
    char active[PATH_MAX], beside[PATH_MAX], in_path[PATH_MAX];
};
void python_look(struct python_look *look, const struct env_sources *env); /* machine.c */

/* The command of worker `local_rank`: NULL-terminated, one allocation, free() it. PROGRAM unchanged; one that ends in
 * .py, or -m, runs as "PYTHON -u ...". "${local_rank}" in an argument becomes the number, as torchrun does; every
 * other dollar is unchanged, unless ddprun was started as torchrun. NULL if out of memory. */
char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank);

/* Return the interpreter of PROGRAM, a name in PATH or a path: that of a script or module, or PROGRAM itself if it is
 * called python. NULL = its name is not that of a Python program. Borrowed. */
const char *program_python(const struct cli *cli, const struct python_choice *python);

/* Return whether PROGRAM is a script or a module, which the chosen Python runs. */
bool program_needs_python(const struct cli *cli);

/* Return the file that a Python will run: PROGRAM, or NULL if it is a module, "-", or not a Python program. NULL also
 * for an interpreter whose name does not begin with "python", because a wrapper may run it elsewhere with other
 * files. Borrowed. */
const char *program_script(const struct cli *cli, const struct python_choice *python);

enum { PLAN_RANKS_WORDS = 160 };
/* Return whether any worker needs a file. */
bool plan_any_file(const struct plan *plan);

/* Choose the job's own directory for logs. False if out of memory. */
bool plan_log_root(struct plan *plan);

/* DDP_ERR_ARG: log files need a temporary directory and none is safe, or flight records have no directory. */
ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err);

/* Build the common part of all workers' environments. */
ddp_status plan_environment(struct plan *plan);

/* Return a new text; NULL if out of memory. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Add a sentence for the user, unless out of memory. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Set a round's values of the worker; the next round sets them again. */
void plan_output_free(struct plan_worker *w);

#endif
