/* bench_torch.c -- compares ddp-rendezvous with PyTorch's store, and ddprun with torchrun. PYTHON must have torch.
 *
 *     bench_torch PYTHON DDPRUN [throughput | crowd | launch]...
 *
 *   - throughput: requests per second of 1, 64 and 1,000 connections. This program makes the connections itself,
 *     without Python. The two servers take turns with the bare echo of loopback.h, which no server can beat. All
 *     servers run on the last processor, and this program runs on the first. Each ratio is the median of the ratios of
 *     all rounds. The processor time of each server is shown too, because this program may be slower than the
 *     server.
 *   - crowd: 1,000 connections at once: the time until all clients that wait for a key are awake, and the memory.
 *   - launch: the run time of a launcher with four Python workers that only print.
 *
 * scripts/bench_torch.sh runs this program, and the measurements with PyTorch's Python client. The output is Markdown
 * tables, and also JSON lines on descriptor 3 if that descriptor is open. */
#include "crowd.h"
#include "procstat.h"
#include "loopback.h"
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 5, SPAN_MS = 200, TURNS = 11, LAUNCHES = 5, LAUNCH_LIMIT_MS = 60000 };
enum { OURS, GENUINE, ECHO, SERVERS };
enum { AIM = 3 }; /* goal: 3 times the throughput of PyTorch's store, with many clients */

static const int sizes[] = { 1, 64, CROWD_MAX };
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

static FILE *json; /* output for JSON lines, or NULL */
static const char *python, *ddprun;

static struct bench_server server[SERVERS];
static struct bench_genuine genuine;
static enum dialect dialect;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_torch: %s\n", what);
    exit(1);
}

static void note(const char *bench, const char *what, int n, double ours, double theirs)
{
    if (json != NULL)
        fprintf(json,
                "{\"bench\":\"torch_%s\",\"what\":\"%s\",\"n\":%d,\"ddprun\":%.3f,\"torch\":%.3f,\"version\":"
                "\"%s\","
                "\"backend\":\"%s\"}\n",
                bench, what, n, ours, theirs, genuine.version, genuine.backend);
}

/* --- servers ------------------------------------------------------------------------------------------------ */

static void start_servers(void)
{
    need(bench_start_store(NULL, &server[OURS]), "cannot start ddp-rendezvous");
    need(bench_start_genuine(python, &genuine), "cannot start PyTorch's store");
    server[GENUINE] = genuine.server;
    dialect = genuine.newest_dialect ? DIALECT_C : DIALECT_A;
}

static void stop_servers(void)
{
    bench_stop(&server[OURS]);
    bench_stop(&server[GENUINE]);
}

/* Start the servers on the last of this program's processors, and move this program to the first. */
static void start_servers_apart(void)
{
    need(bench_stay(BENCH_LAST), "cannot ask for the processors");
    start_servers();
    need(bench_start_echo(&server[ECHO]), "cannot start the echo");
    bench_stay(BENCH_FIRST);
}

/* --- throughput --------------------------------------------------------------------------------------------- */

/* Requests per second, microseconds of processor time per request, and the ratio to PyTorch's store. */
struct rates {
    double per_s[SERVERS][ROUNDS], us[SERVERS][ROUNDS], ratio[SERVERS][ROUNDS];
};

static void measure_rate(int who, struct crowd *crowd, const struct load *load, struct rates *out, int round)
{
    const double before = bench_processor_ms(&server[who]), start = timed_now();
    out->per_s[who][round] = crowd_run(crowd, load, SPAN_MS);
    const double requests = out->per_s[who][round] * (timed_now() - start) / 1000;
    out->us[who][round] = (bench_processor_ms(&server[who]) - before) * 1000 / requests;
}

static void measure_rates(const struct load *load, int n, struct rates *out)
{
    static struct crowd crowd[SERVERS];
    for (int who = 0; who < SERVERS; who++) {
        if (who == ECHO)
            crowd_connect_echo(&crowd[who], server[who].port, n, load);
        else
            crowd_connect(&crowd[who], server[who].port, n, dialect);
        crowd_run(&crowd[who], load, 0); /* the first run creates the keys */
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int who = 0; who < SERVERS; who++)
            measure_rate(who, &crowd[who], load, out, round);
        for (int who = 0; who < SERVERS; who++)
            out->ratio[who][round] = out->per_s[who][round] / out->per_s[GENUINE][round];
    }
    for (int who = 0; who < SERVERS; who++)
        crowd_close(&crowd[who]);
}

