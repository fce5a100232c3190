/* gpu_count.c -- see gpu_count.h.
 *
 * The management library is loaded, not linked: it comes with the driver. It is preferred to /proc
 * because it leaves out GPUs that a container or a batch system has taken away. CUDA itself would
 * cost a second and a context per GPU. */
#include "plan/gpu_count.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

enum { CPUS_MAX = 16384 };

/* Has this machine, or container, a driver at all? To look for a library that is nowhere takes as long as to
 * fork. nvidia-modprobe would load a driver when it is asked for one; WSL has /dev/dxg; a user may have
 * libraries of his own. */
static bool may_have_driver(void)
{
    static const char *const traces[] = { "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg",
                                          "/usr/bin/nvidia-modprobe" };
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
        if (access(traces[i], F_OK) == 0)
            return true;
    return getenv("LD_LIBRARY_PATH") != NULL;
}

/* -1 when there is no library, or it does not find a driver. */
static int count_by_nvml(void)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    unsigned n = 0;
    if (lib == NULL)
        return -1;
    int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    int (*count)(unsigned *) = (int (*)(unsigned *))dlsym(lib, "nvmlDeviceGetCount_v2");
    int (*shut_down)(void) = (int (*)(void))dlsym(lib, "nvmlShutdown");
    int result = -1;
    if (init != NULL && count != NULL && shut_down != NULL && init() == 0) {
        result = count(&n) == 0 ? (int)n : -1;
        shut_down();
    }
    dlclose(lib);
    return result;
}

/* The driver's own list: one folder for each GPU of the machine, also for those that we may not use. */
static int count_in_proc(void)
{
    int n = 0;
    DIR *gpus = opendir("/proc/driver/nvidia/gpus");
    if (gpus == NULL)
        return 0;
    for (const struct dirent *e; (e = readdir(gpus)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(gpus);
    return n;
}

int gpu_count(void)
{
    int n = may_have_driver() ? count_by_nvml() : 0;
    return n >= 0 ? n : count_in_proc();
}

int cpu_count(void)
{
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX); /* a fixed cpu_set_t is too small on big machines */
    const size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    int n = 0;
    if (set != NULL && sched_getaffinity(0, size, set) == 0)
        n = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    return n > 0 ? n : 1;
}
