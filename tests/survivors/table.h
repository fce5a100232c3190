/* table.h -- what the trials of one launcher have shown, as markdown. */
#ifndef TESTS_SURVIVORS_TABLE_H
#define TESTS_SURVIVORS_TABLE_H

#include "trial.h"

#include <stddef.h>

/* Prints the table, and why for each trial that went wrong. Returns how many did; `touched`, how the second job was, counts
 * as one (NULL = it was not). */
int table_print(const struct trial *trials, const struct trial_result *results, size_t count,
                const char *touched);

void table_skipped(enum launcher by, const char *why);

#endif
