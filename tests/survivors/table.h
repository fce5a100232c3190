/* table.h -- the results of one launcher's trials, as Markdown. */
#ifndef TESTS_SURVIVORS_TABLE_H
#define TESTS_SURVIVORS_TABLE_H

#include "trial.h"

#include <stddef.h>

/* Print the table, and each failed trial's reason. Return how many failed. `touched`, the second job's harm or NULL,
 * counts as one. */
int table_print(const struct trial *trials, const struct trial_result *results, size_t count,
                const char *touched);

void table_skipped(enum launcher by, const char *why);

#endif
