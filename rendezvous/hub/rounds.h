/* rounds.h -- a job's rendezvous, tied to the hub: its nodes are connections of agents, what it decides becomes
 * key spaces and JSON. The decisions are rendezvous.h's; here is only the wiring.
 *
 *     agent's call -> control.c -> rendezvous -> rounds.c (begin an attempt, drop a node, push round, waiting, stop, verdict) */
#ifndef RENDEZVOUS_HUB_ROUNDS_H
#define RENDEZVOUS_HUB_ROUNDS_H

#include "hub/session.h"
#include "job/rendezvous.h"

/* The rendezvous of the job, made when it has none, or when its last one is over and another may begin. NULL when
 * memory is short. */
struct rdzv *job_rendezvous(struct job *job);

/* Have all ranks agreed to a bigger world? Then the next round begins. */
void rounds_look_at_grow_keys(struct job *job);

#endif
