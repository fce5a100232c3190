/* backend.h -- which backend a context gets, and on which device. */
#ifndef WORKER_CORE_BACKEND_H
#define WORKER_CORE_BACKEND_H

#include "core/comm_host.h"
#include "core/environment.h"

struct backend {
    const struct comm_ops *ops;
    int device; /* -1 = none */
};

/* `name` may be NULL; `device` is as in ddp_options. Loads libddp_cuda when a device is asked for. DDP_ERR_UNSUPPORTED names
 * what is missing, and where it was looked for. */
ddp_status backend_find(const char *name, int device, const struct worker_env *env, struct backend *out,
                        struct ddp_err *err);

/* Borrowed from `env`. */
struct comm_paths backend_paths(const struct worker_env *env);

extern const struct comm_host backend_host;

#endif
