/* probes.h -- ask a launcher one question, and get a short answer for a table. Each probe is a row of a table, so
 * that every launcher gets the same program, fault and number of trials. */
#ifndef TESTS_BENCH_PROBES_H
#define TESTS_BENCH_PROBES_H

#include "peers.h"

enum { PROBE_ARGS = 5, PROBE_CELL = 160 };

struct probe {
    const char *words; /* what happens */
    const char *right; /* the expected result */
    void (*ask)(const struct probe *, const struct peer *, char cell[PROBE_CELL]);
    /* The program and its arguments. "%w" stands for probe_worker, "%s" for survivor, and "%x" for a file that
     * cannot be executed. */
    const char *args[PROBE_ARGS];
    int trials;
    int signal; /* the signal that the probe sends, or 0 */
};

/* Write a result to `cell`. A job that does not end counts as "hung". */

/* Show the exit codes and how often each occurred. */
void probe_code(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show the exit codes, and how many workers were ended early. */
void probe_all_done(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show the exit codes, and whether the output names rank 1's exit code as the cause. */
void probe_first(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show the exit codes and the survivors if the launcher gets `signal` at some moment of its start. */
void probe_start_signal(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show the exit codes and the survivors if `signal` goes to the process between the launcher and its workers. */
void probe_agent(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show how many processes are left after the probe has sent `signal` to the launcher. */
void probe_survivors(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show how many lines of 16 workers were torn. */
void probe_torn(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);
/* Show how long after rank 1's exit the launcher ended. */
void probe_reaction(const struct probe *q, const struct peer *p, char cell[PROBE_CELL]);

/* Set the folder of the test programs, before the first probe. */
void probes_open(const char *programs);

#endif
