/* final_report.h -- look up what the report needs, print it, and leave it in the log directory. */
#ifndef LAUNCHER_REPORT_FINAL_REPORT_H
#define LAUNCHER_REPORT_FINAL_REPORT_H

#include "output/output.h"
#include "report/kernel_evidence.h"
#include "report/report_text.h"

struct final_facts {
    const struct plan *plan;
    const struct agent *agent;
    struct output *output; /* everything in it is written */
    const struct evidence *evidence;
    uint64_t started_ms;
    const struct signal_heard *stop; /* the user's first request to stop, if agent_stop_signal is not 0 */
    const char *program;             /* that could not be started, as found or as named; NULL = all could */
    const struct failure *elsewhere; /* as in report_text.h, like the next seven */
    const struct failed_attempt *failed;
    size_t n_failed;
    int64_t best_step;
    const char *store_lost, *store_node, *store_advice, *store_code;
    const struct stuck *stuck; /* what cannot be killed, n_stuck of them */
    size_t n_stuck;
    const char *left_subject, *left_waiting; /* as in report_text.h, with the next */
    enum finding_code left_code;
    const char *flights; /* as in report_text.h */
    const char *path;    /* the PATH it was looked for in */
};

/* The report on stderr (a failure; with --verbose a success too), or the last event on stdout with
 * --json, and report.json in the log directory. */
void final_report(const struct final_facts *facts);

#endif
