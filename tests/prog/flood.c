/* flood.c -- a worker that writes lines as fast as possible. Only rank 0 writes few lines.
 *
 *     flood MILLISECONDS
 *
 * Rank 0 writes "<SOH><nanoseconds of the monotonic clock>" every 5 ms, so that a reader can compute the delay of the
 * line; no other line has that first byte. All other ranks write lines of 100 bytes, 64 KiB at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 100, BLOCK = 64 * 1024 / LINE * LINE, PAUSE_NS = 5000000 };

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int rank_of_this_worker(void)
{
    const char *rank = getenv("RANK"); /* set by ddprun and torchrun */
    if (rank == NULL)
        rank = getenv("PMI_RANK"); /* Hydra */
    return rank != NULL ? atoi(rank) : 0;
}

static int say_a_little(long long until)
{
    char line[64];
    while (now_ns() < until) {
        int n = snprintf(line, sizeof(line), "\001%lld\n", now_ns());
        if (write(STDOUT_FILENO, line, (size_t)n) != n)
            return 1;
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    return 0;
}

static int flood(long long until)
{
    static char block[BLOCK];
    for (int i = 0; i < BLOCK; i += LINE) {
        memset(block + i, 'a' + i / LINE % 26, LINE - 1);
        block[i + LINE - 1] = '\n';
    }
    while (now_ns() < until)
        for (size_t done = 0; done < BLOCK;) {
            ssize_t n = write(STDOUT_FILENO, block + done, BLOCK - done);
            if (n < 0)
                return 1;
            done += (size_t)n;
        }
    return 0;
}

int main(int argc, char *argv[])
{
    long long until = now_ns() + (argc > 1 ? atoi(argv[1]) : 1000) * 1000000LL;
    return rank_of_this_worker() == 0 ? say_a_little(until) : flood(until);
}
