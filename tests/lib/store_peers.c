/* store_peers.c -- see store_peers.h. Clients and servers run on threads of the test, so that one process has both
 * ends of each connection. */
#include "store_peers.h"

#include "auth/secret.h"
#include "base/clock.h"
#include "base/log.h"
#include "sim_hub.h" /* hex_read, hex_write */
#include "store/encode.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct store_server *server;

void serve_with(const struct store_server_options *options)
{
    struct ddp_err err = { 0 };
    log_setup("test", LOG_ERROR); /* no warnings, because the tests misbehave on purpose */
    cr_assert_eq(store_server_start(options, &server, &err), DDP_OK, "%s", err.msg);
}

void serve(void)
{
    serve_with(&(struct store_server_options){ .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT });
}

ddp_status peer_seal(const struct secret *secret, char *credential, struct ddp_err *err)
{
    struct secret_call *call = secret_seal_begin(secret);
    while (!secret_call_is_over(call))
        usleep(1000);
    return secret_seal_end(call, credential, err);
}

void serve_end(void)
{
    store_server_stop(server);
    server = NULL;
}

int served_port(void)
{
    return store_server_port(server);
}

/* --- peer ------------------------------------------------------------------------------------------------- */

int peer_connect(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int yes = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    int rc = connect(fd, (struct sockaddr *)&to, sizeof(to));
    cr_assert_eq(rc, 0, "connect to port %d: %s", port, strerror(errno));
    return fd;
}

int peer_connect_c(int port)
{
    int fd = peer_connect(port);
    peer_send_hex(fd, PEER_GREETING);
    peer_expect(fd, PEER_GREETING_ANSWER);
    return fd;
}

/* --- send ---------------------------------------------------------------------------------------------- */