/* Return as text whether `ratio` reaches the goal AIM. If `most`, the ratio of the echo server, is below AIM, no server
 * can reach AIM. */
static const char *met(int n, double ratio, double most)
{
    if (n == 1)
        return "";
    if (ratio >= AIM)
        return "yes";
    return most < AIM ? "no server can" : "no";
}

static void rate_row(const struct load *load, int n)
{
    struct rates rates;
    double per_s[SERVERS], us[SERVERS];
    measure_rates(load, n, &rates);
    for (int who = 0; who < SERVERS; who++) {
        per_s[who] = timed_median(rates.per_s[who], ROUNDS);
        us[who] = timed_median(rates.us[who], ROUNDS);
    }
    const double ratio = timed_median(rates.ratio[OURS], ROUNDS),
                 most = timed_median(rates.ratio[ECHO], ROUNDS);
    printf("| %s | %d | %.0f | %.0f | %.0f | %.2f | %.2f | %s | %.2f / %.2f / %.2f |\n", load->what, n,
           per_s[OURS], per_s[GENUINE], per_s[ECHO], ratio, most, met(n, ratio, most), us[OURS], us[GENUINE],
           us[ECHO]);
    note("throughput", load->what, n, per_s[OURS], per_s[GENUINE]);
}

static void throughput(void)
{
    static struct load load;
    start_servers_apart();
    for (int who = 0; who < ECHO; who++)
        crowd_prepare(server[who].port, dialect);
    printf("| requests per second of a client in C (median of %d rounds) | connections | ddp-rendezvous | "
           "TCPStore (%s, torch %s) "
           "| bare epoll echo | ratio | echo's ratio | aim of %d met | µs of the server's processor, each "
           "|\n|---|---:|---:|---:|---:|---:|---:|---|---|\n",
           ROUNDS, genuine.backend, genuine.version, AIM);
    for (int kind = 0; kind < LOADS; kind++) {
        load_fill(&load, (enum load_kind)kind, dialect);
        for (int i = 0; i < SIZES; i++)
            rate_row(&load, sizes[i]);
        load_free(&load);
    }
    bench_stop(&server[ECHO]);
    stop_servers();
}

/* --- a crowd ------------------------------------------------------------------------------------------------ */

/* Measurements of two contenders, TURNS values for each. */
struct pair {
    double of[2][TURNS];
};

static void pair_row(const char *what, const char *unit, int n, struct pair *p, const char *bench)
{
    const double ours = timed_median(p->of[OURS], TURNS), theirs = timed_median(p->of[GENUINE], TURNS);
    printf("| %s | %.1f %s | %.1f %s | %.2f |\n", what, ours, unit, theirs, unit, theirs / ours);
    note(bench, what, n, ours, theirs);
}

static void rush_row(void)
{
    static struct crowd crowd;
    struct pair p;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int who = 0; who < ECHO; who++) {
            p.of[who][turn] = crowd_rush(&crowd, server[who].port, CROWD_MAX, dialect);
            crowd_close(&crowd);
        }
    }
    pair_row("1000 connect at once: until the last has its first answer", "ms", CROWD_MAX, &p, "rush");
}

static void wake_row(int n)
{
    static struct crowd crowd[ECHO];
    struct pair p;
    char what[96];
    for (int who = 0; who < ECHO; who++)
        crowd_connect(&crowd[who], server[who].port, n, dialect);
    for (int turn = 0; turn < TURNS; turn++)
        for (int who = 0; who < ECHO; who++)
            p.of[who][turn] = crowd_wake(&crowd[who], server[who].port, dialect, turn);
    for (int who = 0; who < ECHO; who++)
        crowd_close(&crowd[who]);
    snprintf(what, sizeof(what), "%d wait%s for a key: from its SET until the last is awake", n,
             n == 1 ? "s" : "");
    pair_row(what, "ms", n, &p, "wake");
}

