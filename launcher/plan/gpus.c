/* gpus.c -- see gpus.h.
 *
 * CUDA_VISIBLE_DEVICES is interpreted by CUDA's rules. On a machine with 4 GPUs:
 *
 *     value         visible
 *     not set       0 1 2 3
 *     3,0           3 0        LOCAL_RANK 0 gets GPU 3
 *     1,9,0         1          the first entry without a GPU ends the list
 *     0,-1,2        0          -1 names no GPU
 *     1,1           none       a repeated entry makes the whole list empty
 *     1gpu,2        1 2        only the number at the start of an entry counts
 *     GPU-8f,1      GPU-8f     the first entry of another kind (number, GPU-<uuid>, MIG-<uuid>) ends the list
 *
 * With other rules, a worker could start without a GPU and would fail only minutes later. */
#include "plan/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value of CUDA_VISIBLE_DEVICES that is being parsed. */
struct entries {
    const char *at;
    const char *kind; /* beginning of the names: "GPU-", "MIG-", or "" for numbers */
};

/* List all GPUs as "0", "1" ..., which is CUDA's default. */
static void all_gpus(struct gpu_list *list)
{
    list->n = list->physical < GPUS_MAX ? list->physical : GPUS_MAX;
    for (int i = 0; i < list->n; i++)
        snprintf(list->names[i], GPU_NAME_MAX, "%d", i);
}

/* Copy the next entry, without the blanks around it. Return false at the end of the list. */
static bool next_entry(struct entries *e, char out[GPU_NAME_MAX])
{
    if (e->at == NULL)
        return false;
    size_t len = strcspn(e->at, ",");
    const char *begin = e->at, *end = e->at + len;
    e->at = *end == ',' ? end + 1 : NULL;
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    snprintf(out, GPU_NAME_MAX, "%.*s", (int)(end - begin), begin);
    return true;
}

/* Replace an entry by the number at its beginning: "01gpu" -> "1". Return false if the entry has no number or no
 * GPU has this number. */
static bool number_entry(struct gpu_list *list, char entry[GPU_NAME_MAX])
{
    char *end;
    long index = strtol(entry, &end, 10);
    if (end == entry || index < 0)
        return false;
    if (index >= list->physical) {
        snprintf(list->note, sizeof(list->note),
                 "CUDA_VISIBLE_DEVICES names GPU %ld, but this machine has %d GPU%s, numbered from 0; CUDA "
                 "ignores "
                 "this entry and all later entries",
                 index, list->physical, list->physical == 1 ? "" : "s");
        return false;
    }
    snprintf(entry, GPU_NAME_MAX, "%ld", index);
    return true;
}

/* Return true if the list contains `entry`. */
static bool is_listed(const struct gpu_list *list, const char *entry)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->names[i], entry) == 0)
            return true;
    return false;
}

/* List the GPUs of CUDA_VISIBLE_DEVICES. Do not check UUIDs, because only the driver could check a UUID. */
static void named_gpus(struct gpu_list *list, const char *visible)
{
    struct entries e = { .at = visible, .kind = "" };
    char entry[GPU_NAME_MAX];
    if (strncmp(visible, "GPU-", 4) == 0)
        e.kind = "GPU-";
    else if (strncmp(visible, "MIG-", 4) == 0)
        e.kind = "MIG-";
    while (list->n < GPUS_MAX && next_entry(&e, entry)) {
        bool number = e.kind[0] == '\0';
        if (number ? !number_entry(list, entry) : strncmp(entry, e.kind, 4) != 0)
            return;
        if (is_listed(list, entry)) {
            snprintf(list->note, sizeof(list->note),
                     "CUDA_VISIBLE_DEVICES names %.64s twice, so CUDA shows no GPU; remove one entry", entry);
            list->n = 0;
            return;
        }
        memcpy(list->names[list->n++], entry, GPU_NAME_MAX);
    }
}

void gpus_list(struct gpu_list *list, const char *visible, int physical)
{
    list->physical = physical;
    list->hidden = false;
    list->n = 0;
    list->note[0] = '\0'; /* `names` stays uninitialized (24 KB), because only n entries are read */
    if (visible == NULL) {
        all_gpus(list);
        return;
    }
    const char *first = visible + strspn(visible, " \t");
    list->hidden = first[0] == '\0' || first[0] == '-';
    if (!list->hidden && physical > 0)
        named_gpus(list, visible);
}

/* Return DDP_ERR_ARG if the number of workers exceeds the number of visible GPUs. */
static ddp_status check_number(const struct gpu_list *list, int count, struct ddp_err *err)
{
    if (list->physical == 0 || list->hidden || count <= list->n)
        return DDP_OK;
    if (list->n < list->physical)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nproc_per_node=%d is more than the %d GPU%s that CUDA_VISIBLE_DEVICES shows (the machine has "
            "%d); set CUDA_VISIBLE_DEVICES=\"\" for a job on CPUs, or add --share_gpu for a test",
            count, list->n, list->n == 1 ? "" : "s", list->physical);
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--nproc_per_node=%d is more than the %d GPU%s of this machine; set CUDA_VISIBLE_DEVICES=\"\" for a "
        "job on CPUs, or add --share_gpu for a test",
        count, list->n, list->n == 1 ? "" : "s");
}

/* Explain why --nproc_per_node=gpu finds no GPU. */
static ddp_status no_gpu(const struct gpu_list *list, struct ddp_err *err)
{
    if (list->physical == 0)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nproc_per_node=gpu: this machine has no GPU; use a number, or --nproc_per_node=cpu");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--nproc_per_node=gpu: CUDA_VISIBLE_DEVICES shows no GPU, although this machine has %d; correct "
        "this variable, or use --nproc_per_node=cpu",
        list->physical);
}

ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus, int *nproc,
                        struct ddp_err *err)
{
    int by_cpu = cpus > 0 ? cpus : 1;
    switch (want.kind) {
    case NPROC_DEFAULT:
        *nproc = list->n > 0 ? list->n : 1;
        return DDP_OK;
    case NPROC_AUTO:
        *nproc = list->n > 0 ? list->n : by_cpu;
        return DDP_OK;
    case NPROC_CPU:
        *nproc = by_cpu;
        return DDP_OK;
    case NPROC_GPU:
        *nproc = list->n;
        return list->n > 0 ? DDP_OK : no_gpu(list, err);
    case NPROC_NUMBER:
        break;
    }
    *nproc = want.count;
    return share ? DDP_OK : check_number(list, want.count, err);
}

const char *gpus_of_worker(const struct gpu_list *list, int local_rank, int nproc, bool share)
{
    if (share && list->n > 0)
        return list->names[local_rank % list->n];
    return nproc <= list->n ? list->names[local_rank] : NULL;
}

const char *gpus_of_task(const struct gpu_list *list, int local_rank)
{
    return local_rank < list->n ? list->names[local_rank] : NULL;
}
