/* job.h -- ddprun with tests/prog/worker as its program, for end-to-end tests.
 *
 *     struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "exit:7");
 *
 * Jobs run with --standalone (any free port) unless the first argument is --hosts or --hostfile, in a clean environment; WORKER stands for the worker program. */
#ifndef JOB_H
#define JOB_H

#include "run.h"

#include <stdbool.h>
#include <stddef.h>

#define WORKER "(worker)"

/* Run a job to its end / start one. */
#define JOB(...)       job_run((const char *const[]){ __VA_ARGS__, NULL }, NULL)
#define JOB_START(...) job_start((const char *const[]){ __VA_ARGS__, NULL }, NULL)

/* Expect that a job has ended with that code; otherwise print its output. */
#define EXPECT(r, code) \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, stderr:\n%s", (r).exit_code, (r).signal, (r).err)

/* `options` may be NULL; its `env` is added to the clean environment. */
struct run_result job_run(const char *const args[], const struct run_options *options);
struct run_process *job_start(const char *const args[], const struct run_options *options);

/* Make a new empty directory; job_dir_remove removes it with its contents. The caller frees the text. */
char *job_dir(void);
void job_dir_remove(char *dir);

/* Return a whole file as a string, NULL when it is missing. Free it. */
char *job_file(const char *dir, const char *name);

/* Return the number of lines of `text` that are exactly `line`. */
int job_count(const char *text, const char *line);

/* Wait until the process is in that state ("T", "Z", of /proc/PID/stat); false after PATIENCE_MS. */
bool job_until_state(pid_t pid, char state);

/* Wait until the pipe with the reading end `reader` is full, so that its writers block; false after PATIENCE_MS. */
bool job_until_full(int reader);

/* A FIFO whose writers are all processes of a job ("hold:PATH" makes a worker and its children writers). */
struct job_witness {
    char *dir;
    char path[256];
    char hold[272]; /* "hold:PATH" */
    int fd;
};

void job_witness_open(struct job_witness *w);

/* Wait until every process that had it open has ended; false after PATIENCE_MS. Call it when the workers have
 * reported that they hold it. */
bool job_witness_alone(struct job_witness *w);

/* True if a process has it open now. */
bool job_witness_sees_some(struct job_witness *w);
void job_witness_close(struct job_witness *w);

/* --- gate ------------------------------------------------------------------------------------------------- */

/* Workers that wait for the test, or for all the others. A test acts on the running job while its workers wait, so
 * the job cannot end early, and no test guesses the time of a start.
 *
 *     gate_shut();
 *     struct run_process *p = JOB_START("sh", "-c", "echo up; " AT_GATE);
 *     ... until "up" is read and the action shows ...
 *     gate_open();
 *
 * The gate's path is in the environment, as GATE, from gate_shut() to gate_gone(). */

/* For a worker's shell: wait until the gate is open. */
#define AT_GATE "until [ -e $GATE ]; do sleep 0.02; done"

/* For a worker's shell: wait for all workers of this attempt. */
#define ALL_HERE                                                                                          \
    ">$GATE.$TORCHELASTIC_RESTART_COUNT.$RANK; until [ $(ls -d $GATE.$TORCHELASTIC_RESTART_COUNT.* | wc " \
    "-l) "                                                                                                \
    "-ge $WORLD_SIZE ]; do sleep 0.02; done"

void gate_shut(void);
void gate_open(void);

/* Remove the files of gate_shut, if any. */
void gate_gone(void);

/* --- recorded lines --------------------------------------------------------------------------------------- */

/* Counts of the lines of tests/prog/torn_writer. */

struct lines_seen {
    int whole, torn; /* torn lines, including lines after a lost one and lines out of their worker's order */
};

/* Cut `text` into lines. They have the prefix "[rank] ", in colour if `coloured`. */
struct lines_seen lines_seen(char *text, bool coloured);

/* --- torch ------------------------------------------------------------------------------------------------ */

/* A genuine PyTorch for end-to-end tests: which interpreter has it, and jobs of the programs in tests/interop/. */

/* $DDP_PYTHON (`make interop PYTHON=...`), else Debian's. */
const char *torch_python(void);

/* Skip the test if that interpreter has no torch. */
void torch_skip_without(void);

/* Skip the test under a sanitizer: most of its time is PyTorch's, and the plain run covers it. */
void torch_skip_sanitized(void);

/* True if the installed torch is 1.x. False without one. */
bool torch_is_old(void);

/* True if the installed torch was built without libuv, so that its clients only use stores that it hosts. */
bool torch_refuses_stores(void);

/* Skip the test if that interpreter has no torch, or one whose TCPStore works only with a store that PyTorch hosts
 * without libuv (Debian 13). */
void torch_skip_without_libuv(void);

/* Return the number in $NAME, else `usual`, or a tenth of it under sanitizers: how often `make interop` repeats what
 * `make test` only samples. */
int torch_number(const char *name, int usual);

/* Environment for a job whose workers run that interpreter: PYTHON_EXEC, and no more threads than needed. */
const char *const *torch_env(void);

#endif
