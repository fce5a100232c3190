/* job_nodes.h -- the nodes of a job: connections of agents that have joined its rendezvous. */
#ifndef RENDEZVOUS_JOB_NODES_H
#define RENDEZVOUS_JOB_NODES_H

#include "hub/session.h"

/* What a node needs that other sessions do not have. Asked for before it joins; false when memory is short. */
bool job_node_room(struct session *s);
/* This session, which has room, is a node from now on. */
void job_node_joined(struct session *s);
/* Bytes have come from it. */
void job_node_heard(struct session *s);
/* It is none any more: its connection is gone, `how` says what happened to it. */
void job_node_gone(struct session *s, const char *how);
/* It is none any more, and the rendezvous knows. */
void job_node_ends(struct session *s);

/* Everybody gets another full time to be heard of: it was we who stood still. */
void job_pardon(struct job *job);

#endif
