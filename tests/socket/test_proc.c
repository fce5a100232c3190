/* Finding and starting programs, and killing all their descendants. */
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "job.h"
#include "node/spawn.h"
#include "plan/plan.h"
#include "plan/torch_look.h"
#include "report/evidence.h"
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

TestSuite(proc, .timeout = 120);

extern char **environ;

static int child_stdout = STDOUT_FILENO;

static pid_t spawn_on(const struct rank_set *cpus, const char *path, char *const *argv, int *error)
{
    struct proc_slots slots;
    const struct proc_spec spec = { .path = path,
                                    .argv = argv,
                                    .envp = environ,
                                    .fds = { 0, child_stdout, 2 },
                                    .cpus = cpus,
                                    .cgroup_fd = -1 };
    cr_assert(proc_slots_open(&slots));
    pid_t pid = proc_spawn(&slots, &spec, error);
    proc_slots_close(&slots);
    return pid;
}

static pid_t spawn(const char *path, char *const *argv, int *error)
{
    return spawn_on(NULL, path, argv, error);
}

Test(proc, who_would_be_killed_for_it_keeps_its_priority)
{
    struct killer_priority priority;
    cr_assert_eq(setrlimit(RLIMIT_RTTIME, &(struct rlimit){ .rlim_cur = 1000, .rlim_max = 2000 }), 0);
    killer_priority_raise(&priority);
    cr_expect_not(priority.raised);
    cr_expect_eq(sched_getscheduler(0), SCHED_OTHER);
}

Test(proc, the_old_priority_comes_back)
{
    struct killer_priority priority;
    cr_assert_eq(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }), 0);
    cr_assert_eq(setpriority(PRIO_PROCESS, 0, 7), 0);
    cr_assert_eq(prctl(PR_SET_TIMERSLACK, 70000UL), 0);
    killer_priority_raise(&priority);
    killer_priority_restore(&priority);
    cr_expect_eq(sched_getscheduler(0), SCHED_BATCH);
    cr_expect_eq(getpriority(PRIO_PROCESS, 0), 7);
    cr_expect_eq(prctl(PR_GET_TIMERSLACK), 70000);
}

Test(proc, a_name_is_looked_up_along_path)
{
    char out[4096];
    cr_expect_eq(proc_find("sh", "/no/such/dir:/bin", out, sizeof(out)), 0);
    cr_expect_str_eq(out, "/bin/sh");
    cr_expect_eq(proc_find("sh", NULL, out, sizeof(out)), 0, "the system's default");
    cr_expect_eq(proc_find("no-such-program", "/bin:/usr/bin", out, sizeof(out)), ENOENT);
    cr_expect_eq(proc_find("passwd", "/etc", out, sizeof(out)), EACCES);
    cr_expect_eq(proc_find("/bin/sh", "", out, sizeof(out)), 0);
    cr_expect_eq(proc_find("/etc", "", out, sizeof(out)), EACCES);
    cr_expect_eq(proc_find("/etc/passwd/sh", "", out, sizeof(out)), ENOENT);
    cr_expect_eq(proc_find("/bin/sh", "", out, 4), ENAMETOOLONG);
}

Test(proc, an_empty_part_of_path_is_the_current_directory)
{
    char out[4096];
    cr_assert_eq(chdir("/bin"), 0);
    cr_expect_eq(proc_find("sh", ":/no/such/dir", out, sizeof(out)), 0);
    cr_expect_str_eq(out, "./sh");
}

