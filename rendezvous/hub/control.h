/* control.h -- the JSON calls of agents and operators: one comes in, its answer goes out. */
#ifndef RENDEZVOUS_CONTROL_H
#define RENDEZVOUS_CONTROL_H

#include "base/slice.h"

#include <stdbool.h>

struct hub;
struct session;

/* The answer to one call goes into hub->out. False when memory is short. */
bool control_answer(struct hub *hub, struct session *s, struct slice request);

#endif
