/* numa.h -- uses /sys to find the CPUs near a worker's GPU, for --numa_binding.
 *
 * The caller passes the functions that read files and find GPUs, so that a test can simulate any machine. */
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
    /* Return the text of a file in /sys, or NULL if the file cannot be read. The text is valid until the next
     * call. */
    const char *(*read)(void *user, const char *path);
    /* Write the PCI address of a GPU in the form of /sys. `gpu` is the GPU's name in CUDA_VISIBLE_DEVICES. */
    bool (*pci_address)(void *user, const char *gpu, char out[NUMA_PCI_SIZE]);
    void *user;
    struct rank_set allowed; /* CPUs that this process may use */
};

/* Find the CPUs of the worker that uses GPU number `device` of `gpus`. After DDP_OK the caller frees *cpus with
 * rank_set_free. Return DDP_ERR_ARG with the reason in `err` if the CPUs cannot be found, or DDP_ERR_NOMEM. */
ddp_status numa_choose(enum numa_binding mode, const struct numa_source *source, const struct gpu_list *gpus,
                       int device, struct rank_set *cpus, struct ddp_err *err);

/* Append CPUs as "0-3,8" to `out`. Return false if memory is short. */
bool numa_print(const struct rank_set *cpus, struct buf *out);

#endif
