/* peer_job.h -- start a job with any launcher, observe it, and leave no process of it behind.
 *
 * The program that uses this adopts orphans of a launcher (tests/survivors/tree.h), and everything it starts has a
 * cookie in its environment: so even processes that a resource manager's daemon has started, outside our tree, are
 * found in /proc, and foreign processes never are. All of that happens in a child; its parent waits, and cleans up
 * when the child or the user ends it early. */
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
    FILE *
        out; /* output of the job, in a file, so that no process waits for a reader; peer_job_end closes it */
};

/* Run `run` in the child; returns its exit status. Call this once in a program, and before any other thread. */
int peer_jobs_main(int (*run)(int argc, char *argv[]), int argc, char *argv[]);

/* Return the directory for files of the jobs, which is removed at the end. */
const char *peer_jobs_scratch(void);
/* Return the notes of the workers, which are empty at each start. */
struct notes *peer_jobs_notes(void);

/* Return false if fork failed. Call peer_job_end() in either case. */
bool peer_job_start(struct peer_job *j, const struct peer *p, bool tagged, int workers,
                    const char *const args[]);

/* Let that much time pass, or return true earlier when the launcher ends. */
bool peer_job_wait(struct peer_job *j, int ms);

/* Wait until the last "ready" note is there; false when it is late. */
bool peer_job_ready(struct peer_job *j, int ms);

/* Return the launcher's exit code as a shell would. The launcher must have ended. */
int peer_job_code(const struct peer_job *j);

/* Return the job's whole output as one text, cut at `size`. */
void peer_job_text(struct peer_job *j, char *text, size_t size);

/* Return how many processes of the jobs live; `name` NULL = any process, else those whose command has this name. */
int peer_job_alive(const char *name);

/* Kill all remaining processes, close all descriptors. */
void peer_job_end(struct peer_job *j);

#endif
