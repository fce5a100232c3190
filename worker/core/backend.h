/* backend.h -- the table of functions that a backend implements, and the choice of a backend and a device for a context.
 *
 * A backend joins the ranks (open), runs calls that call_check has passed (run), allocates memory that suits its
 * collectives (shared_alloc), and can be stopped from any thread (give_up). A backend that blocks keeps no pointer of
 * a call after run has returned; any other puts the call on a stream and assigns a ticket. */
#ifndef WORKER_CORE_BACKEND_H
#define WORKER_CORE_BACKEND_H

#include "core/bootstrap.h"
#include "core/call.h"
#include "core/environment.h"

struct comm_host;
struct recorder;

/* Embedded first in every backend's own struct. */
struct comm {
    const struct comm_ops *ops;
    uint64_t seq; /* number of the last call, INIT is 1; 0 = the backend does not count every call */
    /* Ticket of the last call of run(), 0 = it is done; used by backends that do not block. */
    uint64_t ticket;
};

/* Directories from which libraries may be loaded, "" = the usual places. */
struct comm_paths {
    const char *cuda;          /* libddp_cuda */
    const char *cudart, *nccl; /* of NVIDIA */
};

struct comm_setup {
    int rank, world_size;
    uint32_t step_timeout_ms;
    const char *iface, *port_range; /* DDP_IFACE, DDP_PORT_RANGE; "" = any */
    const struct bootstrap
        *bootstrap; /* how to reach the other ranks before the backend can; NULL in a world of one */
    /* For backends in libddp_cuda. */
    int device;     /* number of the GPU */
    bool share_gpu; /* several ranks use the same one */
    struct comm_paths paths;
    const struct comm_host *host;
    struct recorder *recorder; /* a backend that does not block reports finished calls: comm_host.settle */
};

struct comm_ops {
    const char *name;
    bool blocks; /* run() waits for the other ranks; false: it only puts the call on its stream */
    /* Collective. DDP_OK: the caller owns *out until close. */
    ddp_status (*open)(const struct comm_setup *setup, struct comm **out, struct ddp_err *err);
    ddp_status (*run)(struct comm *comm, const struct call *call, struct ddp_err *err);
    /* Collective. The backend owns the block and frees it at its end at the latest. */
    ddp_status (*shared_alloc)(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
    ddp_status (*shared_free)(struct comm *comm, void *block, struct ddp_err *err);
    /* Check between calls whether a rank has died or given up. Never waits. */
    ddp_status (*check)(struct comm *comm, struct ddp_err *err);
    /* Make every rank's current and later calls fail with `err`, which gets the text of the rank that gave up first.
     * Any thread. */
    void (*give_up)(struct comm *comm, struct ddp_err *err);
    /* Free it; not collective. */
    void (*close)(struct comm *comm);

    /* NULL in backends that block. Make later work on `stream` wait for the call with that ticket. */
    ddp_status (*follow)(struct comm *comm, uint64_t ticket, void *stream, struct ddp_err *err);
    /* NULL in backends that block. Wait until the call is done; DDP_IN_PROGRESS when it is not after `timeout_ms`. */
    ddp_status (*await)(struct comm *comm, uint64_t ticket, uint32_t timeout_ms, struct ddp_err *err);

    /* For memory of shared_alloc, in the order of `stream`; NULL if that is host memory. */
    ddp_status (*copy)(struct comm *comm, void *to, const void *from, size_t bytes, void *stream,
                       struct ddp_err *err);
    ddp_status (*zero)(struct comm *comm, void *at, size_t bytes, void *stream, struct ddp_err *err);
    /* Wait until all work on the stream is done. */
    ddp_status (*settle)(struct comm *comm, void *stream, struct ddp_err *err);
};

extern const struct comm_ops cpu_comm_ops;

/* --- between libddp and libddp_cuda ------------------------------------------------------------------------ */

/* libddp_cuda is loaded at run time, so neither links the other. libddp asks it for one struct cuda_entry; a backend
 * in there calls back through struct comm_host of its comm_setup. Both are private: libraries of different versions
 * reject each other by `version`, which is the first member for that reason. */

/* The parts of libddp that a backend in libddp_cuda may use: bootstrap.h, and the cpu backend for values on the host. */
struct comm_host {
    const struct comm_ops *cpu;
    ddp_status (*give)(const struct bootstrap *bootstrap, const char *what, const void *data, size_t len,
                       struct ddp_err *err);
    ddp_status (*take)(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                       struct ddp_err *err);
    ddp_status (*clear)(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
    uint32_t (*left_ms)(const struct bootstrap *bootstrap);
    void (*settle)(struct recorder *recorder, uint64_t ticket); /* the calls up to this ticket are done */
    ddp_status (*local_address)(const ddp_store *store, char *address, size_t room, struct ddp_err *err);
};

struct cuda_entry {
    const char *version; /* DDP_VERSION */
    /* Return how many GPUs this process may use. Without any, the error has the reason. */
    ddp_status (*devices)(const struct comm_paths *paths, int *count, struct ddp_err *err);
    const struct comm_ops *nccl;
    const struct comm_ops *staged; /* the cpu backend, for buffers in device memory */
};

#define CUDA_ENTRY "ddp_cuda_entry"
typedef const struct cuda_entry *(*cuda_entry_function)(void);

/* --- the choice -------------------------------------------------------------------------------------------- */

struct backend {
    const struct comm_ops *ops;
    int device; /* -1 = none */
};

/* `name` may be NULL; `device` is as in ddp_options. Loads libddp_cuda when a device is requested.
 * DDP_ERR_UNSUPPORTED names what is missing and the searched place. */
ddp_status backend_find(const char *name, int device, const struct worker_env *env, struct backend *out,
                        struct ddp_err *err);

/* Borrowed from `env`. */
struct comm_paths backend_paths(const struct worker_env *env);

extern const struct comm_host backend_host;

#endif
