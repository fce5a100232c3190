/* control.h -- the JSON calls of agents and operators: one comes in, its answer goes out. messages.h lists them. */
#ifndef RENDEZVOUS_CONTROL_H
#define RENDEZVOUS_CONTROL_H

#include "hub/messages.h"
#include "hub/session.h"

/* The answer to one call goes into hub->out. False when memory is short. */
bool control_answer(struct hub *hub, struct session *s, struct slice request);

/* A handler fills `answer`, or returns false and hub->err says why not. The message is the one of its call. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const union message *m, cJSON *answer);

/* peer_identity.c: an agent answers `who`. */
bool control_vouch(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool control_owner(struct hub *hub, struct session *s, const union message *m, cJSON *answer);

/* inspect.c: the calls that only look. Any client may make them. */
bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_status(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, cJSON *answer);
bool inspect_why(struct hub *hub, struct session *s, const union message *m, cJSON *answer);

/* The job that a call is about: `name`, else the one that the caller has entered, else the only one. NULL, with hub->err, when
 * that is not clear. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name);

#endif
