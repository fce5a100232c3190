/* machine.c -- see plan.h: facts about this machine (GPUs, CPUs, Pythons and PyTorch). CUDA is not used, because
 * CUDA needs about a second to start and creates a context on each GPU. */
#include "plan/plan.h"

#include "base/syscalls.h"
#include "plan/scheduler.h"
#include "plan/worker.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CPUS_MAX = 16384 };

/* Return true if the machine may have a driver. This check avoids the search for NVML on a machine without GPUs. Even
 * if no driver is loaded, each of three signs means that there may be a driver: the program nvidia-modprobe, because it
 * loads a driver on request; the file /dev/dxg, which is the GPU device of WSL; and the variable LD_LIBRARY_PATH,
 * because its directories may contain a private NVML. */
static bool may_have_driver(void)
{
    static const char *const traces[] = { "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg",
                                          "/usr/bin/nvidia-modprobe" };
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
        if (access(traces[i], F_OK) == 0)
            return true;
    return getenv("LD_LIBRARY_PATH") != NULL;
}

/* Count the GPUs with NVIDIA's management library (NVML). Return -1 if NVML is missing or finds no driver. NVML is a
 * part of the driver, so load NVML at run time. */
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

/* Count the GPUs in /proc. The driver lists each GPU of the machine there, even GPUs that this process may not use. */
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

/* Count the GPUs. Prefer NVML to /proc, because NVML omits GPUs that a container or a batch system has removed. */
int gpu_count(void)
{
    int n = may_have_driver() ? count_by_nvml() : 0;
    return n >= 0 ? n : count_in_proc();
}

int cpu_count(void)
{
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX); /* a cpu_set_t of fixed size is too small on big machines */
    const size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    int n = 0;
    if (set != NULL && sched_getaffinity(0, size, set) == 0)
        n = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    return n > 0 ? n : 1;
}

/* --- this program, and the Pythons ---------------------------------------------------------------------------- */

