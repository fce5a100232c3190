/* Tests of the code that finds and starts programs, and kills all their descendants. They start real processes,
 * because the rules of the kernel for parents, sessions and threads are the subject. */
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "contain/threads.c"
#include "job.h"
#include "node/spawn.c"
#include "plan/plan.h"
#include "report/evidence.c"
#include "run.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/socket.h>
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

/* Return the number of descendants of `pid` that are not shells. */
static size_t count_programs(pid_t pid)
{
    struct buf pids = { 0 };
    const size_t n = descendants_below(pid, 8, &pids);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        char name[64];
        procfs_line(descendants_at(&pids, i), "comm", name, sizeof(name));
        count += strcmp(name, "sh") != 0;
    }
    buf_free(&pids);
    return count;
}

/* Run a script until `n` programs run below it and the script is in the kernel function `where`. If `is_soon` is true,
 * also wait until descendants_program finds a Python process below the script. Return true if descendants_program finds
 * such a process. */
static bool has_python_program(const char *script, size_t n, const char *where, bool is_soon)
{
    char *const argv[] = { "sh", "-c", (char *)script, NULL };
    char at[64] = "";
    int error;
    const pid_t pid = spawn("/bin/sh", argv, &error);
    cr_assert_gt(pid, 0, "%s", strerror(error));
    struct patience left = { 0 };
    while ((count_programs(pid) != n || strstr(at, where) == NULL) && patience_left(&left))
        procfs_line(pid, "wchan", at, sizeof(at));
    while (is_soon && descendants_program(pid) == pid && patience_left(&left))
        continue;
    const pid_t program = descendants_program(pid);
    cr_expect(program == pid || threads_is_python(program, false), "%s", script);
    cr_expect(descendants_kill_all(PATIENCE_MS));
    return program != pid;
}

#define SLEEP "/usr/bin/python3 -c 'import time; time.sleep(100)'"

Test(proc, the_program_of_a_script_is_the_only_python_for_which_it_waits)
{
    char path[64], where[64];
    const pid_t sleeper = fork();
    if (sleeper == 0)
        for (;;)
            pause();
    cr_assert(job_until_state(sleeper, 'S'));
    procfs_line(sleeper, "wchan", where, sizeof(where));
    kill(sleeper, SIGKILL);
    waitpid(sleeper, NULL, 0);
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (access("/usr/bin/python3", X_OK) != 0 || access(path, R_OK) != 0 || where[0] == '\0' ||
        strcmp(where, "0") == 0)
        cr_skip_test(
            "skipped, because /usr/bin/python3 or files of /proc are missing, or the kernel hides wchan");
    cr_assert(descendants_adopt());
    cr_expect(has_python_program(SLEEP "; :", 1, "do_wait", true));
    cr_expect(has_python_program(SLEEP " | cat", 2, "do_wait", true));
    cr_expect(has_python_program("sh -c \"" SLEEP "; :\"; :", 1, "do_wait", true));
    cr_expect_not(has_python_program("sleep 100; :", 1, "do_wait", false));
    cr_expect_not(has_python_program(SLEEP " | " SLEEP, 2, "do_wait", false), "two programs");
    cr_expect_not(has_python_program(SLEEP " & exec sleep 100", 1, "nanosleep", false),
                  "the worker does not wait");
}

