/* bench_agents.c -- measures how large a job the rendezvous supports.
 *
 *     bench_agents [--only=PART] [DDP_RENDEZVOUS]      parts: join alone ranks direct failure
 *
 * This program acts as the agents and workers of a job with thousands of nodes (farm.h), and connects to a real
 * ddp-rendezvous over loopback. Both ends share the processors of one machine, so each time is an upper bound for the
 * store alone.
 *
 * Prints a markdown table, and JSON lines on descriptor 3 when it is open. */
#include "farm.h"
#include "procstat.h"
#include "loopback.h"
#include "timed.h"
#include "ddp/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NPROC = 8, AT_ONCE = 1024, LIMIT_MS = 30000, FAILURES = 21 };
/* Numbers of descriptors that the store needs. ALL is one descriptor for each rank that connects directly. RESERVE is
 * for the store itself. ENOUGH is the sum of ALL and RESERVE. */
enum { ALL = 98304, RESERVE = 128, ENOUGH = ALL + RESERVE };

static FILE *json; /* output for JSON lines, or NULL */
static const char *store_path, *only;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_agents: %s\n", what);
    exit(1);
}

static void need_farm(bool ok, const struct farm *f)
{
    need(ok, f->trouble[0] != '\0' ? f->trouble : "out of memory or descriptors");
}

/* Print one row with the action, the result and the aim. A row without an aim (NULL) is only for comparison. */
static void row(const char *name, const char *what, const char *measured, const char *aim, bool met)
{
    printf("| %s | %s | %s | %s |\n", what, measured, aim != NULL ? aim : "",
           aim == NULL ? ""
           : met       ? "yes"
                       : "**no**");
    if (aim == NULL)
        aim = "";
    if (json != NULL)
        fprintf(json,
                "{\"bench\":\"agents\",\"part\":\"%s\",\"measured\":\"%s\",\"aim\":\"%s\",\"met\":%s}\n",
                name, measured, aim, met ? "true" : "false");
}

/* --- agents join ------------------------------------------------------------------------------------------ */

struct job {
    uint32_t nodes;
    uint32_t max_restarts;
};

static void put_join(const struct job *job, uint32_t i, const char *instance, struct buf *out)
{
    farm_put_control(
        out,
        "{\"op\":\"join\",\"job\":\"bench\",\"instance\":\"%s\",\"version\":\"" DDP_VERSION
        "\",\"host\":\"node%u\","
        "\"pid\":4711,\"pid_start\":123456,\"boot_id\":\"7f1c8d3e-0f0a-4c55-9a57-3d0c7c1e%04x\","
        "\"addr\":\"\",\"mode\":\"static\",\"nnodes_min\":%u,\"nnodes_max\":%u,\"node_rank\":%u,"
        "\"nproc\":%d,\"nproc_given\":true,\"uneven\":false,\"program\":\"train.py\","
        "\"max_restarts\":%u,\"max_no_progress\":0,\"backoff_ms\":0,\"backoff_cap_ms\":0,"
        "\"last_call_ms\":30000,\"join_timeout_ms\":900000,\"node_timeout_ms\":0,\"grow\":\"never\","
        "\"grace_ms\":30000}",
        instance, i, i & 0xffff, job->nodes, job->nodes, i, NPROC, job->max_restarts);
}

/* Append all first messages of an agent, for a single write. */
static void agent_hello(void *user, uint32_t i, struct buf *out)
{
    char who[128];
    snprintf(who, sizeof(who), "{\"role\":\"agent\",\"job\":\"bench\",\"host\":\"node%u\",\"pid\":4711}", i);
    farm_put_greeting(out);
    farm_put_identify(out, who);
    put_join(user, i, "", out);
}

/* Return the milliseconds from the first connection attempt until every agent has its round. */
static double come_together(struct farm *f, const struct bench_server *store, struct job *job)
{
    need_farm(farm_open(f, store->port, 0, job->nodes, false), f);
    const double start = timed_now();
    need_farm(farm_connect(f, AT_ONCE, agent_hello, job) && farm_wait(f, FARM_ROUND, job->nodes, LIMIT_MS),
              f);
    return timed_now() - start;
}

