/* job.h -- ddprun with tests/prog/worker as its program, for end-to-end tests.
 *
 *     struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "exit:7");
 *
 * Jobs run with --standalone (any free port), in a clean environment; WORKER stands for the worker program. */
#ifndef TESTS_LIB_JOB_H
#define TESTS_LIB_JOB_H

#include "run.h"

#include <stddef.h>

#define WORKER "(worker)"

/* Run a job to its end / start one. */
#define JOB(...)       job_run((const char *const[]){ __VA_ARGS__, NULL }, NULL)
#define JOB_START(...) job_start((const char *const[]){ __VA_ARGS__, NULL }, NULL)

/* A job has ended with that code; if not, what it said is shown. */
#define EXPECT(r, code) \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, stderr:\n%s", (r).exit_code, (r).signal, (r).err)

/* `options` may be NULL; its `env` comes on top of the clean environment. */
struct run_result job_run(const char *const args[], const struct run_options *options);
struct run_process *job_start(const char *const args[], const struct run_options *options);

/* A new empty directory; job_dir_remove removes it with all that is in it. The text is the caller's to free. */
char *job_dir(void);
void job_dir_remove(char *dir);

/* The whole of a file as a string, NULL when it is not there. Free it. */
char *job_file(const char *dir, const char *name);

/* Number of lines of `text` that are exactly `line`. */
int job_count(const char *text, const char *line);

/* True when the process is in that state ("T", "Z", of /proc/PID/stat) some time. */
bool job_until_state(pid_t pid, char state);

/* True when the pipe whose reading end is `reader` takes no more, some time: its writers wait. */
bool job_until_full(int reader);

/* A FIFO whose writers are all the processes of a job ("hold:PATH" makes a worker and its children one). */
struct job_witness {
    char *dir;
    char path[256];
    char hold[272]; /* "hold:PATH" */
    int fd;
};

void job_witness_open(struct job_witness *w);

/* True when every process that had it open is gone some time. Call it when the workers have said that they hold it. */
bool job_witness_alone(struct job_witness *w);

/* Is anybody there now? */
bool job_witness_sees_some(struct job_witness *w);
void job_witness_close(struct job_witness *w);

#endif
