/* torch_look.h -- finds the PyTorch that the workers will import, and whether it can use the launcher's store.
 *
 * A PyTorch from 2.4 on that was built without libuv rejects every store but its own: it requires libuv's server before
 * it connects, and no variable changes that. So the launcher checks it before anything starts. Importing torch takes
 * seconds, so the check runs nothing: it looks for a few files where Python would. */
#ifndef LAUNCHER_TORCH_LOOK_H
#define LAUNCHER_TORCH_LOOK_H

#include "tables/worker_env.h"

#include <limits.h>
#include <stdbool.h>

enum { TORCH_VERSION_SIZE = 32 };

struct torch_look {
    bool refuses_stores; /* of others */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* its directory */
};

/* Find the torch of the interpreter `python`, a name in PATH or a path; the environment is the workers'. False: none
 * was found in the usual places, so it is unknown whether there is one. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look);

/* Find the interpreter `python` by the workers' PATH. False: not found. */
bool torch_look_python(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