bool own_program(char path[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return path[0] == '/';
}

bool own_prefix(char prefix[PATH_MAX])
{
    static const char bin[] = "/bin";
    char *slash = own_program(prefix) ? strrchr(prefix, '/') : NULL;
    if (slash == NULL || slash - prefix < (ptrdiff_t)strlen(bin))
        return false;
    *slash = '\0';
    slash -= strlen(bin);
    if (strcmp(slash, bin) != 0)
        return false;
    slash[slash == prefix] = '\0'; /* keep the "/" if the program is /bin/ddprun */
    return true;
}

/* Write PREFIX/bin/python to `path`, or "" if this file cannot be executed. */
static bool find_python(const char *prefix, char path[PATH_MAX])
{
    const bool found =
        snprintf(path, PATH_MAX, "%s/bin/python", prefix) < PATH_MAX && access(path, X_OK) == 0;
    path[found ? strlen(path) : 0] = '\0';
    return found;
}

/* Return true if pip has installed ddprun as a package of this interpreter. The path of the packages contains the
 * version of Python. Take this version from the interpreter's real name, such as python3.13. */
static bool has_package(const char *prefix, const char *python)
{
    static const char package[] = "ddprun-", record[] = ".dist-info";
    char path[PATH_MAX + 64];
    int minor;
    bool found = false;
    if (realpath(python, path) == NULL || sscanf(strrchr(path, '/'), "/python3.%3d", &minor) != 1)
        return false;
    snprintf(path, sizeof(path), "%s/lib/python3.%d/site-packages", prefix, minor);
    DIR *packages = opendir(path);
    for (const struct dirent *e; packages != NULL && !found && (e = readdir(packages)) != NULL;) {
        const char *end = strrchr(e->d_name, '.');
        found = strncmp(e->d_name, package, strlen(package)) == 0 && end != NULL && strcmp(end, record) == 0;
    }
    if (packages != NULL)
        closedir(packages);
    return found;
}

/* Find the Python of the environment in which ddprun is installed. A python3 in ddprun's directory is not enough,
 * because in /usr/bin, for example, ddprun and Python are unrelated. */
static void find_python_beside(char path[PATH_MAX])
{
    char prefix[PATH_MAX], settings[PATH_MAX + 16];
    path[0] = '\0';
    if (!own_prefix(prefix) || !find_python(prefix, path))
        return;
    snprintf(settings, sizeof(settings), "%s/pyvenv.cfg", prefix);
    if (access(settings, F_OK) != 0 && !has_package(prefix, path))
        path[0] = '\0';
}

void python_find(struct python_paths *paths, const struct env_sources *env)
{
    const struct python_facts facts = { .virtual_env = env_sources_find(env, "VIRTUAL_ENV"),
                                        .python_exec = env_sources_find(env, "PYTHON_EXEC"),
                                        .active = paths->active,
                                        .beside = paths->beside,
                                        .in_path = paths->in_path };
    paths->active[0] = paths->beside[0] = '\0';
    if (facts.virtual_env == NULL || facts.virtual_env[0] == '\0' ||
        !find_python(facts.virtual_env, paths->active))
        find_python_beside(paths->beside);
    if (!env_find_program("python3", env, paths->in_path))
        paths->in_path[0] = '\0';
    python_choose(&paths->choice, &facts);
}

/* --- PCI addresses and CPUs for --numa_binding --------------------------------------------------------------- */

/* NVML finds the PCI address of a GPU by index or UUID. If NVML is not available, the names in /proc/driver/nvidia/gpus
 * are sorted, and name i is the address of GPU i. */

enum { FILE_SIZE = 8192 };

/* nvmlPciInfo_t of nvml.h, for nvmlDeviceGetPciInfo_v3. */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

/* nvmlProcessInfo_t of nvml.h, for nvmlDeviceGetComputeRunningProcesses_v2 and _v3. */
struct nvml_process {
    unsigned pid;
    unsigned long long bytes; /* GPU memory that the process uses; ULLONG_MAX if unknown */
    unsigned gpu_instance, compute_instance;
};

/* A loaded NVML, and room for the text of one file of /sys. NVML's functions return 0 on success. */
struct machine {
    char text[FILE_SIZE]; /* result of the last sysfs_read() */
    void *nvml;           /* handle of NVML; NULL if NVML is not available */
    int (*by_index)(unsigned index, void **device);
    int (*by_uuid)(const char *uuid, void **device);
    int (*pci_info)(void *device, struct nvml_pci *info);
    int (*shut_down)(void);
    int (*processes)(void *device, unsigned *count, struct nvml_process *out); /* NULL if the driver is old */
    int (*compute_mode)(void *device, int *mode);                              /* NULL if the driver is old */
};

static const char *sysfs_read(void *user, const char *path)
{
    struct machine *m = user;
    return read_small_file(AT_FDCWD, path, m->text, sizeof(m->text)) >= 0 ? m->text : NULL;
}

static bool is_number(const char *gpu)
{
    return gpu[0] != '\0' && gpu[strspn(gpu, "0123456789")] == '\0';
}

/* Return NVML's handle of a GPU, or NULL. */
static void *find_device(const struct machine *m, const char *gpu)
{
    void *device = NULL;
    if (m->nvml == NULL)
        return NULL;
    const int found = is_number(gpu) ? m->by_index((unsigned)atoi(gpu), &device) : m->by_uuid(gpu, &device);
    return found == 0 ? device : NULL;
}

/* Get the PCI address of a GPU from NVML. */
static bool pci_from_nvml(struct machine *m, const char *gpu, char out[NUMA_PCI_SIZE])
{
    void *device = find_device(m, gpu);
    struct nvml_pci info = { 0 };
    if (device == NULL || m->pci_info(device, &info) != 0)
        return false;
    snprintf(out, NUMA_PCI_SIZE, "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
    return true;
}

static int is_gpu(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Get the PCI address of a GPU from the driver's files in /proc. Return false for a UUID. */
static bool pci_from_proc(const char *gpu, char out[NUMA_PCI_SIZE])
{
    struct dirent **names = NULL;
    const int n = scandir("/proc/driver/nvidia/gpus", &names, is_gpu, alphasort);
    const int index = is_number(gpu) ? atoi(gpu) : -1;
    if (index >= 0 && index < n)
        snprintf(out, NUMA_PCI_SIZE, "%.*s", NUMA_PCI_SIZE - 1, names[index]->d_name);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return index >= 0 && index < n;
}

static bool pci_address(void *user, const char *gpu, char out[NUMA_PCI_SIZE])
{
    return pci_from_nvml(user, gpu, out) || pci_from_proc(gpu, out);
}

static void open_library(struct machine *m)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (lib == NULL)
        return;
    int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    m->by_index = (int (*)(unsigned, void **))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    m->by_uuid = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByUUID");
    m->pci_info = (int (*)(void *, struct nvml_pci *))dlsym(lib, "nvmlDeviceGetPciInfo_v3");
    m->shut_down = (int (*)(void))dlsym(lib, "nvmlShutdown");
    void *processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (processes == NULL)
        processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v2");
    m->processes = (int (*)(void *, unsigned *, struct nvml_process *))processes;
    m->compute_mode = (int (*)(void *, int *))dlsym(lib, "nvmlDeviceGetComputeMode");
    if (init != NULL && m->by_index != NULL && m->by_uuid != NULL && m->pci_info != NULL &&
        m->shut_down != NULL && init() == 0)
        m->nvml = lib;
    else
        dlclose(lib);
}

static ddp_status read_affinity(struct rank_set *allowed, struct ddp_err *err)
{
    if (!rank_set_init(allowed, NUMA_CPUS_MAX))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (sched_getaffinity(0, NUMA_CPUS_MAX / 8, (cpu_set_t *)(void *)allowed->bits) == 0)
        return DDP_OK;
    rank_set_free(allowed);
    return ddp_fail(err, DDP_ERR_IO,
                    "--numa_binding: cannot read the usable CPUs: %s; leave out --numa_binding",
                    strerror(errno));
}

ddp_status numa_source_open(struct numa_source *source, struct ddp_err *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    *source = (struct numa_source){ .read = sysfs_read, .pci_address = pci_address, .user = m };
    if (m == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    const ddp_status status = read_affinity(&source->allowed, err);
    if (status == DDP_OK)
        open_library(m);
    else
        free(m);
    return status;
}

static void close_library(struct machine *m)
{
    if (m->nvml != NULL) {
        m->shut_down();
        dlclose(m->nvml);
    }
    free(m);
}

void numa_source_close(struct numa_source *source)
{
    close_library(source->user);
    rank_set_free(&source->allowed);
}

/* --- users of the GPUs -------------------------------------------------------------------------------------- */

enum { GPU_PROCESSES_MAX = 128 };

/* Return true for the server process of CUDA's multi-process service (MPS). This server process does not count as a
 * user of the GPU, because it only works for other processes. The kernel cuts a process name to 15 characters. */
static bool is_service(int pid)
{
    char path[64], name[16];
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    return read_small_file(AT_FDCWD, path, name, sizeof(name)) > 0 && strcmp(name, "nvidia-cuda-mps") == 0;
}

/* Write the name of the process's owner, or the uid if the uid has no name. Write nothing if /proc hides the
 * process. */
static void name_owner(int pid, char out[32])
{
    char path[64], space[1024];
    struct stat st;
    struct passwd entry, *found = NULL;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &st) != 0)
        return;
    if (getpwuid_r(st.st_uid, &entry, space, sizeof(space), &found) == 0 && found != NULL)
        snprintf(out, 32, "%.31s", found->pw_name);
    else
        snprintf(out, 32, "%u", st.st_uid);
}

/* Count the processes that compute on a GPU, and find the process with the most memory. If NVML reports an error, for
 * example because the GPU has failed, or if the GPU has more than GPU_PROCESSES_MAX processes, only set out->unknown to
 * 1. */
static void read_device(const struct machine *m, void *device, const struct gpu_owners *owners,
                        struct gpu_users *out)
{
    struct nvml_process processes[GPU_PROCESSES_MAX];
    unsigned n = GPU_PROCESSES_MAX;
    if (m->processes(device, &n, processes) != 0 || n > GPU_PROCESSES_MAX) {
        out->unknown = 1;
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        const uint64_t bytes = processes[i].bytes == ULLONG_MAX ? 0 : processes[i].bytes;
        if (is_service((int)processes[i].pid))
            continue;
        const enum gpu_owner of =
            owners != NULL ? owners->find(owners->user, (int)processes[i].pid) : GPU_OWNER_OTHER;
        out->unknown += of == GPU_OWNER_UNKNOWN;
        if (of != GPU_OWNER_OTHER)
            continue;
        if (out->count++ == 0 || bytes > out->bytes) {
            out->pid = (int)processes[i].pid;
            out->bytes = bytes;
        }
    }
    if (out->count > 0)
        name_owner(out->pid, out->user);
}

/* Read which processes use each GPU. `m` is NULL if this machine has no driver, or if memory is short. */
static void read_users(const struct machine *m, const char *const *gpus, int n,
                       const struct gpu_owners *owners, struct gpu_users *out)
{
    memset(out, 0, (size_t)n * sizeof(*out));
    for (int i = 0; i < n; i++) {
        void *device = m != NULL ? find_device(m, gpus[i]) : NULL;
        if (device != NULL && m->processes != NULL)
            read_device(m, device, owners, &out[i]);
        else
            out[i].unknown = 1;
        if (device == NULL || m->compute_mode == NULL || m->compute_mode(device, &out[i].mode) != 0)
            out[i].mode = 0;
    }
}

void gpu_read_users(const char *const *gpus, int n, const struct gpu_owners *owners, struct gpu_users *out)
{
    struct machine *m = may_have_driver() ? calloc(1, sizeof(*m)) : NULL;
    if (m != NULL)
        open_library(m);
    read_users(m, gpus, n, owners, out);
    if (m != NULL)
        close_library(m);
}

/* --- files ---------------------------------------------------------------------------------------------------- */

/* Read at most `size` bytes of a file, and return the text. The text is shorter than `size` if the file has become
 * shorter. After an error, return NULL and not a part of the text, because a part of a list of hosts would describe a
 * smaller job. */
static char *read_whole(int fd, size_t size, size_t *len)
{
    char *text = malloc(size + 1);
    size_t used = 0;
    ssize_t n = 0;
    while (text != NULL && used < size && (n = read(fd, text + used, size - used)) > 0)
        used += (size_t)n;
    if (text == NULL || n < 0 || (len == NULL && memchr(text, '\0', used) != NULL)) {
        free(text);
        return NULL;
    }
    text[used] = '\0';
    if (len != NULL)
        *len = used;
    return text;
}

/* Read a plain file. O_NONBLOCK is set, because the path comes from a variable and may name a FIFO. A blocking open()
 * of a FIFO would wait for a writer. */
char *scheduler_read_file(const char *path, size_t *len)
{
    struct stat st;
    const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    char *text = NULL;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= SCHEDULER_FILE_MAX)
        text = read_whole(fd, (size_t)st.st_size, len);
    close(fd);
    return text;
}

