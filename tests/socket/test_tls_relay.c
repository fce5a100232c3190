/* Tests of the relay between plain workers and an encrypted store. The relay's loop runs in a thread; the suite
 * tls_relay_ends uses a fake store. */
#include "auth/tls.h"
#include "base/log.h"
#include "net/tls_relay.h"
#include "run.h"
#include "sim_hub.h" /* hex_read */
#include "store_peers.h"
#include "tests/unit/hub/vectors.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct secret secret = { .key = { 7 } };
static struct secret other = { .key = { 8 } };

/* Milliseconds by which the clock of this process is ahead of the real clock. libuv calls the function clock_gettime()
 * below in place of the function of the C library. So a test of a limit of 30 s takes only a second. */
static _Atomic long ahead_ms;
static _Atomic bool stands_still; /* true: the clock repeats its last value */

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
    static _Atomic long last_s[16], last_ns[16];
    const int rc = (int)syscall(SYS_clock_gettime, clock, t);
    t->tv_sec += ahead_ms / 1000;
    if (clock < 0 || clock >= 16)
        return rc;
    if (stands_still)
        *t = (struct timespec){ last_s[clock], last_ns[clock] };
    last_s[clock] = t->tv_sec;
    last_ns[clock] = t->tv_nsec;
    return rc;
}

/* A question to tls_relay_find, which only the thread of the loop may call. */
static struct {
    uv_async_t async;
    char peer[ENDPOINT_TEXT_MAX], worker[ENDPOINT_TEXT_MAX], here[ENDPOINT_TEXT_MAX];
    enum tls_relay_found found;
    sem_t answered;
} question;

static struct {
    uv_loop_t loop;
    uv_async_t stop;
    struct tls_context *tls;
    struct tls_relay *relay;
    pthread_t thread;
    bool is_stopped;
} at;

static void on_stop(uv_async_t *stop)
{
    tls_relay_close(at.relay);
    uv_close((uv_handle_t *)stop, NULL);
    uv_close((uv_handle_t *)&question.async, NULL);
}

static void on_question(uv_async_t *async)
{
    (void)async;
    question.found = tls_relay_find(at.relay, question.peer, question.worker, question.here);
    sem_post(&question.answered);
}

static enum tls_relay_found find(const char *peer)
{
    snprintf(question.peer, sizeof(question.peer), "%s", peer);
    uv_async_send(&question.async);
    while (sem_wait(&question.answered) != 0)
        continue;
    return question.found;
}

static void *run(void *unused)
{
    (void)unused;
    uv_run(&at.loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Start the relay to the store on `port`. `files` is the limit of descriptors at the start, or 0 to keep the limit. */
static void start_relay(const struct secret *k, int port, rlim_t files)
{
    struct rlimit before = { 0 };
    struct ddp_err err;
    cr_assert_eq(tls_context_open(TLS_CLIENT, k, "job", &at.tls, &err), DDP_OK, "%s", err.msg);
    uv_loop_init(&at.loop);
    uv_async_init(&at.loop, &at.stop, on_stop);
    uv_async_init(&at.loop, &question.async, on_question);
    sem_init(&question.answered, 0, 0);
    const struct tls_relay_options o = {
        .loop = &at.loop, .tls = at.tls, .address = "127.0.0.1", .port = port, .own = "127.0.0.1"
    };
    getrlimit(RLIMIT_NOFILE, &before);
    if (files > 0)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){ files, before.rlim_max });
    cr_assert_eq(tls_relay_open(&o, &at.relay, &err), DDP_OK, "%s", err.msg);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert_eq(pthread_create(&at.thread, NULL, run, NULL), 0);
}

static void begin_with(const struct secret *k, rlim_t files)
{
    struct store_server_options options = { .host = "127.0.0.1",
                                            .encrypt = true,
                                            .limits = HUB_LIMITS_DEFAULT };
    options.limits.secret = &secret;
    options.limits.guarded = true;
    serve_with(&options);
    log_setup("test", LOG_WARN); /* before the relay's thread starts */
    start_relay(k, served_port(), files);
}

static void begin(void)
{
    begin_with(&secret, 0);
}

/* Close the relay, and wait for its loop. May be called twice. */
static void stop_relay(void)
{
    if (at.is_stopped)
        return;
    at.is_stopped = true;
    uv_async_send(&at.stop);
    pthread_join(at.thread, NULL);
    cr_expect_eq(uv_loop_close(&at.loop), 0);
    tls_context_close(at.tls);
}

