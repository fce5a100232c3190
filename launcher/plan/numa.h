/* numa.h -- finds the CPUs near a worker's GPU, for --numa_binding. The caller passes the functions that read /sys,
 * so that a test can simulate any machine. */
#ifndef LAUNCHER_NUMA_H
#define LAUNCHER_NUMA_H

#include "cli/cli.h"
#include "record/rank_set.h"

enum {
    NUMA_CPUS_MAX = 16384,
    NUMA_NODES_MAX = 1024,
    NUMA_PCI_SIZE = 32 /* "0000:3b:00.0" */
};

struct gpu_list;

struct numa_source {
    /* Return the text of a file in /sys, valid until the next call, or NULL. */
    const char *(*read)(void *user, const char *path);
    /* Write the PCI address of `gpu`, a name of CUDA_VISIBLE_DEVICES, in the form of /sys. */
    bool (*pci_address)(void *user, const char *gpu, char out[NUMA_PCI_SIZE]);
    void *user;
    struct rank_set allowed; /* CPUs that this process may use */
};

/* Find the CPUs of the worker of GPU number `device`. After DDP_OK, the caller frees *cpus with rank_set_free. Return
 * DDP_ERR_ARG, with the reason in `err`, or DDP_ERR_NOMEM. */
ddp_status numa_choose(enum numa_binding mode, const struct numa_source *source, const struct gpu_list *gpus,
                       int device, struct rank_set *cpus, struct ddp_err *err);

/* Append CPUs as "0-3,8" to `out`. Return false if memory is short. */
bool numa_print(const struct rank_set *cpus, struct buf *out);

#endif
