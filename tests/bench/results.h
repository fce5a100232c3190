/* results.h -- where a benchmark writes its numbers for build/bench.json. */
#ifndef TESTS_BENCH_RESULTS_H
#define TESTS_BENCH_RESULTS_H

#include <stdio.h>

/* Descriptor 3, which scripts/bench.sh opens; stdout has the table for people. What is measured does not inherit it. NULL
 * when the program is run by hand: then the table is all. Close it with fclose. */
FILE *results_open(void);

#endif
