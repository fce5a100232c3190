/* comm_host.h -- what libddp and libddp_cuda know of each other.
 *
 * libddp_cuda is loaded at run time, so neither links the other. libddp asks it for one struct cuda_entry; a backend in
 * there calls back through struct comm_host, which is in its comm_setup. Both are private: libraries of different versions
 * refuse each other, by `version`, which is the first member for that reason. */
#ifndef WORKER_CORE_COMM_HOST_H
#define WORKER_CORE_COMM_HOST_H

#include "core/bootstrap.h"
#include "core/comm.h"

/* What a backend of libddp_cuda may use of libddp: bootstrap.h, and the cpu backend for what is on the host. */
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
    /* How many GPUs this process may use. An error says why there are none. */
    ddp_status (*devices)(const struct comm_paths *paths, int *count, struct ddp_err *err);
    const struct comm_ops *nccl;
    const struct comm_ops *staged; /* the cpu backend, for buffers in device memory */
};

#define CUDA_ENTRY "ddp_cuda_entry"
typedef const struct cuda_entry *(*cuda_entry_function)(void);

#endif
