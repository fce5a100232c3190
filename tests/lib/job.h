/* job.h -- ddprun with tests/prog/worker as its program, for end-to-end tests.
 *
 *     struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "exit:7");
 *
 * Jobs run in a clean environment, and with --standalone (any free port) unless the first argument is --hosts or
 * --hostfile. WORKER stands for the worker program. */
#ifndef JOB_H
#define JOB_H

#include "run.h"

#include <stdbool.h>
#include <stddef.h>

#define WORKER "(worker)"

/* JOB runs a job to its end; JOB_START only starts it. */
#define JOB(...)       job_run((const char *const[]){ __VA_ARGS__, NULL }, NULL)
#define JOB_START(...) job_start((const char *const[]){ __VA_ARGS__, NULL }, NULL)

/* Expect that a job has ended with exit code `code`. Otherwise print its exit code, its signal and its stderr. */
#define EXPECT(r, code) \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, stderr:\n%s", (r).exit_code, (r).signal, (r).err)

/* SAYS expects the text `words` on stderr, PRINTS expects `words` on stdout, and SILENT expects that `words` is not on
 * stderr. On failure these macros print the output. */
#define SAYS(r, words)   cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)
#define PRINTS(r, words) cr_expect(strstr((r).out, words) != NULL, "'%s' is not in:\n%s", words, (r).out)
#define SILENT(r, words) cr_expect(strstr((r).err, words) == NULL, "'%s' is in:\n%s", words, (r).err)

/* Run a job until it ends (job_run), or only start it (job_start). `options` may be NULL. `options->env` is added to
 * the clean environment. */
struct run_result job_run(const char *const args[], const struct run_options *options);
struct run_process *job_start(const char *const args[], const struct run_options *options);

/* Make a new empty directory and return its path. job_dir_remove removes the directory with its contents, and frees
 * the path. */
char *job_dir(void);
void job_dir_remove(char *dir);

/* Return a whole file as a string, which the caller frees. Return NULL if the file is missing. */
char *job_file(const char *dir, const char *name);

/* Return the number of lines of `text` that are exactly `line`. */
int job_count(const char *text, const char *line);

/* Return how often `text` contains `piece`. */
int job_count_text(const char *text, const char *piece);

/* Wait until process `pid` is in state `state` ('T' or 'Z' in /proc/PID/stat). Return false after PATIENCE_MS. */
bool job_until_state(pid_t pid, char state);

/* Wait until the pipe with the reading end `reader` is full, so that its writers block. Return false after
 * PATIENCE_MS. */
bool job_until_full(int reader);

/* A FIFO that shows whether processes of a job still run: with the argument "hold:PATH" a worker and its children
 * keep the FIFO open for writing. */
struct job_witness {
    char *dir;
    char path[256];
    char hold[272]; /* "hold:PATH" */
    int fd;
};

void job_witness_open(struct job_witness *w);

/* Wait until every process that had the FIFO open has ended. Return false after PATIENCE_MS. Call this function after
 * the workers have reported that they hold the FIFO open. */
bool job_witness_alone(struct job_witness *w);

/* Return true if a process has the FIFO open now. */
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
    int whole, torn; /* number of correct lines, and number of lines that are broken, misplaced, or follow a
                      * lost line */
    char first[120]; /* the beginning of the first torn line */
};

/* Cut `text` into lines and count them. Each line has the prefix "[rank] ", in colour if `coloured`. */
struct lines_seen lines_seen(char *text, bool coloured);

/* --- torch ------------------------------------------------------------------------------------------------ */

/* Tests with the real PyTorch, which run programs in tests/interop/. */

/* Return the interpreter: $DDP_PYTHON (`make interop PYTHON=...`), or Debian's Python. */
const char *torch_python(void);

/* Skip the test if the interpreter of torch_python() has no torch. */
void torch_skip_without(void);

/* Skip the test under a sanitizer: PyTorch takes most of the test's time, and the run without a sanitizer covers
 * ddprun's code. */
void torch_skip_sanitized(void);

/* Return true if the installed torch is 1.x. Return false if torch is not installed. */
bool torch_is_old(void);

/* Return the dialect of the stores of the installed torch, as ddp_store_dialect does. Return 'C' if torch is not
 * installed. */
char torch_dialect(void);

/* Return true if the installed torch was built without libuv. The clients of such a torch use only stores that torch
 * hosts. */
bool torch_refuses_stores(void);

/* Skip the test if the interpreter has no torch, or a torch for which torch_refuses_stores() is true (Debian 13). */
void torch_skip_without_libuv(void);

/* Return the number in the environment variable `name`, which `make interop` sets for many repetitions. Without the
 * variable return `usual`, or a tenth of `usual` under a sanitizer. */
int torch_number(const char *name, int usual);

/* Return the environment of a job whose workers run the interpreter: PYTHON_EXEC, and no more threads than needed. */
const char *const *torch_env(void);

/* Return "PATH=...", a search path on which a shell finds py-spy. DDP_PY_SPY names the folder into which
 * scripts/test.sh installs py-spy. If DDP_PY_SPY is set, this folder is the last entry of the search path. Skip the
 * test if the search path contains no py-spy. */
const char *py_spy_path(void);

#endif