static void end(void)
{
    stop_relay();
    serve_end();
}

TestSuite(tls_relay, .init = begin, .fini = end, .timeout = 120);

static int connect_worker(void)
{
    return peer_connect(tls_relay_port(at.relay));
}

static void play(size_t step)
{
    int fd = connect_worker();
    for (int i = 0; i < VECTORS_C; i++) {
        peer_send_cut(fd, vectors_c[i].client, step);
        peer_expect(fd, vectors_c[i].server);
    }
    close(fd);
}

Test(tls_relay, carries_the_bytes_of_torch_2)
{
    play(SIZE_MAX / 2);
}

Test(tls_relay, carries_the_bytes_of_torch_2_byte_by_byte)
{
    play(1);
}

Test(tls_relay, serves_many_workers_at_once)
{
    enum { MANY = 100 };
    int fd[MANY];
    for (int i = 0; i < MANY; i++)
        fd[i] = connect_worker();
    for (int i = 0; i < MANY; i++)
        peer_send_hex(fd[i], "00 cef7853c 0d 01000000");
    for (int i = 0; i < MANY; i++)
        peer_expect(fd[i], "01000000");
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
}

/* A SET has no answer, so the worker may close the connection at once. The SET must still reach the store. */
Test(tls_relay, passes_the_last_bytes_of_a_worker_on)
{
    enum { BYTES = 5 << 20 };
    char *value = malloc(BYTES);
    memset(value, 'v', BYTES);
    int reader = connect_worker();
    peer_send_hex(reader, "00 cef7853c");
    peer_wait(reader, "/late");
    int writer = connect_worker();
    peer_send_hex(writer, "00 cef7853c");
    cr_assert(peer_set(writer, "/late", slice_of(value, BYTES)));
    close(writer);
    peer_expect(reader, "00");
    close(reader);
    free(value);
}

/* If the store rejects and closes a connection, the worker gets the store's last bytes, and then a FIN. */
Test(tls_relay, passes_the_end_of_the_store_on)
{
    int fd = connect_worker();
    peer_send_hex(fd, "00 cef7853c 0d 01000000 fe");
    peer_expect(fd, "01000000");
    peer_expect_end(fd);
}

/* If a worker stops reading, only its own connection is blocked. The relay and the store buffer a limited number of
 * bytes. */
Test(tls_relay, a_slow_reader_delays_only_itself)
{
    enum { BYTES = 8 << 20, TIMES = 4 };
    char *value = malloc(BYTES), *got = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        value[i] = (char)(i / 7);
    int slow = connect_worker(), quick = connect_worker();
    peer_send_hex(slow, "00 cef7853c");
    peer_send_hex(quick, "00 cef7853c");
    cr_assert(peer_set(quick, "/big", slice_of(value, BYTES)));
    peer_send_hex(quick, "0d 05000000");
    peer_expect(quick, "05000000");
    for (int i = 0; i < TIMES; i++)
        peer_send_hex(slow, "03 0400000000000000 2f626967");
    uint8_t head[8];
    cr_assert_eq(recv(slow, head, sizeof(head), MSG_WAITALL), (ssize_t)sizeof(head));
    for (int i = 0; i < 100; i++) {
        peer_send_hex(quick, "0d 01000000");
        peer_expect(quick, "01000000");
    }
    for (int i = 0; i < TIMES; i++) {
        if (i > 0)
            cr_assert_eq(recv(slow, head, sizeof(head), MSG_WAITALL), (ssize_t)sizeof(head));
        cr_assert_eq(recv(slow, got, BYTES, MSG_WAITALL), BYTES);
        cr_expect_eq(memcmp(got, value, BYTES), 0, "value %d", i);
    }
    close(slow);
    close(quick);
    free(value);
    free(got);
}

/* The store knows a worker only by the address of the relay's connection, and asks the agent about this address. */
Test(tls_relay, names_the_worker_behind_a_connection)
{
    char worker[ENDPOINT_TEXT_MAX], here[ENDPOINT_TEXT_MAX];
    cr_expect_eq(find("127.0.0.1:1"), TLS_RELAY_NONE);
    cr_expect_eq(find("nonsense"), TLS_RELAY_NONE);
    cr_expect_eq(tls_relay_find(NULL, "127.0.0.1:1", worker, here), TLS_RELAY_NONE);
}

/* --- limits --------------------------------------------------------------------------------------------------- */

