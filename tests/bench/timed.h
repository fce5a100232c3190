/* timed.h -- runs a command with a time limit, and computes medians. Only for the programs in tests/bench. */
#ifndef TESTS_BENCH_TIMED_H
#define TESTS_BENCH_TIMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct timed {
    double ms; /* time from before the spawn until the program was reaped */
    bool ok;   /* ended with exit status 0 within the limit */
    bool hung; /* did not end within the limit and was killed, with its process group */
};

/* Run `argv` with stdin and stderr at /dev/null and stdout at `out_fd` (-1 = /dev/null). `argv` ends with NULL, and
 * argv[0] is a path or is looked up in PATH. The program gets a separate process group. */
struct timed timed_run(char *const argv[], int out_fd, int limit_ms);

/* Return the milliseconds of a clock that never goes back. */
double timed_now(void);

/* Sort the `n` values in place. Return their median, or NAN if `n` is 0. */
double timed_median(double *values, size_t n);

/* Sort the `n` values in place. Return their quantile `share` (0 to 1), or NAN if `n` is 0. */
double timed_quantile(double *values, size_t n, double share);

/* Return true if PATH has an executable of this name. */
bool timed_have(const char *program);

/* Return descriptor 3, or NULL if it is closed. scripts/bench.sh opens it. The caller closes the file with fclose. */
FILE *results_open(void);

#endif
