/* loopback.h -- servers on 127.0.0.1 whose speed is measured, and sockets for the measurement. For the programs in
 * tests/bench only. */
#ifndef TESTS_BENCH_LOOPBACK_H
#define TESTS_BENCH_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct bench_server {
    pid_t pid;
    int port;
};

/* Start ddp-rendezvous on a free port. `path` is the program; NULL means the program of this build. Return false if the
 * program did not start. */
bool bench_start_store(const char *path, struct bench_server *out);

/* PyTorch's own store, in a separate Python process. */
struct bench_genuine {
    struct bench_server server;
    bool newest_dialect; /* the store uses dialect C; false: dialect A */
    char version[32];    /* version of torch */
    char backend[16];    /* "libuv" or "legacy" */
};

/* Start PyTorch's store on a free port. `python` is the path of an interpreter that has torch. The current directory
 * must be the repository's root. */
bool bench_start_genuine(const char *python, struct bench_genuine *out);

/* Start the simplest server possible: one thread, epoll, read, write. A client first sends two u32: the size of a
 * request and the size of a reply. Then the server answers each complete request with a reply of that size. */
bool bench_start_echo(struct bench_server *out);

/* Run this program, and the servers that it starts later, on fixed processors. Otherwise the scheduler places each
 * server by chance: beside its client, or on a processor that must first wake up. This difference is a third of a round
 * trip and would favour one server. Return false if the processors cannot be read. */
enum bench_place { BENCH_FIRST, BENCH_LAST, BENCH_ANYWHERE };
bool bench_stay(enum bench_place place);

void bench_stop(struct bench_server *server);

/* Return the resident memory of the server in KiB. bench_resident_kib returns the present value, and bench_peak_kib
 * returns the largest value so far. */
long bench_resident_kib(const struct bench_server *server);
long bench_peak_kib(const struct bench_server *server);

/* Return the milliseconds of processor time that the server has used. */
double bench_processor_ms(const struct bench_server *server);

/* Return how many requests the store has served, including this request, or -1 if the store did not answer. `fd` is a
 * connection on which the greeting was sent. */
long bench_requests(int fd);

/* Open a blocking connection with TCP_NODELAY. Return -1 after a failure. */
int bench_connect(int port);

/* Open a connection as bench_connect does, and greet the store as a client of torch 2.5 or newer does. */
int bench_connect_store(int port);

/* Write all bytes. Return false after a failure. */
bool bench_write(int fd, const void *bytes, size_t len);
bool bench_read(int fd, void *bytes, size_t len);

#endif
