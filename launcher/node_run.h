/* node_run.h -- the agent process, from its birth to its exit code. */
#ifndef LAUNCHER_NODE_RUN_H
#define LAUNCHER_NODE_RUN_H

/* A guardian_body. `plan` is a struct plan; the store's real port is written into it. */
int node_run(void *plan, int lifeline);

#endif