static void begin_small(void)
{
    begin_with(&secret, 96); /* the relay uses a quarter of these 96 descriptors: 24 connections */
}

TestSuite(tls_relay_small, .init = begin_small, .fini = end, .timeout = 120);

/* The relay serves a limited number of workers. Another worker waits in the kernel's queue until one of these workers
 * closes its connection. Then the relay serves the waiting worker. */
Test(tls_relay_small, a_worker_beyond_the_limit_waits_until_another_leaves)
{
    enum { MOST = 24 };
    int fd[MOST + 1];
    char byte;
    for (int i = 0; i <= MOST; i++) {
        fd[i] = connect_worker();
        peer_send_hex(fd[i], "00 cef7853c 0d 01000000");
    }
    for (int i = 0; i < MOST; i++)
        peer_expect(fd[i], "01000000");
    cr_expect_eq(recv(fd[MOST], &byte, 1, MSG_DONTWAIT), -1);
    close(fd[0]);
    peer_expect(fd[MOST], "01000000");
    for (int i = 1; i <= MOST; i++)
        close(fd[i]);
}

/* If the relay has no free descriptor, a worker waits in the kernel's queue, and the relay warns on stderr. */
Test(tls_relay, a_worker_waits_while_descriptors_have_run_out)
{
    struct rlimit before = { 0 };
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    char byte, seen[1024] = "";
    int errors[2], before_errors = dup(STDERR_FILENO);
    cr_assert(pipe(errors) == 0 && dup2(errors[1], STDERR_FILENO) == STDERR_FILENO);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(fd);
    to.sin_port = htons((uint16_t)tls_relay_port(at.relay));
    getrlimit(RLIMIT_NOFILE, &before);
    close(next);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){ (rlim_t)next, before.rlim_max });
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    peer_send_hex(fd, "00 cef7853c 0d 01000000");
    cr_expect(patience_read(errors[0], seen, sizeof(seen), "ulimit"), "%s", seen);
    cr_expect_eq(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    cr_expect_eq(errno, EAGAIN, "%s", strerror(errno));
    setrlimit(RLIMIT_NOFILE, &before);
    dup2(before_errors, STDERR_FILENO);
    close(before_errors);
    close(errors[0]);
    close(errors[1]);
    peer_expect(fd, "01000000");
    close(fd);
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

/* A fake store, which can end a connection in any way. */
static struct {
    int listener, fd, worker;
    struct tls_context *context;
    struct tls *tls;
    struct buf plain, cipher;
} fake;

static void begin_fake(void)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(own);
    struct ddp_err err;
    fake.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(fake.listener, (struct sockaddr *)&own, len) == 0 && listen(fake.listener, 8) == 0 &&
              getsockname(fake.listener, (struct sockaddr *)&own, &len) == 0);
    cr_assert_eq(tls_context_open(TLS_SERVER, &secret, "", &fake.context, &err), DDP_OK, "%s", err.msg);
    start_relay(&secret, ntohs(own.sin_port), 0);
}

static void end_fake(void)
{
    stop_relay();
    tls_free(fake.tls);
    tls_context_close(fake.context);
    buf_free(&fake.plain);
    buf_free(&fake.cipher);
    close(fake.listener);
}

TestSuite(tls_relay_ends, .init = begin_fake, .fini = end_fake, .timeout = 120);

/* Receive bytes from the relay. Return false at the end of the connection, or at a reset. */
static bool fake_receive(void)
{
    uint8_t bytes[4096];
    const ssize_t n = recv(fake.fd, bytes, sizeof(bytes), 0);
    if (n <= 0)
        return false;
    cr_assert_neq(tls_receive(fake.tls, slice_of(bytes, (size_t)n), &fake.plain, &fake.cipher), TLS_FAILED,
                  "%s", tls_why(fake.tls));
    cr_assert(peer_send(fake.fd, buf_slice(&fake.cipher)));
    fake.cipher.len = 0;
    return true;
}

/* Connect a worker, let the worker send the text "question", and receive this text at the fake store. */
static void fake_meet(void)
{
    fake.worker = connect_worker();
    fake.fd = accept(fake.listener, NULL, NULL);
    fake.tls = tls_new(fake.context);
    cr_assert(fake.fd >= 0 && fake.tls != NULL && peer_send(fake.worker, slice_str("question")));
    while (fake.plain.len < 8)
        cr_assert(fake_receive());
}