/* Return how many requests each of `nodes` agents needed, as counted by the store. */
static double join_once(uint32_t nodes, double *ms)
{
    struct bench_server store;
    struct farm f;
    struct job job = { .nodes = nodes };
    need(bench_start_store(store_path, &store), "cannot start ddp-rendezvous");
    const int fd = bench_connect_store(store.port);
    const long before = bench_requests(fd);
    *ms = come_together(&f, &store, &job);
    const long after = bench_requests(fd);
    need(before >= 0 && after >= 0, "the store does not tell its requests");
    farm_close(&f);
    close(fd);
    bench_stop(&store);
    return (double)(after - before - 1) / nodes;
}

static void measure_join(void)
{
    enum { SMALL = 1000, BIG = 4000, TURNS = 5 };
    double ms[TURNS], small_ms, small = join_once(SMALL, &small_ms), big = 0;
    bool constant = true;
    char text[160];
    for (int i = 0; i < TURNS; i++) {
        big = join_once(BIG, &ms[i]);
        constant = constant && small == big;
    }
    const double worst = timed_quantile(ms, TURNS, 1.0), middle = timed_median(ms, TURNS);
    snprintf(text, sizeof(text), "median %.0f ms, worst of %d %.0f ms (%d agents: %.0f ms)", middle, TURNS,
             worst, SMALL, small_ms);
    row("join", "4,000 agents: from the first connection to the last agent's round", text, "2 s",
        worst <= 2000);
    snprintf(text, sizeof(text), "%.6g with %d, %.6g with %d", small, SMALL, big, BIG);
    row("operations", "requests for each agent until then, by the store's count", text, "the same", constant);
}

/* --- barriers --------------------------------------------------------------------------------------------- */

/* Measure from the first member's request to the last reply. Prepare all requests before the clock starts. */
static double pass_barrier(struct farm *f, int number)
{
    struct buf words = { 0 };
    char name[32];
    snprintf(name, sizeof(name), "step-%d", number);
    size_t *end = calloc(f->n + 1, sizeof(*end));
    need(end != NULL, "out of memory");
    for (uint32_t i = 0; i < f->n; i++) {
        farm_put_barrier(&words, name, LIMIT_MS);
        end[i + 1] = words.len;
    }
    farm_forget(f);
    const double start = timed_now();
    for (uint32_t i = 0; i < f->n; i++)
        need_farm(farm_say(f, i, slice_of(words.data + end[i], end[i + 1] - end[i])), f);
    need_farm(farm_wait(f, FARM_BARRIER, f->n, LIMIT_MS), f);
    const double ms = timed_now() - start;
    buf_free(&words);
    free(end);
    return ms;
}

/* --- a hundred thousand ranks ----------------------------------------------------------------------------- */

static void start_workers(struct farm *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        struct buf words = { 0 };
        for (uint32_t r = 0; r < NPROC; r++)
            farm_put_control(
                &words,
                "{\"op\":\"worker_started\",\"rank\":%u,\"pid\":%u,\"host\":\"node%u\",\"local_rank\":%u,"
                "\"round\":1}",
                f->member[i].rank + r, 5000 + r, i, r);
        need_farm(farm_say(f, i, buf_slice(&words)), f);
        buf_free(&words);
    }
    need_farm(farm_wait(f, FARM_OK, f->n * (NPROC + 1), LIMIT_MS),
              f); /* each agent has sent one `join` and NPROC reports */
}

static void measure_ranks(void)
{
    struct bench_server store;
    struct farm f;
    struct job job = { .nodes = 12288 };
    char text[160];
    need(bench_start_store(store_path, &store), "cannot start ddp-rendezvous");
    const double start = timed_now(), joined = come_together(&f, &store, &job);
    start_workers(&f);
    const double all = timed_now() - start;
    const double mib = (double)bench_peak_kib(&store) / 1024;
    farm_close(&f);
    bench_stop(&store);
    snprintf(text, sizeof(text), "%.2f s (round %.2f s, workers %.2f s)", all / 1000, joined / 1000,
             (all - joined) / 1000);
    row("ranks", "12,288 agents with 8 ranks each: joined, ranks registered (one run)", text, "5 s",
        all <= 5000);
    snprintf(text, sizeof(text), "%.0f MiB", mib);
    row("memory", "the store's memory at most, then", text, "300 MiB", mib <= 300);
}

