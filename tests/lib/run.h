/* run.h -- start a program the way a user does, and read its output.
 *
 *     const char *argv[] = { bin("ddp-rendezvous"), "--version", NULL };
 *     struct run_result r = run_command(argv, NULL);
 *     cr_assert_eq(r.exit_code, 0, "%s", r.err);
 *     run_free(&r);
 *
 * For a program that keeps running: run_start, run_until_output("listening on "), run_signal, run_wait.
 *
 * The program gets its own process group, which is killed when it has ended or its time is up, and it dies
 * with the test (parent-death signal). Nothing here fails a test: the result contains the error. */
#ifndef RUN_H
#define RUN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Waiting for a condition. A test never waits for a fixed time, because durations depend on the machine; PATIENCE_MS
 * is reached only if the condition never holds.
 *
 *     for (struct patience p = { 0 }; !condition && patience_left(&p);)
 *         continue; */

enum { PATIENCE_MS = 60000 };

/* { 0 }: the time begins at the first check. */
struct patience {
    uint64_t until_ms;
};

/* Rest for a few milliseconds; false when the time is over. */
bool patience_left(struct patience *p);

/* Read from `fd` until `text` is in `seen`, a string that may have content. Return false at the end of the file,
 * without room, or after PATIENCE_MS without bytes. */
bool patience_read(int fd, char *seen, unsigned long size, const char *text);

/* --- temp dir --------------------------------------------------------------------------------------------- */

/* A separate directory for a test.
 *
 *     static char dir[] = "/tmp/ddp-thing-XXXXXX"; */

/* Make it; the Xs are replaced to make the name new. On failure the test ends. */
void temp_dir_make(char *path);

/* Remove it with its contents. */
void temp_dir_remove(const char *path);

/* --- free port -------------------------------------------------------------------------------------------- */

/* A port that a test can promise to several programs before the first of them listens on it. */

/* Return a port of 127.0.0.1 without a listener. The kernel does not assign it, and no other test that runs at the
 * same time gets it. */
int free_port(void);

/* "OPTION" with a free port appended; valid until the next call. */
const char *free_port_option(const char *option);

/* --- run -------------------------------------------------------------------------------------------------- */

struct run_options {
    const char *const
        *env;        /* NULL-terminated list: "NAME=value" sets, "NAME" alone removes; NULL = as inherited */
    const char *cwd; /* NULL = as inherited */
    const char *stdin_text; /* NULL = /dev/null */
    bool terminal;  /* stdout and stderr are one terminal, which shows bytes unchanged; read it as stdout */
    int timeout_ms; /* ms from the start; 0 = PATIENCE_MS. Then the group is killed and timed_out is set */
    pid_t (*fork)(const void *place); /* called instead of fork(), with `place`; NULL = fork() */
    const void *place;
};

struct run_result {
    int exit_code; /* -1 when a signal killed it; 127 with a text in `err` when it could not be executed */
    int signal;    /* 0 when it exited */
    char *out;     /* its stdout, as a string; never NULL */
    char *err;     /* same for stderr; then, if timed_out, the state of all its processes */
    bool timed_out;
};

/* Run to the end. `argv` ends with NULL; argv[0] is a path or is looked up in PATH. `options` may be NULL. */
struct run_result run_command(const char *const argv[], const struct run_options *options);

/* Free the two texts. */
void run_free(struct run_result *result);

struct run_process;

/* Start and return at once; output is read only during run_until_* and run_wait (a pipe holds 1 MiB until then). NULL
 * when fork or pipe failed. Every process must go through run_wait, which frees it. */
struct run_process *run_start(const char *const argv[], const struct run_options *options);

pid_t run_pid(const struct run_process *process);

/* Signal the program alone (not its group). */
void run_signal(struct run_process *process, int signal);

/* Read until stdout (stderr) contains `text`: true; false when the program ended or `timeout_ms` passed first. */
bool run_until_output(struct run_process *process, const char *text, int timeout_ms);
bool run_until_error(struct run_process *process, const char *text, int timeout_ms);

/* Return stdout so far; valid until the next call with this process. */
const char *run_output(struct run_process *process);

/* Wait for the end (kill the group after the options' timeout), free `process`, return everything. */
struct run_result run_wait(struct run_process *process);

/* Return the path of a built program: $DDP_BUILD/program, else in the build directory of this test program. The text
 * stays valid for the life of the test. */
const char *bin(const char *program);

/* True if the programs were built with AddressSanitizer or ThreadSanitizer. Those need memory, /proc and a place for
 * their reports, which some tests remove. */
bool bin_is_sanitized(void);

/* True if uid 65534 can reach the programs: false in a clone below a home of mode 0700. Only for root. setpriv still
 * starts a program there, because it holds root's rights until exec, but that program cannot open its own files. */
bool bin_is_open_to_nobody(void);

/* From here on, programs that this test starts do not check for leaks, because LeakSanitizer fails if a program is
 * killed or traced during the check. */
void bin_seek_no_leaks(void);

/* --- daemon ----------------------------------------------------------------------------------------------- */

/* A ddp-rendezvous process for a test. */

struct daemon {
    struct run_process *process;
    int port;
};

/* Start it on `listen`, with one more option unless NULL, and wait for its ready line; fails the test otherwise. */
struct daemon daemon_start(const char *listen, const char *option);

/* The same on 127.0.0.1:0 for every user of this host, with that --max-bytes. */
struct daemon daemon_start_insecure(const char *max_bytes);

/* The same on 127.0.0.1:0, with no more than `max_fds` descriptors. */
struct daemon daemon_start_limited(int max_fds);

/* Send SIGTERM; fails the test unless it ends with 0. */
void daemon_stop(struct daemon *d);

#endif
