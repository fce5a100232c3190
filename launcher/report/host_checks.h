/* host_checks.h -- problems that a job will meet on this machine, reported in advance. Pure: facts in, findings out.
 *
 * The later failures would be "too many open files", "cannot allocate memory" or "bus error", in a random place. */
#ifndef LAUNCHER_REPORT_HOST_CHECKS_H
#define LAUNCHER_REPORT_HOST_CHECKS_H

#include "diagnosis/findings.h"

#include <stdbool.h>

#define HOST_NO_LIMIT UINT64_MAX

/* 0 means "not known" only in the last two. */
struct host_facts {
    uint64_t nofile;  /* hard limit: the agent raises the soft one by itself */
    uint64_t nproc;   /* of this user; HOST_NO_LIMIT for root, who has none */
    uint64_t memlock; /* soft limit: workers get it */
    bool has_infiniband;
    uint64_t shm_size, shm_free; /* bytes */
};

enum { HOST_FINDINGS_MAX = 4 };

/* Write findings for `workers` workers on `host`; return how many. */
int host_findings(const struct host_facts *facts, int workers, const char *host,
                  struct finding out[HOST_FINDINGS_MAX]);

/* Find the limits that `workers` workers will reach here; return how many. */
int host_look(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX]);

/* Log a warning for each. */
void host_warn(int workers, const char *host);

/* The facts about a node that has lost its store. All texts are borrowed. */
struct store_loss {
    const char *host;         /* this one */
    int node_rank;            /* -1 = it has none yet */
    int pid;                  /* of this ddprun's agent */
    const char *how;          /* "the store closed the connection" */
    const char *dropped;      /* the store's last message, "silent for 3000 ms"; "" = none */
    uint64_t stood_ms;        /* how long this process was stopped just before; 0 = it was not */
    uint64_t node_timeout_ms; /* the timeout that the store applied */
};

/* False if the loss is not about this node: then `how` is complete. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
