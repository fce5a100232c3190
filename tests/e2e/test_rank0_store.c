/* A PyTorch without libuv rejects the launcher's store, so rank 0 hosts a store. Here tests/prog/rank0_store replaces
 * the Python interpreter, and two files replace PyTorch. `make interop-nolibuv` uses the real PyTorch. */
#include "run.h"
#include "job.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

enum { ARGS_MAX = 16, LONG_MS = 100000 };

#define NOTE "without libuv"

static char *dir;
static char exec_entry[512], train[512];

static void write_file(const char *name, const char *text, mode_t mode)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
}

static void make_directory(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    cr_assert_eq(mkdir(path, 0755), 0, "%s", path);
}

static void install(const char *version, const char *library)
{
    static const char *const directories[] = { "bin",
                                               "lib",
                                               "lib/python3.99",
                                               "lib/python3.99/site-packages",
                                               "lib/python3.99/site-packages/torch",
                                               "lib/python3.99/site-packages/torch/lib" };
    char text[512], path[512];
    dir = job_dir();
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
        make_directory(directories[i]);
    snprintf(text, sizeof(text), "#!/bin/sh\nexec '%s'\n", bin("tests/prog/rank0_store"));
    write_file("bin/python3.99", text, 0755);
    write_file("train.py", "", 0644);
    snprintf(text, sizeof(text), "__version__ = '%s'\n", version);
    write_file("lib/python3.99/site-packages/torch/version.py", text, 0644);
    snprintf(path, sizeof(path), "%s/lib/python3.99/site-packages/torch/lib/libtorch_cpu.so", dir);
    char *real = realpath(library, NULL);
    cr_assert_not_null(real, "%s", library);
    cr_assert_eq(symlink(real, path), 0);
    free(real);
    snprintf(train, sizeof(train), "%s/train.py", dir);
    write_file("train.py", "", 0644);
    snprintf(exec_entry, sizeof(exec_entry), "PYTHON_EXEC=%s/bin/python3.99", dir);
}

/* Install a fake torch. Its libtorch_cpu.so is a link to the library that contains `function`. ddprun reads
 * libtorch_cpu.so to detect whether torch has libuv, so the choice of `function` determines the result. */
static void install_library_of(const char *version, void *function)
{
    Dl_info where;
    cr_assert_neq(dladdr(function, &where), 0);
    install(version, where.dli_fname);
}

static void install_without_libuv(void)
{
    install_library_of("2.6.0+fake", (void *)cJSON_Parse);
}

static void install_with_libuv(void)
{
    install_library_of("2.6.0+fake", (void *)uv_listen);
}

static void tear_down(void)
{
    if (dir != NULL)
        job_dir_remove(dir);
}

TestSuite(rank0_store, .fini = tear_down, .timeout = 120);

#define RUN(variable, ...) \
    run(variable, (const char *const[]){ "--nproc_per_node=2", "--no_prefix", __VA_ARGS__, train, NULL })
static struct run_result run(const char *variable, const char *const args[])
{
    const char *env[] = { exec_entry, variable, NULL };
    return job_run(args, &(struct run_options){ .env = env, .cwd = dir, .timeout_ms = LONG_MS });
}

static void expect_met(const struct run_result *r, int attempt)
{
    char line[64];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(line, sizeof(line), "rank %d: attempt %d has met", rank, attempt);
        cr_expect_eq(job_count(r->out, line), 1, "'%s' is not in\n%s%s", line, r->out, r->err);
    }
}

/* Expect that the workers get the launcher's store. */
static void expect_launchers_store(const char *option)
{
    struct run_result r = RUN("ANY_STORE=1", option);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "rank 0: launcher's store"), 1, "%s", r.out);
}

Test(rank0_store, is_chosen_for_a_torch_without_libuv)
{
    install_without_libuv();
    struct run_result r = RUN(NULL, "--max_restarts=0");
    EXPECT(r, 0);
    expect_met(&r, 0);
    SAYS(r, "PyTorch 2.6.0+fake in ");
    SAYS(r, NOTE);
}

Test(rank0_store, is_a_new_one_in_the_next_attempt)
{
    install_without_libuv();
    struct run_result r = RUN("FAIL_ONCE=1", "--max_restarts=1", "--restart_backoff=0");
    EXPECT(r, 0);
    expect_met(&r, 0);
    expect_met(&r, 1);
}

Test(rank0_store, is_not_for_a_torch_that_has_libuv)
{
    install_with_libuv();
    struct run_result r = RUN("ANY_STORE=1", "--max_restarts=0");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "rank 1: launcher's store"), 1, "%s", r.out);
    SILENT(r, "libuv");
}

