/* worker.h -- command, environment and output of a worker: the steps of plan_make(). */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"
#include "plan/plan.h"

/* The Pythons that may run scripts and modules, found with the workers' environment. Texts are borrowed; NULL or "" =
 * none. */
struct python_facts {
    const char *virtual_env, *python_exec; /* the variables VIRTUAL_ENV and PYTHON_EXEC */
    const char *active;                    /* the interpreter of VIRTUAL_ENV */
    const char *beside;  /* the interpreter of the environment in which ddprun is installed, for example by
                          * pip */
    const char *in_path; /* python3 in PATH */
};

struct python_choice {
    const char *program; /* a path, or a name in PATH; borrowed */
    char why[600];       /* the reason, and variables that are ignored */
};

/* Choose the first interpreter that exists: the interpreter of the active virtual environment, the interpreter of
 * ddprun's own environment, $PYTHON_EXEC, python3 in PATH. torchrun uses the Python that runs torchrun, but ddprun is
 * not a Python program. */
void python_choose(struct python_choice *choice, const struct python_facts *facts);

/* The result of python_look: the choice, and the paths to which the choice points. */
struct python_look {
    struct python_choice choice;
    char active[PATH_MAX], beside[PATH_MAX], in_path[PATH_MAX];
};
void python_look(struct python_look *look, const struct env_sources *env); /* machine.c */

/* Return the command of worker `local_rank`: NULL-terminated, one allocation that the caller frees. A PROGRAM that
 * ends in .py, or -m, runs as "PYTHON -u ...". Any other PROGRAM is unchanged. "${local_rank}" in an argument becomes
 * the number, as in torchrun. Other dollar signs are unchanged, unless ddprun was started as torchrun. Return NULL if
 * memory is short. */
char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank);

/* Return the interpreter of PROGRAM, a name in PATH or a path, borrowed. The result is the interpreter of a script or
 * module, or PROGRAM itself if PROGRAM is called python. Return NULL if PROGRAM does not look like a Python
 * program. */
const char *program_python(const struct cli *cli, const struct python_choice *python);

/* Return true if PROGRAM is a script or a module, which the chosen Python runs. */
bool program_needs_python(const struct cli *cli);

/* Return the file that a Python will run: PROGRAM. Return NULL if PROGRAM is a module, "-", or not a Python program.
 * Return NULL also if the interpreter's name does not begin with "python", because it may be a wrapper that runs the
 * script elsewhere, with other files. Borrowed. */
const char *program_script(const struct cli *cli, const struct python_choice *python);

enum { PLAN_RANKS_WORDS = 160 };
/* Return true if any worker needs a file. */
bool plan_any_file(const struct plan *plan);

/* Choose the job's own directory for logs. Return false if memory is short. */
bool plan_log_root(struct plan *plan);

/* Check the directories. Return DDP_ERR_ARG if log files need a temporary directory but no directory is safe, or if
 * flight records have no directory. */
ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err);

/* Build the common part of all workers' environments. */
ddp_status plan_environment(struct plan *plan);

/* Return a new text, or NULL if memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Add a sentence for the user. If memory is short, do nothing. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Free the output targets that a round has set for the worker. */
void plan_output_free(struct plan_worker *w);

#endif
