/* host_checks.h -- warnings before the start about limits and GPUs of this machine, and the reason why a node lost
 * the store. Only store_loss_finding is pure.
 *
 * Without these warnings, the job would fail later with "too many open files", "cannot allocate memory" or "bus
 * error". */
#ifndef LAUNCHER_REPORT_HOST_CHECKS_H
#define LAUNCHER_REPORT_HOST_CHECKS_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

#include <stdbool.h>

#define HOST_NO_LIMIT UINT64_MAX

enum { HOST_FINDINGS_MAX = 4 };

/* Compare the limits of this machine with what `workers` workers need. Store a finding for each limit that is too
 * low, and return the number of findings. */
int host_look(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log each finding of host_look as a warning. */
void host_warn(int workers, const char *host);

enum { GPU_FINDINGS_MAX = 8 };

/* Find GPUs of this node's workers that other processes use, or whose compute mode does not admit all of these
 * workers. Log each finding as a warning unless --quiet is set, and return the number of findings. If the driver
 * does not answer within 200 ms, return 0. */
int gpu_warn(const struct plan *plan, struct finding out[GPU_FINDINGS_MAX]);

/* Facts about a node that has lost its connection to the store. All texts are borrowed. */
struct store_loss {
    const char *host;    /* name of this host */
    int node_rank;       /* -1 = not known yet */
    int pid;             /* pid of this ddprun's agent */
    const char *how;     /* what happened, for example "the store closed the connection" */
    const char *dropped; /* reason in the store's last message, for example "silent for 3.0 s"; "" = none */
    uint64_t stood_ms;   /* how long this process was stopped or suspended before the loss; 0 = not at all */
    uint64_t node_timeout_ms; /* the store's limit for a silent node */
};

/* Explain the loss if its cause is this node or its network. Return false if the facts show no such cause; `how`
 * is then the only explanation. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