bool peer_send(int fd, struct slice bytes)
{
    const char *at = bytes.data;
    size_t left = bytes.len;
    while (left > 0) {
        ssize_t n = send(fd, at, left, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

bool peer_send_cut(int fd, const char *hex, size_t step)
{
    struct buf bytes = { 0 };
    bool ok = true;
    hex_read(hex, &bytes);
    for (size_t at = 0; ok && at < bytes.len; at += step) {
        size_t left = bytes.len - at;
        ok = peer_send(fd, slice_of(bytes.data + at, left < step ? left : step));
    }
    buf_free(&bytes);
    return ok;
}

bool peer_send_hex(int fd, const char *hex)
{
    return peer_send_cut(fd, hex, SIZE_MAX / 2);
}

/* --- expect -------------------------------------------------------------------------------------------- */

/* Return the number of bytes that were read, or 0 after a FIN. Return -1 after an error, with the reason in errno. If
 * no byte arrives until `until_ms`, errno is ETIMEDOUT. */
static ssize_t read_some(int fd, void *to, size_t size, uint64_t until_ms)
{
    struct pollfd p = { fd, POLLIN, 0 };
    uint64_t now_ms = clock_ms();
    if (poll(&p, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0) > 0)
        return recv(fd, to, size, 0);
    errno = ETIMEDOUT;
    return -1;
}

/* Read `len` more bytes. Return the error, or NULL. */
static const char *read_all(int fd, struct buf *got, size_t len)
{
    uint64_t until_ms = clock_ms() + PEER_DEADLINE_MS;
    uint8_t *to = buf_reserve(got, len + 1);
    while (got->len < len) {
        ssize_t n = read_some(fd, to + got->len, len - got->len, until_ms);
        if (n == 0)
            return "end of file";
        if (n < 0)
            return strerror(errno);
        got->len += (size_t)n;
    }
    return NULL;
}

void peer_expect_at(int fd, const char *hex, const char *file, int line)
{
    struct buf wanted = { 0 }, got = { 0 }, text = { 0 };
    hex_read(hex, &wanted);
    const char *trouble = read_all(fd, &got, wanted.len);
    hex_write(buf_slice(&got), &text);
    if (trouble != NULL || !slice_equal(buf_slice(&wanted), buf_slice(&got)))
        cr_assert_fail("%s:%d: expected %.200s, got %.*s (%s)", file, line, hex, (int)text.len,
                       text.len > 0 ? (char *)text.data : "", trouble != NULL ? trouble : "other bytes");
    buf_free(&wanted);
    buf_free(&got);
    buf_free(&text);
}

void peer_expect_silence_at(int fd, char dialect, const char *file, int line)
{
    char byte;
    cr_assert_lt(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), 0, "%s:%d: there is something to read", file,
                 line);
    peer_send_hex(fd, dialect == 'C' ? "0d 12345678" : "03 0300000000000000 2f7878 0000000000000000");
    peer_expect_at(fd, dialect == 'C' ? "12345678" : "0000000000000000", file, line);
}

void peer_expect_end_at(int fd, const char *file, int line)
{
    static char sink[256 * 1024];
    uint64_t until_ms = clock_ms() + PEER_DEADLINE_MS;
    ssize_t n;
    while ((n = read_some(fd, sink, sizeof(sink), until_ms)) > 0)
        continue;
    cr_assert_eq(n, 0, "%s:%d: expected the end, got: %s", file, line, strerror(errno));
    close(fd);
}

/* --- requests ------------------------------------------------------------------------------------------ */

static bool send_and_free(int fd, struct buf *request)
{
    bool ok = peer_send(fd, buf_slice(request));
    buf_free(request);
    return ok;
}

bool peer_set(int fd, const char *key, struct slice value)
{
    struct buf b = { 0 };
    append_u8(&b, 0x01);
    append_blob(&b, slice_str(key));
    append_blob(&b, value);
    return send_and_free(fd, &b);
}

int64_t peer_add(int fd, const char *key, int64_t delta)
{
    struct buf b = { 0 }, answer = { 0 };
    append_u8(&b, 0x04);
    append_blob(&b, slice_str(key));
    append_i64(&b, delta);
    send_and_free(fd, &b);
    const char *trouble = read_all(fd, &answer, 8);
    cr_assert_null(trouble, "ADD %s: %s", key, trouble);
    int64_t sum = (int64_t)get_u64(answer.data);
    buf_free(&answer);
    return sum;
}

void peer_wait(int fd, const char *key)
{
    struct buf b = { 0 };
    append_u8(&b, 0x06);
    append_u64(&b, 1);
    append_blob(&b, slice_str(key));
    send_and_free(fd, &b);
}

void peer_expect_service_at(int port, const char *file, int line)
{
    int fd = peer_connect(port);
    peer_send_hex(fd, PEER_GREETING);
    peer_expect_at(fd, PEER_GREETING_ANSWER, file, line);
    close(fd);
}

/* --- fake store ------------------------------------------------------------------------------------------- */

/* One connection is served at a time; others wait in the queue. */

struct fake_store {
    const char *const *scripts;
    int listener, port;
    pthread_t thread;
    atomic_int connections;
    char complaint[256]; /* the first difference from the script; "" if there is no difference */
};

struct player {
    struct fake_store *fake;
    int fd;
    bool sends, slowly;
    uint8_t wild[4]; /* the latest bytes that matched ??; the newest is at the end */
};

static int listen_on_loopback(bool listening, int *port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&addr, len) != 0 || (listening && listen(fd, 16) != 0) ||
        getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        abort();
    *port = ntohs(addr.sin_port);
    return fd;
}

int fake_port_reserve(int *port)
{
    return listen_on_loopback(false, port);
}

static void complain(struct player *p, const char *what, unsigned got, unsigned expected)
{
    if (p->fake->complaint[0] == '\0')
        snprintf(p->fake->complaint, sizeof(p->fake->complaint), "connection %d: %s (%02x, expected %02x)",
                 p->fake->connections, what, got, expected);
}

static bool send_bytes(struct player *p, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    const size_t piece = p->slowly ? 1 : len;
    for (size_t at = 0; at < len; at += piece)
        if (send(p->fd, from + at, piece, MSG_NOSIGNAL) < 0)
            return false;
    return true;
}

/* Compare one byte from the client with `word`: two hex digits or "??". */
static bool expect_byte(struct player *p, const char *word)
{
    uint8_t got;
    char hex[3] = { word[0], word[1], '\0' };
    unsigned expected = (unsigned)strtoul(hex, NULL, 16);
    if (recv(p->fd, &got, 1, 0) != 1) {
        complain(p, "the client stopped in the middle", 0, expected);
        return false;
    }
    if (*word == '?') {
        memmove(p->wild, p->wild + 1, sizeof(p->wild) - 1);
        p->wild[sizeof(p->wild) - 1] = got;
    } else if (got != expected) {
        complain(p, "the client said something else", got, expected);
        return false;
    }
    return true;
}

static bool play_hex(struct player *p, const char *word, size_t len)
{
    for (size_t i = 0; i + 1 < len; i += 2) {
        char hex[3] = { word[i], word[i + 1], '\0' };
        uint8_t byte = (uint8_t)strtoul(hex, NULL, 16);
        if (p->sends ? !send_bytes(p, &byte, 1) : !expect_byte(p, word + i))
            return false;
    }
    return true;
}

/* Read any blob: a length, and that many bytes. */
static bool expect_blob(struct player *p)
{
    uint64_t len;
    uint8_t byte;
    if (recv(p->fd, &len, sizeof(len), MSG_WAITALL) != sizeof(len))
        return false;
    while (len > 0 && recv(p->fd, &byte, 1, 0) == 1)
        len--;
    return len == 0;
}

/* Execute one word of the script. Return false if the connection is over. */
static bool play_word(struct player *p, const char *word, size_t len)
{
    if (*word == '<' || *word == '>')
        p->sends = *word == '>';
    else if (len == 6 && memcmp(word, "slowly", len) == 0)
        p->slowly = true;
    else if (len == 6 && memcmp(word, "hangup", len) == 0)
        return false;
    else if (len == 4 && memcmp(word, "blob", len) == 0)
        return expect_blob(p);
    else if (*word == '@')
        return send_bytes(p, p->wild, sizeof(p->wild));
    else if (*word == '\'')
        return send_bytes(p, word + 1, len - 1);
    else
        return play_hex(p, word, len);
    return true;
}

static void play(struct player *p, const char *script)
{
    bool going = true;
    while (going && *(script += strspn(script, " \n")) != '\0') {
        size_t len = strcspn(script, " \n");
        going = play_word(p, script, len);
        script += len;
    }
    uint8_t rest;
    if (going && recv(p->fd, &rest, 1, 0) == 1)
        complain(p, "the client went on after the end", rest, 0);
    close(p->fd);
}

static void *serve_peer(void *arg)
{
    struct fake_store *fake = arg;
    const char *const *script = fake->scripts;
    for (int fd; (fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        const struct timeval patience = { .tv_sec = 20 };
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        fake->connections++;
        play(&(struct player){ .fake = fake, .fd = fd }, *script);
        if (script[1] != NULL)
            script++;
    }
    return NULL;
}

struct fake_store *fake_store_start(const char *const *scripts)
{
    struct fake_store *fake = calloc(1, sizeof(*fake));
    if (fake == NULL)
        abort();
    fake->scripts = scripts;
    fake->listener = listen_on_loopback(true, &fake->port);
    if (pthread_create(&fake->thread, NULL, serve_peer, fake) != 0)
        abort();
    return fake;
}

int fake_store_port(const struct fake_store *fake)
{
    return fake->port;
}

int fake_store_connections(const struct fake_store *fake)
{
    return fake->connections;
}

const char *fake_store_stop(struct fake_store *fake)
{
    static char complaint[256];
    shutdown(fake->listener, SHUT_RDWR); /* ends the call of accept */
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    memcpy(complaint, fake->complaint, sizeof(complaint));
    free(fake);
    return complaint[0] != '\0' ? complaint : NULL;
}

/* --- rude ------------------------------------------------------------------------------------------------- */

struct rude {
    enum rude_kind kind;
    int fd;
};

static int listen_on(int backlog, int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    cr_assert(backlog < 0 || listen(fd, backlog) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static const char *words_of(enum rude_kind kind)
{
    switch (kind) {
    case RUDE_HTTP:
        return "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    case RUDE_TLS:
        return "\x15\x03\x01\x02\x02\x28x";
    case RUDE_SSH:
        return "SSH-2.0-OpenSSH_9.2\r\n";
    case RUDE_OTHER:
        return "220 mail.example ESMTP\r\n";
    default:
        return "";
    }
}

/* Answer the greeting of a client. PyTorch's store sends the nonce back. The nonce is at offset 6 of the greeting,
 * after VALIDATE (1 byte), the magic (4 bytes) and PING (1 byte). */
static void answer(enum rude_kind kind, int fd)
{
    char in[256];
    const ssize_t n = kind == RUDE_SSH ? 0 : read(fd, in, sizeof(in));
    if (kind == RUDE_TORCH && n >= 10)
        send(fd, in + 6, 4, MSG_NOSIGNAL);
    else
        send(fd, words_of(kind), strlen(words_of(kind)), MSG_NOSIGNAL);
}

static void *serve_rudely(void *arg)
{
    struct rude *r = arg;
    for (;;) {
        const int fd = accept(r->fd, NULL, NULL);
        if (fd < 0 && errno != EINTR)
            break;
        if (r->kind == RUDE_SILENT)
            continue; /* the connection stays open, and is not read */
        if (r->kind != RUDE_CLOSER)
            answer(r->kind, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    free(r);
    return NULL;
}

int rude_start(enum rude_kind kind)
{
    pthread_t thread;
    int port;
    struct rude *r = malloc(sizeof(*r));
    cr_assert_not_null(r);
    *r = (struct rude){ .kind = kind, .fd = listen_on(16, &port) };
    cr_assert_eq(pthread_create(&thread, NULL, serve_rudely, r), 0);
    pthread_detach(thread);
    return port;
}

int rude_closed_port(void)
{
    int port;
    listen_on(-1, &port); /* the port stays bound, so that no other process gets it */
    return port;
}

/* Open a listener, and fill its queue with connections. The kernel accepts one connection more than the queue's length,
 * and then drops further connections. */
int rude_full_port(void)
{
    int port;
    listen_on(0, &port);
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 4; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        cr_assert(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
    }
    return port;
}

void rude_own_network(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        cr_skip_test("skipped, because a network namespace needs root");
    rude_ip("link set lo up");
}

void rude_own_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        cr_skip_test("skipped, because a mount namespace needs root");
}

void rude_ip(const char *arguments)
{
    char command[256];
    snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin ip %s >/dev/null 2>&1", arguments);
    if (system(command) != 0)
        cr_skip_test("skipped, because 'ip' (package iproute2) or the kernel cannot do it here");
}

void rude_replace(const char *path, const char *text)
{
    char name[] = "/tmp/rude_XXXXXX";
    const int fd = mkstemp(name);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, 0644);
    close(fd);
    const int rc = mount(name, path, NULL, MS_BIND, NULL);
    unlink(name);
    if (rc != 0)
        cr_skip_test("skipped, because a file cannot be mounted over another here");
}
