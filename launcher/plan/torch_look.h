/* torch_look.h -- which PyTorch will the workers import, and can it use a store that the launcher has?
 *
 * A PyTorch from 2.4 on that was built without libuv refuses every store but its own: it asks for libuv's server before it
 * connects, and no variable talks it out of that. So it is looked at before anything is started. Nothing is run for that,
 * importing torch takes seconds: a few files are looked for where Python would. */
#ifndef LAUNCHER_TORCH_LOOK_H
#define LAUNCHER_TORCH_LOOK_H

#include "tables/worker_env.h"

#include <limits.h>
#include <stdbool.h>

enum { TORCH_VERSION_SIZE = 32 };

struct torch_look {
    bool refuses_stores; /* of others */
    char version[TORCH_VERSION_SIZE];
    char dir[PATH_MAX]; /* where it lies */
};

/* The torch of the interpreter `python`, a name in PATH or a path; the environment is the workers'. False: none was found
 * where it is usually installed, which says nothing about whether there is one. */
bool torch_look(const char *python, const struct env_sources *env, struct torch_look *look);

/* Where the interpreter `python` lies, by the workers' PATH. False: it is nowhere. */
bool torch_look_python(const char *python, const struct env_sources *env, char path[PATH_MAX]);

#endif
