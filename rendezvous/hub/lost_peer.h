/* lost_peer.h -- a rank is gone, or has given up, while others count on it.
 *
 * A rank has ended with 0, which looks like a success, while others count on it: all agents hear of it at once, and
 * whoever asks why. */
#ifndef RENDEZVOUS_HUB_LOST_PEER_H
#define RENDEZVOUS_HUB_LOST_PEER_H

#include "store/barrier.h"

struct finding;
struct job;
struct session;

/* `rank` has ended, and the barrier has failed for it; its seats are still taken. */
void lost_peer_in_barrier(struct job *job, const struct barrier *barrier, uint32_t rank);

/* A round is over. A rank that has lost a peer in a collective stands for the cause when nobody has failed. */
void lost_peer_verdict(struct job *job);

/* The connection of a client of PyTorch ends. When it gives up the setup of a group, that is noted with the reason. */
void lost_peer_leaves(struct session *s);

#endif
