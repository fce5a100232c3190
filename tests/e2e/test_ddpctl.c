/* Tests of ddpctl as a process, with ddp-rendezvous as a second process. The answers come from a real store, because
 * the tables of ddpctl and the messages of the store must fit together. */
#include "ddp/store.h"
#include "job.h"
#include "run.h"
#include "store_peers.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static struct daemon store;
static char addr[64];

static void start(void)
{
    store = daemon_start("127.0.0.1:0", NULL);
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", store.port);
}

static void stop(void)
{
    daemon_stop(&store);
}

TestSuite(ddpctl, .init = start, .fini = stop, .timeout = 120);

static struct run_result ask(const char *command, const char *argument)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, command, argument, NULL };
    return run_command(argv, NULL);
}

static void expect_answer(const char *command, const char *argument, const char *words)
{
    struct run_result r = ask(command, argument);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, words), "expected \"%s\" in:\n%s", words, r.out);
}

static void expect_failure(struct run_result r, int exit_code, const char *words)
{
    cr_assert_eq(r.exit_code, exit_code, "%s", r.err);
    cr_assert_not_null(strstr(r.err, words), "expected \"%s\" in:\n%s", words, r.err);
}

static ddp_store *client(void)
{
    ddp_store *s;
    struct ddp_err err;
    cr_assert_eq(ddp_store_connect("127.0.0.1", store.port, NULL, &s, &err), DDP_OK, "%s", err.msg);
    return s;
}

static ddp_store *worker_of(const char *job)
{
    ddp_store *s;
    struct ddp_err err;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "worker";
    options.job = job;
    options.rank = 0;
    options.world_size = 1;
    cr_assert_eq(ddp_store_connect("127.0.0.1", store.port, &options, &s, &err), DDP_OK, "%s", err.msg);
    return s;
}

Test(ddpctl, shows_keys_as_a_table)
{
    ddp_store *s = client();
    ddp_store_set(s, "a", "hi", 2, NULL);
    ddp_store_set(s, "other", "\0\xff", 2, NULL);
    expect_answer("keys", "--prefix=/a", "KEY  SIZE  VALUE\n/a      2  hi\n");
    expect_answer("keys", NULL, "0x00ff");
    expect_answer("keys", "--limit=1", "has more");
    expect_answer("status", NULL, "store     2 keys, ");
    ddp_store_close(s);
}

Test(ddpctl, prints_json_that_a_program_can_read)
{
    struct run_result r = ask("status", "--json");
    cJSON *json = cJSON_Parse(r.out);
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "ok")), "%s", r.out);
    cr_assert_eq(cJSON_GetObjectItem(json, "connections")->valueint, 1);
    cJSON_Delete(json);
}

Test(ddpctl, shows_who_waits_for_what)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, "waiters", NULL };
    ddp_store *s = client();
    pid_t pid = fork();
    if (pid == 0) {
        void *value;
        size_t len;
        ddp_store_get(s, "lost", PATIENCE_MS, &value, &len, NULL);
        _exit(0);
    }
    struct run_result r = run_command(argv, NULL);
    for (struct patience p = { 0 }; strstr(r.out, "'/lost'") == NULL;) {
        cr_assert(patience_left(&p), "%s", r.out);
        r = run_command(argv, NULL);
    }
    cr_assert_not_null(strstr(r.out, "WAIT"), "%s", r.out);
    ddp_store *other = client();
    ddp_store_set(other, "lost", "found", 5, NULL); /* this key releases the child */
    ddp_store_close(other);
    ddp_store_close(s);
    expect_answer("barriers", NULL, "no barrier");
}

Test(ddpctl, tells_one_job_from_another)
{
    ddp_store *a = worker_of("a"), *b = worker_of("b");
    ddp_store_set(b, "k", "v", 1, NULL);
    expect_answer(
        "jobs", NULL,
        "JOB  ATTEMPT  WORLD  KEYS  CONNECTIONS\na          0      1     0            1\nb          0 "
        "     1     1            1\n");
    expect_answer("keys", "--job=b", "/k");
    expect_answer("keys", "--job=a", "no keys");
    expect_failure(ask("keys", NULL), 1, "2 jobs");
    expect_failure(ask("keys", "--job=c"), 1, "no job 'c'");
    ddp_store_close(a);
    ddp_store_close(b);
}

