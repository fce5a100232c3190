/* numa.c -- see numa.h. A GPU's PCI address determines its NUMA node, and the node determines the CPUs. --numa_binding
 * has the same rules as in torchrun, so that a job gets the same CPUs from both launchers. */
#include "plan/numa.h"

#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 160, CACHE_LEVELS_MAX = 16 };

#define USE_TASKSET "bind with taskset or numactl instead"

/* The arguments of numa_choose that all functions need. */
struct question {
    const struct numa_source *source;
    const struct gpu_list *gpus;
    struct ddp_err *err;
};

/* CPUs in groups. key[cpu] is the lowest CPU of the group, or -1 if the CPU is unusable. size[key] is how many
 * usable CPUs the group has. */
struct groups {
    int *key, *size; /* owned: two arrays in one block of memory, which begins at `key` */
    int n;           /* length of `key` and of `size` */
};

/* --- reading ------------------------------------------------------------------------------------------------ */

/* Parse the first line of `text`, a list such as "0-3,8". An empty line is an empty set, unlike in rank_set_parse. */
static ddp_status parse_list(const char *text, int limit, struct rank_set *set)
{
    char line[4096];
    const size_t len = strcspn(text, "\n");
    if (len >= sizeof(line))
        return DDP_ERR_ARG;
    snprintf(line, sizeof(line), "%.*s", (int)len, text);
    if (line[0] == '\0')
        return rank_set_init(set, limit) ? DDP_OK : DDP_ERR_NOMEM;
    return rank_set_parse(set, line, limit, NULL);
}

static ddp_status unreadable(const struct question *q, const char *path)
{
    return ddp_fail(q->err, DDP_ERR_ARG,
                    "--numa_binding: %s cannot be read, or has an unexpected format; " USE_TASKSET, path);
}

/* Read a file that contains a list of numbers below `limit`. */
static ddp_status read_list(const struct question *q, const char *path, int limit, struct rank_set *set)
{
    const char *text = q->source->read(q->source->user, path);
    const ddp_status status = text != NULL ? parse_list(text, limit, set) : DDP_ERR_ARG;
    return status == DDP_ERR_ARG ? unreadable(q, path) : status;
}

/* Read a file that contains only one number, perhaps with a newline. */
static ddp_status read_number(const struct question *q, const char *path, int *to)
{
    const char *text = q->source->read(q->source->user, path);
    char *end;
    const long value = text != NULL ? strtol(text, &end, 10) : 0;
    if (text == NULL || end == text || end[*end == '\n'] != '\0' || value < -1 || value >= NUMA_CPUS_MAX)
        return unreadable(q, path);
    *to = (int)value;
    return DDP_OK;
}

static int lowest(const struct rank_set *set)
{
    for (int i = 0; i < set->limit; i++)
        if (rank_set_has(set, i))
            return i;
    return -1;
}

/* --- the node ----------------------------------------------------------------------------------------------- */

/* Find the NUMA node of a GPU. On a machine with only one NUMA node, the file numa_node may contain -1. Then the node
 * is 0. */
static ddp_status node_of_gpu(const struct question *q, int device, int *node)
{
    char pci[NUMA_PCI_SIZE], path[PATH_SIZE];
    const char *name = q->gpus->names[device];
    if (!q->source->pci_address(q->source->user, name, pci))
        return ddp_fail(q->err, DDP_ERR_ARG,
                        "--numa_binding: the driver does not report the PCI address of GPU %s; " USE_TASKSET,
                        name);
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
    const ddp_status status = read_number(q, path, node);
    *node = status == DDP_OK && *node < 0 ? 0 : *node;
    return status;
}

/* Add the usable CPUs of a NUMA node to `cpus`. */
static ddp_status add_node(const struct question *q, int node, struct rank_set *cpus)
{
    char path[PATH_SIZE];
    struct rank_set all = { 0 };
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    const ddp_status status = read_list(q, path, NUMA_CPUS_MAX, &all);
    for (int i = 0; i < all.limit; i++)
        if (rank_set_has(&all, i) && rank_set_has(&q->source->allowed, i))
            rank_set_add(cpus, i);
    rank_set_free(&all);
    return status;
}

/* Read the package (socket) of a CPU. */
static ddp_status package_of(const struct question *q, int cpu, int *package)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    return read_number(q, path, package);
}

/* Add the CPUs of NUMA node `node` if this node is in `package`. A node that has only memory adds no CPU. */
static ddp_status add_if_in_package(const struct question *q, int node, int package, struct rank_set *cpus)
{
    struct rank_set own = { 0 };
    int its = -2;
    if (!rank_set_init(&own, NUMA_CPUS_MAX))
        return DDP_ERR_NOMEM;
    ddp_status status = add_node(q, node, &own);
    if (status == DDP_OK && lowest(&own) >= 0)
        status = package_of(q, lowest(&own), &its);
    for (int i = 0; its == package && i < own.limit; i++)
        if (rank_set_has(&own, i))
            rank_set_add(cpus, i);
    rank_set_free(&own);
    return status;
}

