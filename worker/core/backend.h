/* backend.h -- the table of functions that a backend implements, and the choice of a backend and a device for a
 * context.
 *
 * A backend joins the ranks (open), runs calls that call_check has passed (run), allocates memory that suits its
 * collectives (shared_alloc), and can be stopped from any thread (give_up). A blocking backend keeps no pointer of a
 * call after run has returned. A backend that does not block puts the call on a stream and assigns a ticket, which is
 * a number that identifies the call for follow and await. */
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
    uint64_t seq; /* number of the last call (INIT is 1); 0 = this backend does not count every call */
    /* Ticket of the last call of run(), 0 = that call is done. Only for backends that do not block. */
    uint64_t ticket;
};

/* Files of the libraries that a backend loads; "" = search the usual places. */
struct comm_paths {
    const char *cuda;          /* file of libddp_cuda */
    const char *cudart, *nccl; /* files of NVIDIA's libcudart and libnccl */
};

struct comm_setup {
    int rank, world_size;
    uint32_t step_timeout_ms;
    const char *iface, *port_range; /* DDP_IFACE, DDP_PORT_RANGE; "" = any */
    const struct bootstrap
        *bootstrap; /* reaches the other ranks before the backend is connected; NULL in a world of one */
    /* For backends in libddp_cuda. */
    int device;     /* number of the GPU */
    bool share_gpu; /* several ranks use the same GPU */
    struct comm_paths paths;
    const struct comm_host *host;
    struct recorder
        *recorder; /* receives finished calls through comm_host.settle from a backend that does not block */
};

struct comm_ops {
    const char *name;
    bool blocks; /* true: run() waits for the other ranks; false: run() only puts the call on its stream */
    /* Connect the ranks; collective. After DDP_OK the caller owns *out until close. */
    ddp_status (*open)(const struct comm_setup *setup, struct comm **out, struct ddp_err *err);
    ddp_status (*run)(struct comm *comm, const struct call *call, struct ddp_err *err);
    /* Allocate memory that suits the collectives; collective. The backend owns the block and frees it at close at the
     * latest. */
    ddp_status (*shared_alloc)(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
    ddp_status (*shared_free)(struct comm *comm, void *block, struct ddp_err *err);
    /* Check between calls whether a rank has died or given up. Returns at once. */
    ddp_status (*check)(struct comm *comm, struct ddp_err *err);
    /* Make every rank's current and later calls fail with `err`. If another rank gave up earlier, `err` receives that
     * rank's text. May be called on any thread. */
    void (*give_up)(struct comm *comm, struct ddp_err *err);
    /* Free the communicator; not collective. */
    void (*close)(struct comm *comm);

    /* Make later work on `stream` wait for the call with number `ticket`. NULL in backends that block. */
    ddp_status (*follow)(struct comm *comm, uint64_t ticket, void *stream, struct ddp_err *err);
    /* Wait until the call with number `ticket` is done, or return DDP_IN_PROGRESS after `timeout_ms`. NULL in
     * backends that block. */
    ddp_status (*await)(struct comm *comm, uint64_t ticket, uint32_t timeout_ms, struct ddp_err *err);

    /* Copy and clear memory of shared_alloc in the order of `stream`. NULL if shared_alloc returns host memory. */
    ddp_status (*copy)(struct comm *comm, void *to, const void *from, size_t bytes, void *stream,
                       struct ddp_err *err);
    ddp_status (*zero)(struct comm *comm, void *at, size_t bytes, void *stream, struct ddp_err *err);
    /* Wait until all work on the stream is done. */
    ddp_status (*settle)(struct comm *comm, void *stream, struct ddp_err *err);
};

extern const struct comm_ops cpu_comm_ops;

/* --- between libddp and libddp_cuda ------------------------------------------------------------------------ */

/* libddp_cuda is loaded at run time, so neither library links the other. libddp calls the functions of libddp_cuda's
 * struct cuda_entry. A backend in libddp_cuda calls libddp through struct comm_host. Libraries of different versions
 * reject each other. `version` is the first member of both structs, so every version can read it. */

/* The parts of libddp that a backend in libddp_cuda may use: bootstrap.h, and the cpu backend for values in host
 * memory. */
struct comm_host {
    const struct comm_ops *cpu;
    ddp_status (*give)(const struct bootstrap *bootstrap, const char *what, const void *data, size_t len,
                       struct ddp_err *err);
    ddp_status (*take)(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                       struct ddp_err *err);
    ddp_status (*clear)(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
    uint32_t (*left_ms)(const struct bootstrap *bootstrap);
    void (*settle)(struct recorder *recorder,
                   uint64_t ticket); /* reports that all calls up to this ticket are done */
    ddp_status (*local_address)(const ddp_store *store, char *address, size_t room, struct ddp_err *err);
};

struct cuda_entry {
    const char *version; /* DDP_VERSION */
    /* Set *count to the number of GPUs that this process may use. If there are none, `err` contains the reason. */
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

/* Find the backend `name` (NULL = the default) for `device`, which is as in ddp_options. Loads libddp_cuda if a
 * device is requested. DDP_ERR_UNSUPPORTED names the missing library and where it was searched. */
ddp_status backend_find(const char *name, int device, const struct worker_env *env, struct backend *out,
                        struct ddp_err *err);

/* Return the library files that `env` names. The strings belong to `env`. */
struct comm_paths backend_paths(const struct worker_env *env);

extern const struct comm_host backend_host;

#endif