/* --- PyTorch ------------------------------------------------------------------------------------------------ */

/* These files show which PyTorch an interpreter imports, and whether this PyTorch has libuv:
 *
 *     python3 -> /usr/bin/python3.13    the real name shows the version, and the real directory shows the prefix
 *     pyvenv.cfg                        shows a virtual environment, and whether it uses system packages
 *     torch/lib/libtorch_cpu.so         contains libuv if it needs libuv.so or defines uv_listen
 *
 * A wrong result is not serious. If the job then fails, the report contains a hint (report/cause.c). If the
 * interpreter's name has no version (pyenv's shims), there is no result. */

#define UV_SINCE "2.4" /* first version in which PyTorch's client requires libuv by default */
/* These limits are necessary, because a damaged file may contain any number. TEXT_SIZE limits the bytes of a text file,
 * SEGMENTS_MAX the program headers, ENTRIES_MAX the dynamic entries, and CHAIN_MAX the symbols in one chain of the hash
 * table. */
enum { TEXT_SIZE = 1024, SEGMENTS_MAX = 64, ENTRIES_MAX = 1024, CHAIN_MAX = 4096 };

struct interpreter {
    char own[PATH_MAX];    /* prefix of the virtual environment; "" without one */
    char prefix[PATH_MAX]; /* prefix of the system packages; "" if Python excludes them */
    char version[16];      /* "3.13" */
};

