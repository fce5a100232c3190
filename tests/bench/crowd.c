/* crowd.c -- see crowd.h.
 *
 * The members' sockets block: when the first byte of an answer has arrived, the member reads the whole answer. The
 * other bytes usually follow at once. If a server delayed these bytes, the measured times would show this delay. */
#include "crowd.h"

#include "loopback.h"
#include "timed.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, SETTLE_US = 20000, VALUE_REPLY = 8 + REQUEST_VALUE_BYTES };

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "crowd: %s (%s)\n", what, strerror(errno));
    exit(1);
}

const char crowd_value_key[] = "/bench/value";

static const struct {
    const char *what;
    int requests;
    size_t reply_bytes;
} shapes[LOADS] = {
    [LOAD_ADD] = { "ADD, each answered before the next", 1, 8 },
    [LOAD_GET] = { "GET of 128 bytes, each answered before the next", 1, VALUE_REPLY },
    [LOAD_SET_MANY] = { "SET of 128 bytes, 63 in a row and an ADD", LOAD_BURST, 8 },
    [LOAD_GET_MANY] = { "GET of 128 bytes, 64 in a row", LOAD_BURST, LOAD_BURST *VALUE_REPLY },
    [LOAD_MIX_MANY] = { "SET, WAIT, GET, ADD, 64 in a row", LOAD_BURST,
                        LOAD_BURST / 4 * (1 + VALUE_REPLY + 8) },
};

/* Append the requests of a rank that sets a value, waits for the other values, and counts itself. */
static void put_mix(struct buf *out, enum dialect dialect, int c)
{
    char key[48];
    for (int i = 0; i < LOAD_BURST / 4; i++) {
        snprintf(key, sizeof(key), "/bench/%d/%d", c, i);
        request_set(out, dialect, key);
        request_wait(out, dialect, key);
        request_get(out, dialect, key);
        snprintf(key, sizeof(key), "/bench/%d/counter", c);
        request_add(out, dialect, key);
    }
}

static void fill_member(struct load *load, enum load_kind kind, enum dialect dialect, int c)
{
    char key[48];
    struct buf *out = &load->bytes[c];
    for (int i = 0; kind == LOAD_SET_MANY && i < LOAD_BURST - 1; i++) {
        snprintf(key, sizeof(key), "/bench/%d/%d", c, i);
        request_set(out, dialect, key);
    }
    for (int i = 0; (kind == LOAD_GET || kind == LOAD_GET_MANY) && i < load->requests; i++)
        request_get(out, dialect, crowd_value_key);
    if (kind == LOAD_MIX_MANY)
        put_mix(out, dialect, c);
    snprintf(key, sizeof(key), "/bench/%d/counter", c);
    if (kind == LOAD_ADD || kind == LOAD_SET_MANY)
        request_add(out, dialect, key);
}

void load_fill(struct load *load, enum load_kind kind, enum dialect dialect)
{
    load->what = shapes[kind].what;
    load->requests = shapes[kind].requests;
    load->reply_bytes = shapes[kind].reply_bytes;
    for (int c = 0; c < CROWD_MAX; c++)
        fill_member(load, kind, dialect, c);
}

void load_free(struct load *load)
{
    for (int c = 0; c < CROWD_MAX; c++)
        buf_free(&load->bytes[c]);
}

static void join(struct crowd *c, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.u32 = (uint32_t)c->n };
    need(fd >= 0, "cannot connect (open files? see ulimit -n)");
    need(epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    c->fd[c->n++] = fd;
}

static void open_crowd(struct crowd *c)
{
    c->n = 0;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    need(c->epoll >= 0, "epoll_create1");
}

static int connect_one(int port, enum dialect dialect)
{
    return dialect == DIALECT_C ? bench_connect_store(port) : bench_connect(port);
}

void crowd_connect(struct crowd *c, int port, int n, enum dialect dialect)
{
    open_crowd(c);
    while (c->n < n)
        join(c, connect_one(port, dialect), EPOLLIN);
}

void crowd_connect_echo(struct crowd *c, int port, int n, const struct load *load)
{
    open_crowd(c);
    while (c->n < n) {
        const uint32_t sizes[] = { (uint32_t)load->bytes[c->n].len, (uint32_t)load->reply_bytes };
        join(c, bench_connect(port), EPOLLIN);
        need(bench_write(c->fd[c->n - 1], sizes, sizeof(sizes)), "the echo has gone");
    }
    usleep(SETTLE_US); /* so that the echo server reads the sizes before a request arrives */
}

void crowd_close(struct crowd *c)
{
    while (c->n > 0)
        close(c->fd[--c->n]);
    close(c->epoll);
}

