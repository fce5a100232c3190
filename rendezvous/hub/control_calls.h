/* control_calls.h -- what each JSON call of agents and operators does. The rows are in control.c; the questions that only look
 * are answered in control_report.c. */
#ifndef RENDEZVOUS_CONTROL_CALLS_H
#define RENDEZVOUS_CONTROL_CALLS_H

#include "hub/session.h"

#include <cjson/cJSON.h>

/* Times in requests, in ms: a year is as good as for ever, and sums of a few cannot overflow. */
#define CONTROL_MS_MAX (366ll * 24 * 3600 * 1000)

/* A call fills `answer`, or returns false and hub->err says why not. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

/* control_job.c: the job that a call is about; NULL, with hub->err, when that is not clear. */
struct job *control_job(struct hub *hub, const struct session *s, const cJSON *request);
/* What is declared about a job, its workers and barriers. */
bool control_declare(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_worker_started(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_worker_exited(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_barrier_cancel(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

/* control_rdzv.c, peer_lookup.c: a node joins, and what it says from then on. */
bool control_join(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_failed(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_cause(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_done(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_stopped(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_leave(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_vouch(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_owner(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_heartbeat(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
/* Has this connection joined as a node? False, with hub->err, when it has not. */
bool control_is_node(struct hub *hub, const struct session *s);
/* Does this node run the rank in the current round? False, with hub->err and the code of the answer, when it does not. */
bool control_owns_rank(struct hub *hub, const struct session *s, int64_t rank, cJSON *answer);
/* It names a round that is over; the answer says so already. */
bool control_is_stale(struct hub *hub, const struct session *s, const cJSON *request, cJSON *answer);

/* control_why.c: what is wrong; what a node has found on itself, and what a rank has met. */
bool control_why(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_notice(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_trouble(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

bool control_rejects(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_jobs(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_status(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_keys(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_waiters(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_barriers(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

#endif