/* Add the CPUs of all NUMA nodes that are in the same package as the CPUs in `cpus`. */
static ddp_status add_socket(const struct question *q, struct rank_set *cpus)
{
    struct rank_set nodes = { 0 };
    int package = -1;
    ddp_status status = lowest(cpus) >= 0 ? package_of(q, lowest(cpus), &package) : DDP_OK;
    if (status == DDP_OK)
        status = read_list(q, "/sys/devices/system/node/online", NUMA_NODES_MAX, &nodes);
    for (int i = 0; i < nodes.limit && status == DDP_OK; i++)
        if (rank_set_has(&nodes, i))
            status = add_if_in_package(q, i, package, cpus);
    rank_set_free(&nodes);
    return status;
}

/* --- groups of CPUs ----------------------------------------------------------------------------------------- */

/* Find the key of the group to which a CPU belongs. The key of a group is the lowest CPU number in the group. */
typedef ddp_status (*key_fn)(const struct question *q, int cpu, int *key);

/* Find the lowest CPU of the list in a file. */
static ddp_status lowest_in(const struct question *q, const char *path, int *key)
{
    struct rank_set set = { 0 };
    ddp_status status = read_list(q, path, NUMA_CPUS_MAX, &set);
    *key = status == DDP_OK ? lowest(&set) : -1;
    rank_set_free(&set);
    return status == DDP_OK && *key < 0 ? unreadable(q, path) : status;
}

static ddp_status core_of(const struct question *q, int cpu, int *key)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    return lowest_in(q, path, key);
}

/* Set *level to the level of cache `i`, or to -1 for an instruction cache. Return false if the CPU has no cache
 * `i`. */
static bool cache_level(const struct question *q, int cpu, int i, int *level)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
    const char *type = q->source->read(q->source->user, path);
    if (type == NULL)
        return false;
    const bool counts = strncmp(type, "Unified", 7) == 0 || strncmp(type, "Data", 4) == 0;
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
    const char *text = counts ? q->source->read(q->source->user, path) : NULL;
    *level = text != NULL ? atoi(text) : -1;
    return true;
}

/* Find the core complex of a CPU: all CPUs that use the same cache of the highest level. */
static ddp_status complex_of(const struct question *q, int cpu, int *key)
{
    char path[PATH_SIZE];
    int best = -1, highest = -1, level;
    for (int i = 0; i < CACHE_LEVELS_MAX && cache_level(q, cpu, i, &level); i++) {
        if (level > highest) {
            highest = level;
            best = i;
        }
    }
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, best);
    return best >= 0 ? lowest_in(q, path, key) : unreadable(q, path);
}

/* Find the group of a CPU, and add 1 to the size of this group. The key is the lowest CPU number of the group. So /sys
 * is wrong if the key is higher than `cpu`. */
static ddp_status group_one(const struct question *q, int cpu, key_fn key_of, struct groups *g)
{
    const ddp_status status = key_of(q, cpu, &g->key[cpu]);
    if (status == DDP_OK && g->key[cpu] > cpu)
        return ddp_fail(q->err, DDP_ERR_ARG,
                        "--numa_binding: /sys has unexpected data about CPU %d; " USE_TASKSET, cpu);
    if (status == DDP_OK)
        g->size[g->key[cpu]]++;
    return status;
}

/* Group the CPUs. The caller frees g->key even after an error. */
static ddp_status group(const struct question *q, const struct rank_set *cpus, key_fn key_of,
                        struct groups *g)
{
    ddp_status status = DDP_OK;
    g->n = rank_set_highest(cpus) + 1;
    g->key = calloc(2 * (size_t)g->n + 1, sizeof(*g->key));
    if (g->key == NULL)
        return DDP_ERR_NOMEM;
    g->size = g->key + g->n;
    for (int i = 0; i < g->n && status == DDP_OK; i++) {
        g->key[i] = -1;
        if (rank_set_has(cpus, i))
            status = group_one(q, i, key_of, g);
    }
    return status;
}

static int count_groups(const struct groups *g)
{
    int n = 0;
    for (int key = 0; key < g->n; key++)
        n += g->size[key] > 0;
    return n;
}

/* Return how many groups have a lower key than the group with the key `own`. If the groups are sorted by their keys,
 * this number is the place of the group, counted from 0. */
static int place_by_key(const struct groups *g, int own)
{
    int n = 0;
    for (int key = 0; key < own; key++)
        n += g->size[key] > 0;
    return n;
}

/* Return how many groups are larger than the group with the key `own`. If two groups have the same size, the group with
 * the lower key counts as larger. If the groups are sorted by their sizes, the largest first, this number is the place
 * of the group, counted from 0. */
static int place_by_size(const struct groups *g, int own)
{
    int n = 0;
    for (int key = 0; key < g->n; key++)
        n += g->size[key] > g->size[own] || (g->size[key] == g->size[own] && key < own);
    return n;
}

