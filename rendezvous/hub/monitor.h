/* monitor.h -- reports to the nodes of a job why the job does not start or does not continue. Facts are collected
 * only for a check, so requests have no extra cost. */
#ifndef RENDEZVOUS_HUB_MONITOR_H
#define RENDEZVOUS_HUB_MONITOR_H

#include "diagnosis/rejected.h"
#include "diagnosis/snapshot.h"
#include "hub/hang_watch.h"

struct job;

/* A snapshot of a job for diagnose_job(). It is valid until the hub processes the next message. */
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

/* Take a snapshot, which the caller frees with snapshot_free(). Return false if memory is short. */
bool snapshot_job(struct job *job, struct job_snapshot *snapshot);
void snapshot_free(struct job_snapshot *snapshot);

/* Run all checks, and determine the rank that should set a missing key. */
void monitor_diagnose(const struct job *job, struct job_snapshot *snapshot, struct diagnosis *d);

/* Run all due checks (schedule.h) and report new findings. Call this before the tick of the rendezvous, which may
 * end the job. */
void monitor_run(struct job *job);

/* Report that two processes act as one rank, unless a report has listed them. Call this before a failure ends the
 * round, because attempt_end() deletes the data about them. */
void monitor_report_repeated(struct job *job);

#endif
