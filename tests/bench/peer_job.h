/* peer_job.h -- start a job with any launcher, observe it, and leave no process of the job behind.
 *
 * All processes of a job have a cookie in the environment, and are found by it in /proc, even if a daemon started them.
 * This happens in a child process; the parent cleans up if the child or the user ends the program early. */
#ifndef TESTS_BENCH_PEER_JOB_H
#define TESTS_BENCH_PEER_JOB_H

#include "notes.h"
#include "peers.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct peer_job {
    pid_t launcher;
    bool ended; /* the launcher has been reaped */
    int status;
    int64_t ended_ns;
    FILE *out; /* the job's output file, closed by peer_job_end */
};

/* Call `run` in a child process, and return its exit status. Call this before any other thread exists. */
int peer_jobs_main(int (*run)(int argc, char *argv[]), int argc, char *argv[]);

/* Return a directory for files, which peer_jobs_main removes. */
const char *peer_jobs_scratch(void);
/* Return the workers' notes, which are empty when a job starts. */
struct notes *peer_jobs_notes(void);

/* Start a job with the launcher `p`. Return false if fork fails. Call peer_job_end() in either case. */
bool peer_job_start(struct peer_job *j, const struct peer *p, bool tagged, int workers,
                    const char *const args[]);

/* Wait for `ms`. Return true as soon as the launcher ends. */
bool peer_job_wait(struct peer_job *j, int ms);

/* Wait up to `ms` until all workers have written the note "ready". Return false after a timeout. */
bool peer_job_ready(struct peer_job *j, int ms);

/* Return the exit code of the ended launcher, as a shell would. */
int peer_job_code(const struct peer_job *j);

/* Copy the job's output, cut at `size`. */
void peer_job_text(struct peer_job *j, char *text, size_t size);

/* Return the number of living processes of the jobs, with the command name `name` or any (NULL). */
int peer_job_alive(const char *name);

/* Kill all processes, and close all descriptors. */
void peer_job_end(struct peer_job *j);

#endif
