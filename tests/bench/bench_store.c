/* bench_store.c -- what does the store cost?
 *
 *     bench_store [--json] [DDP_RENDEZVOUS]
 *
 *   - Round trips: ADD and GET against the least that a server can be (loopback.h), which moves the same
 *     number of bytes. Both are processes of their own and take turns in every round; the ratio is the median
 *     of the rounds' ratios, so that a busy moment of the machine hits both.
 *   - Sets per second from 1, 8 and 64 connections of one load generator: SETs in bursts behind each other, as
 *     the protocol allows, and ADDs of which each is answered before the next one.
 *   - Memory that an idle, greeted connection costs the server.
 *
 * Prints markdown tables, and JSON lines on descriptor 3 when it is open; with --json the lines only, on
 * stdout. */
#include "loopback.h"
#include "results.h"
#include "timed.h"

#include "base/buf.h"
#include "core/encode.h"
#include "core/ops.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROUNDS = 21, TRIPS = 2000, WARM_UP = 500, VALUE_BYTES = 128 };
enum { SPAN_MS = 500, SPANS = 3, BURST = 64, MAX_LOAD = 64 };

static FILE *json; /* NULL: nowhere */
static bool tables = true;

static void give_up(const char *what)
{
    fprintf(stderr, "bench_store: %s\n", what);
    exit(1);
}

static void need(bool ok, const char *what)
{
    if (!ok)
        give_up(what);
}

/* --- requests of dialect C ------------------------------------------------------------------------------ */

static void put_request(struct buf *out, enum op_id op, const char *key)
{
    need(put_u8(out, (uint8_t)op_table[op].code[DIALECT_C]) && put_blob(out, slice_str(key)),
         "out of memory");
}

static struct buf add_request(const char *key)
{
    struct buf out = { 0 };
    put_request(&out, OP_ADD, key);
    need(put_i64(&out, 1), "out of memory");
    return out;
}

static struct buf get_request(const char *key)
{
    struct buf out = { 0 };
    put_request(&out, OP_GET, key);
    return out;
}

static void put_set(struct buf *out, const char *key)
{
    static const char value[VALUE_BYTES];
    put_request(out, OP_SET, key);
    need(put_blob(out, slice_of(value, sizeof(value))), "out of memory");
}

/* --- round trips ---------------------------------------------------------------------------------------- */

/* Microseconds of one trip, the mean of `trips` in a row. */
static double trip_us(int fd, const struct buf *request, size_t reply_bytes, int trips)
{
    char reply[4096];
    double start = timed_now();
    for (int i = 0; i < trips; i++)
        need(bench_write(fd, request->data, request->len) && bench_read(fd, reply, reply_bytes),
             "a server has gone");
    return (timed_now() - start) * 1000 / trips;
}

static int connect_echo(int port, size_t request_bytes, size_t reply_bytes)
{
    const uint32_t sizes[] = { (uint32_t)request_bytes, (uint32_t)reply_bytes };
    int fd = bench_connect(port);
    need(fd >= 0 && bench_write(fd, sizes, sizeof(sizes)), "cannot connect to the echo");
    usleep(10000); /* so that the sizes arrive as a segment of their own */
    return fd;
}

static void measure_trips(const char *what, int store_port, int echo_port, struct buf request,
                          size_t reply_bytes)
{
    double store_us[ROUNDS], echo_us[ROUNDS], ratio[ROUNDS];
    int store = bench_connect_store(store_port), echo = connect_echo(echo_port, request.len, reply_bytes);
    need(store >= 0, "cannot connect to the store");
    trip_us(store, &request, reply_bytes, WARM_UP);
    trip_us(echo, &request, reply_bytes, WARM_UP);
    for (int i = 0; i < ROUNDS; i++) {
        echo_us[i] = trip_us(echo, &request, reply_bytes, TRIPS);
        store_us[i] = trip_us(store, &request, reply_bytes, TRIPS);
        ratio[i] = store_us[i] / echo_us[i];
    }
    double s = timed_median(store_us, ROUNDS), e = timed_median(echo_us, ROUNDS),
           r = timed_median(ratio, ROUNDS);
    if (tables)
        printf("| %s, %zu + %zu bytes | %.1f µs | %.1f µs | %.2f |\n", what, request.len, reply_bytes, s, e,
               r);
    if (json != NULL)
        fprintf(
            json,
            "{\"bench\":\"store_trip\",\"op\":\"%s\",\"store_us\":%.2f,\"echo_us\":%.2f,\"ratio\":%.3f}\n",
            what, s, e, r);
    close(store);
    close(echo);
    buf_free(&request);
}