/* --- ranks without an agent ------------------------------------------------------------------------------- */

struct world {
    uint32_t size, first;
};

static void worker_hello(void *user, uint32_t i, struct buf *out)
{
    const struct world *w = user;
    char who[160];
    snprintf(who, sizeof(who),
             "{\"role\":\"worker\",\"job\":\"bench\",\"attempt\":0,\"rank\":%u,\"world_size\":%u,\"host\":"
             "\"node%u\","
             "\"pid\":%u}",
             w->first + i, w->size, (w->first + i) / NPROC, 5000 + i);
    farm_put_greeting(out);
    farm_put_identify(out, who);
    farm_put_barrier(out, "all", LIMIT_MS);
}

/* Start workers in a separate process, because each process has a limited number of descriptors. */
static pid_t start_workers_of(int port, struct world world, uint32_t n)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct farm f;
    const bool ok = farm_open(&f, port, world.first, n, true) &&
                    farm_connect(&f, AT_ONCE, worker_hello, &world) &&
                    farm_wait(&f, FARM_BARRIER, n, LIMIT_MS);
    if (!ok)
        fprintf(stderr, "bench_agents: %s\n", f.trouble);
    _exit(!ok); /* the connections close with the process, after the last reply */
}

/* Return the milliseconds from the first connection to the last answer. */
static double let_workers_meet(const struct bench_server *store, uint32_t size, uint32_t each)
{
    enum { MAX = 128 };
    pid_t pid[MAX];
    int n = 0, status = 0;
    bool ok = true;
    const double start = timed_now();
    for (uint32_t first = 0; first < size && n < MAX; first += each)
        pid[n++] = start_workers_of(store->port, (struct world){ .size = size, .first = first },
                                    size - first < each ? size - first : each);
    for (int i = 0; i < n; i++)
        ok = waitpid(pid[i], &status, 0) == pid[i] && status == 0 && ok;
    need(ok, "not all workers got through their barrier");
    return timed_now() - start;
}

static void measure_direct_once(uint32_t size, const char *note)
{
    struct bench_server store;
    char what[200], text[160], aim[64];
    need(bench_start_store(store_path, &store), "cannot start ddp-rendezvous");
    const double ms = let_workers_meet(&store, size, limits_raise_descriptors(ENOUGH) - RESERVE);
    const double mib = (double)bench_peak_kib(&store) / 1024;
    bench_stop(&store);
    const double aim_ms = 20000.0 * size / 98304;
    snprintf(what, sizeof(what), "%u ranks connect directly, and one barrier%s", size, note);
    snprintf(text, sizeof(text), "%.2f s, %.0f µs each; %.0f MiB", ms / 1000, ms * 1000 / size, mib);
    snprintf(aim, sizeof(aim), "%.3g s", aim_ms / 1000);
    row("direct", what, text, aim, ms <= aim_ms);
}

/* Measure barriers as libddp's ranks use them: each rank sends its arrival over its own connection. All connections are
 * open before the measurement. */
static void measure_alone(void)
{
    enum { MOST = 16384, TURNS = 11 };
    const uint32_t limit = limits_raise_descriptors(ENOUGH),
                   n = limit > MOST + RESERVE ? MOST : limit - RESERVE;
    struct bench_server store;
    struct farm f;
    struct world world = { .size = n };
    double ms[TURNS];
    char what[120], text[160];
    need(bench_start_store(store_path, &store), "cannot start ddp-rendezvous");
    need_farm(farm_open(&f, store.port, 0, n, true) && farm_connect(&f, AT_ONCE, worker_hello, &world) &&
                  farm_wait(&f, FARM_BARRIER, n, LIMIT_MS),
              &f);
    for (int i = 0; i < TURNS; i++)
        ms[i] = pass_barrier(&f, i);
    farm_close(&f);
    bench_stop(&store);
    snprintf(what, sizeof(what), "a barrier of %u ranks, each on its own connection", n);
    snprintf(text, sizeof(text), "median %.0f ms, worst of %d %.0f ms", timed_median(ms, TURNS), TURNS,
             timed_quantile(ms, TURNS, 1.0));
    row("alone", what, text, NULL, true);
}