void crowd_prepare(int port, enum dialect dialect)
{
    struct buf set = { 0 };
    char sum[8];
    int fd = connect_one(port, dialect);
    request_set(&set, dialect, crowd_value_key);
    request_add(&set, dialect, "/bench/prepared");
    need(fd >= 0 && bench_write(fd, set.data, set.len) && bench_read(fd, sum, sizeof(sum)),
         "the server does not answer");
    close(fd);
    buf_free(&set);
}

static void say(struct crowd *c, uint32_t member, const struct load *load)
{
    need(bench_write(c->fd[member], load->bytes[member].data, load->bytes[member].len),
         "the server has gone");
}

double crowd_run(struct crowd *c, const struct load *load, double ms)
{
    char reply[LOAD_BURST * VALUE_REPLY];
    const double start = timed_now();
    long answers = 0;
    for (int i = 0; i < c->n; i++)
        say(c, (uint32_t)i, load);
    for (int waiting = c->n; waiting > 0;) {
        struct epoll_event events[CROWD_MAX];
        int n = epoll_wait(c->epoll, events, CROWD_MAX, PATIENCE_MS);
        need(n > 0, "the server has stopped answering");
        const bool again = timed_now() - start < ms;
        for (int i = 0; i < n; i++, answers++) {
            need(bench_read(c->fd[events[i].data.u32], reply, load->reply_bytes), "the server has gone");
            if (again)
                say(c, events[i].data.u32, load);
            else
                waiting--;
        }
    }
    return (double)answers * load->requests * 1000 / (timed_now() - start);
}

/* Wait until each member has received its next `bytes` bytes. Return the time at which the last member has these bytes.
 * After a timeout, end the program. */
static double until_all_have(struct crowd *c, size_t bytes)
{
    char reply[64];
    for (int left = c->n; left > 0;) {
        struct epoll_event events[CROWD_MAX];
        int n = epoll_wait(c->epoll, events, CROWD_MAX, PATIENCE_MS);
        need(n > 0, "the server has stopped answering");
        for (int i = 0; i < n; i++, left--)
            need(bench_read(c->fd[events[i].data.u32], reply, bytes), "the server has gone");
    }
    return timed_now();
}

double crowd_wake(struct crowd *c, int port, enum dialect dialect, int turn)
{
    struct buf wait = { 0 }, set = { 0 };
    char key[48];
    int fd = connect_one(port, dialect);
    snprintf(key, sizeof(key), "/bench/wake/%d/%d", c->n, turn);
    request_wait(&wait, dialect, key);
    request_set(&set, dialect, key);
    for (int i = 0; i < c->n; i++)
        need(bench_write(c->fd[i], wait.data, wait.len), "the server has gone");
    usleep(SETTLE_US);
    const double start = timed_now();
    need(fd >= 0 && bench_write(fd, set.data, set.len), "the server has gone");
    const double ms = until_all_have(c, 1) - start;
    close(fd);
    buf_free(&wait);
    buf_free(&set);
    return ms;
}

/* Begin to connect. A socket is connected when it is writable. */
static int begin_connect(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)port) };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Make the socket of a connected member blocking, and send the requests in `words`. From now on, the epoll waits for
 * the answers. */
static void greet(struct crowd *c, uint32_t member, const struct buf *words)
{
    struct epoll_event in = { .events = EPOLLIN, .data.u32 = member };
    need(fcntl(c->fd[member], F_SETFL, 0) == 0 && bench_write(c->fd[member], words->data, words->len),
         "cannot connect");
    epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->fd[member], &in);
}

double crowd_rush(struct crowd *c, int port, int n, enum dialect dialect)
{
    static const uint8_t greeting[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d, 1, 2, 3, 4 };
    struct buf words = { 0 };
    char reply[12];
    const double start = timed_now();
    if (dialect == DIALECT_C)
        need(buf_append(&words, greeting, sizeof(greeting)), "out of memory");
    request_add(&words, dialect, "init/");
    open_crowd(c);
    while (c->n < n)
        join(c, begin_connect(port), EPOLLOUT);
    for (int left = n; left > 0;) {
        struct epoll_event events[CROWD_MAX];
        int ready = epoll_wait(c->epoll, events, CROWD_MAX, PATIENCE_MS);
        need(ready > 0, "the server has stopped answering");
        for (int i = 0; i < ready; i++) {
            const uint32_t member = events[i].data.u32;
            if ((events[i].events & EPOLLOUT) != 0) {
                greet(c, member, &words);
                continue;
            }
            need(bench_read(c->fd[member], reply, dialect == DIALECT_C ? 12 : 8), "the server has gone");
            left--;
        }
    }
    buf_free(&words);
    return timed_now() - start;
}
