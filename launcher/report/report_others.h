/* report_others.h -- private to report*.c: what became of the workers that did not fail first. */
#ifndef LAUNCHER_REPORT_OTHERS_H
#define LAUNCHER_REPORT_OTHERS_H

#include "report/report.h"
#include "report/report_rows.h"

/* One sentence for each way of ending, with the set of ranks. */
void report_others(const struct report *r, struct rows *rows);

#endif
