/* bench_store.c -- measures the speed and the memory of the store.
 *
 *     bench_store [--json] [DDP_RENDEZVOUS]
 *
 *   - Round trips: the time of an ADD and of a GET, compared with a minimal server (loopback.h) that moves the same
 *     number of bytes. The two servers are separate processes, and are measured alternately in every round, so that a
 *     busy machine affects both. The printed ratio is the median of the ratios of all rounds.
 *   - Requests per second over 1, 8 and 64 connections of one process: SETs in bursts, because a SET needs no answer,
 *     and ADDs, each of which is sent after the answer to the previous ADD.
 *   - Memory of the server for an idle connection that has sent the greeting.
 *
 * Prints markdown tables, and JSON lines on descriptor 3 when it is open. With --json, prints only the JSON lines, on
 * stdout. */
#include "crowd.h"
#include "procstat.h"
#include "loopback.h"
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 21, TRIPS = 2000, WARM_UP = 500, SPAN_MS = 500, SPANS = 3 };

static FILE *json; /* output for JSON lines, or NULL */
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

/* Return the microseconds of one trip, as the mean of `trips` successive trips. */
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
    usleep(10000); /* so that the sizes arrive as a separate segment */
    return fd;
}

static void measure_trips(const char *what, int store_port, int echo_port, request_maker *make,
                          const char *key, size_t reply_bytes)
{
    struct buf request = { 0 };
    make(&request, DIALECT_C, key);
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

/* Measure both servers with the same requests, which this program sends alternately to both. The servers run on the
 * last processor, and the client runs on the first processor. */
static void round_trips(const char *path)
{
    struct bench_server store, echo;
    need(bench_stay(BENCH_LAST), "cannot ask for the processors");
    need(bench_start_store(path, &store), "cannot start ddp-rendezvous");
    need(bench_start_echo(&echo), "cannot start the echo");
    bench_stay(BENCH_FIRST);
    crowd_prepare(store.port, DIALECT_C);
    if (tables)
        printf("| round trip, %d in each of %d rounds | ddp-rendezvous | bare epoll echo | ratio "
               "|\n|---|---|---|---|\n",
               TRIPS, ROUNDS);
    measure_trips("ADD", store.port, echo.port, request_add, "/bench/counter", 8);
    measure_trips("GET", store.port, echo.port, request_get, crowd_value_key, 8 + REQUEST_VALUE_BYTES);
    bench_stop(&echo);
    bench_stop(&store);
    bench_stay(BENCH_ANYWHERE);
}

static double measure_load(int port, int connections, const struct load *load)
{
    static struct crowd crowd;
    double per_s[SPANS];
    crowd_connect(&crowd, port, connections, DIALECT_C);
    for (int i = 0; i < SPANS; i++)
        per_s[i] = crowd_run(&crowd, load, SPAN_MS);
    crowd_close(&crowd);
    return timed_median(per_s, SPANS);
}

static void loads(const struct bench_server *store)
{
    static const enum load_kind kinds[] = { LOAD_SET_MANY, LOAD_ADD };
    static const int sizes[] = { 1, 8, 64 };
    static struct load load;
    if (tables)
        printf("\n| requests per second | 1 connection | 8 | 64 |\n|---|---|---|---|\n");
    for (size_t l = 0; l < 2; l++) {
        load_fill(&load, kinds[l], DIALECT_C);
        if (tables)
            printf("| %s |", load.what);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            double per_s = measure_load(store->port, sizes[i], &load);
            if (tables)
                printf(" %.0f |", per_s);
            if (json != NULL)
                fprintf(json, "{\"bench\":\"store_load\",\"op\":\"%s\",\"connections\":%d,\"per_s\":%.0f}\n",
                        l == 0 ? "SET" : "ADD", sizes[i], per_s);
        }
        if (tables)
            printf("\n");
        load_free(&load);
    }
}

/* Measure a new server, because the heap of a used server has room for the first connections and would not grow. */
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
    limits_raise_descriptors(0);
    round_trips(path);
    need(bench_start_store(path, &store), "cannot start ddp-rendezvous");
    loads(&store);
    bench_stop(&store);
    memory(path);
    if (json != NULL)
        fclose(json);
    return 0;
}
