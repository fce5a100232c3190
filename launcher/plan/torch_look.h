/* torch_look.h -- find the PyTorch that the workers will import, and check whether it can use the launcher's
 * store.
 *
 * PyTorch 2.4 and later, if built without libuv, rejects every store except its own, and no variable changes this.
 * So the launcher checks PyTorch before any worker starts. The check reads a few files in the directories where
 * Python searches. It does not start Python, because importing torch takes seconds. */
#ifndef LAUNCHER_TORCH_LOOK_H
#define LAUNCHER_TORCH_LOOK_H

#include "tables/worker_env.h"

#include <limits.h>
#include <stdbool.h>

enum { TORCH_VERSION_SIZE = 32 };

struct torch_look {
    bool refuses_stores; /* rejects the launcher's store */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* directory that contains the package torch */
};

/* Find the torch that the interpreter `python` imports in the workers' environment. `python` is a path, or a name
 * in PATH. Return false if no torch is in the usual directories. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look);

/* Find `python` in the workers' PATH and write its path. Return false if PATH does not contain it. */
bool torch_look_python(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