Test(ddpctl, shows_who_came_to_nothing)
{
    int fd = peer_connect(store.port);
    cr_assert(peer_send(fd, slice_str("GET / HTTP/1.1\r\n\r\n")));
    peer_expect_end(fd);
    expect_answer("rejects", NULL, "127.0.0.1  http    474554202f204854  -        1");
}

Test(ddpctl, passes_on_what_the_store_refuses)
{
    struct run_result r = ask("cancel", "no-such");
    expect_failure(r, 1, "no-such");
    expect_failure(r, 1, "error: store 127.0.0.1:");
}

Test(ddpctl, takes_the_address_from_the_environment)
{
    char setting[96];
    snprintf(setting, sizeof(setting), "DDPRUN_STORE_ADDR=%s", addr);
    const char *argv[] = { bin("ddpctl"), "status", NULL };
    const char *env[] = { setting, NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .env = env });
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
}

Test(ddpctl, tells_usage_errors_from_failures)
{
    expect_failure(ask("statsu", NULL), 2, "'statsu': ");
    const char *nowhere[] = { bin("ddpctl"), "--job=missing-job", "status", NULL };
    const char *bare[] = { "DDPRUN_STORE_ADDR", "MASTER_ADDR", "MASTER_PORT", NULL };
    expect_failure(run_command(nowhere, &(struct run_options){ .env = bare }), 2, "--addr HOST:PORT");
    int port, reserved = fake_port_reserve(&port);
    char closed[32];
    snprintf(closed, sizeof(closed), "127.0.0.1:%d", port);
    const char *refused[] = { bin("ddpctl"), "--timeout=2", "--addr", closed, "status", NULL };
    struct run_result r = run_command(refused, NULL);
    expect_failure(r, 1, "refused: ");
    expect_failure(r, 1, "within 2 s (--timeout)");
    close(reserved);
}

Test(ddpctl, says_when_a_store_is_not_ddpruns)
{
    struct fake_store *genuine =
        fake_store_start((const char *[]){ "< 00 cef7853c 0d ?? ?? ?? ?? > @ < 80 hangup", NULL });
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", fake_store_port(genuine));
    expect_failure(ask("status", NULL), 1, "not ddprun's");
    fake_store_stop(genuine);
}

/* A store without a secret, or an attacker in its place, must not get a request in plain text. */
Test(ddpctl, encrypt_needs_a_store_with_a_secret)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, "--encrypt", "status", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_neq(r.exit_code, 0);
    cr_expect_str_empty(r.out);
    cr_expect_null(strstr(r.err, "verified"));
}

Test(ddpctl, a_signal_restores_the_terminal)
{
    static char seen[65536];
    struct termios modes;
    int terminal, status = 0;
    const char *ddpctl = bin("ddpctl");
    const pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid == 0) {
        execl(ddpctl, "ddpctl", "--addr", addr, "jobs", "--watch", NULL);
        _exit(127);
    }
    const int slave = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert_geq(slave, 0);
    cr_assert(patience_read(terminal, seen, sizeof(seen), "\033[J"), "%s",
              seen); /* the first screen is complete */
    cr_assert_eq(tcgetattr(slave, &modes), 0);
    cr_expect_eq(modes.c_lflag & (ECHO | ISIG), ISIG, "Ctrl-C sends a signal");
    kill(pid, SIGTERM);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %d", status);
    cr_assert_eq(tcgetattr(slave, &modes), 0);
    cr_expect_eq(modes.c_lflag & (ECHO | ICANON | ISIG), (tcflag_t)(ECHO | ICANON | ISIG));
    close(slave);
    close(terminal);
}

Test(ddpctl, a_damaged_flight_record_is_named_with_a_remedy)
{
    char path[] = "/tmp/ddp-flight-XXXXXX", longer[4090] = "/tmp";
    const int fd = mkstemp(path);
    cr_assert_eq(write(fd, "{", 1), 1);
    close(fd);
    while (strlen(longer) + strlen(path) + 2 < sizeof(longer))
        strcat(longer, "/.");
    strcat(longer, path + strlen("/tmp"));
    struct run_result r = run_command((const char *[]){ bin("ddpctl"), "flight", path, NULL }, NULL);
    cr_expect_not_null(strstr(r.err, path), "%s", r.err);
    expect_failure(r, 1, "; pass");
    r = run_command((const char *[]){ bin("ddpctl"), "flight", longer, NULL }, NULL);
    unlink(path);
    expect_failure(r, 1, "; pass");
}

