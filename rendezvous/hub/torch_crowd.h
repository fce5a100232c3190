/* torch_crowd.h -- those who take part in something of PyTorch's that has more members than ranks, or the same rank twice. */
#ifndef RENDEZVOUS_TORCH_CROWD_H
#define RENDEZVOUS_TORCH_CROWD_H

#include "diagnosis/snapshot.h"

struct job;

/* Into the snapshot; *claims is yours (free). False when memory is short. */
bool torch_crowd(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

#endif
