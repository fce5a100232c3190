/* numa.h -- the CPUs that are near a worker's GPU (--numa_binding), from /sys.
 *
 * The caller passes two functions that read files and find GPUs, so that a test can simulate any machine
 * with texts. */
#ifndef LAUNCHER_NUMA_H
#define LAUNCHER_NUMA_H

#include "cli/cli.h"
#include "plan/gpus.h"
#include "record/rank_set.h"

enum {
    NUMA_CPUS_MAX = 16384,
    NUMA_NODES_MAX = 1024,
    NUMA_PCI_SIZE = 32 /* "0000:3b:00.0" */
};

struct numa_look {
    /* Return the text of a file below /sys; NULL if it cannot be read. Valid until the next call. */
    const char *(*read)(void *user, const char *path);
    /* Write the PCI address, as in /sys, of a GPU. `gpu` is its name in CUDA_VISIBLE_DEVICES. */
    bool (*pci_address)(void *user, const char *gpu, char out[NUMA_PCI_SIZE]);
    void *user;
    struct rank_set allowed; /* CPUs that this process may use */
};

/* Find the CPUs of the worker with GPU number `device` of `gpus`. DDP_OK: the caller frees them with rank_set_free.
 * DDP_ERR_ARG: the CPUs are unknown; `err` has the reason. DDP_ERR_NOMEM. */
ddp_status numa_choose(enum numa_binding mode, const struct numa_look *look, const struct gpu_list *gpus,
                       int device, struct rank_set *cpus, struct ddp_err *err);

/* Append CPUs as "0-3,8". False: out of memory. */
bool numa_print(const struct rank_set *cpus, struct buf *out);

#endif