Test(ddpctl, no_answer_within_a_short_timeout_has_a_remedy)
{
    char at[32];
    snprintf(at, sizeof(at), "127.0.0.1:%d", free_port());
    const char *argv[] = { bin("ddpctl"), "--addr", at, "--timeout=0.1", "status", NULL };
    expect_failure(run_command(argv, NULL), 1, "; check");
}

/* If no packet from an address arrives, the error names two likely causes. The error must also contain a remedy. */
Test(ddpctl, an_address_that_drops_packets_has_a_remedy)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    char addr_text[32];
    int full[4];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&at, len), 0);
    cr_assert_eq(listen(listener, 0), 0); /* when this short queue is full, the kernel drops connections */
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    for (int i = 0; i < 4; i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(full[i], (struct sockaddr *)&at, len);
    }
    snprintf(addr_text, sizeof(addr_text), "127.0.0.1:%d", ntohs(at.sin_port));
    const char *argv[] = { bin("ddpctl"), "--addr", addr_text, "--timeout=0.1", "status", NULL };
    expect_failure(run_command(argv, NULL), 1, "; check that");
    for (int i = 0; i < 4; i++)
        close(full[i]);
    close(listener);
}

Test(ddpctl, help_and_version_stand_on_stdout)
{
    expect_answer("--help", NULL, "cancel NAME");
    expect_answer("--version", NULL, "ddpctl ");
}

/* ddpctl without --addr finds the jobs of its user. The test uses a separate user id, because this user has no other
 * jobs on this machine. */

static char uid_option[32], runtime_dir[64], *dir;

/* Copy the programs, because the built programs may be in a home directory that other users cannot enter. */
static void set_up(void)
{
    char command[1024];
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can become a user who has no jobs");
    const int uid = 200000 + (int)getpid();
    snprintf(uid_option, sizeof(uid_option), "--reuid=%d", uid);
    snprintf(runtime_dir, sizeof(runtime_dir), "/tmp/ddprun-%d", uid);
    dir = job_dir();
    snprintf(command, sizeof(command), "chmod 755 %s; cp '%s' '%s' %s", dir, bin("ddprun"), bin("ddpctl"),
             dir);
    cr_assert_eq(system(command), 0);
}

static void tear_down(void)
{
    if (dir == NULL)
        return;
    job_dir_remove(dir);
    job_dir_remove(strdup(runtime_dir));
}

TestSuite(ddpctl_jobs, .init = set_up, .fini = tear_down, .timeout = 120);

static const char *const bare[] = { "DDPRUN_STORE_ADDR", "MASTER_ADDR", "MASTER_PORT", "XDG_RUNTIME_DIR",
                                    NULL };

/* Make the command that runs the copy of `program` as the user of this test. `words` are its arguments, up to the first
 * NULL. */
static const char *const *as_user(const char *program, const char *const words[])
{
    static const char *argv[16];
    static char path[512];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, program);
    argv[n++] = "setpriv";
    argv[n++] = uid_option;
    argv[n++] = "--regid=65534";
    argv[n++] = "--clear-groups";
    argv[n++] = path;
    for (size_t i = 0; words[i] != NULL; i++)
        argv[n++] = words[i];
    argv[n] = NULL;
    return argv;
}

#define CTL(...) ctl((const char *const[]){ __VA_ARGS__, NULL })

static struct run_result ctl(const char *const words[])
{
    return run_command(as_user("ddpctl", words), &(struct run_options){ .env = bare, .cwd = "/" });
}

static struct run_process *start_job(const char *id)
{
    const char *const words[] = { "--standalone", "--nproc_per_node=1",          id,  "sh",
                                  "-c",           "echo ready; exec sleep 1000", NULL };
    struct run_process *p =
        run_start(as_user("ddprun", words), &(struct run_options){ .env = bare, .cwd = "/" });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "no job: %s", run_wait(p).err);
    return p;
}

