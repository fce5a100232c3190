/* bench_launch.c -- how long does it take to start N workers that do nothing, and to be done?
 *
 *     bench_launch DDPRUN [ROUNDS]
 *
 * Three contenders take turns in every round, so that a busy moment of the machine hits all of them:
 * ddprun, mpiexec.hydra (MPICH), and the floor: this program itself spawning N times /bin/true and waiting
 * for them. Each run has a time limit; one that does not end is counted, never waited for. Prints a
 * markdown table, and JSON lines on descriptor 3 when it is open. */
#include "results.h"
#include "timed.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

enum { LIMIT_MS = 15000, MAX_ROUNDS = 101 };
enum contender { DDPRUN, HYDRA, BARE, CONTENDERS };

static const char *const names[CONTENDERS] = { "ddprun", "mpiexec.hydra", "bare spawn and wait" };
static const int sizes[] = { 1, 4, 64, 256 };

struct series {
    double ms[MAX_ROUNDS];
    size_t n;
    int hung, failed;
};

static char *worker[] = { "/bin/true", NULL };

static struct timed run_ddprun(const char *ddprun, int workers)
{
    char option[64];
    snprintf(option, sizeof(option), "--nproc_per_node=%d", workers);
    char *argv[] = { (char *)ddprun, "--standalone", option, worker[0], NULL };
    return timed_run(argv, -1, LIMIT_MS);
}

static struct timed run_hydra(int workers)
{
    char count[16];
    snprintf(count, sizeof(count), "%d", workers);
    char *argv[] = { "mpiexec.hydra", "-n", count, worker[0], NULL };
    return timed_run(argv, -1, LIMIT_MS);
}

static struct timed run_bare(int workers)
{
    struct timed t = { .ok = true };
    double start = timed_now();
    int started = 0;
    for (; started < workers; started++) {
        pid_t pid;
        if (posix_spawn(&pid, worker[0], NULL, NULL, worker, environ) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        int status;
        wait(&status);
        t.ok = t.ok && status == 0;
    }
    t.ok = t.ok && started == workers;
    t.ms = timed_now() - start;
    return t;
}

static struct timed run(enum contender who, const char *ddprun, int workers)
{
    switch (who) {
    case DDPRUN:
        return run_ddprun(ddprun, workers);
    case HYDRA:
        return run_hydra(workers);
    default:
        return run_bare(workers);
    }
}

static void note(struct series *s, struct timed t)
{
    if (t.ok)
        s->ms[s->n++] = t.ms;
    s->hung += t.hung;
    s->failed += !t.ok && !t.hung;
}

static void measure(struct series series[], const char *ddprun, int workers, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        for (int who = 0; who < CONTENDERS; who++) {
            if (who != HYDRA || timed_have("mpiexec.hydra"))
                note(&series[who], run((enum contender)who, ddprun, workers));
        }
    }
}

static void cell(const struct series *s, double median)
{
    if (s->n + (size_t)(s->hung + s->failed) == 0)
        printf(" skipped, because it is not installed |");
    else if (s->hung + s->failed > 0)
        printf(" %.1f ms, %d hung, %d failed |", median, s->hung, s->failed);
    else
        printf(" %.1f ms |", median);
}

static void print_row(FILE *json, struct series series[], int workers)
{
    double median[CONTENDERS];
    for (int who = 0; who < CONTENDERS; who++)
        median[who] = timed_median(series[who].ms, series[who].n);
    printf("| %d worker%s |", workers, workers == 1 ? "" : "s");
    cell(&series[DDPRUN], median[DDPRUN]);
    cell(&series[HYDRA], median[HYDRA]);
    cell(&series[BARE], median[BARE]);
    if (!isnan(median[HYDRA]))
        printf(" %.2f × Hydra,", median[DDPRUN] / median[HYDRA]);
    printf(" %.2f × bare |\n", median[DDPRUN] / median[BARE]);
    fflush(stdout);
    for (int who = 0; json != NULL && who < CONTENDERS; who++) {
        const struct series *s = &series[who];
        fprintf(json,
                "{\"bench\":\"launch\",\"workers\":%d,\"who\":\"%s\",\"median_ms\":%.3f,\"runs\":%zu,"
                "\"hung\":%d,\"failed\":%d}\n",
                workers, names[who], isnan(median[who]) ? 0.0 : median[who], s->n, s->hung, s->failed);
    }
}

int main(int argc, char *argv[])
{
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_launch DDPRUN [ROUNDS, 1 to %d]\n", MAX_ROUNDS);
        return 2;
    }
    FILE *json = results_open();
    printf("| launch and end of /bin/true | ddprun | mpiexec.hydra | bare spawn and wait | ddprun is |\n"
           "|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct series series[CONTENDERS] = { { .n = 0 } };
        measure(series, argv[1], sizes[i], rounds);
        print_row(json, series, sizes[i]);
    }
    if (json != NULL)
        fclose(json);
    return 0;
}
