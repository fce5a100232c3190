/* peer_job.h -- start a job with any launcher, observe it, and leave no process of the job behind.
 *
 * A program with this module adopts orphans of a launcher (tests/survivors/tree.h). All processes that it starts have a
 * cookie in the environment. So the program finds all processes of a job in /proc, and never a foreign process. It also
 * finds processes that were started by the daemon of a resource manager and are not descendants. All of this runs in a
 * child process. The parent waits, and cleans up if the child or the user ends the program early. */
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
    /* output of the job, in a file, so that no process waits for a reader; peer_job_end closes it */
    FILE *out;
};

/* Run `run` in a child process, and return its exit status. Call this function once, before any other thread exists. */
int peer_jobs_main(int (*run)(int argc, char *argv[]), int argc, char *argv[]);

/* Return a directory for the files of the jobs. peer_jobs_main removes the directory before it returns. */
const char *peer_jobs_scratch(void);
/* Return the notes of the workers, which are empty at each start. */
struct notes *peer_jobs_notes(void);

/* Start a job with the launcher `p`. Return false if fork has failed. Call peer_job_end() in either case. */
bool peer_job_start(struct peer_job *j, const struct peer *p, bool tagged, int workers,
                    const char *const args[]);

/* Wait for `ms`, and return false. If the launcher ends earlier, return true at once. */
bool peer_job_wait(struct peer_job *j, int ms);

/* Wait until all workers have written the note "ready". Return false if this takes longer than `ms`. */
bool peer_job_ready(struct peer_job *j, int ms);

/* Return the launcher's exit code as a shell would. The launcher must have ended. */
int peer_job_code(const struct peer_job *j);

/* Copy the job's whole output to `text`, cut at `size` bytes. */
void peer_job_text(struct peer_job *j, char *text, size_t size);

/* Return how many processes of the jobs live. If `name` is not NULL, count only processes with this command name. */
int peer_job_alive(const char *name);

/* Kill all remaining processes of the job, and close all its descriptors. */
void peer_job_end(struct peer_job *j);

#endif