Test(proc, the_exit_code_comes_back)
{
    int error, status;
    char *const argv[] = { "sh", "-c", "exit 7", NULL };
    pid_t pid = spawn("/bin/sh", argv, &error);
    cr_assert_gt(pid, 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* The highest CPU that we may use, which differs from the lowest if there is a choice. */
Test(proc, a_worker_is_bound_to_its_cpus_before_it_begins)
{
    int error, status;
    struct rank_set cpus;
    char command[128];
    cr_assert(rank_set_init(&cpus, 16384));
    cr_assert_eq(sched_getaffinity(0, 16384 / 8, (cpu_set_t *)(void *)cpus.bits), 0);
    const int cpu = rank_set_highest(&cpus);
    memset(cpus.bits, 0, 16384 / 8);
    rank_set_add(&cpus, cpu);
    snprintf(command, sizeof(command), "grep -q '^Cpus_allowed_list:[[:space:]]*%d$' /proc/self/status", cpu);
    char *const argv[] = { "sh", "-c", command, NULL };
    pid_t pid = spawn_on(&cpus, "/bin/sh", argv, &error);
    cr_assert_gt(pid, 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    memset(cpus.bits, 0, 16384 / 8);
    cr_expect_eq(spawn_on(&cpus, "/bin/sh", argv, &error), -1, "no CPU at all");
    cr_expect_eq(error, EINVAL);
    rank_set_free(&cpus);
}

Test(proc, the_reason_of_a_failed_start_comes_back_and_no_zombie_stays)
{
    int error = 0;
    char *const argv[] = { "x", NULL };
    cr_expect_eq(spawn("/no/such/program", argv, &error), -1);
    cr_expect_eq(error, ENOENT);
    cr_expect_eq(spawn("/etc/passwd", argv, &error), -1);
    cr_expect_eq(error, EACCES);
    cr_expect_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_expect_eq(errno, ECHILD);
}

Test(proc, our_own_signals_are_as_before)
{
    int error;
    sigset_t before, after;
    struct sigaction action;
    char *const argv[] = { "true", NULL };
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    waitpid(spawn("/bin/true", argv, &error), NULL, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    sigaction(SIGPIPE, NULL, &action);
    for (int sig = 1; sig < 32; sig++)
        cr_expect_eq(sigismember(&before, sig), sigismember(&after, sig), "signal %d", sig);
    cr_expect_eq(action.sa_handler, SIG_IGN);
}

Test(proc, a_look_at_a_file_tells_what_it_is)
{
    static struct program_look look;
    program_see("/no/such/file", &look);
    cr_expect_eq(look.kind, PATH_MISSING);
    program_see("/etc", &look);
    cr_expect_eq(look.kind, PATH_DIRECTORY);
    program_see("/dev/null", &look);
    cr_expect_eq(look.kind, PATH_NO_FILE);
    program_see("/etc/passwd", &look);
    cr_expect_eq(look.kind, PATH_NO_X);
    program_see("/bin/sh", &look);
    cr_expect_eq(look.kind, PATH_EXECUTABLE);
    cr_expect_eq(look.elf.kind, ELF_RUNS);
    cr_expect_eq(look.helper, PATH_EXECUTABLE, "%s", look.elf.interpreter);
    cr_expect_str_eq(look.interpreter, "");
}

/* A shell whose children are a plain one, one in its own session, and one whose parents are gone. Its line of
 * output shows that all are there. */
static void start_family(void)
{
    int error, ends[2];
    char said[8] = "";
    char *const argv[] = { "sh", "-c",
                           "exec 3>&1 >/dev/null; sleep 60 3>&- & setsid sleep 60 3>&- & "
                           "(setsid sleep 60 3>&- & ) ; echo up >&3; wait",
                           NULL };
    cr_assert(descendants_adopt());
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    child_stdout = ends[1];
    cr_assert_gt(spawn("/bin/sh", argv, &error), 0);
    close(ends[1]);
    cr_assert(patience_read(ends[0], said, sizeof(said), "up\n"));
    close(ends[0]);
}

Test(proc, everybody_below_is_killed_and_reaped)
{
    start_family();
    cr_expect(descendants_kill_all(PATIENCE_MS));
    cr_expect_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_expect_eq(errno, ECHILD);
}

Test(proc, a_signal_reaches_all_below)
{
    int status, ended = 0;
    start_family();
    descendants_signal(SIGTERM);
    while (waitpid(-1, &status, 0) > 0)
        ended += WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    cr_expect_geq(ended, 1);
}

Test(proc, with_nobody_below_there_is_nothing_to_do)
{
    descendants_signal(SIGTERM);
    cr_expect(descendants_kill_all(0));
}

Test(proc, those_who_are_left_can_be_named)
{
    int error;
    struct buf names = { 0 };
    char expected[64];
    char *const argv[] = { "sleep", "60", NULL };
    pid_t pid = spawn("/bin/sleep", argv, &error);
    snprintf(expected, sizeof(expected), "%d (sleep)", (int)pid);
    do { /* execve returns to us a moment before it sets the name */
        names.len = 0;
        descendants_names(&names);
        buf_append(&names, "", 1);
    } while (strstr((char *)names.data, "(sleep)") == NULL);
    cr_expect_str_eq((char *)names.data, expected);
    buf_free(&names);
    descendants_kill_all(PATIENCE_MS);
}

/* A process chooses its name itself, and it goes into messages and the report. */
Test(proc, a_name_cannot_speak_to_the_terminal)
{
    char name[64], cut[4];
    cr_assert_eq(prctl(PR_SET_NAME, "a\033[2Jb\xff"), 0);
    procfs_line(getpid(), "comm", name, sizeof(name));
    cr_expect_str_eq(name, "a?[2Jb?");
    procfs_line(getpid(), "comm", cut, sizeof(cut));
    cr_expect_str_eq(cut, "a?[");
    procfs_line(getpid(), "no such file", name, sizeof(name));
    cr_expect_str_eq(name, "");
}

Test(proc, a_process_knows_itself)
{
    struct proc_stat stat;
    cr_assert(procfs_stat(getpid(), &stat));
    cr_expect_eq(stat.parent, getppid());
    cr_expect_eq(stat.group, getpgrp());
    cr_expect_not(proc_stat_is_dead(&stat));
}

Test(proc, a_machine_has_a_processor_and_perhaps_gpus)
{
    cr_expect_geq(gpu_count(), 0);
    cr_expect_geq(cpu_count(), 1);
}

/* Find out which PyTorch an interpreter imports and whether it has libuv, from a simulated installation whose library
 * is damaged. */

#define SITE "lib/python3.99/site-packages"

static char *dir;
static char python[512];
static unsigned char *bytes;
static size_t n_bytes;

static void write_file(const char *name, const void *data, size_t n)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(data, 1, n, file), n);
    fclose(file);
    chmod(path, 0755);
}

/* Python 3.99 with that torch, and in `bytes` the library that `function` is of. */
static void install(const char *version, void *function)
{
    static const char *const names[] = { "bin", "lib",         "lib/python3.99",
                                         SITE,  SITE "/torch", SITE "/torch/lib" };
    char text[128];
    Dl_info where;
    dir = job_dir();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(python, sizeof(python), "%s/%s", dir, names[i]);
        cr_assert_eq(mkdir(python, 0755), 0, "%s", python);
    }
    snprintf(python, sizeof(python), "%s/bin/python3.99", dir);
    write_file("bin/python3.99", "", 0);
    snprintf(text, sizeof(text), "__version__ = '%s'\n", version);
    write_file(SITE "/torch/version.py", text, strlen(text));
    cr_assert_neq(dladdr(function, &where), 0);
    FILE *file = fopen(where.dli_fname, "rb");
    cr_assert_not_null(file, "%s", where.dli_fname);
    bytes = malloc(16 << 20);
    n_bytes = fread(bytes, 1, 16 << 20, file);
    fclose(file);
}

static void tear_down(void)
{
    free(bytes);
    if (dir != NULL)
        job_dir_remove(dir);
}

TestSuite(torch_look, .fini = tear_down);

/* With a library of the first `n` of the bytes. */
static bool refuses(size_t n)
{
    static struct torch_look look;
    static char *none[] = { NULL };
    const struct env_sources env = { NULL, 0, none };
    write_file(SITE "/torch/lib/libtorch_cpu.so", bytes, n);
    cr_assert(torch_look(python, &env, &look));
    return look.refuses_stores;
}

static Elf64_Dyn *dynamic_entry(int64_t tag)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)bytes;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(bytes + header->e_phoff);
    while (segment->p_type != PT_DYNAMIC)
        segment++;
    Elf64_Dyn *entry = (Elf64_Dyn *)(bytes + segment->p_offset);
    while (entry->d_tag != tag)
        entry++;
    return entry;
}

