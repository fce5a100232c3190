/* A store serves the processes of its user and of root. The store closes the connection of any other user of the host
 * as soon as it has accepted the connection. */
#include "auth/secret.h"
#include "job.h"
#include "run.h"
#include "sim_hub.h" /* hex_read */
#include "store/encode.h"
#include "store_peers.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, ATTEMPTS = 200 };

TestSuite(store_users, .timeout = 120);

static void need_root(void)
{
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can run a process of another user");
}

static int connect_to(struct in_addr host, int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr = host,
                                    .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0)
        _exit(100);
    return fd;
}

/* Connect and SET a new key, in a loop. Of every three connections, close the first at once, close the second after a
 * FIN (shutdown), and keep the third open after a FIN. */
static int set_and_close(struct in_addr host, int port)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        struct buf bytes = { 0 };
        char key[32];
        snprintf(key, sizeof(key), "/key%d", i);
        hex_read(PEER_GREETING "01", &bytes);
        append_blob(&bytes, slice_str(key));
        append_blob(&bytes, slice_str("v"));
        int fd = connect_to(host, port);
        (void)!send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
        if (i % 3 > 0)
            shutdown(fd, SHUT_WR);
        if (i % 3 < 2)
            close(fd);
        buf_free(&bytes);
    }
    return 0;
}

/* Greet the store. Return 0 if the store answers, and 1 if it closes the connection. */
static int greet(struct in_addr host, int port)
{
    struct buf bytes = { 0 };
    char answer[4];
    hex_read(PEER_GREETING, &bytes);
    int fd = connect_to(host, port);
    (void)!send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
    buf_free(&bytes);
    struct pollfd ready = { fd, POLLIN, 0 };
    if (poll(&ready, 1, PATIENCE_MS) != 1)
        return 101;
    return recv(fd, answer, sizeof(answer), 0) > 0 ? 0 : 1;
}

/* Run `client` as uid 65534; return its exit code. */
static int as_nobody(int (*client)(struct in_addr host, int port), struct in_addr host, int port)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(setuid(NOBODY) == 0 ? client(host, port) : 102);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) < 100, "the client fails: status %#x", status);
    return WEXITSTATUS(status);
}

#define LOOPBACK ((struct in_addr){ htonl(INADDR_LOOPBACK) })

static void expect_no_keys(int port)
{
    int fd = peer_connect_c(port);
    cr_assert(peer_send_hex(fd, "07"));
    peer_expect(fd, "0000000000000000");
    close(fd);
}

Test(store_users, another_user_leaves_no_key)
{
    need_root();
    struct daemon d = daemon_start("127.0.0.1:0", "--quiet");
    cr_expect_eq(as_nobody(greet, LOOPBACK, d.port), 1);
    as_nobody(set_and_close, LOOPBACK, d.port);
    expect_no_keys(d.port);
    daemon_stop(&d);
}

/* The kernel also identifies local peers of a store that listens on every address. */
Test(store_users, another_user_leaves_no_key_by_another_address)
{
    need_root();
    struct ifaddrs *all = NULL;
    struct ddp_err err;
    char option[64], *path = option + strlen("--secret_file=");
    snprintf(option, sizeof(option), "--secret_file=/tmp/test_store_users.%d", (int)getpid());
    unlink(path);
    cr_assert_eq(secret_write(path, &err), DDP_OK, "%s", err.msg);
    struct daemon d = daemon_start(":0", option);
    cr_assert_eq(getifaddrs(&all), 0);
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET)
            continue;
        const struct in_addr host = ((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr;
        cr_expect_eq(as_nobody(greet, host, d.port), 1, "%s", at->ifa_name);
        as_nobody(set_and_close, host, d.port);
    }
    freeifaddrs(all);
    unlink(path);
    expect_no_keys(d.port);
    daemon_stop(&d);
}

/* The local address of a connection that the test makes twice with the same addresses. */
static struct sockaddr_in near_end;

static int connect_from_near_end(struct in_addr host, int port)
{
    const int yes = 1;
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr = host,
                                    .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (const struct sockaddr *)&near_end, sizeof(near_end)) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Send a request and reset the connection. The store can read the request, but can no longer find the peer. */
static int set_and_reset(struct in_addr host, int port)
{
    struct buf bytes = { 0 };
    hex_read(PEER_GREETING "01", &bytes);
    append_blob(&bytes, slice_str("/key"));
    append_blob(&bytes, slice_str("v"));
    int fd = connect_from_near_end(host, port);
    if (fd < 0 || send(fd, bytes.data, bytes.len, MSG_NOSIGNAL) != (ssize_t)bytes.len)
        return 103;
    buf_free(&bytes);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
    close(fd);
    return 0;
}

