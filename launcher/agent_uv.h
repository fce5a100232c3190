/* agent_uv.h -- carries out what agent.h wishes: processes, signals, output, the store. */
#ifndef LAUNCHER_AGENT_UV_H
#define LAUNCHER_AGENT_UV_H

/* The agent process from its birth to its exit code; a guardian_body. `plan` is a struct plan, the
 * agent writes the store's real port into it. */
int agent_run(void *plan, int lifeline);

#endif