Test(torch_look, a_library_that_defines_uv_listen_has_libuv)
{
    install("2.6.0", (void *)uv_listen);
    cr_expect_not(refuses(n_bytes));
}

Test(torch_look, a_library_without_it_refuses)
{
    install("2.10.1+debian", (void *)cJSON_Parse);
    cr_expect(refuses(n_bytes));
}

Test(torch_look, before_2_4_no_client_asks)
{
    install("2.3.1", (void *)cJSON_Parse);
    cr_expect_not(refuses(n_bytes));
}

Test(torch_look, a_library_without_its_tables_gets_the_usual_answer)
{
    static const int64_t tables[] = { DT_STRTAB, DT_GNU_HASH };
    install("2.6.0", (void *)cJSON_Parse);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        Elf64_Dyn *entry = dynamic_entry(tables[i]);
        const Elf64_Dyn was = *entry;
        entry->d_tag = DT_DEBUG;
        cr_expect_not(refuses(n_bytes), "table %zu is not named", i);
        *entry = was;
        entry->d_un.d_ptr = UINT64_MAX;
        cr_expect_not(refuses(n_bytes), "table %zu is nowhere", i);
        *entry = was;
    }
    cr_expect(refuses(n_bytes));
}

/* Cut anywhere, or with any of its first bytes changed, it gets an answer. */
Test(torch_look, survives_damage)
{
    install("2.6.0", (void *)cJSON_Parse);
    cr_expect_not(refuses(0));
    for (size_t n = 1; n < n_bytes; n += 997)
        refuses(n);
    for (size_t i = 0; i < 512; i++) {
        bytes[i] ^= 0xff;
        refuses(n_bytes);
        bytes[i] ^= 0xff;
    }
    cr_expect(refuses(n_bytes));
}