/* Measure ranks that connect directly. The store is one process, so its number of descriptors limits the ranks. */
static void measure_direct(void)
{
    const uint32_t limit = limits_raise_descriptors(ENOUGH), most = limit >= ENOUGH ? ALL : limit - RESERVE;
    char note[120] = "";
    if (most < ALL)
        snprintf(note, sizeof(note),
                 " (98,304 need more descriptors than a process may have here: `ulimit -Hn` is %u)", limit);
    measure_direct_once(most, note);
}

/* --- a failure -------------------------------------------------------------------------------------------- */

/* Let one agent report a failed worker. Return the milliseconds until the last agent has received the stop. */
static double fail_once(struct farm *f, const struct job *job, uint32_t round)
{
    struct buf words = { 0 };
    const uint32_t rank = f->member[f->n / 2].rank;
    farm_forget(f);
    farm_put_control(&words,
                     "{\"op\":\"failed\",\"round\":%u,\"rank\":%u,\"local_rank\":0,\"pid\":5000,\"signal\":9,"
                     "\"no_retry\":\"\",\"words\":\"was killed by signal 9 (SIGKILL)\",\"log\":\"\","
                     "\"stderr\":[\"step 1200 loss 2.31\",\"step 1201 loss 2.30\",\"step 1202 loss 2.30\"]}",
                     round, rank);
    const double start = timed_now();
    need_farm(farm_say(f, f->n / 2, buf_slice(&words)) && farm_wait(f, FARM_STOP, f->n, LIMIT_MS), f);
    const double ms = f->last_ms[FARM_STOP] - start;
    for (uint32_t i = 0; i < f->n; i++) {
        words.len = 0;
        farm_put_control(&words, "{\"op\":\"stopped\",\"round\":%u,\"unkillable\":false,\"max_code\":0}",
                         round);
        need_farm(farm_say(f, i, buf_slice(&words)), f);
    }
    need_farm(farm_wait(f, FARM_VERDICT, f->n, LIMIT_MS), f);
    for (uint32_t i = 0; i < f->n; i++) {
        words.len = 0;
        put_join(job, i, "", &words);
        need_farm(farm_say(f, i, buf_slice(&words)), f);
    }
    need_farm(farm_wait(f, FARM_ROUND, f->n, LIMIT_MS), f);
    buf_free(&words);
    return ms;
}

static void measure_failure(void)
{
    struct bench_server store;
    struct farm f;
    struct job job = { .nodes = 1000, .max_restarts = 1000 };
    double ms[FAILURES];
    char text[160];
    need(bench_start_store(store_path, &store), "cannot start ddp-rendezvous");
    come_together(&f, &store, &job);
    for (int i = 0; i < FAILURES; i++)
        ms[i] = fail_once(&f, &job, (uint32_t)i + 1);
    farm_close(&f);
    bench_stop(&store);
    const double worst = timed_quantile(ms, FAILURES, 1.0), middle = timed_median(ms, FAILURES);
    snprintf(text, sizeof(text), "median %.1f ms, worst of %d %.1f ms", middle, FAILURES, worst);
    row("failure", "a worker has failed: until the last of 1,000 agents receives the stop", text, "250 ms",
        worst <= 250);
}

/* ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*measure)(void);
} parts[] = { { "join", measure_join },
              { "alone", measure_alone },
              { "ranks", measure_ranks },
              { "direct", measure_direct },
              { "failure", measure_failure } };

int main(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--only=", 7) == 0)
            only = argv[i] + 7;
        else
            store_path = argv[i];
    }
    json = results_open();
    setvbuf(stdout, NULL, _IOLBF, 0);
    limits_raise_descriptors(ENOUGH);
    printf("| agents and ranks of one machine | measured | aim | met |\n|---|---|---|---|\n");
    bool any = false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (only == NULL || strcmp(only, parts[i].name) == 0) {
            parts[i].measure();
            any = true;
        }
    need(any, "no such part: join, barrier, alone, ranks, direct or failure");
    if (json != NULL)
        fclose(json);
    return 0;
}