/* Measure the increase of memory, because a server of Python and PyTorch is large before it has served any client. */
static void memory_rows(void)
{
    static struct crowd crowd[ECHO];
    static struct load sets;
    double empty[ECHO], idle[ECHO], full[ECHO];
    load_fill(&sets, LOAD_SET_MANY, dialect);
    for (int who = 0; who < ECHO; who++) {
        empty[who] = (double)bench_resident_kib(&server[who]) / 1024;
        crowd_connect(&crowd[who], server[who].port, CROWD_MAX, dialect);
        usleep(100000); /* no event reports that a server has accepted all connections */
        idle[who] = (double)bench_resident_kib(&server[who]) / 1024 - empty[who];
        crowd_run(&crowd[who], &sets, 0);
        full[who] = (double)bench_resident_kib(&server[who]) / 1024 - empty[who] - idle[who];
        crowd_close(&crowd[who]);
    }
    load_free(&sets);
    const struct {
        const char *what;
        const double *mib;
    } rows[] = { { "memory of the server, empty", empty },
                 { "what 1000 idle connections add", idle },
                 { "what 64000 keys of 128 bytes (1000 of them counters) add", full } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const double ours = rows[i].mib[OURS], theirs = rows[i].mib[GENUINE];
        printf("| %s | %.1f MiB | %.1f MiB | %.2f |\n", rows[i].what, ours, theirs, theirs / ours);
        note("memory_mib", rows[i].what, CROWD_MAX, ours, theirs);
    }
}

static void crowds(void)
{
    start_servers();
    printf("| client in C | ddp-rendezvous | TCPStore (%s, torch %s) | theirs is |\n|---|---:|---:|---:|\n",
           genuine.backend, genuine.version);
    memory_rows();
    rush_row();
    for (int i = 0; i < SIZES; i++)
        wake_row(sizes[i]);
    stop_servers();
}

/* --- launch ------------------------------------------------------------------------------------------------- */

/* Return the time of a launch. With Python 3.11, Debian's torchrun 1.13 needs options for stdout (--redirects,
 * --tee). */
static double launch_ms(int who)
{
    const char *const ours[] = { ddprun, "--standalone", "--nproc_per_node=4", "tests/bench/torch/hello.py",
                                 NULL };
    const char *const theirs[] = { python,
                                   "-m",
                                   "torch.distributed.run",
                                   "--rdzv_backend=c10d",
                                   "--rdzv_endpoint=localhost:0",
                                   "--redirects=1",
                                   "--tee=1",
                                   "--nproc_per_node=4",
                                   "tests/bench/torch/hello.py",
                                   NULL };
    struct timed t = timed_run((char *const *)(who == OURS ? ours : theirs), -1, LAUNCH_LIMIT_MS);
    need(t.ok, who == OURS ? "ddprun has failed" : "torchrun has failed");
    return t.ms;
}

/* Compare how long launches take, from start to end. The first round reads files from disk, so this round does not
 * count. */
static void launches(void)
{
    double ms[ECHO][LAUNCHES];
    setenv("PYTHON_EXEC", python, 1);
    unsetenv("VIRTUAL_ENV"); /* VIRTUAL_ENV would take precedence over PYTHON_EXEC */
    need(bench_start_genuine(python, &genuine),
         "cannot start PyTorch's store"); /* started only for its version and backend */
    bench_stop(&genuine.server);
    for (int turn = -1; turn < LAUNCHES; turn++)
        for (int who = 0; who < ECHO; who++)
            ms[who][turn < 0 ? 0 : turn] = launch_ms(who);
    const double ours = timed_median(ms[OURS], LAUNCHES), theirs = timed_median(ms[GENUINE], LAUNCHES);
    printf("| 4 Python workers that only print | ddprun | torchrun (torch %s) | theirs is "
           "|\n|---|---:|---:|---:|\n"
           "| from start to end, median of %d | %.0f ms | %.0f ms | %.1f |\n",
           genuine.version, LAUNCHES, ours, theirs, theirs / ours);
    note("launch_ms", "4 workers that print", 4, ours, theirs);
}

/* --- main --------------------------------------------------------------------------------------------------- */

static const struct part {
    const char *name;
    void (*run)(void);
} parts[] = { { "throughput", throughput }, { "crowd", crowds }, { "launch", launches } };
enum { PARTS = sizeof(parts) / sizeof(*parts) };

static bool run_part(const char *name)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(parts[i].name, name) == 0) {
            parts[i].run();
            return true;
        }
    }
    return false;
}

int main(int argc, char *argv[])
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_torch PYTHON DDPRUN PART... (throughput, crowd, launch)\n");
        return 2;
    }
    python = argv[1];
    ddprun = argv[2];
    json = results_open();
    setvbuf(stdout, NULL, _IOLBF, 0);
    limits_raise_descriptors(0);
    for (int i = 3; i < argc; i++)
        need(run_part(argv[i]), "no such part");
    if (json != NULL)
        fclose(json);
    return 0;
}
