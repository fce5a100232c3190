/* bench_probes.c -- compares how all installed launchers handle failures and signals, in one table.
 *
 *     bench_probes DDPRUN PROGRAMS [TRIALS]
 *     bench_probes --versions DDPRUN
 *
 * PROGRAMS is the folder of the test programs. Each row of the table is one test, with one column for each launcher.
 * Prints a markdown table, and JSON lines on descriptor 3 when it is open. The program reports results, but does not
 * judge them. */
#include "peer_job.h"
#include "probes.h"
#include "timed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = -1, USAGE_ERROR = 2 };

/* In a row with "-1:exit:0:500", the other workers end by themselves after half a second. So even a launcher that waits
 * for all workers returns an exit code. In the last row, the other workers do not end by themselves. */
static const struct probe probes[] = {
    { "all exit 0, at once", "0", probe_code, { "%w", "-1:exit:0:-1" }, MANY, 0 },
    { "rank 1 exits 3, the others 0 later", "3", probe_code, { "%w", "1:exit:3:0", "-1:exit:0:500" }, 1, 0 },
    { "rank 2 exits 9, rank 1 exits 7 later",
      "9",
      probe_code,
      { "%w", "2:exit:9:0", "1:exit:7:300", "-1:exit:0:500" },
      1,
      0 },
    { "rank 1 is killed by SIGKILL", "137", probe_code, { "%w", "1:signal:9:0", "-1:exit:0:500" }, 1, 0 },
    { "rank 1 is killed by SIGSEGV", "139", probe_code, { "%w", "1:signal:11:0", "-1:exit:0:500" }, 1, 0 },
    { "rank 1 exits 0, the others 0 later",
      "0, none ended early",
      probe_all_done,
      { "%w", "1:exit:0:0", "-1:exit:0:500" },
      1,
      0 },
    { "program not found", "127", probe_code, { "/no/such/program" }, 1, 0 },
    { "program not executable", "126", probe_code, { "%x" }, 1, 0 },
    { "SIGTERM to the launcher while it starts",
      "143, no survivors",
      probe_start_signal,
      { "%w" },
      MANY,
      SIGTERM },
    { "SIGKILL to the launcher's agent", "not 0, 0 left", probe_agent, { "%w" }, 1, SIGKILL },
    { "rank 1 exits 52, rank 0 exits 1 two ms later",
      "52, named",
      probe_first,
      { "%w", "1:exit:52:0", "0:follow:1:2" },
      MANY,
      0 },
    { "left 3 s after SIGTERM: plain workers", "0", probe_survivors, { "%s", "plain" }, 1, SIGTERM },
    { "left 3 s after SIGTERM: setsid + double fork", "0", probe_survivors, { "%s", "daemon" }, 1, SIGTERM },
    { "left 3 s after SIGTERM: ignores SIGTERM", "0", probe_survivors, { "%s", "deaf" }, 1, SIGTERM },
    { "left 3 s after SIGKILL: plain workers", "0", probe_survivors, { "%s", "plain" }, 1, SIGKILL },
    { "left 3 s after SIGKILL: setsid + double fork", "0", probe_survivors, { "%s", "daemon" }, 1, SIGKILL },
    { "left 3 s after SIGKILL: ignores SIGTERM", "0", probe_survivors, { "%s", "deaf" }, 1, SIGKILL },
    { "torn lines, 16 workers, three writes a line", "0", probe_torn, { NULL }, 1, 0 },
    { "rank 1 exits 3 after 0.2 s, the others stay: all over after",
      "soon; 3",
      probe_reaction,
      { "%w", "1:exit:3:200" },
      MANY,
      0 },
};

/* Return the number of trials. A launcher that takes seconds to start gets fewer trials. */
static int trials_for(const struct peer *p, int trials)
{
    const int few = 3;
    return p->start_ms > peers[PEER_DDPRUN].start_ms && trials > few ? few : trials;
}

static void print_head(void)
{
    printf("| what happens (4 workers; once, or as counted) | right |");
    for (int i = 0; i < PEERS; i++)
        printf(" %s%s%s |", peers[i].name, peers[i].version[0] != '\0' ? " " : "", peers[i].version);
    printf("\n|---|---|");
    for (int i = 0; i < PEERS; i++)
        printf("---|");
    printf("\n");
}

static void print_row(FILE *json, const struct probe *probe, int trials)
{
    printf("| %s | %s |", probe->words, probe->right);
    for (int i = 0; i < PEERS; i++) {
        char cell[PROBE_CELL] = "";
        struct probe q = *probe;
        if (q.trials == MANY)
            q.trials = trials_for(&peers[i], trials);
        if (peers[i].version[0] != '\0')
            q.ask(&q, &peers[i], cell);
        else
            snprintf(cell, sizeof(cell), "skipped, because not installed");
        printf(" %s |", cell);
        fflush(stdout);
        if (json != NULL && peers[i].version[0] != '\0')
            fprintf(json,
                    "{\"bench\":\"probes\",\"probe\":\"%s\",\"who\":\"%s\",\"version\":\"%s\",\"result\":\"%"
                    "s\"}\n",
                    q.words, peers[i].name, peers[i].version, cell);
    }
    printf("\n");
}

static int run(int argc, char *argv[])
{
    int trials = argc > 3 ? atoi(argv[3]) : 10;
    if (argc < 3 || trials < 1 || trials > 100) {
        fprintf(stderr, "usage: bench_probes DDPRUN PROGRAMS [TRIALS, 1 to 100]\n       bench_probes "
                        "--versions DDPRUN\n");
        return USAGE_ERROR;
    }
    if (strcmp(argv[1], "--versions") == 0) {
        peers_open(argv[2]);
        peers_print_versions();
        return 0;
    }
    FILE *json = results_open();
    peers_open(argv[1]);
    probes_open(argv[2]);
    print_head();
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
        print_row(json, &probes[i], trials);
    if (json != NULL)
        fclose(json);
    return 0;
}

int main(int argc, char *argv[])
{
    return peer_jobs_main(run, argc, argv);
}