static void end_job(struct run_process *p)
{
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

static void expect(struct run_result r, int code, const char *out, const char *error)
{
    EXPECT(r, code);
    cr_expect_not_null(strstr(r.out, out), "'%s' is not in:\n%s", out, r.out);
    cr_expect_not_null(strstr(r.err, error), "'%s' is not in:\n%s", error, r.err);
}

/* Read the port of the job's store from the table. */
static int port_of(const char *table, const char *job)
{
    char line_end[64];
    snprintf(line_end, sizeof(line_end), "  %s\n", job);
    const char *end = strstr(table, line_end), *at = end;
    cr_assert_not_null(end, "%s", table);
    while (at > table && at[-1] != '\n')
        at--;
    return atoi(strchr(at, ':') + 1);
}

Test(ddpctl_jobs, one_is_used_several_are_listed)
{
    char port[16];
    expect(CTL("status"), 2, "", "no running");
    struct run_process *alpha = start_job("--rdzv_id=alpha");
    expect(CTL("status"), 0, "alpha", "");
    struct run_process *beta = start_job("--rdzv_id=beta");
    struct run_result several = CTL("status");
    snprintf(port, sizeof(port), "%d", port_of(several.err, "beta"));
    expect(several, 2, "", "--addr or --job\nADDRESS ");
    expect(CTL("--job", "beta", "status"), 0, "beta", "");
    expect(CTL("--addr", port, "status"), 0, "beta", "");
    snprintf(port, sizeof(port), ":%.10d", atoi(port));
    expect(CTL("--addr", port, "status"), 0, "beta", "");
    end_job(alpha);
    expect(CTL("status"), 0, "beta", "");
    end_job(beta);
    expect(CTL("status"), 2, "", "no running");
}

/* If ddpctl finds no job of this user, it tries the store at the default address. But if the command changes the store,
 * ddpctl does not try this address, because the address is only a guess. */
Test(ddpctl_jobs, the_default_address_is_tried_when_no_job_is_known)
{
    struct run_result r = CTL("status");
    SAYS(r, "127.0.0.1:29500: ");
    SAYS(r, " default, ");
    r = CTL("cancel", "name");
    EXPECT(r, 2);
    SILENT(r, "127.0.0.1:29500");
    SAYS(r, "set --addr HOST:PORT");
}

/* With --hosts, the store listens on an address that all hosts reach, and not on 127.0.0.1. ddpctl must find such a
 * store even if the user gives only its port. In this test, 127.0.0.2 replaces the address of --hosts. */
Test(ddpctl_jobs, a_port_finds_a_store_on_another_address)
{
    char port[16], option[32];
    snprintf(port, sizeof(port), "%d", free_port());
    snprintf(option, sizeof(option), "--master_port=%s", port);
    const char *const words[] = { "--master_addr=127.0.0.2",     option, "sh", "-c",
                                  "echo ready; exec sleep 1000", NULL };
    struct run_process *p =
        run_start(as_user("ddprun", words), &(struct run_options){ .env = bare, .cwd = "/" });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "no job: %s", run_wait(p).err);
    expect(CTL("--addr", port, "status"), 0, "running", "");
    end_job(p);
}

Test(ddpctl_jobs, a_job_that_waits_is_found)
{
    const char *const words[] = {
        "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", free_port_option("--master_port="), "true",
        NULL
    };
    struct run_process *p =
        run_start(as_user("ddprun", words), &(struct run_options){ .env = bare, .cwd = "/" });
    struct run_result r = CTL("status");
    for (struct patience left = { 0 }; r.exit_code != 0 && patience_left(&left); r = CTL("status"))
        continue;
    expect(r, 0, "job       none", "");
    run_signal(p, SIGTERM);
    r = run_wait(p);
}

/* Copy the record of the job to a file with the name of another cookie. ddpctl ignores the copy while it belongs to
 * another user. After a chown to the user of ddpctl, ddpctl finds two stores and must not choose one. */
Test(ddpctl_jobs, a_record_of_another_user_is_ignored)
{
    char command[1024];
    struct run_process *p = start_job("--rdzv_id=alpha");
    snprintf(command, sizeof(command),
             "cd %s && f=$(ls | grep -x '[0-9a-f]\\{32\\}') && c=0123456789abcdef0123456789abcdef && "
             "sed \"s/$f/$c/; s,^cgroup .*,cgroup ,; s,^store .*,store 127.0.0.1:1,\" $f >$c",
             runtime_dir);
    cr_assert_eq(system(command), 0);
    expect(CTL("status"), 0, "alpha", "");
    snprintf(command, sizeof(command), "chown %s %s/0123*", uid_option + strlen("--reuid="), runtime_dir);
    cr_assert_eq(system(command), 0);
    expect(CTL("status"), 2, "", "several");
    end_job(p);
}

/* Tests of ddprun under a scheduler: the messages and rejections of ddprun, and $PBS_NODEFILE, the only file of a
 * scheduler that ddprun reads. tests/unit/plan/test_scheduler.c tests each scheduler. */

TestSuite(why, .timeout = 120);

static struct run_result end;

static void why_end(void)
{
}