Test(proc, a_path_is_read_across_the_end_of_a_page_but_not_beyond_the_memory)
{
    char to[64];
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(pages, MAP_FAILED);
    cr_assert_eq(munmap(pages + 2 * 4096, 4096), 0);
    strcpy(pages + 4096 - 5, "/data/x.bin");
    write_path(getpid(), (unsigned long)(pages + 4096 - 5), to, sizeof(to));
    cr_expect_str_eq(to, "/data/x.bin");
    strcpy(pages + 2 * 4096 - 8, "/data/y");
    write_path(getpid(), (unsigned long)(pages + 2 * 4096 - 8), to, sizeof(to));
    cr_expect_str_eq(to, "/data/y");
    write_path(getpid(), (unsigned long)(pages + 2 * 4096), to, sizeof(to));
    cr_expect_str_eq(to, "");
    write_path(getpid(), 0, to, sizeof(to));
    cr_expect_str_eq(to, "");
    munmap(pages, 2 * 4096);
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
    cr_expect_eq(proc_find("bin", "/", out, sizeof(out)), ENOENT, "a directory is no program");
    cr_expect_eq(proc_find("/bin/sh", "", out, sizeof(out)), 0);
    cr_expect_eq(proc_find("/etc", "", out, sizeof(out)), EACCES);
    cr_expect_eq(proc_find("/etc/passwd/sh", "", out, sizeof(out)), ENOENT);
    cr_expect_eq(proc_find("/bin/sh", "", out, 4), ENAMETOOLONG);
}

/* This user may not search the directory, so the directory may contain the program or not. The error must be ENOENT.
 * EACCES would mean that the program exists, but is not executable. */
Test(proc, a_directory_of_path_that_cannot_be_searched_does_not_contain_the_program)
{
    char out[4096], dir[] = "/tmp/ddp-locked-XXXXXX";
    const uid_t uid = geteuid();
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(chmod(dir, 0), 0);
    const bool is_locked = uid != 0 || seteuid(65534) == 0;
    const int error = proc_find("train", dir, out, sizeof(out));
    cr_assert_eq(seteuid(uid), 0);
    cr_assert_eq(rmdir(dir), 0);
    if (!is_locked)
        cr_skip_test("skipped, because this user may search every directory");
    cr_expect_eq(error, ENOENT, "%s", strerror(error));
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

/* Bind the worker to the highest CPU that this process may use. */
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
    static struct program_file look;
    program_examine("/no/such/file", &look);
    cr_expect_eq(look.kind, PATH_MISSING);
    program_examine("/etc", &look);
    cr_expect_eq(look.kind, PATH_DIRECTORY);
    program_examine("/dev/null", &look);
    cr_expect_eq(look.kind, PATH_NO_FILE);
    program_examine("/etc/passwd", &look);
    cr_expect_eq(look.kind, PATH_NO_X);
    program_examine("/bin/sh", &look);
    cr_expect_eq(look.kind, PATH_EXECUTABLE);
    cr_expect_eq(look.elf.kind, ELF_RUNS);
    cr_expect_eq(look.helper, PATH_EXECUTABLE, "%s", look.elf.interpreter);
    cr_expect_str_eq(look.interpreter, "");
}

/* Start a shell with three descendants: a plain child, a child in its own session, and a process whose parent has
 * ended. The shell prints a line when all of them run. */
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
    do { /* spawn() returns a moment before execve sets the name of the process */
        names.len = 0;
        descendants_names(&names);
        buf_append(&names, "", 1);
    } while (strstr((char *)names.data, "(sleep)") == NULL);
    cr_expect_str_eq((char *)names.data, expected);
    buf_free(&names);
    descendants_kill_all(PATIENCE_MS);
}

/* Messages and the report print the name of a process. A process can choose any name, so every byte that is not
 * printable ASCII becomes "?". */