/* This program, and the servers that it starts from now on, run on one processor. Where the scheduler puts a server,
 * beside its client or on a processor that has to be woken, makes a third of a round trip, and it would be luck which of
 * the two servers gets what. So both get the same, one after the other. */
static void stay_on(int number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)number, &set);
    sched_setaffinity(0, sizeof(set), &set); /* on a single processor there is no other, and all is fair */
}

/* Servers on the last processor that we may use, the client on the first. Afterwards everybody may run anywhere. */
static void round_trips(const char *path)
{
    struct bench_server store, echo;
    struct buf set = { 0 };
    cpu_set_t all;
    int first = 0, last = CPU_SETSIZE - 1;
    need(sched_getaffinity(0, sizeof(all), &all) == 0, "cannot ask for the processors");
    while (!CPU_ISSET((size_t)first, &all))
        first++;
    while (!CPU_ISSET((size_t)last, &all))
        last--;
    stay_on(last);
    need(bench_start_store(path, &store), "cannot start ddp-rendezvous");
    need(bench_start_echo(&echo), "cannot start the echo");
    stay_on(first);
    put_set(&set, "/bench/value");
    int fd = bench_connect_store(store.port);
    need(fd >= 0 && bench_write(fd, set.data, set.len), "cannot connect to the store");
    if (tables)
        printf("| round trip, %d in each of %d rounds | ddp-rendezvous | bare epoll echo | ratio "
               "|\n|---|---|---|---|\n",
               TRIPS, ROUNDS);
    measure_trips("ADD", store.port, echo.port, add_request("/bench/counter"), 8);
    measure_trips("GET", store.port, echo.port, get_request("/bench/value"), 8 + VALUE_BYTES);
    close(fd);
    buf_free(&set);
    bench_stop(&echo);
    bench_stop(&store);
    sched_setaffinity(0, sizeof(all), &all);
}

/* --- sets per second ------------------------------------------------------------------------------------ */

/* What each connection sends again whenever its reply of 8 bytes has come: `requests` requests. */
struct load {
    const char *what;
    int requests;
    struct buf bytes[MAX_LOAD];
};

/* Requests per second in SPAN_MS. */
static double run_load(int epoll, const int *fds, const struct load *load)
{
    double start = timed_now(), ms = 0;
    long bursts = 0;
    while ((ms = timed_now() - start) < SPAN_MS) {
        struct epoll_event events[MAX_LOAD];
        int n = epoll_wait(epoll, events, MAX_LOAD, 1000);
        need(n > 0, "the store has stopped answering");
        for (int i = 0; i < n; i++) {
            const uint32_t c = events[i].data.u32;
            char reply[8];
            need(bench_read(fds[c], reply, sizeof(reply)) &&
                     bench_write(fds[c], load->bytes[c].data, load->bytes[c].len),
                 "the store has gone");
            bursts++;
        }
    }
    return (double)bursts * load->requests * 1000 / ms;
}

