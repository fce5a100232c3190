/* host_checks.h -- findings about limits and GPUs of this machine, and the reason why a node lost the store. Only
 * store_loss_finding is pure. ddprun warns about limits before the start. Without the warning, the user would see only
 * a later error of a worker. */
#ifndef LAUNCHER_REPORT_HOST_CHECKS_H
#define LAUNCHER_REPORT_HOST_CHECKS_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

#include <stdbool.h>

#define HOST_NO_LIMIT UINT64_MAX

enum { HOST_FINDINGS_MAX = 4 };

/* Compare the limits of this machine with the needs of its workers. `workers` is their number. Store a finding for each
 * limit that is too low, and return the number of findings. With such a limit, a worker would later fail with "too many
 * open files", "cannot allocate memory" or "bus error". */
int host_check_limits(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log each finding of host_check_limits as a warning. */
void host_warn(int workers, const char *host);

/* A query to the driver about the GPUs of this node's workers. The answer contains the other processes on each GPU,
 * and the compute modes that do not admit all workers. The driver may hang, so run the query with timed_call.h. */
struct gpu_query;

enum {
    GPU_FINDINGS_MAX = 8,
    GPU_FAILURE_MS = 1000, /* the report of a failure waits at most this time for the driver */
};

/* Return a query for gpu_query_run, or NULL if no worker has a GPU or memory is short. `runs` must be true if the
 * workers run or have run. If `runs` is true, the findings ignore the processes of this job, and name the ranks that
 * use each GPU. Free the query with free(). */
struct gpu_query *gpu_query_new(const struct plan *plan, bool runs);

/* Ask the driver for the processes and the compute mode of each GPU. Store the answer in `query`, a struct
 * gpu_query. */
void gpu_query_run(void *query);

/* Return false if the driver could not read a GPU, or if the owner of a process in the answer is unknown. */
bool gpu_query_is_complete(const struct gpu_query *query);

/* Store a finding in `out` for each problem that the driver's answer shows. Return the number of findings. */
int gpu_query_findings(const struct gpu_query *query, const struct plan *plan,
                       struct finding out[GPU_FINDINGS_MAX]);

/* The driver's answer after a worker failed because its GPU was full or busy. */
struct gpu_answer {
    int n;
    struct finding found[GPU_FINDINGS_MAX];
    char gpu[GPU_NAME_MAX];          /* GPU of the failed worker if other processes use it, else "" */
    char users[FINDING_SUBJECT_MAX]; /* other processes on this GPU: "pid 4242 (user ann, 31 GiB)", or "" */
};

/* Set *answer from the driver's answer in `query`, for the report about the failed worker `local_rank`. */
void gpu_query_answer(const struct gpu_query *query, const struct plan *plan, int local_rank,
                      struct gpu_answer *answer);

/* Ask the driver, then call gpu_query_findings. Without an answer within `limit_ms`, return 0. */
int gpu_find(const struct plan *plan, bool runs, int limit_ms, struct finding out[GPU_FINDINGS_MAX]);

/* Call gpu_find with a limit of 200 ms, and log each finding as a warning unless --quiet is set. */
int gpu_warn(const struct plan *plan, struct finding out[GPU_FINDINGS_MAX]);

/* Facts about a node that has lost its connection to the store. All texts are borrowed. */
struct store_loss {
    const char *host;    /* name of this host */
    int node_rank;       /* -1 if not known yet */
    int pid;             /* pid of this ddprun's agent */
    const char *how;     /* what happened, for example "the store closed the connection" */
    const char *dropped; /* why the store dropped this node, such as "silent for 3.0 s"; "" if not dropped */
    uint64_t stood_ms;   /* how long this process was stopped or suspended before the loss; 0 if it was not */
    /* how long ago the store or the user asked this node to stop its workers; 0 without such a request */
    uint64_t asked_ms;
    uint64_t node_timeout_ms; /* the store drops a node that is silent for this time */
};

/* Make the finding about the loss if this node or this node's network has caused the loss. Return false if the facts
 * show no such cause. loss->how is then the only explanation. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
