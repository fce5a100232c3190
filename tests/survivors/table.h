/* table.h -- the results of one launcher's trials, as Markdown. The table has one cell for each worker and fault, so
 * that launchers can be compared at a glance. */
#ifndef TESTS_SURVIVORS_TABLE_H
#define TESTS_SURVIVORS_TABLE_H

#include "trial.h"

#include <stddef.h>

/* Print the table, and the reasons for the first failed trials of ddprun (at most SHOWN_AT_MOST in table.c). Return the
 * number of failed trials. A second job, the bystander, runs during the trials. `touched` describes how the trials have
 * harmed the bystander, and counts as one failed trial. `touched` is NULL if the bystander is unharmed. */
int table_print(const struct trial *trials, const struct trial_result *results, size_t count,
                const char *touched);

void table_skipped(enum launcher by, const char *why);

#endif
