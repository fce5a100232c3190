/* worker.h -- what is executed for PROGRAM: itself, or a Python with it as script or module. */
#ifndef LAUNCHER_PLAN_WORKER_H
#define LAUNCHER_PLAN_WORKER_H

#include "cli/cli.h"

/* The command of worker `local_rank`: NULL-terminated, one allocation, free() it. PROGRAM as it is; one that
 * ends in .py, or -m, runs as "$PYTHON_EXEC -u ..." ("python3" when that is not set). "${local_rank}" in an
 * argument becomes the number, as torchrun does; every other dollar stays, unless we were started as torchrun. NULL when
 * memory is short. */
char **program_argv(const struct cli *cli, const char *python_exec, int local_rank);

/* The interpreter of PROGRAM, a name in PATH or a path: that of a script or module, or PROGRAM itself when it is called
 * python. NULL = by its name it is no Python program. Borrowed. */
const char *program_python(const struct cli *cli, const char *python_exec);

/* The file that a Python is to run: PROGRAM, or NULL when it is a module, "-", or no Python program. NULL also with an
 * interpreter whose name does not begin with "python", because a wrapper may run it where other files are. Borrowed. */
const char *program_script(const struct cli *cli, const char *python_exec);

#endif
