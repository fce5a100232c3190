/* job.h -- ddprun with tests/prog/worker as its program, for end-to-end tests.
 *
 *     struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "exit:7");
 *
 * Jobs run in a clean environment, with --standalone unless the first argument is --hosts or --hostfile. WORKER stands
 * for the worker program. */
#ifndef JOB_H
#define JOB_H

#include "run.h"

#include <stdbool.h>
#include <stddef.h>

#define WORKER "(worker)"

/* JOB waits for the job's end; JOB_START does not. */
#define JOB(...)       job_run((const char *const[]){ __VA_ARGS__, NULL }, NULL)
#define JOB_START(...) job_start((const char *const[]){ __VA_ARGS__, NULL }, NULL)

/* Expect exit code `code`, otherwise print the output. */
#define EXPECT(r, code) \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, stderr:\n%s", (r).exit_code, (r).signal, (r).err)

/* Expect `words` on stderr (SAYS), on stdout (PRINTS), or not on stderr (SILENT). */
#define SAYS(r, words)   cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)
#define PRINTS(r, words) cr_expect(strstr((r).out, words) != NULL, "'%s' is not in:\n%s", words, (r).out)
#define SILENT(r, words) cr_expect(strstr((r).err, words) == NULL, "'%s' is in:\n%s", words, (r).err)

/* Run a job to its end (job_run) or start it. `options` may be NULL; `options->env` is added to the clean
 * environment. */
struct run_result job_run(const char *const args[], const struct run_options *options);
struct run_process *job_start(const char *const args[], const struct run_options *options);

/* Make an empty directory and return its path. job_dir_remove removes it and frees the path. */
char *job_dir(void);
void job_dir_remove(char *dir);

/* Return a file as a string, which the caller frees, or NULL if missing. */
char *job_file(const char *dir, const char *name);

/* Return the number of lines that equal `line`. */
int job_count(const char *text, const char *line);

/* Wait until `pid` is in `state` ('T' or 'Z' in /proc/PID/stat). Return false after PATIENCE_MS. */
bool job_until_state(pid_t pid, char state);

/* Wait until the pipe `reader` is full. Return false after PATIENCE_MS. */
bool job_until_full(int reader);

/* A FIFO that a job's processes hold open ("hold:PATH"). It shows whether some of them still run. */
struct job_witness {
    char *dir;
    char path[256];
    char hold[272]; /* "hold:PATH" */
    int fd;
};

void job_witness_open(struct job_witness *w);

/* Wait until no process has the FIFO open. Return false after PATIENCE_MS. Call this after the workers have reported
 * that they hold it. */
bool job_witness_alone(struct job_witness *w);

/* Return true if a process has the FIFO open. */
bool job_witness_sees_some(struct job_witness *w);
void job_witness_close(struct job_witness *w);

/* --- gate ------------------------------------------------------------------------------------------------- */

/* A gate at which workers wait while a test acts on the running job.
 *
 *     gate_shut();
 *     struct run_process *p = JOB_START("sh", "-c", "echo up; " AT_GATE);
 *     ... read "up", act on the job, wait for the effect ...
 *     gate_open();
 *
 * GATE in the environment is the gate's path, until gate_gone(). */

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
    int whole, torn; /* a torn line is broken, misplaced, or follows a lost line */
    char first[120]; /* the beginning of the first torn line */
};

/* Count the lines of `text`, and cut it in place. Each line has the prefix "[rank] ", in colour if `coloured`. */
struct lines_seen lines_seen(char *text, bool coloured);

/* --- torch ------------------------------------------------------------------------------------------------ */

/* Tests with the real PyTorch, which run programs in tests/interop/. */

/* Return the interpreter: $DDP_PYTHON (`make interop PYTHON=...`), or Debian's Python. */
const char *torch_python(void);

/* Skip the test if torch_python() has no torch. */
void torch_skip_without(void);

/* Skip the test under a sanitizer, because PyTorch takes most of its time. */
void torch_skip_sanitized(void);

/* Return true if torch 1.x is installed. */
bool torch_is_old(void);

/* Return the dialect of torch's stores, as ddp_store_dialect does; without torch 'C'. */
char torch_dialect(void);

/* Return true if torch was built without libuv. Its clients use only torch's own stores. */
bool torch_refuses_stores(void);

/* Skip the test without torch, or if torch_refuses_stores() (Debian 13). */
void torch_skip_without_libuv(void);

/* Return the number in the variable `name` (set by `make interop`), otherwise `usual`, or a tenth of it under a
 * sanitizer. */
int torch_number(const char *name, int usual);

/* Return an environment with PYTHON_EXEC and few threads. */
const char *const *torch_env(void);

/* Skip the test without py-spy. Return "PATH=..." with the folder of py-spy ($DDP_PY_SPY, set by scripts/test.sh). */
const char *py_spy_path(void);

#endif