static double measure_load(int port, int connections, const struct load *load)
{
    int fds[MAX_LOAD], epoll = epoll_create1(EPOLL_CLOEXEC);
    double per_s[SPANS];
    for (uint32_t i = 0; i < (uint32_t)connections; i++) {
        fds[i] = bench_connect_store(port);
        struct epoll_event in = { .events = EPOLLIN, .data.u32 = i };
        need(fds[i] >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &in) == 0, "cannot connect");
        need(bench_write(fds[i], load->bytes[i].data, load->bytes[i].len), "the store has gone");
    }
    for (int i = 0; i < SPANS; i++)
        per_s[i] = run_load(epoll, fds, load);
    for (int i = 0; i < connections; i++)
        close(fds[i]);
    close(epoll);
    return timed_median(per_s, SPANS);
}

/* `sets` SETs to keys of the connection's own, and an ADD that is answered when they are done. */
static void fill_load(struct load *load, int sets)
{
    load->requests = sets + 1;
    for (int c = 0; c < MAX_LOAD; c++) {
        char key[32];
        struct buf add;
        for (int i = 0; i < sets; i++) {
            snprintf(key, sizeof(key), "/bench/%d/%d", c, i);
            put_set(&load->bytes[c], key);
        }
        snprintf(key, sizeof(key), "/bench/%d/done", c);
        add = add_request(key);
        need(buf_append(&load->bytes[c], add.data, add.len), "out of memory");
        buf_free(&add);
    }
}

static void loads(const struct bench_server *store)
{
    static struct load load[] = { { .what = "SET of 128 bytes, 63 behind each other and an ADD" },
                                  { .what = "ADD, each answered before the next" } };
    static const int sizes[] = { 1, 8, MAX_LOAD };
    fill_load(&load[0], BURST - 1);
    fill_load(&load[1], 0);
    if (tables)
        printf("\n| requests per second | 1 connection | 8 | 64 |\n|---|---|---|---|\n");
    for (size_t l = 0; l < 2; l++) {
        if (tables)
            printf("| %s |", load[l].what);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            double per_s = measure_load(store->port, sizes[i], &load[l]);
            if (tables)
                printf(" %.0f |", per_s);
            if (json != NULL)
                fprintf(json, "{\"bench\":\"store_load\",\"op\":\"%s\",\"connections\":%d,\"per_s\":%.0f}\n",
                        l == 0 ? "SET" : "ADD", sizes[i], per_s);
        }
        if (tables)
            printf("\n");
        for (int c = 0; c < MAX_LOAD; c++)
            buf_free(&load[l].bytes[c]);
    }
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* A server of its own: what the loads above have left in its heap would serve the first connections for
 * nothing. */
static void memory(const char *path)
{
    static const int steps[] = { 1000, 5000 };
    static int fds[5000];
    struct bench_server store;
    int n = 0;
    need(bench_start_store(path, &store), "cannot start ddp-rendezvous");
    need((fds[n++] = bench_connect_store(store.port)) >= 0, "cannot connect");
    long base = bench_resident_kib(&store);
    if (tables)
        printf("\n| idle connections | memory of the server | for each |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        for (; n < steps[i]; n++)
            need((fds[n] = bench_connect_store(store.port)) >= 0,
                 "cannot connect (open files? see ulimit -n)");
        long now = bench_resident_kib(&store);
        double each = (double)(now - base) * 1024 / (steps[i] - 1);
        if (tables)
            printf("| %d | %.1f MiB | %.0f bytes |\n", steps[i], (double)now / 1024, each);
        if (json != NULL)
            fprintf(json,
                    "{\"bench\":\"store_idle\",\"connections\":%d,\"rss_kib\":%ld,\"bytes_each\":%.0f}\n",
                    steps[i], now, each);
    }
    while (n > 0)
        close(fds[--n]);
    bench_stop(&store);
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char *argv[])
{
    struct bench_server store;
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            tables = false;
        else
            path = argv[i];
    }
    json = !tables ? stdout : results_open();
    setvbuf(stdout, NULL, _IOLBF, 0);
    raise_descriptor_limit();
    round_trips(path);
    need(bench_start_store(path, &store), "cannot start ddp-rendezvous");
    loads(&store);
    bench_stop(&store);
    memory(path);
    if (json != NULL)
        fclose(json);
    return 0;
}
