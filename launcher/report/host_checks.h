/* host_checks.h -- findings about limits and GPUs of this machine, and why a node lost the store. A warning before
 * the start is clearer than a worker's later error. Only store_loss_finding is pure. */
#ifndef LAUNCHER_REPORT_HOST_CHECKS_H
#define LAUNCHER_REPORT_HOST_CHECKS_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

#include <stdbool.h>

#define HOST_NO_LIMIT UINT64_MAX

enum { HOST_FINDINGS_MAX = 4 };

/* Store a finding for each limit that is too low for `workers` workers. Return the number of findings. */
int host_check_limits(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log the findings of host_check_limits as warnings. */
void host_warn(int workers, const char *host);

/* A query to the driver about this node's GPUs: other processes, and compute modes. Run it with timed_call.h, because
 * the driver may hang. */
struct gpu_query;

enum {
    GPU_FINDINGS_MAX = 8,
    GPU_FAILURE_MS = 1000, /* longest wait of a failure's report for the driver */
};

/* Return a query, which the caller frees with free(), or NULL if no worker has a GPU or memory is short. `runs`: the
 * workers run or have run, so this job's processes are not reported. */
struct gpu_query *gpu_query_new(const struct plan *plan, bool runs);

/* Ask the driver. `query` is a struct gpu_query, which gets the answer. */
void gpu_query_run(void *query);

/* Return false if a GPU could not be read, or the owner of a process is unknown. */
bool gpu_query_is_complete(const struct gpu_query *query);

/* Store a finding for each problem in the driver's answer. Return the number of findings. */
int gpu_query_findings(const struct gpu_query *query, const struct plan *plan,
                       struct finding out[GPU_FINDINGS_MAX]);

/* The driver's answer after a worker failed because its GPU was full or busy. */
struct gpu_answer {
    int n;
    struct finding found[GPU_FINDINGS_MAX];
    char gpu[GPU_NAME_MAX];          /* the failed worker's GPU if other processes use it, else "" */
    char users[FINDING_SUBJECT_MAX]; /* these processes: "pid 4242 (user ann, 31 GiB)", or "" */
};

/* Set *answer from `query`, for the failed worker `local_rank`. */
void gpu_query_answer(const struct gpu_query *query, const struct plan *plan, int local_rank,
                      struct gpu_answer *answer);

/* Ask the driver, then call gpu_query_findings. Return 0 without an answer within `limit_ms`. */
int gpu_find(const struct plan *plan, bool runs, int limit_ms, struct finding out[GPU_FINDINGS_MAX]);

/* Call gpu_find with a limit of 200 ms, and log the findings unless --quiet is set. */
int gpu_warn(const struct plan *plan, struct finding out[GPU_FINDINGS_MAX]);

/* Facts about a node that has lost the store. All texts are borrowed. */
struct store_loss {
    const char *host;         /* name of this host */
    int node_rank;            /* -1 if unknown */
    int pid;                  /* of this ddprun's agent */
    const char *how;          /* such as "the store closed the connection" */
    const char *dropped;      /* why the store dropped this node; "" if not dropped */
    uint64_t stood_ms;        /* how long this process was suspended before the loss; or 0 */
    uint64_t asked_ms;        /* time since the request to stop the workers; 0 without a request */
    uint64_t node_timeout_ms; /* silence after which the store drops a node */
};

/* Make the finding about the loss if this node or its network is the cause. Return false if not. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
