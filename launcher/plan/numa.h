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
    /* Return the text of a file below /sys, or NULL if the file cannot be read. The text is valid until the next
     * call. */
    const char *(*read)(void *user, const char *path);
    /* Write the PCI address, as in /sys, of a GPU. `gpu` is its name in CUDA_VISIBLE_DEVICES. */
    bool (*pci_address)(void *user, const char *gpu, char out[NUMA_PCI_SIZE]);
    void *user;
    struct rank_set allowed; /* CPUs that this process may use */
};

/* Find the CPUs of the worker with GPU number `device` of `gpus`. After DDP_OK the caller frees the CPUs with
 * rank_set_free. Return DDP_ERR_ARG, with the reason in `err`, if the CPUs are unknown. Return DDP_ERR_NOMEM if
 * memory is short. */
ddp_status numa_choose(enum numa_binding mode, const struct numa_look *look, const struct gpu_list *gpus,
                       int device, struct rank_set *cpus, struct ddp_err *err);

/* Append CPUs as "0-3,8". Return false if memory is short. */
bool numa_print(const struct rank_set *cpus, struct buf *out);

#endif
