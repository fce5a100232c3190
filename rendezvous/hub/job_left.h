/* job_left.h -- a rank has ended with 0, which looks like a success, while others count on it: all agents hear of it at once, and
 * whoever asks why. */
#ifndef RENDEZVOUS_JOB_LEFT_H
#define RENDEZVOUS_JOB_LEFT_H

#include "store/barrier.h"

struct job;

/* `rank` has ended, and the barrier has failed for it; its seats are still taken. */
void job_left_barrier(struct job *job, const struct barrier *barrier, uint32_t rank);

/* A round is over. A rank that has lost a peer in a collective stands for the cause when nobody has failed. */
void job_left_verdict(struct job *job);

#endif
