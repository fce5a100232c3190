/* bench_launch.c -- the time from the start to the end of N workers that do nothing.
 *
 *     bench_launch DDPRUN [ROUNDS]
 *
 * The contenders are ddprun with and without --standalone, mpiexec.hydra (MPICH), and this program itself. This program
 * spawns /bin/true N times, which shows the lowest possible time. All contenders run once in every round, so that a
 * busy moment of the machine affects all of them. The machine idles for 0.3 s before each run, because kernel work that
 * waits for an idle period shows only then. Each launcher is started from C (posix_spawn) and from Python
 * (subprocess.run), since users start jobs from both. A run that exceeds its time limit is killed and counted. Prints a
 * Markdown table, and JSON lines on descriptor 3 if it is open. */
#include "timed.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LIMIT_MS = 15000, MAX_ROUNDS = 101, IDLE_US = 300000 };
enum contender { STANDALONE, DDPRUN, HYDRA, BARE, CONTENDERS };
enum parent { FROM_C, FROM_PYTHON, PARENTS };

static const char *const names[CONTENDERS] = { "ddprun --standalone", "ddprun", "mpiexec.hydra", "bare" };
static const char *const parents[PARENTS] = { "C", "Python" };
static const int sizes[] = { 1, 4, 16, 64, 256 };

struct series {
    double ms[MAX_ROUNDS];
    size_t n;
    int hung, failed;
};

static char *worker[] = { "/bin/true", NULL };

/* A Python program that runs a command and prints how many milliseconds the command took. The start of Python does not
 * count. */
static const char python_parent[] =
    "import subprocess, sys, time\n"
    "time.sleep(0.3)\n"
    "start = time.perf_counter()\n"
    "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
    "print((time.perf_counter() - start) * 1e3)\n"
    "sys.exit(code)\n";

static struct timed run_from_c(char *const argv[])
{
    usleep(IDLE_US);
    return timed_run(argv, -1, LIMIT_MS);
}

static struct timed run_from_python(char *const argv[])
{
    char *command[16] = { "python3", "-c", (char *)python_parent };
    for (int i = 0; argv[i] != NULL && i < 12; i++)
        command[3 + i] = argv[i];
    const int out = memfd_create("milliseconds", MFD_CLOEXEC);
    struct timed t = timed_run(command, out, LIMIT_MS);
    char text[64] = "";
    t.ok = t.ok && pread(out, text, sizeof(text) - 1, 0) > 0;
    t.ms = strtod(text, NULL);
    close(out);
    return t;
}

static struct timed run_bare(int workers)
{
    usleep(IDLE_US);
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

static struct timed run(enum contender who, enum parent parent, const char *ddprun, int workers)
{
    char option[64], count[16];
    snprintf(option, sizeof(option), "--nproc_per_node=%d", workers);
    snprintf(count, sizeof(count), "%d", workers);
    char *const commands[][6] = {
        [STANDALONE] = { (char *)ddprun, "--standalone", option, worker[0], NULL },
        [DDPRUN] = { (char *)ddprun, option, worker[0], NULL },
        [HYDRA] = { "mpiexec.hydra", "-n", count, worker[0], NULL },
    };
    if (who == BARE)
        return run_bare(workers);
    return parent == FROM_C ? run_from_c(commands[who]) : run_from_python(commands[who]);
}

static bool is_measured(enum contender who, enum parent parent)
{
    return who == BARE ? parent == FROM_C : who != HYDRA || timed_have("mpiexec.hydra");
}

static void note(struct series *s, struct timed t)
{
    if (t.ok)
        s->ms[s->n++] = t.ms;
    s->hung += t.hung;
    s->failed += !t.ok && !t.hung;
}

static void measure(struct series series[], enum parent parent, const char *ddprun, int workers, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        for (int who = 0; who < CONTENDERS; who++) {
            if (is_measured((enum contender)who, parent))
                note(&series[who], run((enum contender)who, parent, ddprun, workers));
        }
    }
}

static void cell(const struct series *s, double median)
{
    if (s->n + (size_t)(s->hung + s->failed) == 0)
        printf(" – |");
    else if (s->hung + s->failed > 0)
        printf(" %.1f ms, %d hung, %d failed |", median, s->hung, s->failed);
    else
        printf(" %.1f ms |", median);
}

static void print_row(FILE *json, struct series series[], enum parent parent, int workers)
{
    double median[CONTENDERS];
    for (int who = 0; who < CONTENDERS; who++)
        median[who] = timed_median(series[who].ms, series[who].n);
    printf("| %d worker%s from %s |", workers, workers == 1 ? "" : "s", parents[parent]);
    for (int who = 0; who < CONTENDERS; who++)
        cell(&series[who], median[who]);
    if (isnan(median[HYDRA]))
        printf(" mpiexec.hydra is not installed |\n");
    else
        printf(" %.2f and %.2f × Hydra |\n", median[STANDALONE] / median[HYDRA],
               median[DDPRUN] / median[HYDRA]);
    fflush(stdout);
    for (int who = 0; json != NULL && who < CONTENDERS; who++) {
        const struct series *s = &series[who];
        fprintf(json,
                "{\"bench\":\"launch\",\"workers\":%d,\"from\":\"%s\",\"who\":\"%s\",\"median_ms\":%.3f,"
                "\"runs\":%zu,"
                "\"hung\":%d,\"failed\":%d}\n",
                workers, parents[parent], names[who], isnan(median[who]) ? 0.0 : median[who], s->n, s->hung,
                s->failed);
    }
}

int main(int argc, char *argv[])
{
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_launch DDPRUN [ROUNDS, 1 to %d]\n", MAX_ROUNDS);
        return 2;
    }
    setenv("OMP_NUM_THREADS", "1", 1);
    FILE *json = results_open();
    printf("| launch and end of /bin/true, uid %d (median of %d) | ddprun --standalone | ddprun | "
           "mpiexec.hydra | bare "
           "spawn and wait | ddprun takes |\n"
           "|---|---|---|---|---|---|\n",
           (int)geteuid(), rounds);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int parent = 0; parent < PARENTS; parent++) {
            if (parent == FROM_PYTHON && !timed_have("python3"))
                continue;
            struct series series[CONTENDERS] = { { .n = 0 } };
            measure(series, (enum parent)parent, argv[1], sizes[i], rounds);
            print_row(json, series, (enum parent)parent, sizes[i]);
        }
    }
    if (json != NULL)
        fclose(json);
    return 0;
}