static void fake_answer(bool ends)
{
    cr_assert(tls_send(fake.tls, slice_str("answer"), &fake.cipher));
    if (ends)
        tls_end(fake.tls, &fake.cipher);
    cr_assert(peer_send(fake.fd, buf_slice(&fake.cipher)));
    close(fake.fd);
}

static void expect_answer(ssize_t then, int error)
{
    char bytes[16];
    cr_assert_eq(recv(fake.worker, bytes, 6, MSG_WAITALL), 6);
    cr_expect_arr_eq(bytes, "answer", 6);
    errno = 0;
    cr_expect_eq(recv(fake.worker, bytes, 1, 0), then);
    cr_expect_eq(errno, error, "%s", strerror(errno));
    close(fake.worker);
}

Test(tls_relay_ends, the_end_of_the_store_is_an_end)
{
    fake_meet();
    fake_answer(true);
    expect_answer(0, 0);
}

/* Anyone on the path can forge a FIN of the store. So a FIN without TLS's close_notify becomes a reset at the worker.
 * The reset shows that the answer may be incomplete. */
Test(tls_relay_ends, a_store_that_is_cut_off_is_a_reset)
{
    fake_meet();
    fake_answer(false);
    expect_answer(-1, ECONNRESET);
}

Test(tls_relay_ends, the_end_of_a_worker_is_an_end)
{
    fake_meet();
    close(fake.worker);
    while (fake_receive())
        continue;
    cr_expect_eq(tls_state(fake.tls), TLS_ENDED);
    close(fake.fd);
}

Test(tls_relay_ends, the_reset_of_a_worker_is_a_reset)
{
    const struct linger at_once = { .l_onoff = 1 };
    fake_meet();
    setsockopt(fake.worker, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fake.worker);
    errno = 0;
    while (fake_receive())
        continue;
    cr_expect_eq(errno, ECONNRESET, "%s", strerror(errno));
    cr_expect_eq(tls_state(fake.tls), TLS_OPEN);
    close(fake.fd);
}

/* --- time limits ------------------------------------------------------------------------------------------------ */

enum { TICKS_US = 1200 * 1000 }; /* more than two ticks of the relay */

/* Return the address of `fd` by getpeername or getsockname. */
static const char *name_of(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
    static char text[2][ENDPOINT_TEXT_MAX];
    static int n;
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof(address);
    cr_assert_eq(get(fd, (struct sockaddr *)&address, &len), 0);
    return endpoint_of_sockaddr((struct sockaddr *)&address, text[n++ % 2]);
}