/* Before version 2.4, PyTorch used libuv only on request. */
Test(rank0_store, is_not_for_an_older_torch)
{
    install_library_of("2.3.1", (void *)cJSON_Parse);
    expect_launchers_store("--max_restarts=0");
}

Test(rank0_store, is_the_users_choice)
{
    install_without_libuv();
    expect_launchers_store("--torch_store=launcher");
    struct run_result r = RUN(NULL, "--torch_store=rank0", "--quiet");
    EXPECT(r, 0);
    expect_met(&r, 0);
}

Test(rank0_store, is_what_torchruns_switch_means)
{
    install_with_libuv();
    struct run_result r = RUN("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "--max_restarts=0");
    EXPECT(r, 0);
    expect_met(&r, 0);
}

static struct run_process *start_node(const char *node_rank, const char *port, const char *store,
                                      const char *variable)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=2",
                           node_rank,
                           "--master_addr=127.0.0.1",
                           port,
                           "--no_prefix",
                           store,
                           "--nproc_per_node=1",
                           "--max_restarts=1",
                           "--restart_backoff=0",
                           train,
                           NULL };
    const char *env[] = { exec_entry, variable, NULL };
    return run_start(argv, &(struct run_options){ .env = env, .cwd = dir, .timeout_ms = LONG_MS });
}

Test(rank0_store, is_found_from_another_node_in_each_attempt)
{
    install_without_libuv();
    char port[40];
    snprintf(port, sizeof(port), "%s", free_port_option("--master_port="));
    struct run_process *node[2] = { start_node("--node_rank=0", port, "--torch_store=auto", "FAIL_ONCE=1"),
                                    start_node("--node_rank=1", port, "--torch_store=auto", "FAIL_ONCE=1") };
    struct run_result end[2] = { run_wait(node[0]), run_wait(node[1]) };
    for (int i = 0; i < 2; i++) {
        char line[64];
        EXPECT(end[i], 0);
        snprintf(line, sizeof(line), "rank %d: attempt 1 has met", i);
        cr_expect_eq(job_count(end[i].out, line), 1, "%s%s", end[i].out, end[i].err);
    }
}

Test(rank0_store, is_missed_aloud_when_only_another_node_asks_for_it)
{
    install_with_libuv();
    char port[40];
    snprintf(port, sizeof(port), "%s", free_port_option("--master_port="));
    struct run_process *node[2] = { start_node("--node_rank=0", port, "--torch_store=launcher",
                                               "ANY_STORE=1"),
                                    start_node("--node_rank=1", port, "--torch_store=rank0", "ANY_STORE=1") };
    struct run_result end[2] = { run_wait(node[0]), run_wait(node[1]) };
    EXPECT(end[0], 0);
    EXPECT(end[1], 0);
    cr_expect_null(strstr(end[0].err, "warning:"), "%s", end[0].err);
    cr_expect_eq(job_count(end[1].out, "rank 1: launcher's store"), 1, "%s", end[1].out);
    cr_expect_not_null(strstr(end[1].err, "--torch_store=rank0 on"), "%s", end[1].err);
}

/* --- other users ------------------------------------------------------------------------------------------------ */

enum { NOBODY = 65534 };

/* Start a process of another user that listens on `port` as soon as the kernel allows this. */
static pid_t listen_as_nobody(int port)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    const int yes = 1;
    const struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int changed = setuid(NOBODY), fd = socket(AF_INET, SOCK_STREAM, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (changed != 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 8) != 0)
        _exit(1);
    for (;;)
        pause();
}

/* Rank 0 imports its modules for a while; in that time another user takes the port. */
Test(rank0_store, is_not_met_where_another_user_listens)
{
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can run a process of another user");
    install_without_libuv();
    write_file("bin/python3.99", "#!/bin/sh\necho \"port $MASTER_PORT,\"\nexec sleep 15\n", 0755);
    const char *argv[] = { bin("ddprun"), "--standalone",     "--nproc_per_node=2",
                           "--no_prefix", "--max_restarts=0", train,
                           NULL };
    const char *env[] = { exec_entry, NULL };
    struct run_process *job = run_start(argv, &(struct run_options){ .env = env, .timeout_ms = LONG_MS });
    cr_assert(run_until_output(job, ",", LONG_MS));
    const int port = atoi(strstr(run_output(job), "port ") + 5);
    const pid_t thief = listen_as_nobody(port);
    struct run_result r = run_wait(job);
    kill(thief, SIGKILL);
    waitpid(thief, NULL, 0);
    char words[128];
    EXPECT(r, 137);
    snprintf(words, sizeof(words), "sport = :%d", port);
    SAYS(r, words);
    SAYS(r, "uid 65534");
    SAYS(r, "another user");
}