#define DDPRUN(env, ...) \
    ddprun((const char *const[]){ env, NULL }, (const char *const[]){ bin("ddprun"), __VA_ARGS__, NULL })
#define ENV(...) __VA_ARGS__

static void ddprun(const char *const env[], const char *const argv[])
{
    const struct run_options options = { .env = env };
    end = run_command(argv, &options);
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fprintf(stderr, "no '%s' in:\n%s\n", words, text);
    return strstr(text, words) != NULL;
}

#define STEP_OF_TWO                                                                          \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=n0", \
        "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_NODEID=0"

Test(why, needs_no_program_and_starts_nothing, .fini = why_end)
{
    DDPRUN(ENV("SLURM_JOB_ID"), "--explain");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "no scheduler: "));
    cr_expect(says(end.out, "default"));
}

Test(why, the_old_name_of_explain_still_works, .fini = why_end)
{
    DDPRUN(ENV("SLURM_JOB_ID"), "--why");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "no scheduler: "));
    cr_expect(says(end.err, "warning: --why: ") && says(end.err, "use --explain\n"));
}

Test(explain, prints_findings_and_exit_codes, .fini = why_end)
{
    DDPRUN(NULL, "explain", "rank-stopped");
    cr_expect_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "RANK_STOPPED (error)\n\nExample\n    rank 3: stopped (state"));
    DDPRUN(NULL, "explain", "137");
    cr_expect(says(end.out, "exit code 137 = 128 + 9 (SIGKILL)"));
    DDPRUN(NULL, "explain", "--json", "SIGKILL");
    cr_expect(says(end.out, "{\"exit_code\":137,"));
    DDPRUN(NULL, "explain", "SIGKILL", "--json");
    cr_expect(says(end.out, "{\"exit_code\":137,"));
    DDPRUN(NULL, "explain");
    cr_expect(says(end.out, "\nRANK_STOPPED  ") && says(end.out, "\n125  ") && says(end.out, "\nother  "));
    DDPRUN(NULL, "explain", "NO_SUCH_CODE");
    cr_expect_eq(end.exit_code, 2);
    cr_expect(says(end.err, "explain: 'NO_SUCH_CODE': "));
    DDPRUN(NULL, "explain", "1", "2");
    cr_expect_eq(end.exit_code, 2);
    cr_expect(says(end.err, "explain: "));
}

Test(why, json_is_one_object, .fini = why_end)
{
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=0", "SLURM_LOCALID=0"), "--explain", "--json");
    cr_assert_eq(end.exit_code, 2);
    cJSON *why = cJSON_Parse(end.out);
    cr_assert_not_null(why, "%s", end.out);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(why, "scheduler")), "slurm");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(why, "values")), 6);
    const cJSON *finding = cJSON_GetObjectItem(why, "finding");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(finding, "code")), "WRONG_TASK_LAYOUT");
    cr_expect(cJSON_IsTrue(cJSON_GetObjectItem(finding, "fatal")));
    cJSON_Delete(why);
}

Test(why, what_does_not_fit_is_shown_before_it_is_refused, .fini = why_end)
{
    DDPRUN(ENV("SLURM_JOB_ID"), "--explain", "--nnodes=2");
    cr_assert_eq(end.exit_code, 2);
    cr_expect(says(end.out, "command line (--nnodes)"));
    cr_expect(says(end.err, "--nnodes=2: "));
}

Test(why, a_wrong_layout_is_told_by_the_first_task_of_a_node)
{
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=0", "SLURM_LOCALID=0"), "true");
    cr_assert_eq(end.exit_code, 2);
    cr_expect(says(end.err, "  finding  WRONG_TASK_LAYOUT\n"));
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=1", "SLURM_LOCALID=1"), "true");
    cr_assert_eq(end.exit_code, 2);
    cr_expect_str_empty(end.err);
}