static void expect_open(int fd)
{
    char byte;
    usleep(TICKS_US);
    cr_expect_eq(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    cr_expect_eq(errno, EAGAIN, "%s", strerror(errno));
}

Test(tls_relay_ends, a_silent_store_is_given_up_after_thirty_seconds)
{
    char byte;
    fake.worker = connect_worker();
    fake.fd = accept(fake.listener, NULL, NULL);
    ahead_ms += 20000;
    expect_open(fake.worker);
    ahead_ms += 11000;
    cr_expect_leq(recv(fake.worker, &byte, 1, 0), 0);
    close(fake.worker);
    close(fake.fd);
}

/* The worker closes its connection to the relay, but the store keeps its connection to the relay open. After five
 * seconds without bytes, the relay closes its connection to the store. */
Test(tls_relay_ends, a_store_that_does_not_end_is_cut_after_five_seconds)
{
    fake_meet();
    const char *peer = name_of(fake.fd, getpeername);
    cr_expect_eq(find(peer), TLS_RELAY_WORKER);
    cr_expect_str_eq(question.worker, name_of(fake.worker, getsockname));
    cr_expect_str_eq(question.here, name_of(fake.worker, getpeername));
    close(fake.worker);
    while (tls_state(fake.tls) != TLS_ENDED)
        cr_assert(fake_receive());
    ahead_ms += 1000;
    usleep(TICKS_US);
    peer = name_of(fake.fd, getpeername);
    cr_expect_neq(find(peer), TLS_RELAY_NONE);
    ahead_ms += 5000;
    while (find(peer) != TLS_RELAY_NONE)
        usleep(10000);
    close(fake.fd);
}

/* The worker resets its connection while the store reads no bytes, so the relay still has bytes that this worker has
 * sent. The relay must not name an owner of the connection to the store, because the worker is gone. */
Test(tls_relay_ends, a_worker_that_is_gone_has_no_owner)
{
    const struct linger at_once = { .l_onoff = 1 };
    static char bytes[64 << 10];
    fake_meet();
    const char *peer = name_of(fake.fd, getpeername);
    /* Send until the socket stays full for 20 turns of the relay's loop. Each call of find() takes one turn. */
    for (int turns = 0; turns < 20; turns++) {
        usleep(10000);
        cr_assert_eq(find(peer), TLS_RELAY_WORKER);
        while (send(fake.worker, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            turns = 0;
    }
    setsockopt(fake.worker, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fake.worker);
    while (find(peer) == TLS_RELAY_WORKER)
        usleep(10000);
    cr_expect_eq(question.found, TLS_RELAY_GONE);
    close(fake.fd);
}

/* --- the end of the relay --------------------------------------------------------------------------------------- */

enum { LAST_BYTES = 200 << 10 }; /* fits into the relay's buffer, not into the small socket buffers */

/* Return this process's socket from `own` to `peer`. */
static int socket_between(const char *own, const char *peer)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in end = { 0 };
        socklen_t len = sizeof(end);
        if (getpeername(fd, (struct sockaddr *)&end, &len) == 0 && end.sin_family == AF_INET &&
            strcmp(name_of(fd, getpeername), peer) == 0 && strcmp(name_of(fd, getsockname), own) == 0)
            return fd;
    }
    cr_assert(false, "no connection from %s to %s", own, peer);
    return -1;
}

/* Give small buffers to the connection between the relay and the store. Then end a worker whose last bytes do not fit
 * into these buffers. Return when the relay has read the last bytes and the FIN of the worker. */
static void leave_last_bytes(void)
{
    static char bytes[LAST_BYTES];
    char own[ENDPOINT_TEXT_MAX], peer[ENDPOINT_TEXT_MAX];
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    int unread = 1;
    setsockopt(fake.listener, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
    fake_meet();
    snprintf(own, sizeof(own), "%s", name_of(fake.fd, getpeername));
    snprintf(peer, sizeof(peer), "%s", name_of(fake.fd, getsockname));
    setsockopt(socket_between(own, peer), SOL_SOCKET, SO_SNDBUF, &(int){ 4096 }, sizeof(int));
    snprintf(own, sizeof(own), "%s", name_of(fake.worker, getpeername));
    snprintf(peer, sizeof(peer), "%s", name_of(fake.worker, getsockname));
    const int relays = socket_between(own, peer);
    cr_assert(peer_send(fake.worker, slice_of(bytes, sizeof(bytes))));
    shutdown(fake.worker, SHUT_WR);
    while (info.tcpi_state != TCP_CLOSE_WAIT || unread > 0) {
        usleep(1000);
        cr_assert(getsockopt(relays, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
                  ioctl(relays, FIONREAD, &unread) == 0);
    }
    /* Each call of find() waits for one turn of the relay's loop. In these turns the relay reads the worker's FIN. */
    for (int turns = 0; turns < 3; turns++)
        cr_assert_eq(find(name_of(fake.fd, getpeername)), TLS_RELAY_WORKER);
}

/* The store reads nothing, so only the time limit ends the relay. */
Test(tls_relay_ends, last_bytes_that_nobody_reads_are_dropped_when_the_relay_closes)
{
    leave_last_bytes();
    stop_relay();
    while (fake_receive())
        continue;
    cr_expect_neq(tls_state(fake.tls), TLS_ENDED);
    cr_expect_lt(fake.plain.len, 8 + LAST_BYTES);
    close(fake.fd);
    close(fake.worker);
}

/* The clock of the relay stands still, so the time limit does not end the relay. */
Test(tls_relay_ends, last_bytes_that_the_store_reads_arrive_although_the_relay_closes)
{
    leave_last_bytes();
    stands_still = true;
    uv_async_send(&at.stop);
    while (tls_state(fake.tls) != TLS_ENDED)
        cr_assert(fake_receive());
    cr_expect_eq(fake.plain.len, 8 + LAST_BYTES);
    stands_still = false;
    close(fake.fd);
    close(fake.worker);
}

/* --- another secret --------------------------------------------------------------------------------------------- */

static void begin_other(void)
{
    begin_with(&other, 0);
}

TestSuite(tls_relay_other, .init = begin_other, .fini = end, .timeout = 120);

Test(tls_relay_other, a_failed_handshake_ends_the_workers_connection)
{
    int fd = connect_worker();
    peer_send_hex(fd, "00 cef7853c 0d 01000000");
    uint8_t byte;
    cr_expect_leq(recv(fd, &byte, 1, 0), 0);
    close(fd);
}
