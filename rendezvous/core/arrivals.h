/* arrivals.h -- an agent comes to a named barrier for ranks of its node.
 *
 *     rank 8 ... rank 15 have come, says their agent      CONTROL arrive [8, 15]  -> one seat for eight ranks
 *     the barrier has ended                               push `barrier`          <- one answer for all of them
 *
 * A rank that comes by itself costs a connection, a request and an answer; a world of a hundred thousand is told of
 * through a tenth or a hundredth of that. Both kinds may meet in one barrier: it counts ranks, whoever speaks for
 * them. An agent may wait in several barriers at once, and goes on talking meanwhile; an arrival ends with its push,
 * with the agent's connection or with the attempt. */
#ifndef RENDEZVOUS_ARRIVALS_H
#define RENDEZVOUS_ARRIVALS_H

#include "core/session.h"

enum { ARRIVALS_MAX = 64 }; /* of one agent at a time */

struct arrival {
    struct list in_session;   /* in session_node.arrivals, which owns it */
    struct session *session;  /* borrowed */
    struct barrier_seat seat; /* for all its ranks */
    uint64_t since_ms;
    uint32_t name_len; /* of the barrier */
    char name[];
};

/* `call` is for ranks of the agent's own node. False: nothing has changed, hub->err says why. */
bool arrivals_come(struct hub *hub, struct session *agent, const struct barrier_call *call);

/* The barrier has ended for this seat: its agent is told, and the arrival is freed. */
void arrivals_answer(struct job *job, struct barrier_seat *seat, enum barrier_outcome outcome,
                     struct slice json);

/* What is kept of the last answer. */
void arrivals_forget_push(struct hub *hub);

/* It waits in nothing any more, and is told nothing. */
void arrivals_leave(struct session *agent);

/* The oldest arrival for that rank; NULL = none. */
const struct arrival *arrivals_of_rank(const struct job *job, uint32_t rank);

#endif
