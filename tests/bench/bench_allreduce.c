/* bench_allreduce.c -- the time of libddp's all-reduce: `bench_allreduce RANKS arena|private [HOSTS]`.
 *
 * Starts RANKS workers and a store, and prints "arena RANKS BYTES MICROSECONDS" for each size. With `arena` the data is
 * in memory of ddp_shared_alloc, like the gradients. With `private` the data is in other memory. With HOSTS the workers
 * act as if they ran on HOSTS hosts, and connect over loopback. scripts/bench_allreduce.sh runs this program and the
 * MPI program (mpi/allreduce.c) in turn and makes the table. */
#include "ddp/ddp.h"
#include "mpi/sizes.h"
#include "server/server.h"
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void must(ddp_status status)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "bench_allreduce: %s: %s\n", ddp_status_name(status), ddp_last_error());
    _exit(1);
}

static double measure(ddp_group *group, float *x, size_t bytes)
{
    size_t n = bytes / sizeof(float);
    int calls = batch_of(bytes);

    must(ddp_all_reduce(group, x, x, n, DDP_F32, DDP_SUM, NULL, NULL));
    must(ddp_barrier(group, 0));
    double start = timed_now();
    for (int i = 0; i < calls; i++)
        must(ddp_all_reduce(group, x, x, n, DDP_F32, DDP_SUM, NULL, NULL));
    return (timed_now() - start) / calls * 1e3;
}

static void work(const char *memory)
{
    ddp_ctx *ctx;
    void *x = NULL, *private_memory = malloc(SIZE_MOST);

    must(ddp_init_from_env(NULL, &ctx));
    if (strcmp(memory, "arena") == 0)
        must(ddp_shared_alloc(ddp_world(ctx), SIZE_MOST, &x));
    else
        x = private_memory;
    for (size_t i = 0; x != NULL && i < SIZE_MOST / sizeof(float); i++)
        ((float *)x)[i] = 1;
    for (size_t bytes = SIZE_LEAST; bytes <= SIZE_MOST; bytes *= SIZE_FACTOR) {
        double us = measure(ddp_world(ctx), x, bytes);
        if (ddp_rank(ctx) == 0)
            printf("%s %d %zu %.3f\n", memory, ddp_world_size(ctx), bytes, us);
    }
    must(ddp_finalize(ctx));
    free(private_memory);
}

static pid_t start_worker(int rank, int ranks, int port, const char *memory, int hosts)
{
    char host[] = { (char)('a' + rank * hosts / ranks), '\0' };

    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    set_number("RANK", rank);
    set_number("WORLD_SIZE", ranks);
    set_number("MASTER_PORT", port);
    if (hosts > 1)
        setenv("DDP_TEST_HOST", host, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    work(memory);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    const struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    struct store_server *server;
    struct ddp_err err;
    int ranks = argc == 3 || argc == 4 ? atoi(argv[1]) : 0, hosts = argc == 4 ? atoi(argv[3]) : 1;
    int bad = 0, status;

    if (ranks < 1 || hosts < 1 || hosts > 16 ||
        (strcmp(argv[2], "arena") != 0 && strcmp(argv[2], "private") != 0)) {
        fprintf(stderr, "usage: bench_allreduce RANKS arena|private [HOSTS]\n");
        return 2;
    }
    if (store_server_start(&options, &server, &err) != DDP_OK) {
        fprintf(stderr, "bench_allreduce: %s\n", err.msg);
        return 1;
    }
    for (int r = 0; r < ranks; r++)
        bad |= start_worker(r, ranks, store_server_port(server), argv[2], hosts) < 0;
    while (wait(&status) > 0)
        bad |= status != 0;
    store_server_stop(server);
    return bad;
}