/* If root starts the job, rank 0 may run as another user. ddprun must accept the store of this rank 0, because the
 * process belongs to the job. */
Test(rank0_store, may_be_a_worker_s_of_another_user)
{
    char script[512];
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can run a process of another user");
    install_without_libuv();
    snprintf(script, sizeof(script), "#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups '%s'\n",
             bin("tests/prog/rank0_store"));
    struct run_result can =
        run_command((const char *const[]){ "setpriv", "--reuid=65534", "--clear-groups", "test", "-x",
                                           bin("tests/prog/rank0_store"), NULL },
                    NULL);
    const bool can_run = can.exit_code == 0;
    if (!can_run)
        cr_skip_test("skipped, because uid 65534 cannot reach the build folder");
    write_file("bin/python3.99", script, 0755);
    struct run_result r = RUN(NULL, "--max_restarts=0");
    EXPECT(r, 0);
    expect_met(&r, 0);
}

/* --- search path ------------------------------------------------------------------------------------------------ */

/* Create `dir`/venv, whose Python is that of install(). */
static void make_venv(const char *config)
{
    char link[512], target[512];
    make_directory("venv");
    make_directory("venv/bin");
    write_file("venv/pyvenv.cfg", config, 0644);
    snprintf(link, sizeof(link), "%s/venv/bin/python3", dir);
    snprintf(target, sizeof(target), "%s/bin/python3.99", dir);
    cr_assert_eq(symlink(target, link), 0);
}

/* Return true if a dry run in `where`, below the directory of install(), reports that rank 0 hosts the store. */
static bool is_chosen(const char *where, const char *python, const char *const options[])
{
    char command[2048], entry[600];
    int len =
        snprintf(command, sizeof(command), "cd '%s/%s' && exec '%s' --dry_run", dir, where, bin("ddprun"));
    for (; *options != NULL; options++)
        len += snprintf(command + len, sizeof(command) - (size_t)len, " '%s'", *options);
    snprintf(command + len, sizeof(command) - (size_t)len, " train.py");
    snprintf(entry, sizeof(entry), "PYTHON_EXEC=%s", python);
    struct run_result r =
        run_command((const char *const[]){ "sh", "-c", command, NULL },
                    &(struct run_options){ .env = (const char *const[]){ entry, "VIRTUAL_ENV", NULL } });
    EXPECT(r, 0);
    const bool chosen = strstr(r.out, NOTE) != NULL;
    cr_expect_eq(strstr(r.out, "TORCHELASTIC_USE_AGENT_STORE=False") != NULL, chosen, "%s", r.out);
    return chosen;
}
#define CHOSEN(where, python, ...) is_chosen(where, python, (const char *const[]){ __VA_ARGS__, NULL })

Test(rank0_store, of_the_system_is_seen_by_a_virtual_environment_that_lets_it_in)
{
    install_without_libuv();
    make_venv("home = /usr/bin\nInclude-System-Site-Packages=True\nversion = 3.99.0\n");
    cr_expect(CHOSEN(".", "venv/bin/python3", "--nnodes=1"));
    write_file("venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n", 0644);
    cr_expect_not(CHOSEN(".", "venv/bin/python3", "--nnodes=1"));
}

Test(rank0_store, is_looked_for_from_a_relative_path)
{
    install_without_libuv();
    cr_expect(CHOSEN(".", "bin/python3.99", "--nnodes=1"));
    cr_expect(CHOSEN(".", "./bin/../bin/python3.99", "--nnodes=1"));
    make_venv("home = /usr/bin\n");
    cr_expect_not(CHOSEN("venv", "bin/python3", "--nnodes=1"), "a separate environment, without torch");
}

Test(rank0_store, is_looked_for_with_the_variables_of_env)
{
    char path[600];
    install_without_libuv();
    make_venv("home = /usr/bin\n");
    snprintf(path, sizeof(path), "--env=PYTHONPATH=/nowhere:%s/lib/python3.99/site-packages", dir);
    cr_expect(CHOSEN(".", "venv/bin/python3", path));
    cr_expect_not(CHOSEN(".", "venv/bin/python3", path, "--env=PYTHONPATH="), "the last one counts");
    snprintf(path, sizeof(path), "--env=PATH=%s/bin", dir);
    cr_expect(CHOSEN(".", "python3.99", path));
}