/* A terminal gets one hint with the text that contains the finding. A file gets none. */
Test(why, a_terminal_gets_one_hint_with_the_finding)
{
    static const char *const too_small[] = { "SLURM_JOB_ID=7",
                                             "SLURM_JOB_NUM_NODES=2",
                                             "SLURM_STEP_ID=0",
                                             "SLURM_STEP_NUM_NODES=1",
                                             "SLURM_STEP_NODELIST=n0",
                                             "SLURM_STEP_NUM_TASKS=1",
                                             "SLURM_STEP_TASKS_PER_NODE=1",
                                             "SLURM_NODEID=0",
                                             "SLURM_PROCID=0",
                                             "SLURM_LOCALID=0",
                                             NULL };
    static const char *const wrong[] = { STEP_OF_TWO, "SLURM_PROCID=0", "SLURM_LOCALID=0", NULL };
    static const struct {
        const char *const *env;
        const char *option, *hint;
    } rows[] = { { too_small, "--no_python", "(ddprun explain STEP_TOO_SMALL)" },
                 { too_small, "--dry_run", "(ddprun explain STEP_TOO_SMALL)" },
                 { too_small, "--explain", "(ddprun explain STEP_TOO_SMALL)" },
                 { wrong, "--no_python", "(ddprun explain WRONG_TASK_LAYOUT)" } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int on_terminal = 0; on_terminal < 2; on_terminal++) {
            const char *const argv[] = { bin("ddprun"), rows[i].option, "true", NULL };
            struct run_result r =
                run_command(argv, &(struct run_options){ .env = rows[i].env, .terminal = on_terminal == 1 });
            cr_expect_eq(job_count_text(r.out, rows[i].hint), on_terminal, "%zu: %s", i, r.out);
            cr_expect_eq(job_count_text(r.err, "(ddprun explain "), 0, "%zu: %s", i, r.err);
        }
    }
}

Test(why, a_worker_that_starts_ddprun_does_not_speak_for_the_job_around_it, .fini = why_end)
{
    DDPRUN(ENV("SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=2", "SLURM_JOB_NODELIST=n[0-1]"), "--nnodes=1",
           "--no_prefix", bin("ddprun"), "--explain");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "DDPRUN_JOB is set"));
}

Test(why, verbose_says_it_beside_the_job, .fini = why_end)
{
    DDPRUN(ENV("SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=1", "SLURM_JOB_NODELIST=n0"), "--verbose", "true");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.err, "scheduler       Slurm: SLURM_JOB_ID is set\n"));
}

static char path[] = "/tmp/ddp-nodefile-XXXXXX";
static char variable[64];

static void write_hosts(const char *text, int times)
{
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    cr_assert_not_null(f);
    for (int i = 0; i < times; i++)
        fputs(text, f);
    fclose(f);
    snprintf(variable, sizeof(variable), "PBS_NODEFILE=%s", path);
}

static void remove_hosts(void)
{
    unlink(path);
}

Test(why, a_file_of_hosts_is_read, .fini = remove_hosts)
{
    write_hosts("first.cluster\nsecond.cluster\n", 1);
    DDPRUN(ENV("PBS_JOBID=12.head", variable, "PBS_TASKNUM=2", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK"),
           "--explain", "--node_rank=1");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "nnodes          2 "));
    cr_expect(says(end.out, "master_addr     first.cluster "));
    cr_expect(says(end.out, "PBS_NODEFILE; set --node_rank"));
}

Test(why, half_a_file_is_none, .fini = remove_hosts)
{
    write_hosts("a-host-with-a-name-of-thirty-two\n", 32000);
    DDPRUN(ENV("PBS_JOBID=12.head", variable, "PBS_TASKNUM=2"), "--explain");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "cannot read PBS_NODEFILE="));
}

Test(why, what_is_no_file_is_not_waited_for, .fini = why_end)
{
    DDPRUN(ENV("PBS_JOBID=12.head", "PBS_NODEFILE=/dev/zero", "PBS_TASKNUM=2"), "--explain");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "cannot read PBS_NODEFILE="));
}

#define FLIGHT "tests/data/flight/gloo_rank_"

static void expect_flight(const char *third, int exit_code, const char *words)
{
    const char *argv[] = { bin("ddpctl"), "flight", FLIGHT "0", FLIGHT "1", third, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, exit_code, "%s", r.err);
    cr_expect(strstr(r.out, "differ") != NULL && strstr(r.err, words) != NULL, "%s%s", r.out, r.err);
}

/* The FIFO never has a writer, and ddpctl must not wait for a writer. Restarts leave several records of a rank, of
 * which ddpctl uses only one. */
Test(flight, waits_for_no_fifo_and_takes_one_record_of_a_rank)
{
    char folder[] = "/tmp/ddp-ctl-XXXXXX", fifo[64];
    temp_dir_make(folder);
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    expect_flight(fifo, 1, fifo);
    expect_flight("/no/such/record", 1, "/no/such/record");
    expect_flight(FLIGHT "0.json", 0, FLIGHT "0.json: not used");
    temp_dir_remove(folder);
}
