/* monitor.h -- reports to the nodes of a job why the job does not start or does not continue. Facts are collected only
 * for a check, so requests have no extra cost. A job that starts without delay gets no report. */
#ifndef RENDEZVOUS_HUB_MONITOR_H
#define RENDEZVOUS_HUB_MONITOR_H

#include "diagnosis/rejected.h"
#include "diagnosis/snapshot.h"
#include "hub/hang_watch.h"

struct job;

/* A snapshot of a job for diagnose_job(), with the arrays of the snapshot. It is valid until the hub processes the next
 * message. The checks that are due at the same time share one snapshot. */
struct job_snapshot {
    struct snapshot snapshot; /* its pointers point to the arrays below */
    /* All arrays are owned. Their texts are borrowed from the hub. */
    struct snapshot_node *nodes;
    struct snapshot_gone *gone;
    struct snapshot_refused *refused;
    struct snapshot_stranger *strangers;
    struct snapshot_notice *notices;
    struct snapshot_wait *waits;
    struct snapshot_claim *claims;
    struct snapshot_rank *ranks;
    struct rejects *rejects;
    char (*bytes)[4 * REJECT_FIRST_MAX + 8]; /* first bytes of foreign clients, as text */
};

/* Take a snapshot. Return false if memory is short. If the result is true, the caller frees the snapshot with
 * snapshot_free(). */
bool snapshot_job(struct job *job, struct job_snapshot *snapshot);
void snapshot_free(struct job_snapshot *snapshot);

/* Run all checks, and determine the rank that should set a missing key. */
void monitor_diagnose(const struct job *job, struct job_snapshot *snapshot, struct diagnosis *d);

/* Run all due checks and report new findings. schedule.h defines when a check is due. Two checks are at least a second
 * apart. The exceptions are the last check before the job fails, and the check after a rank has reported a problem.
 * Call this before the tick of the rendezvous, which may end the job. */
void monitor_run(struct job *job);

/* Report that two processes act as one rank. Do nothing if an earlier report has listed these processes. These
 * processes may have caused a worker's failure, but neither the worker nor the agent can name this cause. Call this
 * function before the failure ends the round, because attempt_end() deletes the data about these processes. */
void monitor_report_repeated(struct job *job);

#endif