/* While the store is stopped, a connection of another user is reset. Then a connection of the store's own user gets
 * the same addresses. */
Test(store_users, a_reset_connection_is_not_taken_for_a_newer_one)
{
    need_root();
    struct daemon d = daemon_start("127.0.0.1:0", "--quiet");
    near_end = (struct sockaddr_in){ .sin_family = AF_INET,
                                     .sin_addr = LOOPBACK,
                                     .sin_port = htons((uint16_t)free_port()) };
    run_signal(d.process, SIGSTOP);
    cr_assert_eq(as_nobody(set_and_reset, LOOPBACK, d.port), 0);
    int fd = connect_from_near_end(LOOPBACK, d.port);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    run_signal(d.process, SIGCONT);
    cr_assert(peer_send_hex(fd, PEER_GREETING));
    peer_expect(fd, PEER_GREETING_ANSWER);
    expect_no_keys(d.port);
    close(fd);
    daemon_stop(&d);
}

Test(store_users, a_refused_user_is_logged_once_and_listed)
{
    need_root();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    char at[64];
    for (int i = 0; i < 3; i++)
        cr_expect_eq(as_nobody(greet, LOOPBACK, d.port), 1);
    snprintf(at, sizeof(at), "127.0.0.1:%d", d.port);
    struct run_result listed =
        run_command((const char *const[]){ bin("ddpctl"), "--addr", at, "rejects", NULL }, NULL);
    cr_expect_eq(listed.exit_code, 0, "%s", listed.err);
    PRINTS(listed, "user");
    PRINTS(listed, "of uid 65534: ");
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    const char *line = strstr(r.err, "of uid 65534");
    cr_assert_not_null(line, "%s", r.err);
    cr_expect_null(strstr(line + 1, "of uid 65534"), "%s", r.err);
}

Test(store_users, insecure_serves_every_user_and_warns)
{
    need_root();
    struct daemon d = daemon_start("127.0.0.1:0", "--insecure");
    cr_expect_eq(as_nobody(greet, LOOPBACK, d.port), 0);
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    SAYS(r, "--insecure: every user");
}

/* Connect as a worker of `job`, a new job. Return the connection, or -1 if the store rejects the new job. */
static int declare_job(struct in_addr host, int port, const char *job)
{
    struct buf bytes = { 0 };
    char json[128];
    uint8_t answer[256];
    snprintf(json, sizeof(json), "{\"role\":\"worker\",\"job\":\"%s\",\"rank\":0,\"world_size\":1}", job);
    hex_read(PEER_GREETING "80", &bytes);
    append_blob(&bytes, slice_str(json));
    const int fd = connect_to(host, port);
    (void)!send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
    buf_free(&bytes);
    const struct timeval limit = { PATIENCE_MS / 1000, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    enum { PING_ANSWER = 4 };
    if (recv(fd, answer, PING_ANSWER + 1, MSG_WAITALL) == PING_ANSWER + 1 && answer[PING_ANSWER] == 0 &&
        recv(fd, answer, 8, MSG_WAITALL) == 8)
        return fd;
    close(fd);
    return -1;
}

/* Set a key, then send a PING. Return true if the store answers the PING. */
static bool set_value(int fd, const char *key, size_t size)
{
    struct buf bytes = { 0 };
    uint8_t *value = calloc(1, size), answer[4];
    append_u8(&bytes, 1);
    append_blob(&bytes, slice_str(key));
    append_blob(&bytes, slice_of(value, size));
    hex_read("0d c6100000", &bytes);
    const bool is_sent = peer_send(fd, buf_slice(&bytes));
    buf_free(&bytes);
    free(value);
    return is_sent && recv(fd, answer, sizeof(answer), MSG_WAITALL) == (ssize_t)sizeof(answer);
}

static int fill_twelve_jobs(struct in_addr host, int port)
{
    for (int i = 0; i < 12; i++)
        for (size_t size = 1 << 20; size >= 1 << 12; size >>= 4) {
            char job[16], key[32];
            snprintf(job, sizeof(job), "evil%d", i);
            const int fd = declare_job(host, port, job);
            bool is_stored = fd >= 0;
            for (int n = 0; is_stored; n++) {
                snprintf(key, sizeof(key), "/%zu_%d", size, n);
                is_stored = set_value(fd, key, size);
            }
            if (fd >= 0)
                close(fd);
        }
    return 0;
}

Test(store_users, many_jobs_of_one_user_leave_room_for_others)
{
    need_root();
    struct daemon d = daemon_start_insecure("64M");
    const int victim = declare_job(LOOPBACK, d.port, "victim");
    cr_assert(set_value(victim, "/a", 1 << 20));
    cr_assert_eq(as_nobody(fill_twelve_jobs, LOOPBACK, d.port), 0);
    cr_expect(set_value(victim, "/b", 1 << 20), "the job of another user can store nothing more");
    const int newcomer = declare_job(LOOPBACK, d.port, "newcomer");
    cr_expect(newcomer >= 0 && set_value(newcomer, "/c", 1 << 20), "a new job of another user has no room");
    close(newcomer);
    close(victim);
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
}

/* The test copies the daemon, because other users may not be able to enter the build folder. */
Test(store_users, a_store_serves_its_user_and_root)
{
    need_root();
    char *dir = job_dir();
    char copy[512];
    snprintf(copy, sizeof(copy), "%s/ddp-rendezvous", dir);
    cr_assert_eq(chmod(dir, 0755), 0);
    struct run_result copied =
        run_command((const char *const[]){ "cp", bin("ddp-rendezvous"), copy, NULL }, NULL);
    cr_assert_eq(copied.exit_code, 0, "%s", copied.err);
    struct run_process *p = run_start((const char *const[]){ "setpriv", "--reuid=65534", "--clear-groups",
                                                             copy, "--listen", "127.0.0.1:0", NULL },
                                      NULL);
    cr_assert(run_until_output(p, "\n", PATIENCE_MS));
    const int port = atoi(strrchr(run_output(p), ':') + 1);
    cr_expect_eq(as_nobody(greet, LOOPBACK, port), 0);
    int root = peer_connect_c(port);
    cr_expect_eq(peer_add(root, "/n", 2), 2);
    close(root);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    job_dir_remove(dir);
}

/* Run a worker that greets the job's store as uid 65534 and prints the number of bytes of the reply. */
static struct run_result greet_from_job(const char *option)
{
    return JOB("--no_prefix", option, "setpriv", "--reuid=65534", "--clear-groups", "bash", "-c",
               "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && "
               "{ printf '\\x00\\xce\\xf7\\x85\\x3c\\x0d\\xc6\\x10\\x00\\x00' >&3; "
               "echo \"answer: $(head -c4 <&3 2>/dev/null | wc -c) bytes\"; }");
}

Test(store_users, a_job_s_store_refuses_another_user)
{
    need_root();
    struct run_result r = greet_from_job("--max_restarts=0");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "answer: 0 bytes"), 1, "%s%s", r.out, r.err);
    SAYS(r, "of uid 65534");
}

