/* bench_torn.c -- tests whether a launcher prints whole lines if its workers write each line in pieces.
 *
 *     bench_torn DDPRUN TORN_WRITER [ROUNDS]
 *
 * 16 workers (tests/prog/torn_writer.c) write 2,000 lines each, with three write() calls for each line. Each launcher
 * puts a prefix with the rank before every line. The form of the prefix depends on the launcher. A line counts as whole
 * if the prefix is followed by exactly one worker's line. All other lines were torn or lost. The output is a Markdown
 * table, and JSON lines on descriptor 3 if it is open. */
#include "peer_job.h"
#include "timed.h"
#include "torn.h"

#include <stdio.h>
#include <stdlib.h>

enum { USAGE_ERROR = 2 };

static void print_table(const struct torn_count counts[PEERS], int rounds)
{
    printf("| torn lines (%d run%s) |", rounds, rounds == 1 ? "" : "s");
    for (int i = 0; i < PEERS; i++)
        printf(" %s%s%s |", peers[i].name, peers[i].tagged != NULL ? " " : "",
               peers[i].tagged != NULL ? peers[i].tagged : "");
    printf("\n|---|---|---|---|---|---|\n| %d workers × %d lines, each written in three pieces |",
           TORN_WORKERS, TORN_LINES);
    for (int i = 0; i < PEERS; i++) {
        const struct torn_count *c = &counts[i];
        if (c->jobs == 0)
            printf(" skipped, because not installed |");
        else
            printf(" %ld of %ld torn%s |", torn_lines(c), (long)c->jobs * TORN_ALL,
                   c->hung > 0 ? ", hung" : "");
    }
    printf("\n");
}

static void print_json(FILE *json, const struct torn_count counts[PEERS])
{
    for (int i = 0; i < PEERS; i++) {
        const struct torn_count *c = &counts[i];
        if (c->jobs > 0)
            fprintf(
                json,
                "{\"bench\":\"torn\",\"who\":\"%s\",\"lines\":%ld,\"whole\":%ld,\"torn\":%ld,\"hung\":%d}\n",
                peers[i].name, (long)c->jobs * TORN_ALL, c->whole, c->other, c->hung);
    }
}

static int run(int argc, char *argv[])
{
    struct torn_count counts[PEERS] = { { 0 } };
    int rounds = argc > 3 ? atoi(argv[3]) : 1;
    if (argc < 3 || rounds < 1) {
        fprintf(stderr, "usage: bench_torn DDPRUN TORN_WRITER [ROUNDS]\n");
        return USAGE_ERROR;
    }
    FILE *json = results_open();
    peers_open(argv[1]);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < PEERS; i++)
            if (peers[i].version[0] != '\0')
                torn_try(&peers[i], argv[2], &counts[i]);
    print_table(counts, rounds);
    if (json != NULL) {
        print_json(json, counts);
        fclose(json);
    }
    return 0;
}

int main(int argc, char *argv[])
{
    return peer_jobs_main(run, argc, argv);
}
