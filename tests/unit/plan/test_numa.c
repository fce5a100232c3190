/* Tests of --numa_binding on two machines that are described as text:
 *
 *     a server         2 sockets with 2 nodes each; 4 cores and 2 GPUs on each node; cpu N and N + 16 are one core
 *     a small machine  one node; /sys reports node -1 for its GPU; 3 cores, one of which this process may not use */
#include "plan/plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct gpu_list gpus;
static struct numa_source look;
static struct rank_set cpus;
static struct ddp_err err;
static char text[64];

/* --- the server -------------------------------------------------------------------------------------------- */

static const char *lists(const char *path)
{
    int node, cpu, index;
    char rest[64];
    if (sscanf(path, "/sys/devices/system/node/node%d/%63s", &node, rest) == 2)
        snprintf(text, sizeof(text), "%d-%d,%d-%d\n", 4 * node, 4 * node + 3, 4 * node + 16, 4 * node + 19);
    else if (strcmp(path, "/sys/devices/system/node/online") == 0)
        snprintf(text, sizeof(text), "0-4\n");
    else if (strcmp(path, "/sys/devices/system/node/possible") == 0)
        snprintf(text, sizeof(text), "0-5\n");
    else if (sscanf(path, "/sys/bus/pci/devices/0000:%x:00.0/numa_node", (unsigned *)&node) == 1)
        snprintf(text, sizeof(text), "%d\n", node / 2);
    else if (sscanf(path, "/sys/devices/system/cpu/cpu%d/topology/%63s", &cpu, rest) == 2 && rest[0] == 'p')
        snprintf(text, sizeof(text), "%d\n", cpu % 16 / 8);
    else if (strstr(path, "thread_siblings_list") != NULL)
        snprintf(text, sizeof(text), "%d,%d\n", cpu % 16, cpu % 16 + 16);
    else if (sscanf(path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%63s", &cpu, &index, rest) == 3 &&
             index < 4 && rest[0] == 't')
        /* cache 1 has instructions; caches 0, 2 and 3 are unified */
        snprintf(text, sizeof(text), "%s\n", index == 1 ? "Instruction" : "Unified");
    else if (index < 4 && rest[0] == 'l')
        snprintf(text, sizeof(text), "%d\n", index);
    else if (index == 3) /* two cores share cache 3; the list of the last pair has only its lowest CPU */
        snprintf(text, sizeof(text), cpu % 16 < 14 ? "%d-%d,%d-%d\n" : "%d\n", cpu % 16 / 2 * 2,
                 cpu % 16 / 2 * 2 + 1, cpu % 16 / 2 * 2 + 16, cpu % 16 / 2 * 2 + 17);
    else
        return NULL;
    return text;
}

/* Read a file of the server. Node 4 has only memory. Node 5 is possible, but does not exist. */
static const char *read_server(void *user, const char *path)
{
    (void)user;
    if (strstr(path, "node4/") != NULL)
        return "\n";
    return strstr(path, "node5/") != NULL ? NULL : lists(path);
}

/* Return the PCI address of a GPU: GPU n is on bus n. */
static bool on_its_bus(void *user, const char *gpu, char out[NUMA_PCI_SIZE])
{
    (void)user;
    snprintf(out, NUMA_PCI_SIZE, "0000:%.8s:00.0", gpu);
    return true;
}

static void a_machine(const char *(*read)(void *, const char *), int n_gpus, const char *allowed)
{
    gpus.n = n_gpus;
    for (int i = 0; i < n_gpus; i++)
        snprintf(gpus.names[i], GPU_NAME_MAX, "%d", i);
    look = (struct numa_source){ .read = read, .pci_address = on_its_bus };
    cr_assert_eq(rank_set_parse(&look.allowed, allowed, NUMA_CPUS_MAX, &err), DDP_OK);
}

static void tear_down(void)
{
    rank_set_free(&look.allowed);
}

static void expect(enum numa_binding mode, int device, const char *list)
{
    struct buf out = { 0 };
    cr_assert_eq(numa_choose(mode, &look, &gpus, device, &cpus, &err), DDP_OK, "%s", err.msg);
    cr_assert(numa_print(&cpus, &out) && buf_append(&out, "", 1));
    cr_assert_str_eq((const char *)out.data, list, "GPU %d", device);
    buf_free(&out);
    rank_set_free(&cpus);
}

static void expect_error(enum numa_binding mode, int device, const char *part)
{
    cr_assert_eq(numa_choose(mode, &look, &gpus, device, &cpus, &err), DDP_ERR_ARG);
    cr_assert_not_null(strstr(err.msg, part), "%s", err.msg);
}

Test(numa, a_node_is_all_its_cpus, .fini = tear_down)
{
    a_machine(read_server, 8, "0-31");
    expect(NUMA_NODE, 0, "0-3,16-19");
    expect(NUMA_NODE, 7, "12-15,28-31");
}

Test(numa, a_socket_is_all_its_nodes, .fini = tear_down)
{
    a_machine(read_server, 8, "0-31");
    expect(NUMA_SOCKET, 3, "0-7,16-23");
    expect(NUMA_SOCKET, 4, "8-15,24-31");
}

Test(numa, exclusive_cores_are_shared_out_whole, .fini = tear_down)
{
    a_machine(read_server, 8, "0-31");
    expect(NUMA_EXCLUSIVE, 0, "0-1,16-17");
    expect(NUMA_EXCLUSIVE, 1, "2-3,18-19");
}

Test(numa, the_first_gets_the_core_that_is_left_over, .fini = tear_down)
{
    a_machine(read_server, 8, "0-2,5,16-18");
    expect(NUMA_EXCLUSIVE, 0, "0-1,16-17");
    expect(NUMA_EXCLUSIVE, 1, "2,18");
    expect_error(NUMA_EXCLUSIVE, 2, "--numa_binding=exclusive: 2 GPUs share");
}

Test(numa, a_core_complex_is_one_cache_the_largest_first, .fini = tear_down)
{
    a_machine(read_server, 8, "0-31");
    expect(NUMA_CORE_COMPLEX, 0, "0-1,16-17");
    expect(NUMA_CORE_COMPLEX, 1, "2-3,18-19");
    expect(NUMA_CORE_COMPLEX, 6, "12-13,28-29");
    tear_down();
    a_machine(read_server, 8, "0,2-3,16,18-19");
    expect(NUMA_CORE_COMPLEX, 0, "2-3,18-19");
    expect(NUMA_CORE_COMPLEX, 1, "0,16");
}

/* --- the small record, and invalid ones -------------------------------------------------------------------- */

static const char *read_small(void *user, const char *path)
{
    (void)user;
    if (strstr(path, "numa_node") != NULL)
        return "-1\n";
    return strcmp(path, "/sys/devices/system/node/node0/cpulist") == 0 ? "0-2\n" : NULL;
}

Test(numa, a_machine_of_one_node_need_not_say_so, .fini = tear_down)
{
    a_machine(read_small, 1, "0-1,7");
    expect(NUMA_NODE, 0, "0-1");
}

Test(numa, what_cannot_be_told_is_an_error, .fini = tear_down)
{
    a_machine(read_small, 1, "0-1");
    expect_error(NUMA_NODE, 1, "rank 1 has");
    expect_error(NUMA_EXCLUSIVE, 0, "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    tear_down();
    a_machine(read_small, 1, "7");
    expect_error(NUMA_NODE, 0, "GPU 0; 'taskset -cp");
}

/* --- wrong files ------------------------------------------------------------------------------------------- */

static const char *wrong_file, *wrong_text;

/* Read a file of the server. If the path contains `wrong_file`, return `wrong_text` instead. */
static const char *read_wrong(void *user, const char *path)
{
    return strstr(path, wrong_file) != NULL ? wrong_text : read_server(user, path);
}

static void expect_wrong(enum numa_binding mode, const char *file, const char *content, const char *part)
{
    wrong_file = file;
    wrong_text = content;
    a_machine(read_wrong, 8, "0-31");
    expect_error(mode, 0, part);
    tear_down();
}

Test(numa, files_with_other_contents_are_named)
{
    static const char *const numbers[] = { "", "\n", "0x1\n", "0 1\n", "0-1\n", "-2\n", "65536\n", NULL };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        expect_wrong(NUMA_NODE, "/numa_node", numbers[i], "/sys/bus/pci/devices/0000:0:00.0/numa_node");
        expect_wrong(NUMA_SOCKET, "cpu0/topology/physical_package_id", numbers[i],
                     "/sys/devices/system/cpu/cpu0/topology/physical_package_id");
    }
    expect_wrong(NUMA_NODE, "node0/cpulist", "0-3,x\n", "/sys/devices/system/node/node0/cpulist");
    expect_wrong(NUMA_SOCKET, "node/online", NULL, "/sys/devices/system/node/online");
    expect_wrong(NUMA_EXCLUSIVE, "thread_siblings_list", "\n", "cpu0/topology/thread_siblings_list");
    expect_wrong(NUMA_CORE_COMPLEX, "/cache/", NULL, "/sys/devices/system/cpu/cpu0/cache/");
}

/* A file lists the CPUs of a group (a core, or a core complex with a common cache). The lowest CPU of this list must
 * not be above the CPU to which the file belongs. Without this check, the lowest CPU could be an index outside the
 * array of group sizes. */
Test(numa, a_core_that_does_not_contain_its_cpu_is_an_error)
{
    expect_wrong(NUMA_EXCLUSIVE, "cpu0/topology/thread_siblings_list", "31\n", "CPU 0");
    expect_wrong(NUMA_CORE_COMPLEX, "shared_cpu_list", "4095\n", "CPU 0");
}

static bool without_bus(void *user, const char *gpu, char out[NUMA_PCI_SIZE])
{
    (void)user, (void)gpu, (void)out;
    return false;
}

Test(numa, a_gpu_without_a_pci_address_is_named, .fini = tear_down)
{
    a_machine(read_server, 8, "0-31");
    look.pci_address = without_bus;
    expect_error(NUMA_NODE, 3, "GPU 3");
}
