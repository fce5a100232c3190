/* control_push.h -- what a job's rendezvous tells its nodes, as JSON. */
#ifndef RENDEZVOUS_CONTROL_PUSH_H
#define RENDEZVOUS_CONTROL_PUSH_H

#include "job/rendezvous.h"

/* For rdzv_env.tell; `job` is a struct job. */
void control_push(void *job, uint64_t node, const struct rdzv_tell *tell);

/* The list of a round's nodes as JSON text that is yours (free); NULL when memory is short. */
char *control_round_nodes(const struct rdzv_round *world);

#endif
