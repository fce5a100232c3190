/* bench_reaction.c -- measures the time from a worker's failure until SIGTERM has reached all other workers.
 *
 *     bench_reaction DDPRUN PROBE_WORKER [TRIALS]
 *
 * When all 65 workers run, one worker notes the time and exits with code 3. Each of the 64 other workers notes the time
 * when its handler of SIGTERM runs. The worker then waits before it ends, so that the time does not include the ends of
 * 64 processes.
 *
 * The launchers take turns with one trial each. Slow launchers get fewer trials. A launcher gets no more trials after
 * three of its trials have failed. A trial fails if the workers do not start, or if the launcher does not signal all
 * workers in time. The output is a Markdown table, and JSON lines on descriptor 3 if it is open. */
#include "peer_job.h"
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    OTHERS = 64,
    FAILING_RANK = 1,
    TRIALS_MAX = 1000,
    NEVER_MAX = 3,
    PEER_TRIALS = 20,
    SLOW_TRIALS = 5,
    LOOK_MS = 2,
    USAGE_ERROR = 2
};

struct series {
    double first[TRIALS_MAX], last[TRIALS_MAX]; /* ms */
    size_t n;
    int wanted, tried, never, not_started;
};

static struct series all[PEERS];

static bool is_slow(const struct peer *p)
{
    return p->start_ms > peers[PEER_DDPRUN].start_ms;
}

/* Return the time limit of a trial in ms. Slow launchers have a longer limit, because torchrun checks its workers only
 * every 5 s. */
static int limit_ms(const struct peer *p)
{
    return is_slow(p) ? 12000 : 3000;
}

/* Set *first and *last to the times from the failure to the first and to the last SIGTERM, in ms. Return false if the
 * failing rank has not noted its failure yet, or if any other rank has not received SIGTERM yet. */
static bool told(double *first, double *last)
{
    const struct notes *notes = peer_jobs_notes();
    const int64_t failed = notes->of[FAILING_RANK].done;
    *first = 1e30;
    *last = 0;
    for (int i = 0; i <= OTHERS; i++) {
        if (i == FAILING_RANK)
            continue;
        if (failed == 0 || notes->of[i].told == 0)
            return false;
        double ms = (double)(notes->of[i].told - failed) / 1e6;
        *first = ms < *first ? ms : *first;
        *last = ms > *last ? ms : *last;
    }
    return true;
}

static void try_once(struct series *s, const struct peer *p, const char *worker)
{
    struct peer_job j;
    bool is_told = false;
    s->tried++;
    if (!peer_job_start(&j, p, false, OTHERS + 1,
                        (const char *const[]){ worker, "1:exit:3:20", "-1:stay:0:100", NULL }) ||
        !peer_job_ready(&j, p->start_ms)) {
        s->not_started++;
        peer_job_end(&j);
        return;
    }
    const int64_t until = notes_now() + (int64_t)limit_ms(p) * 1000000;
    for (bool over = false; !is_told && !over;) {
        over = peer_job_wait(&j, LOOK_MS) || notes_now() > until;
        is_told = told(&s->first[s->n], &s->last[s->n]);
    }
    s->n += is_told;
    s->never += !is_told;
    peer_job_end(&j);
}

/* Return the number of trials for a launcher. Launchers other than ddprun get fewer trials, because each of their
 * trials takes a second or more. Also, their times vary less than the times of ddprun. */
static int trials_for(enum peer_id id, int trials)
{
    const struct peer *p = &peers[id];
    if (p->version[0] == '\0')
        return 0;
    if (id == PEER_DDPRUN)
        return trials;
    const int most = is_slow(p) ? SLOW_TRIALS : PEER_TRIALS;
    return trials < most ? trials : most;
}

static void measure(const char *worker, int trials)
{
    for (int i = 0; i < PEERS; i++)
        all[i].wanted = trials_for((enum peer_id)i, trials);
    for (int round = 0; round < trials; round++)
        for (int i = 0; i < PEERS; i++)
            if (round < all[i].wanted && all[i].never + all[i].not_started < NEVER_MAX)
                try_once(&all[i], &peers[i], worker);
}

static void print_row(FILE *json, const struct peer *p, struct series *s)
{
    if (s->wanted == 0) {
        printf("| %s | skipped, because not installed | | | |\n", p->name);
        return;
    }
    double first[] = { timed_median(s->first, s->n), timed_quantile(s->first, s->n, 0.99) };
    double last[] = { timed_median(s->last, s->n), timed_quantile(s->last, s->n, 0.99) };
    printf("| %s %s | %d |", p->name, p->version, s->tried);
    if (s->n > 0)
        printf(" %.2f / %.2f ms | %.2f / %.2f ms |", first[0], first[1], last[0], last[1]);
    else
        printf(" - | - |");
    printf(" %d | %d |\n", s->never, s->not_started);
    if (json == NULL)
        return;
    fprintf(json,
            "{\"bench\":\"reaction\",\"who\":\"%s\",\"version\":\"%s\",\"trials\":%d,\"never\":%d,\"not_"
            "started\":%d",
            p->name, p->version, s->tried, s->never, s->not_started);
    if (s->n > 0)
        fprintf(json,
                ",\"first_p50_ms\":%.3f,\"first_p99_ms\":%.3f,\"last_p50_ms\":%.3f,\"last_p99_ms\":%.3f",
                first[0], first[1], last[0], last[1]);
    fprintf(json, "}\n");
}

static int run(int argc, char *argv[])
{
    int trials = argc > 3 ? atoi(argv[3]) : 100;
    if (argc < 3 || trials < 1 || trials > TRIALS_MAX) {
        fprintf(stderr, "usage: bench_reaction DDPRUN PROBE_WORKER [TRIALS, 1 to %d]\n", TRIALS_MAX);
        return USAGE_ERROR;
    }
    FILE *json = results_open();
    peers_open(argv[1]);
    measure(argv[2], trials);
    printf("| a worker exits: SIGTERM has reached, of 64 others | trials | the first, p50 / p99 | the last, "
           "p50 / p99 | "
           "not all within the limit | did not start |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < PEERS; i++)
        print_row(json, &peers[i], &all[i]);
    printf("\nThe p99 of less than 100 trials is the slowest of them.\n");
    if (json != NULL)
        fclose(json);
    return 0;
}

int main(int argc, char *argv[])
{
    return peer_jobs_main(run, argc, argv);
}
