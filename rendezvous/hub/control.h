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

#endif
