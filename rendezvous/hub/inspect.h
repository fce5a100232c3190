/* inspect.h -- the calls that only look, of control.h's type: jobs, status, keys, waiters, barriers, rejects, why. Any client may
 * make them. */
#ifndef RENDEZVOUS_INSPECT_H
#define RENDEZVOUS_INSPECT_H

#include "hub/control.h"

/* The job that a call is about: `name`, else the one that the caller has entered, else the only one. NULL, with hub->err, when
 * that is not clear. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name);

bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_status(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_why(struct hub *hub, struct session *s, const union message *m, cJSON *answer);

#endif