struct joined_path {
    char text[PATH_MAX + 64];
};

/* Return DIR/NAME. A path that is too long is cut and cannot be opened. */
static struct joined_path path_in(const char *dir, const char *name)
{
    struct joined_path path;
    snprintf(path.text, sizeof(path.text), "%s/%s", dir, name);
    return path;
}

/* Open DIR/NAME, perhaps a FIFO, without blocking. Return -1 on failure. */
static int open_in(const char *dir, const char *name)
{
    return open(path_in(dir, name).text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Read the first bytes of DIR/NAME as text. If the file cannot be read, `text` becomes "". */
static void read_text(const char *dir, const char *name, char text[TEXT_SIZE])
{
    (void)read_small_file(AT_FDCWD, path_in(dir, name).text, text, TEXT_SIZE);
}

/* Copy the first part of a colon-separated list to `part`. Return the rest of the list, or NULL if this part was the
 * last part. */
static const char *next_part(const char *at, char part[PATH_MAX])
{
    const size_t len = strcspn(at, ":");
    snprintf(part, PATH_MAX, "%.*s", (int)len, at);
    return at[len] == ':' ? at + len + 1 : NULL;
}

bool env_find_program(const char *name, const struct env_sources *env, char path[PATH_MAX])
{
    const char *list = env_sources_find(env, "PATH");
    char dir[PATH_MAX];
    if (strchr(name, '/') != NULL)
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && access(path, X_OK) == 0;
    while (list != NULL) {
        list = next_part(list, dir);
        if (snprintf(path, PATH_MAX, "%s/%s", dir[0] != '\0' ? dir : ".", name) < PATH_MAX &&
            access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* Write the prefix of a program: "/usr" for "/usr/bin/python3.13". Links in the directory are resolved. A link at the
 * end of the path is not resolved, because in a virtual environment this link leads to the system's Python. */
static bool cut_prefix(const char *program, char prefix[PATH_MAX])
{
    char dir[PATH_MAX + sizeof("/..")];
    snprintf(dir, sizeof(dir), "%.*s/..", (int)(strrchr(program, '/') - program), program);
    return realpath(dir, prefix) != NULL;
}

/* Find the interpreter's version and prefixes. In pyvenv.cfg, case and blanks of the line
 * "include-system-site-packages = true" do not matter, as in Python. */
static bool find_interpreter(struct interpreter *s, const char *python, const struct env_sources *env)
{
    static const char key[] = "include-system-site-packages";
    char program[PATH_MAX], real[PATH_MAX], settings[TEXT_SIZE];
    int minor;
    if (!env_find_program(python, env, program) || realpath(program, real) == NULL ||
        sscanf(strrchr(real, '/'), "/python3.%3d", &minor) != 1 || !cut_prefix(program, s->own))
        return false;
    snprintf(s->version, sizeof(s->version), "3.%d", minor);
    read_text(s->own, "pyvenv.cfg", settings);
    s->own[0] = settings[0] != '\0' ? s->own[0] : '\0';
    const char *at = strcasestr(settings, key);
    at = at != NULL ? at + strlen(key) + strspn(at + strlen(key), " \t=") : "";
    return (s->own[0] != '\0' && strncasecmp(at, "true", 4) != 0) || cut_prefix(real, s->prefix);
}

static bool read_at(int fd, uint64_t at, void *to, size_t n)
{
    return at < INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n;
}

/* Convert a memory address of the loaded library to an offset in the library's file. Return UINT64_MAX if the file
 * does not contain this address. */
static uint64_t file_offset(const Elf64_Phdr *segments, size_t n, uint64_t address)
{
    for (const Elf64_Phdr *s = segments; s < segments + n; s++)
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz)
            return s->p_offset <= INT64_MAX ? s->p_offset + (address - s->p_vaddr) : UINT64_MAX;
    return UINT64_MAX;
}

/* Return true if the GNU hash table (DT_GNU_HASH) at file offset `table` does not contain `name`. The table's head
 * contains the number of buckets, the index of the table's first symbol, and the size of the filter. A bucket contains
 * the index of the first symbol of its chain. A chain contains a hash for each symbol. The lowest bit of a hash marks
 * the end of the chain. If a hash equals the hash of `name`, assume that the table contains `name`. */
static bool hash_table_lacks(int fd, uint64_t table, const char *name)
{
    uint32_t hash = 5381, head[4], index, link;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    if (!read_at(fd, table, head, sizeof(head)) || head[0] == 0)
        return false;
    const uint64_t buckets = table + sizeof(head) + (uint64_t)head[2] * sizeof(uint64_t);
    const uint64_t chains = buckets + (uint64_t)head[0] * sizeof(index);
    if (!read_at(fd, buckets + (uint64_t)(hash % head[0]) * sizeof(index), &index, sizeof(index)))
        return false;
    for (int i = 0; index != 0 && index >= head[1] && i < CHAIN_MAX; i++, index++) {
        if (!read_at(fd, chains + (uint64_t)(index - head[1]) * sizeof(link), &link, sizeof(link)) ||
            (link | 1) == (hash | 1))
            return false;
        if (link & 1)
            return true;
    }
    return index == 0;
}

/* Return true if the library neither needs libuv.so nor defines uv_listen. Return false if the file cannot be read or
 * has an unexpected format. */
static bool lacks_libuv(int fd)
{
    static const char libuv[] = "libuv.so";
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Dyn entries[ENTRIES_MAX] = { 0 }; /* zeroed, so an entry with the tag DT_NULL ends the list */
    uint64_t names = UINT64_MAX, table = UINT64_MAX;
    char needed[sizeof(libuv)] = { 0 };
    if (!read_at(fd, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phnum > SEGMENTS_MAX ||
        !read_at(fd, header.e_phoff, segments, header.e_phnum * sizeof(segments[0])))
        return false;
    for (const Elf64_Phdr *s = segments; s < segments + header.e_phnum; s++)
        if (s->p_type == PT_DYNAMIC &&
            (s->p_filesz >= sizeof(entries) || !read_at(fd, s->p_offset, entries, s->p_filesz)))
            return false;
    for (const Elf64_Dyn *e = entries; e->d_tag != DT_NULL; e++)
        if (e->d_tag == DT_STRTAB || e->d_tag == DT_GNU_HASH)
            *(e->d_tag == DT_STRTAB ? &names : &table) = file_offset(segments, header.e_phnum, e->d_un.d_ptr);
    for (const Elf64_Dyn *e = entries; e->d_tag != DT_NULL; e++)
        if (e->d_tag == DT_NEEDED && e->d_un.d_val < UINT32_MAX && names < INT64_MAX &&
            read_at(fd, names + e->d_un.d_val, needed, strlen(libuv)) && strcmp(needed, libuv) == 0)
            return false;
    return names < INT64_MAX && table < INT64_MAX && hash_table_lacks(fd, table, "uv_listen");
}

/* Find torch in a colon-separated list of directories: the first directory with torch/lib/libtorch_cpu.so. */
static bool find_in_list(struct torch_version *torch, const char *list)
{
    static const char mark[] = "__version__ = '";
    char text[TEXT_SIZE];
    while (list != NULL) {
        list = next_part(list, torch->dir);
        const int fd = torch->dir[0] != '\0' ? open_in(torch->dir, "torch/lib/libtorch_cpu.so") : -1;
        if (fd < 0)
            continue;
        read_text(torch->dir, "torch/version.py", text);
        const char *at = strstr(text, mark);
        at = at != NULL ? at + strlen(mark) : "";
        snprintf(torch->version, TORCH_VERSION_SIZE, "%.*s", (int)strcspn(at, "'\n"), at);
        torch->refuses_stores = strverscmp(torch->version, UV_SINCE) >= 0 && lacks_libuv(fd);
        close(fd);
        return true;
    }
    return false;
}

static bool find_in_prefix(struct torch_version *torch, const char *prefix, const char *version)
{
    char list[5 * PATH_MAX];
    snprintf(list, sizeof(list),
             "%1$s/lib/python%2$s/site-packages:%1$s/lib64/python%2$s/site-packages:"
             "%1$s/local/lib/python%2$s/dist-packages:%1$s/lib/python3/dist-packages",
             prefix, version);
    return prefix[0] != '\0' && find_in_list(torch, list);
}

/* Search the directories in the order of sys.path. Like Python, search the user's home directory only if the system
 * packages are searched, too. */
bool torch_find(const char *python, const struct env_sources *env, struct torch_version *torch)
{
    const char *home = env_sources_find(env, "HOME");
    struct interpreter i = { 0 };
    char user[2 * PATH_MAX];
    *torch = (struct torch_version){ 0 };
    if (!find_interpreter(&i, python, env))
        return false;
    snprintf(user, sizeof(user), "%s/.local/lib/python%s/site-packages", home != NULL ? home : "", i.version);
    return find_in_list(torch, env_sources_find(env, "PYTHONPATH")) ||
           find_in_prefix(torch, i.own, i.version) ||
           (home != NULL && i.prefix[0] != '\0' && find_in_list(torch, user)) ||
           find_in_prefix(torch, i.prefix, i.version);
}
