/* monitor.h -- looks at a job, and tells its nodes why it does not come together or go on.
 *
 * A look is a snapshot of the job for diagnose_job() and the screen. Everything is collected when somebody asks, and nothing is kept for
 * it: no request pays for being observable. schedule.h says when the monitor looks by itself. */
#ifndef RENDEZVOUS_HUB_MONITOR_H
#define RENDEZVOUS_HUB_MONITOR_H

#include "diagnosis/snapshot.h"
#include "hub/session.h"

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

/* Tell what is due. Before the rendezvous' own tick: it may end the job. */
void monitor_run(struct job *job);

#endif
