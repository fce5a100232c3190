/* backend.h -- the functions of a backend, and the choice of a backend and a device for a context. A blocking backend
 * completes a call in `run`, and any other backend puts the call on a stream. The arguments of a call are valid,
 * because call_check has checked them. */
#ifndef WORKER_CORE_BACKEND_H
#define WORKER_CORE_BACKEND_H

#include "core/bootstrap.h"
#include "core/call.h"
#include "core/environment.h"

struct comm_host;
struct recorder;

/* A communicator. Each backend has its own struct, which begins with a struct comm. So a pointer to the backend's
 * struct is also a pointer to the communicator. */
struct comm {
    const struct comm_ops *ops;
    /* Number of the last call; `open` is call 1. The number is 0 if the backend does not count every call. */
    uint64_t seq;
    /* Ticket of the last call: a number that identifies a call on a stream (see `run` below). The ticket is 0 if the
     * call is done. Only backends that do not block use this member. */
    uint64_t ticket;
};

/* Files of the libraries that a backend loads. If a path is "", the backend searches the usual places. The texts are
 * borrowed. */
struct comm_paths {
    const char *cuda;          /* path of the library libddp_cuda */
    const char *cudart, *nccl; /* files of NVIDIA's libcudart and libnccl */
};

struct comm_setup {
    int rank, world_size;
    uint32_t step_timeout_ms;
    const char *iface, *port_range; /* from DDP_IFACE and DDP_PORT_RANGE; "": any */
    /* The backend uses `bootstrap` to exchange data through the store before the ranks are connected. `bootstrap` is
     * NULL in a world of one. */
    const struct bootstrap *bootstrap;
    /* Only for backends in libddp_cuda: */
    int device;     /* number of the GPU */
    bool share_gpu; /* several ranks may use the same GPU (DDP_SHARE_GPU) */
    struct comm_paths paths;
    const struct comm_host *host;
    /* Borrowed. The backend reports finished calls to this recorder with comm_host.complete. */
    struct recorder *recorder;
};

/* The functions of a backend. A backend connects the ranks (open), runs calls (run), allocates memory for fast
 * collectives (shared_alloc), and can be stopped from any thread (give_up). */
struct comm_ops {
    const char *name;
    bool blocks; /* true if run() waits for the other ranks */
    /* Connect the ranks. All ranks must call this function. After DDP_OK the caller owns *out until `close`. */
    ddp_status (*open)(const struct comm_setup *setup, struct comm **out, struct ddp_err *err);
    /* Run a call. In a blocking backend, `run` returns when the call is done and its pointers are no longer used. Any
     * other backend puts the call on a stream and gives it a ticket, a number by which `follow` and `await` identify
     * the call. */
    ddp_status (*run)(struct comm *comm, const struct call *call, struct ddp_err *err);
    /* Allocate memory that makes collectives fast. All ranks must call this function. The backend owns the block, and
     * frees it in shared_free or `close`. */
    ddp_status (*shared_alloc)(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
    ddp_status (*shared_free)(struct comm *comm, void *block, struct ddp_err *err);
    /* Return an error if a rank has died or has given up. This function never waits. */
    ddp_status (*check)(struct comm *comm, struct ddp_err *err);
    /* Make the current call and later calls of all ranks fail with `err`. If another rank has given up before, *err
     * becomes the error of that rank. Any thread may call this function. */
    void (*give_up)(struct comm *comm, struct ddp_err *err);
    /* Free the communicator. This call is not collective. */
    void (*close)(struct comm *comm);

    /* Let `stream` run later operations only after the call with this ticket is done. The member is NULL in a blocking
     * backend. */
    ddp_status (*follow)(struct comm *comm, uint64_t ticket, void *stream, struct ddp_err *err);
    /* Wait until the call with this ticket is done. Return DDP_IN_PROGRESS after `timeout_ms`. The member is NULL in a
     * blocking backend. */
    ddp_status (*await)(struct comm *comm, uint64_t ticket, uint32_t timeout_ms, struct ddp_err *err);

    /* Copy (`copy`) or clear (`zero`) memory of shared_alloc, after the earlier operations on `stream`. The members
     * `copy` and `zero` are NULL if shared_alloc returns host memory. */
    ddp_status (*copy)(struct comm *comm, void *to, const void *from, size_t bytes, void *stream,
                       struct ddp_err *err);
    ddp_status (*zero)(struct comm *comm, void *at, size_t bytes, void *stream, struct ddp_err *err);
    /* Wait until all operations on `stream` are done. */
    ddp_status (*finish)(struct comm *comm, void *stream, struct ddp_err *err);
};

extern const struct comm_ops cpu_comm_ops;

/* --- between libddp and libddp_cuda ------------------------------------------------------------------------ */

/* libddp loads libddp_cuda at run time, so neither library is linked to the other. Instead libddp calls the functions
 * in struct cuda_entry, and libddp_cuda calls the functions in struct comm_host. Both libraries must have the same
 * version. So `version` is the first member of struct cuda_entry, and libddp checks this member before it uses any
 * other member. */

/* The functions of libddp that a backend in libddp_cuda may call. */
struct comm_host {
    const struct comm_ops *cpu;
    /* Pointers to functions of bootstrap.h; `publish` points to bootstrap_publish, and so on: */
    ddp_status (*publish)(const struct bootstrap *bootstrap, const char *what, const void *data, size_t len,
                          struct ddp_err *err);
    ddp_status (*fetch)(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                        struct ddp_err *err);
    ddp_status (*clear)(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
    uint32_t (*remaining_ms)(const struct bootstrap *bootstrap);
    /* recorder_complete: record that all calls up to `ticket` are done. */
    void (*complete)(struct recorder *recorder, uint64_t ticket);
    ddp_status (*local_address)(const ddp_store *store, char *address, size_t room, struct ddp_err *err);
};

/* The functions of libddp_cuda. The library owns the struct and never unloads, so all pointers remain valid. */
struct cuda_entry {
    const char *version; /* DDP_VERSION */
    /* Set *count to the number of GPUs of this process, at least 1. Return an error if no GPU can be used. */
    ddp_status (*devices)(const struct comm_paths *paths, int *count, struct ddp_err *err);
    const struct comm_ops *nccl;
    const struct comm_ops *staged; /* the cpu backend with buffers in device memory */
};

#define CUDA_ENTRY "ddp_cuda_entry"
typedef const struct cuda_entry *(*cuda_entry_function)(void);

/* --- the choice of a backend ------------------------------------------------------------------------------- */

struct backend {
    const struct comm_ops *ops;
    int device; /* -1 without a device */
};

/* Find the backend `name` for `device`, a value of ddp_options.device:
 *
 *     no device                "cpu"
 *     NULL or "nccl"           "nccl" on the device
 *     "cpu"                    the staged backend on the device
 *
 * Return DDP_ERR_UNSUPPORTED, with the name of the library and the loader's error, if libddp_cuda or the CUDA runtime
 * cannot be loaded. With DDP_DEVICE_AUTO, this is an error only for "nccl". With any other `name`, the result is
 * the cpu backend without a device. */
ddp_status backend_find(const char *name, int device, const struct worker_env *env, struct backend *out,
                        struct ddp_err *err);

/* Return the library files that `env` names. The texts are borrowed from `env`. */
struct comm_paths backend_paths(const struct worker_env *env);

extern const struct comm_host backend_host;

#endif