Test(store_users, a_job_serves_every_user_with_insecure)
{
    need_root();
    struct run_result r = greet_from_job("--insecure");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "answer: 4 bytes"), 1, "%s%s", r.out, r.err);
    SAYS(r, "--insecure: every user");
}

/* If a connection does not identify itself, the store asks the agents which process owns the connection. An agent that
 * finds the owner claims the connection for a rank. The store may reject such a claim, and a rejected claim must not
 * harm the job. */

TestSuite(store_claims, .timeout = 120);

/* SET and IDENTIFY arrive in one segment. So the connection has already identified itself when the agent claims the
 * connection, and the claim is rejected. The sleep keeps the worker alive until the agent has the rejection. */
static const char both_at_once[] =
    "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT\n"
    "t=$(mktemp)\n"
    "trap 'rm -f \"$t\"' EXIT\n"
    "json='{\"role\":\"worker\",\"job\":\"'$TORCHELASTIC_RUN_ID'\",\"rank\":0,\"world_size\":1}'\n"
    "len=$(printf '\\\\x%02x' ${#json})\n"
    "{ printf '\\x00\\xce\\xf7\\x85\\x3c\\x0d\\xc6\\x10\\x00\\x00'\n"
    "  printf '\\x01\\x02\\0\\0\\0\\0\\0\\0\\0/k\\x01\\0\\0\\0\\0\\0\\0\\0v'\n"
    "  printf \"\\\\x80$len\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0%s\" \"$json\"; } > \"$t\"\n"
    "cat \"$t\" >&3\n"
    "head -c 13 <&3 | tail -c 9 | od -An -tx1 | sed 's/^ */identified:/'\n"
    "sleep 1\n"
    "echo the end\n";

Test(store_claims, a_worker_that_sets_and_introduces_itself_at_once_goes_on)
{
    struct run_result r = JOB("--no_prefix", "bash", "-c", both_at_once);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "the end"), 1, "%s%s", r.out, r.err);
    PRINTS(r, "identified:00");
}

/* Tests of the store client in a program with threads, with ddp-rendezvous as the store. `make tsan` runs both programs
 * under ThreadSanitizer. */

TestSuite(store_threads, .timeout = 120);

Test(store_threads, share_a_handle_and_lose_nothing)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    char port[16];
    snprintf(port, sizeof(port), "%d", d.port);
    const char *argv[] = { bin("tests/prog/store_threads"), "localhost", port, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "sum 1000\n");
    daemon_stop(&d);
}
