/* record.h -- a file for each running job, by which the next start finds what a killed one has left. It lies in the
 * directory of runtime_dir.h, and so do the workers' error files, which go with it.
 *
 * A second file beside it, "DIGITS.store", has the address of the job's store: by both, ddpctl finds the jobs of its user. */
#ifndef LAUNCHER_RECORD_H
#define LAUNCHER_RECORD_H

#include "base/endpoint.h"
#include "contain/record_text.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In one of the two, before the first worker: `guardian` and `agent` run `job`. `cgroup` is the directory of the job's
 * control group, "" = none. DDP_ERR_IO: there is no place for it. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Write the address of the job's store beside its record. A failure costs only that ddpctl does not find it. */
void record_write_store(const char *cookie, const char *address);

/* A job of this user that runs now. */
struct record_job {
    char job[RECORD_JOB_MAX], store[ENDPOINT_TEXT_MAX];
    int pid;         /* of the ddprun that the user started */
    uint64_t age_ms; /* since that started */
};

/* Call `visit` for each job of this user that runs on this host, in this PID namespace, and has named its store. Files that
 * another user owns are ignored. */
void record_each(void (*visit)(void *user, const struct record_job *job), void *user);

/* Nothing is left of the job: its files go. */
void record_remove(const char *cookie);

/* Look through the records. Where guardian and agent are both gone, kill what their job has left, say so in a line
 * (unless `quiet`), and remove the record. Jobs that run, jobs of other PID namespaces as long as these are there or may be, and
 * a job that we are a part of ourselves are left alone. */
void record_sweep(bool quiet);

#endif
