/* loopback.h -- servers on 127.0.0.1 whose speed is measured, and sockets for the measurement. */
#ifndef TESTS_BENCH_LOOPBACK_H
#define TESTS_BENCH_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct bench_server {
    pid_t pid;
    int port;
};

/* Start ddp-rendezvous on a free port. `path` NULL means the program of this build. Return false on failure. */
bool bench_start_store(const char *path, struct bench_server *out);

/* PyTorch's own store, in a separate Python process. */
struct bench_genuine {
    struct bench_server server;
    bool newest_dialect; /* dialect C, otherwise dialect A */
    char version[32];    /* version of torch */
    char backend[16];    /* "libuv" or "legacy" */
};

/* Start PyTorch's store on a free port. `python` must have torch, and the current directory must be the repository's
 * root. */
bool bench_start_genuine(const char *python, struct bench_genuine *out);

/* Start the simplest server possible. A client first sends two u32: the sizes of its requests and of the replies. */
bool bench_start_echo(struct bench_server *out);

/* Run this program, and the servers that it starts later, on fixed processors. A placement by chance changes a round
 * trip by a third. Return false if the processors cannot be read. */
enum bench_place { BENCH_FIRST, BENCH_LAST, BENCH_ANYWHERE };
bool bench_stay(enum bench_place place);

void bench_stop(struct bench_server *server);

/* Return the resident memory in KiB: the present value, or the largest so far. */
long bench_resident_kib(const struct bench_server *server);
long bench_peak_kib(const struct bench_server *server);

/* Return the server's processor time in milliseconds. */
double bench_processor_ms(const struct bench_server *server);

/* Return how many requests the store has served, with this one, or -1 without an answer. `fd` has sent the greeting. */
long bench_requests(int fd);

/* Open a blocking connection with TCP_NODELAY, or return -1. */
int bench_connect(int port);

/* Connect, and greet the store as torch 2.5 or newer does. */
int bench_connect_store(int port);

/* Write all bytes. Return false after a failure. */
bool bench_write(int fd, const void *bytes, size_t len);
bool bench_read(int fd, void *bytes, size_t len);

#endif
