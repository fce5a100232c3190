/* look.h -- a snapshot of a job of the hub, for the diagnosis and the screen. */
#ifndef RENDEZVOUS_HUB_LOOK_H
#define RENDEZVOUS_HUB_LOOK_H

#include "diagnosis/snapshot.h"
#include "hub/session.h"

struct job;

/* Into the snapshot; *claims is yours (free). False when memory is short. */
bool torch_crowd(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

/* --- job look --------------------------------------------------------------------------------------------- */

/* A snapshot of a job of the hub, for diagnose_job and the screen.
 *
 * Everything is collected when somebody asks, and nothing is kept for it: no request pays for being observable. */

/* The snapshot and what it stands on. Valid as long as nothing in the hub changes. */
struct look {
    struct snapshot snapshot;
    struct snapshot_node *nodes; /* all owned */
    struct snapshot_gone *gone;
    struct snapshot_refused *refused;
    struct snapshot_stranger *strangers;
    struct snapshot_notice *notices;
    struct snapshot_wait *waits;
    struct snapshot_claim *claims;
    struct rank_facts *ranks;
    struct rejects *rejects;
    char (*bytes)[4 * REJECT_FIRST_MAX + 8]; /* first bytes of strangers, as text */
};

/* False when memory is short; nothing is to be freed then. */
bool look_at_job(struct job *job, struct look *look);
void look_free(struct look *look);

#endif