Test(proc, a_name_cannot_speak_to_the_terminal)
{
    char name[64], cut[4];
    cr_assert_eq(prctl(PR_SET_NAME, "a\033[2Jb\xff"), 0);
    procfs_line(getpid(), "comm", name, sizeof(name));
    cr_expect_str_eq(name, "a?[2Jb?");
    procfs_line(getpid(), "comm", cut, sizeof(cut));
    cr_expect_str_eq(cut, "a?[");
    procfs_line(getpid(), "absent", name, sizeof(name));
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

/* torch_find reports which PyTorch an interpreter imports, and whether this PyTorch has libuv. The tests simulate the
 * installation, and some tests damage the library of PyTorch. */

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

/* Install a Python 3.99 with torch `version`. Put the library that contains `function` into `bytes`. */
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

/* Write only the first `n` bytes of the library. Return true if torch_find then reports that PyTorch refuses the
 * launcher's store. */
static bool refuses(size_t n)
{
    static struct torch_version look;
    static char *none[] = { NULL };
    const struct env_sources env = { NULL, 0, none };
    write_file(SITE "/torch/lib/libtorch_cpu.so", bytes, n);
    cr_assert(torch_find(python, &env, &look));
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

/* Damage the library: cut it to lengths that are 997 bytes apart, then flip each of its first 512 bytes. The check must
 * return for each damaged library. */
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

/* --- what threads do -------------------------------------------------------------------------------------- */

Test(proc, a_system_call_is_read_from_its_line)
{
    unsigned long args[2];
    long number;
    cr_expect(syscall_parse("0 0x3 0x7ffe 0x0 0x0 0x0 0x0 0x7ffd 0x7f2", &number, args, 2));
    cr_expect(number == 0 && args[0] == 3 && args[1] == 0x7ffe);
    static const char *const others[] = { "running", "", "-1 0x7ffd 0x7f2", "7", "0 x", "999 " };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect_not(syscall_parse(others[i], &number, args, 2), "%s", others[i]);
}

/* Return the main thread of `pid` as soon as its description begins with `words`. After the time limit, return the
 * latest state of the thread. */
static struct stack_thread watch_thread(pid_t pid, const char *words)
{
    struct stack_thread t = { 0 };
    const struct stack_thread like = { .rank = 3, .pid = pid, .host = "n1" };
    for (struct patience left = { 0 }; strncmp(t.does, words, strlen(words)) != 0 && patience_left(&left);) {
        struct buf out = { 0 };
        cr_assert_eq(threads_read(&like, 1, &out), 1);
        memcpy(&t, out.data, sizeof(t));
        buf_free(&out);
    }
    return t;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(proc, a_thread_that_reads_names_its_pipe)
{
    int pipe_ends[2];
    char line[64], link[64], name[64] = "";
    cr_assert_eq(pipe(pipe_ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(read(pipe_ends[0], line, 1) == 1);
    procfs_line(getpid(), "syscall", line, sizeof(line));
    if (line[0] == '\0') {
        end_child(pid);
        cr_skip_test("skipped, because this kernel has no /proc/PID/syscall");
    }
    const struct stack_thread t = watch_thread(pid, "sleeping in read");
    snprintf(link, sizeof(link), "/proc/self/fd/%d", pipe_ends[0]);
    cr_assert_gt(readlink(link, name, sizeof(name) - 1), 0);
    cr_expect_str_eq(t.does, "sleeping in read");
    cr_expect_str_eq(t.object, name);
    cr_expect(t.is_main && t.rank == 3 && t.tid == pid);
    end_child(pid);
}

static int loopback_pair(int *listener)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    *listener = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(bind(*listener, (struct sockaddr *)&at, len) == 0 && listen(*listener, 1) == 0 &&
              getsockname(*listener, (struct sockaddr *)&at, &len) == 0 &&
              connect(fd, (struct sockaddr *)&at, len) == 0);
    return fd;
}

/* In recv a rank waits for another rank of its collective. In accept a rank waits for a rank that has not connected
 * yet. */
Test(proc, a_thread_that_receives_names_its_peer)
{
    char byte, peer[64];
    int listener;
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    const int fd = loopback_pair(&listener);
    cr_assert_eq(getpeername(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(peer, sizeof(peer), " 127.0.0.1:%d", ntohs(at.sin_port));
    const pid_t pid = fork();
    if (pid == 0)
        _exit(recv(fd, &byte, 1, 0) == 1);
    const struct stack_thread t = watch_thread(pid, "sleeping in recvfrom");
    if (strncmp(t.object, "socket:", 7) == 0 || t.object[0] == '\0') {
        end_child(pid);
        cr_skip_test("skipped, because this kernel has no pidfd_getfd or forbids it");
    }
    const char *at_end = strstr(t.object, peer);
    cr_expect(at_end != NULL && at_end[strlen(peer)] == '\0', "%s", t.object);
    end_child(pid);
    const int accepted = accept(listener, NULL, NULL); /* so that the next accept blocks */
    const pid_t accepting = fork();
    if (accepting == 0)
        _exit(accept(listener, NULL, NULL) < 0);
    const struct stack_thread a = watch_thread(accepting, "sleeping in accept");
    cr_expect_not_null(strstr(a.object, peer), "%s", a.object);
    end_child(accepting);
    close(accepted);
    close(fd);
    close(listener);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Expect that the main thread of the child `pid` waits for an object whose description ends with `object`, and end the
 * child. Skip the test if this process cannot copy the child's descriptor `fd`. */
static void expect_object(pid_t pid, int fd, const char *object)
{
    struct stack_thread t = { 0 };
    const struct stack_thread like = { .pid = pid };
    const int pidfd = pids_hold(pid), copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    for (struct patience left = { 0 }; copy >= 0 && !ends_with(t.object, object) && patience_left(&left);) {
        struct buf out = { 0 };
        cr_assert_eq(threads_read(&like, 1, &out), 1);
        memcpy(&t, out.data, sizeof(t));
        buf_free(&out);
    }
    end_child(pid);
    close(pidfd);
    if (copy < 0)
        cr_skip_test("skipped, because this kernel has no pidfd_getfd or forbids it");
    close(copy);
    cr_assert(ends_with(t.object, object), "'%s' does not end with '%s'", t.object, object);
}

/* Start a child that connects until the queue of the listener is full. The kernel drops the next SYN, as a firewall
 * does. */
static pid_t start_connecting(const struct sockaddr_storage *to, socklen_t len, bool polls)
{
    const pid_t pid = fork();
    while (pid == 0) {
        const int fd = socket(to->ss_family, SOCK_STREAM | (polls ? SOCK_NONBLOCK : 0), 0);
        connect(fd, (const struct sockaddr *)to, len);
        if (polls)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
    }
    return pid;
}

Test(proc, a_thread_that_connects_names_its_peer)
{
    for (int i = 0; i < 4; i++) {
        struct sockaddr_storage at = { .ss_family = i < 2 ? AF_INET : AF_INET6 };
        socklen_t len = sizeof(at);
        char object[64];
        if (i < 2)
            ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        else
            ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_loopback;
        const int listener = socket(at.ss_family, SOCK_STREAM, 0);
        if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) != 0)
            cr_skip_test("skipped, because this host has no IPv6");
        cr_assert(listen(listener, 0) == 0 && getsockname(listener, (struct sockaddr *)&at, &len) == 0);
        snprintf(object, sizeof(object), " attempt to %s:%d", i < 2 ? "127.0.0.1" : "[::1]",
                 ntohs(((struct sockaddr_in *)&at)->sin_port));
        expect_object(start_connecting(&at, len, i % 2 != 0), listener, object);
        close(listener);
    }
}

Test(proc, an_ipv4_peer_of_an_ipv6_socket_is_formatted_as_ipv4)
{
    struct sockaddr_storage peer = { .ss_family = AF_INET6 };
    char text[ENDPOINT_TEXT_MAX];
    ((struct sockaddr_in6 *)&peer)->sin6_port = htons(4711);
    inet_pton(AF_INET6, "::ffff:10.0.0.2", &((struct sockaddr_in6 *)&peer)->sin6_addr);
    cr_expect(format_address(&peer, text));
    cr_expect_str_eq(text, "10.0.0.2:4711");
}

static pid_t start_receiving(int fd)
{
    char byte;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(recv(fd, &byte, 1, 0) == 1);
    return pid;
}

/* Connect to a Unix socket with the name `name`, and check the descriptions of both ends and of the listener. */
static void expect_unix(const struct sockaddr_un *at, socklen_t len, const char *name)
{
    char object[160];
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(bind(listener, (const struct sockaddr *)at, len) == 0 && listen(listener, 1) == 0 &&
              connect(fd, (const struct sockaddr *)at, len) == 0);
    const int accepted = accept(listener, NULL, NULL);
    snprintf(object, sizeof(object), " connection to %s", name);
    expect_object(start_receiving(fd), fd, object);
    snprintf(object, sizeof(object), " accepted at %s", name);
    expect_object(start_receiving(accepted), fd, object);
    snprintf(object, sizeof(object), " listening socket %s", name);
    const pid_t accepting = fork();
    if (accepting == 0)
        _exit(accept(listener, NULL, NULL) < 0);
    expect_object(accepting, fd, object);
    close(accepted);
    close(fd);
    close(listener);
}

/* A path may have 108 bytes, without a NUL. */
Test(proc, a_unix_socket_is_named_by_its_path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char folder[] = "/tmp/ddprun-test-XXXXXX", name[sizeof(at.sun_path) + 1] = "";
    cr_assert_not_null(mkdtemp(folder));
    memset(name, 'x', sizeof(at.sun_path));
    memcpy(name, folder, strlen(folder));
    name[strlen(folder)] = '/';
    memcpy(at.sun_path, name, sizeof(at.sun_path));
    expect_unix(&at, sizeof(at), name);
    unlink(name);
    rmdir(folder);
}

Test(proc, an_abstract_unix_socket_is_named)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char name[64];
    snprintf(name, sizeof(name), "@ddprun-test-%d", (int)getpid());
    memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
    expect_unix(&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)), name);
}

Test(proc, sockets_without_a_name_keep_their_inode)
{
    int pair[2];
    char link[40], object[40] = "";
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", pair[0]);
    cr_assert_gt(readlink(link, object, sizeof(object) - 1), 0);
    expect_object(start_receiving(pair[0]), pair[0], object);
    close(pair[0]);
    close(pair[1]);
}

Test(proc, a_stopped_process_and_one_that_has_ended)
{
    struct buf out = { 0 };
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    kill(pid, SIGSTOP);
    const struct stack_thread t = watch_thread(pid, "stopped");
    cr_expect(strncmp(t.does, "stopped", 7) == 0, "%s", t.does);
    kill(pid, SIGKILL);
    job_until_state(pid, 'Z');
    cr_expect_eq(threads_read(&(struct stack_thread){ .pid = pid }, 8, &out), 0);
    waitpid(pid, NULL, 0);
    buf_free(&out);
}

/* A process that waits in vfork for its child is in state D, but vfork does not change the memory map. */
Test(proc, only_a_thread_that_changes_the_map_locks_memory)
{
    cr_expect_not(threads_lock_memory(getpid()));
    const pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        if (vfork() == 0)
            for (;;)
                pause();
        _exit(0);
    }
    job_until_state(pid, 'D');
    cr_expect_not(threads_lock_memory(pid));
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(proc, a_python_is_known_by_its_program)
{
    cr_expect_not(threads_is_python(getpid(), false));
    cr_expect_not(threads_is_python(getpid(), true));
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip_test("skipped, because there is no /usr/bin/python3");
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[0], 0);
        close(fds[1]);
        execl("/usr/bin/python3", "python3", "-", NULL);
        _exit(127);
    }
    bool found = false;
    for (struct patience left = { 0 }; !found && patience_left(&left);)
        found = threads_is_python(pid, false);
    cr_expect(found);
    end_child(pid);
}

Test(proc, connections_of_a_process_are_found_in_one_pass)
{
    struct unanswered of[3] = { { .inode = 1 } };
    struct stat st;
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert(fds[i] >= 0 && fstat(fds[i], &st) == 0);
        of[i + 1].inode = st.st_ino;
    }
    cr_expect_eq(process_sockets(getpid(), of, 3), 6);
    cr_expect_eq(process_sockets(getpid(), of, 2), 2);
    close(fds[0]);
    cr_expect_eq(process_sockets(getpid(), of, 3), 4);
    close(fds[1]);
}
