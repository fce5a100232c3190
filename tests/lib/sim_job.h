/* sim_job.h -- simulated workers and an agent, talking to a simulated hub; what they live through becomes a trace.
 *
 * Worker N is rank N on connection N + 1; the agent is connection SIM_AGENT. Every answer that a worker gets is
 * noted the moment it comes: "rank 1 passes 'a'", or the message it is given, line by line. */
#ifndef TESTS_SIM_JOB_H
#define TESTS_SIM_JOB_H

#include "sim_hub.h"

enum { SIM_AGENT = SIM_CONNS - 1, SIM_OPERATOR = SIM_CONNS - 2 };

/* An agent declares attempt `attempt` of job "demo" with `world` ranks (connecting first if need be). */
void sim_job(struct sim *sim, int attempt, int world);
/* The agent joins job "demo" as its only node, with `world` ranks: attempt 0 begins. */
void sim_node(struct sim *sim, int world);
/* The node reports: the process of a rank runs (host "n1", pid 100 + rank), or has ended. */
void sim_started(struct sim *sim, int rank);
void sim_exited(struct sim *sim, int rank, int exit_code, int signal);

/* A worker connects and introduces itself. */
void sim_worker(struct sim *sim, int rank, int attempt, int world);
/* `members` NULL = all, else "0 2 3". */
void sim_barrier(struct sim *sim, int rank, const char *name, int64_t timeout_ms, const char *members);
void sim_cancel_wait(struct sim *sim, int rank);
void sim_wait_key(struct sim *sim, int rank, const char *key);
void sim_set_key(struct sim *sim, int rank, const char *key);
void sim_worker_gone(struct sim *sim, int rank);

/* sim_at, and the workers read what came meanwhile. Deadlines are met exactly when this stops at each of them. */
void sim_later(struct sim *sim, uint64_t now_ms);

/* CONTROL from any connection; the answer's JSON text is valid until the next call. */
const char *sim_control(struct sim *sim, conn_id conn, const char *json);
/* The same without looking at what comes back. */
void sim_say(struct sim *sim, conn_id conn, const char *json);
/* Connect and greet in dialect C. */
void sim_client(struct sim *sim, conn_id conn);
/* IDENTIFY with any JSON; returns the status byte, `text` (may be NULL) gets the words. */
int sim_identify(struct sim *sim, conn_id conn, const char *json, struct buf *text);

#endif
