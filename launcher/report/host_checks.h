/* host_checks.h -- warnings about limits of this machine that a job will exceed. Pure, except host_look,
 * host_warn and gpu_warn.
 *
 * Without a warning, the job would later fail with "too many open files", "cannot allocate memory" or "bus error", in
 * a random place. */
#ifndef LAUNCHER_REPORT_HOST_CHECKS_H
#define LAUNCHER_REPORT_HOST_CHECKS_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

#include <stdbool.h>

#define HOST_NO_LIMIT UINT64_MAX

/* In shm_size and shm_free, 0 means "not known". */
struct host_facts {
    uint64_t nofile;  /* hard limit, because the agent raises the soft limit */
    uint64_t nproc;   /* limit of this user; HOST_NO_LIMIT for root */
    uint64_t memlock; /* soft limit, which the workers inherit */
    bool has_infiniband;
    uint64_t shm_size, shm_free; /* bytes */
};

enum { HOST_FINDINGS_MAX = 4 };

/* Write the findings for `workers` workers on `host`, whose facts are known. Return the number of findings. */
int host_findings(const struct host_facts *facts, int workers, const char *host,
                  struct finding out[HOST_FINDINGS_MAX]);

/* Read the facts of this machine, and write the findings for `workers` workers. Return the number of findings. */
int host_look(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log each finding of this machine as a warning. */
void host_warn(int workers, const char *host);

enum { GPU_FINDINGS_MAX = 8 };

/* Describe the processes on the GPU `gpu` (its name in CUDA_VISIBLE_DEVICES) of `host`. Return false if no process
 * uses the GPU. */
bool gpu_finding(const struct gpu_users *users, const char *gpu, const char *host, struct finding *out);

/* Write the findings for the GPUs of this node's workers, and log each finding as a warning, unless --quiet. Return
 * the number of findings, which is 0 without an answer of the driver within 200 ms. */
int gpu_warn(const struct plan *plan, struct finding out[GPU_FINDINGS_MAX]);

/* The facts about a node that has lost its store. All texts are borrowed. */
struct store_loss {
    const char *host;         /* name of this host */
    int node_rank;            /* -1 = not assigned yet */
    int pid;                  /* pid of this ddprun's agent */
    const char *how;          /* "the store closed the connection" */
    const char *dropped;      /* the store's last message, "silent for 3000 ms"; "" = none */
    uint64_t stood_ms;        /* how long this process was stopped before the loss; 0 = not stopped */
    uint64_t node_timeout_ms; /* the timeout that the store applied */
};

/* Describe the loss if its cause is on this node's side. Return false without evidence of such a cause; `how` is then
 * the whole explanation. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
