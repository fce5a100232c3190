/* job_look.h -- a snapshot of a job of the hub, for diagnose_job and the screen.
 *
 * Everything is collected when somebody asks, and nothing is kept for it: no request pays for being observable. */
#ifndef RENDEZVOUS_JOB_LOOK_H
#define RENDEZVOUS_JOB_LOOK_H

#include "hub/session.h"
#include "diagnosis/snapshot.h"

/* The snapshot and what it stands on. Valid as long as nothing in the hub changes. */
struct job_look {
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
bool job_look(struct job *job, struct job_look *look);
void job_look_free(struct job_look *look);

#endif
