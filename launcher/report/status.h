/* status.h -- what each worker does right now, in one line each, for the user who asks (SIGQUIT, Ctrl-\).
 *
 *     12.3 s after the start: job k3x9, 3 of 4 workers run
 *     rank 0 (pid 100) runs for 12.3 s, waits for barrier 'epoch-3'
 *     rank 1 (pid 101) runs for 12.3 s, is stopped: kill -CONT 101 lets it go on
 *     rank 2: exit 0 after 3.0 s
 *
 * Pure: what the kernel and the store know is handed in. */
#ifndef LAUNCHER_STATUS_H
#define LAUNCHER_STATUS_H

#include "agent/agent.h"
#include "plan/plan.h"

struct cJSON;

enum { STATUS_LINES_MAX = 64 }; /* of workers; the report of a large job must still fit a screen or two */

struct status_facts {
    const struct plan *plan;
    const struct agent *agent;
    uint64_t started_ms, now_ms; /* by the agent's clock */
    const char *states; /* by local rank, the kernel's letter for what a process does; 0 = not known */
    const struct cJSON *answer; /* the store's answer to "status"; NULL = it does not answer */
};

/* Append line `i`, without newline: 0 is the headline, then come the workers. False when there are no more lines, or
 * memory is short. */
bool status_line(const struct status_facts *facts, int i, struct buf *out);

#endif
