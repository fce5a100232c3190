/* torch_look.h -- find the PyTorch that the workers will import, and whether it can use the launcher's store.
 *
 * A PyTorch of version 2.4 or later without libuv rejects every store except its own. Such a PyTorch requires libuv's
 * server before it connects, and no variable changes this. So the launcher checks PyTorch before any worker starts.
 * Importing torch takes seconds, so this check starts no Python. The check reads a few files in the directories that
 * Python would search. */
#ifndef LAUNCHER_TORCH_LOOK_H
#define LAUNCHER_TORCH_LOOK_H

#include "tables/worker_env.h"

#include <limits.h>
#include <stdbool.h>

enum { TORCH_VERSION_SIZE = 32 };

struct torch_look {
    bool refuses_stores; /* rejects stores of others */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* directory that contains the package torch */
};

/* Find the torch of the interpreter `python`, a name in PATH or a path, with the workers' environment. Return false
 * if no usual place has a torch; another place may still have a torch. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look);

/* Find the interpreter `python` in the workers' PATH. Return false if PATH has no such interpreter. */
bool torch_look_python(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
