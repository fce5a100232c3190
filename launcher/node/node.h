/* node.h -- the agent process, from its start to its exit code. */
#ifndef LAUNCHER_NODE_NODE_H
#define LAUNCHER_NODE_NODE_H

#include "contain/contain.h"
#include "plan/plan.h"

struct node_job {
    struct plan *plan; /* the store's real port is written into it */
    struct contain *contain;
};

/* A guardian_body. `job` is a struct node_job. */
int node_run(void *job, int lifeline);

#endif
