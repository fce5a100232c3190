/* worker.h -- the parts of a plan that concern one worker: its command, environment and output. plan_free frees the
 * texts that these functions store in the plan. */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"
#include "plan/plan.h"

/* The Pythons that may run scripts and modules. Texts are borrowed, and NULL or "" without such a Python. */
struct python_facts {
    const char *virtual_env, *python_exec; /* VIRTUAL_ENV and PYTHON_EXEC */
    const char *active;                    /* bin/python of VIRTUAL_ENV */
    const char *beside;                    /* Python of the environment where ddprun is installed */
    const char *in_path;                   /* python3 in PATH */
};

struct python_choice {
    const char *program; /* path, or name in PATH; borrowed */
    char why[600];       /* why this Python was chosen, and which variables were ignored */
};

/* Choose the first Python that exists: of VIRTUAL_ENV, of ddprun's environment, $PYTHON_EXEC, python3 in PATH. */
void python_choose(struct python_choice *choice, const struct python_facts *facts);

/* Result of python_find. choice.program may point to one of the buffers. */
struct python_paths {
    struct python_choice choice;
    char active[PATH_MAX], beside[PATH_MAX], in_path[PATH_MAX];
};

/* Find the Pythons of the workers' environment, and choose one (machine.c). */
void python_find(struct python_paths *paths, const struct env_sources *env);

/* Return the NULL-terminated command of a worker, one allocation that the caller frees, or NULL if memory is
 * short.
 *
 *   - Scripts (.py) and modules (-m) get "PYTHON -u ...".
 *   - "${local_rank}" in an argument becomes the local rank, as in torchrun.
 *   - If ddprun was started as torchrun, "$local_rank" is replaced, too, and "$$" becomes "$". */
char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank);

/* Return the Python that runs PROGRAM, or PROGRAM itself if its name begins with "python", or NULL. The result is
 * borrowed: a path, or a name in PATH. */
const char *program_python(const struct cli *cli, const struct python_choice *python);

/* Return true if PROGRAM is a script or a module. */
bool program_needs_python(const struct cli *cli);

/* Return PROGRAM if it is a file that Python runs, or NULL. An interpreter with another name may be a wrapper for
 * another host, so its script does not count. */
const char *program_script(const struct cli *cli, const struct python_choice *python);

/* Return true if any worker writes a log file. */
bool plan_any_file(const struct plan *plan);

/* Choose the job's log directory, if needed. Return false if memory is short. */
bool plan_log_root(struct plan *plan);

/* Return DDP_ERR_ARG if files need a directory, but no directory is usable. */
ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err);

/* Return a variable's value from --env or ddprun's environment, or NULL. It is borrowed. */
const char *plan_user_value(const struct plan *plan, const char *name);

/* Build the common part of the workers' environments. */
ddp_status plan_environment(struct plan *plan);

/* Return a new formatted text, which the caller frees, or NULL if memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Add a note for the user, if memory permits. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Free the paths that plan_round has set. */
void plan_output_free(struct plan_worker *w);

#endif
