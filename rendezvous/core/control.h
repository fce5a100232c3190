/* control.h -- the JSON calls of agents and operators. One row each, in control.c; the questions that
 * only look are answered in control_report.c. */
#ifndef RENDEZVOUS_CONTROL_H
#define RENDEZVOUS_CONTROL_H

#include "core/session.h"

#include <cjson/cJSON.h>

/* The answer to one call, as JSON text that is yours (cJSON_free). NULL when memory is short. */
char *control_answer(struct hub *hub, struct session *s, struct slice request);

/* A call fills `answer`, or returns false and hub->err says why not. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

/* The job that a call is about; NULL, with hub->err, when that is not clear. */
struct job *control_job(struct hub *hub, const struct session *s, const cJSON *request);

bool control_jobs(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_status(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_keys(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_waiters(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);
bool control_barriers(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer);

#endif
