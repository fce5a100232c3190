/* worker.h -- the parts of a plan that concern one worker: its command, environment and output. plan.c calls most of
 * these functions, and plan_free frees the texts that these functions store in the plan. python_find is in machine.c,
 * because the functions of worker.c read no file. */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"
#include "plan/plan.h"

/* The Pythons in the workers' environment that may run scripts and modules. Texts are borrowed. A text is NULL or ""
 * if no such Python exists. */
struct python_facts {
    const char *virtual_env, *python_exec; /* values of VIRTUAL_ENV and PYTHON_EXEC */
    const char *active;                    /* bin/python in the directory that VIRTUAL_ENV names */
    const char *beside;                    /* the Python of the environment in which ddprun is installed */
    const char *in_path;                   /* python3 in PATH */
};

struct python_choice {
    const char *program; /* path, or name in PATH; borrowed */
    char why[600];       /* why this Python was chosen, and which variables were ignored */
};

/* Choose the first Python that exists: the Python of VIRTUAL_ENV, the Python of the environment in which ddprun is
 * installed, $PYTHON_EXEC, python3 in PATH. */
void python_choose(struct python_choice *choice, const struct python_facts *facts);

/* Result of python_find: the choice, and buffers for the paths. choice.program may point to one of the buffers. */
struct python_paths {
    struct python_choice choice;
    char active[PATH_MAX], beside[PATH_MAX], in_path[PATH_MAX];
};

/* Find the Pythons of the workers' environment, and choose one. machine.c contains this function. */
void python_find(struct python_paths *paths, const struct env_sources *env);

/* Return the command of worker `local_rank`, NULL-terminated, in one allocation that the caller frees. For a script
 * (.py) or a module (-m), the command is "PYTHON -u ...". "${local_rank}" in an argument is replaced by the local
 * rank, as in torchrun. If ddprun was started as torchrun, "$local_rank" is also replaced, and "$$" becomes "$".
 * Return NULL if memory is short. */
char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank);

/* Return the Python that runs PROGRAM: the chosen Python for a script or a module, or PROGRAM itself if its name begins
 * with "python". Return NULL for other programs. The result is borrowed: a path, or a name in PATH. */
const char *program_python(const struct cli *cli, const struct python_choice *python);

/* Return true if PROGRAM is a script or a module, which the chosen Python must run. */
bool program_needs_python(const struct cli *cli);

/* Return PROGRAM if PROGRAM is a file that Python runs. Return NULL for a module, for "-", and for other programs. Also
 * return NULL if the interpreter is not called python, because it may be a wrapper that runs the script on another
 * host. The text is borrowed from `cli`. */
const char *program_script(const struct cli *cli, const struct python_choice *python);

/* Return true if any worker writes a log file. */
bool plan_any_file(const struct plan *plan);

/* Choose the job's log directory, if the job needs one. Return false if memory is short. */
bool plan_log_root(struct plan *plan);

/* Return DDP_ERR_ARG if log files or flight records need a directory, but no directory is usable. */
ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err);

/* Return the value of a variable from --env or from ddprun's environment, or NULL. The value is borrowed. */
const char *plan_user_value(const struct plan *plan, const char *name);

/* Build the common part of all workers' environments. */
ddp_status plan_environment(struct plan *plan);

/* Return a new formatted text, which the caller frees, or NULL if memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Add a note for the user. Do nothing if memory is short. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Free the paths that plan_round has set for the worker. */
void plan_output_free(struct plan_worker *w);

#endif