/* Keep in `cpus` only the groups whose place is at least `first` and below `end`. */
static void keep_places(const struct groups *g, int (*place)(const struct groups *, int), int first, int end,
                        struct rank_set *cpus)
{
    for (int i = 0; i < g->n; i++) {
        if (g->key[i] < 0)
            continue;
        const int at = place(g, g->key[i]);
        if (at < first || at >= end)
            cpus->bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
}

/* --- shares ------------------------------------------------------------------------------------------------- */

/* Count GPUs that are near the NUMA node `node`. Set *all to the number of all these GPUs. Set *before to the number of
 * these GPUs that have a lower index than `device`. */
static ddp_status neighbours(const struct question *q, int node, int device, int *all, int *before)
{
    ddp_status status = DDP_OK;
    *all = *before = 0;
    for (int i = 0; i < q->gpus->n && status == DDP_OK; i++) {
        int its = -1;
        status = node_of_gpu(q, i, &its);
        *all += its == node;
        *before += its == node && i < device;
    }
    return status;
}

/* Keep in `cpus` only the part of the cores that belongs to one GPU. `all` is the number of GPUs that share the cores.
 * `before` is the number of these GPUs that have a lower index than this GPU. */
static ddp_status keep_share(const struct question *q, int all, int before, struct rank_set *cpus)
{
    struct groups g = { 0 };
    ddp_status status = group(q, cpus, core_of, &g);
    const int cores = status == DDP_OK ? count_groups(&g) : 0;
    if (status == DDP_OK && cores < all)
        status =
            ddp_fail(q->err, DDP_ERR_ARG,
                     "--numa_binding=exclusive: %d GPUs share a NUMA node with only %d usable core%s; use "
                     "--numa_binding=node",
                     all, cores, cores == 1 ? "" : "s");
    if (status == DDP_OK) {
        const int each = cores / all, more = cores % all;
        const int first = before * each + (before < more ? before : more);
        keep_places(&g, place_by_key, first, first + each + (before < more), cpus);
    }
    free(g.key);
    return status;
}

/* Keep in `cpus` only the CPUs of the core complex for one GPU. `before` is the number of GPUs of the same NUMA node
 * that have a lower index than this GPU. */
static ddp_status keep_complex(const struct question *q, int before, struct rank_set *cpus)
{
    struct groups g = { 0 };
    ddp_status status = group(q, cpus, complex_of, &g);
    const int n = status == DDP_OK ? count_groups(&g) : 0;
    if (n > 0)
        keep_places(&g, place_by_size, before % n, before % n + 1, cpus);
    free(g.key);
    return status;
}

/* Find the CPUs of the worker that uses GPU number `device`. Leave out CPUs that ddprun itself may not use. The mode
 * selects the CPUs:
 *
 *     node            all CPUs of the node
 *     socket          all CPUs of the node's socket, which may have several nodes
 *     exclusive       an equal share of the node's cores; the first GPUs of the node get the remaining cores
 *     core-complex    one group of CPUs with a common cache: the first GPU gets the largest group; with more GPUs than
 *                     groups, several GPUs get the same group */
static ddp_status numa_choose_mode(const struct question *q, enum numa_binding mode, int device,
                                   struct rank_set *cpus)
{
    int node = 0, all, before;
    ddp_status status = node_of_gpu(q, device, &node);
    if (status == DDP_OK)
        status = add_node(q, node, cpus);
    if (status != DDP_OK || mode == NUMA_NODE)
        return status;
    if (mode == NUMA_SOCKET)
        return add_socket(q, cpus);
    status = neighbours(q, node, device, &all, &before);
    if (status != DDP_OK)
        return status;
    return mode == NUMA_EXCLUSIVE ? keep_share(q, all, before, cpus) : keep_complex(q, before, cpus);
}

ddp_status numa_choose(enum numa_binding mode, const struct numa_source *source, const struct gpu_list *gpus,
                       int device, struct rank_set *cpus, struct ddp_err *err)
{
    const struct question q = { source, gpus, err };
    *cpus = (struct rank_set){ 0 };
    if (device >= gpus->n)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--numa_binding: local rank %d has no GPU, and this option binds a worker to the CPUs near its "
            "GPU; " USE_TASKSET,
            device);
    if (!rank_set_init(cpus, NUMA_CPUS_MAX))
        return DDP_ERR_NOMEM;
    ddp_status status = numa_choose_mode(&q, mode, device, cpus);
    if (status == DDP_OK && lowest(cpus) < 0)
        status =
            ddp_fail(err, DDP_ERR_ARG,
                     "--numa_binding: ddprun cannot use any CPU near GPU %s; 'taskset -cp $$' shows the CPUs "
                     "that this shell and ddprun can use",
                     gpus->names[device]);
    if (status != DDP_OK)
        rank_set_free(cpus);
    return status;
}

/* Return `i` if CPU `i` is in the set, else -1. */
static int cpu_at(const void *user, int i)
{
    return rank_set_has(user, i) ? i : -1;
}

bool numa_print(const struct rank_set *cpus, struct buf *out)
{
    return rank_set_print_each(cpu_at, cpus, rank_set_highest(cpus) + 1, 1000, out);
}
