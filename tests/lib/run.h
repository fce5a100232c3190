/* run.h -- start a program the way a user does, and read its output.
 *
 *     const char *argv[] = { bin("ddp-rendezvous"), "--version", NULL };
 *     struct run_result r = run_command(argv, NULL);
 *     cr_assert_eq(r.exit_code, 0, "%s", r.err);
 *
 * For a program that keeps running: run_start, run_until_output("listening on "), run_signal, run_wait.
 *
 * The program's own process group is killed after its end or timeout, and it dies with the test. No function of the
 * part "run" fails a test: the result contains the error. */
#ifndef RUN_H
#define RUN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A test waits for a condition and not for a fixed time, because durations depend on the machine.
 *
 *     for (struct patience p = { 0 }; !condition && patience_left(&p);)
 *         continue; */

enum { PATIENCE_MS = 60000 };

/* Initialize with { 0 }. PATIENCE_MS begin with the first patience_left(). */
struct patience {
    uint64_t until_ms;
};

/* Return false after PATIENCE_MS. Otherwise sleep for some milliseconds. */
bool patience_left(struct patience *p);

/* Append bytes from `fd` to `seen` until it contains `text`. Return false at the end, if `seen` is full, or after
 * PATIENCE_MS without a byte. */
bool patience_read(int fd, char *seen, unsigned long size, const char *text);

/* --- temp dir --------------------------------------------------------------------------------------------- */

/* A separate directory for a test.
 *
 *     static char dir[] = "/tmp/ddp-thing-XXXXXX"; */

/* Create the directory `path`, and replace its Xs. Abort the test on failure. */
void temp_dir_make(char *path);

/* Remove the directory with its contents. */
void temp_dir_remove(const char *path);

/* The directory of a test whose suite has .init = test_dir_open and .fini = test_dir_close. */
extern char test_dir[];
void test_dir_open(void);
void test_dir_close(void);

/* Return test_dir/NAME. Four texts may be in use at once. */
const char *test_path(const char *name);

/* --- free port -------------------------------------------------------------------------------------------- */

/* A port for several programs, before one listens. */

/* Return a port of 127.0.0.1 without a listener. Neither the kernel nor another test uses it. */
int free_port(void);

/* Append a free port to `option`. The text is valid until the next call. */
const char *free_port_option(const char *option);

/* --- run -------------------------------------------------------------------------------------------------- */

struct run_options {
    const char *const *env;           /* NULL-terminated: "NAME=value" sets, "NAME" removes; NULL: inherit */
    const char *cwd;                  /* working directory; NULL: the test's */
    const char *stdin_text;           /* text for stdin; NULL: /dev/null */
    bool terminal;                    /* stdout and stderr are one terminal, read as `out` */
    int timeout_ms;                   /* ms until the group is killed; 0: PATIENCE_MS */
    pid_t (*fork)(const void *place); /* called with `place`; NULL: fork() */
    const void *place;
};

struct run_result {
    int exit_code; /* -1: killed by a signal; 127 with `err`: exec failed */
    int signal;    /* signal that ended the program, or 0 */
    char *out;     /* stdout, never NULL; run.c owns `out` and `err` until the test ends */
    char *err;     /* stderr; if timed_out, followed by the state of all processes */
    bool timed_out;
};

/* Run a program to its end. `argv` ends with NULL; argv[0] is searched in PATH. `options` may be NULL. */
struct run_result run_command(const char *const argv[], const struct run_options *options);

struct run_process;

/* Start a program. Only run_until_* and run_wait read its output (a pipe holds 1 MiB). Return NULL if fork or pipe
 * failed. The caller must pass the process to run_wait, which frees it. */
struct run_process *run_start(const char *const argv[], const struct run_options *options);

pid_t run_pid(const struct run_process *process);

/* Signal the program, not its group. */
void run_signal(struct run_process *process, int signal);

/* Read until stdout (or stderr) contains `text`. Return false if the program ends, or after `timeout_ms`. */
bool run_until_output(struct run_process *process, const char *text, int timeout_ms);
bool run_until_error(struct run_process *process, const char *text, int timeout_ms);

/* Return stdout so far, valid until the next call with this process. */
const char *run_output(struct run_process *process);

/* Wait for the program, and kill its group at the timeout. Free `process` and return the result. */
struct run_result run_wait(struct run_process *process);

/* Return the path of a built program, in $DDP_BUILD or in this test's build directory. Eight paths may be in use at
 * once. */
const char *bin(const char *program);

/* Return true if the programs have a sanitizer. A sanitizer needs memory, /proc and a place for reports. */
bool bin_is_sanitized(void);

/* Return true if uid 65534 can reach the programs. It cannot below a home directory of mode 0700. Only root may call
 * this. */
bool bin_is_open_to_nobody(void);

/* Switch off LeakSanitizer in programs that start later. It fails if a program is killed or traced during its check. */
void bin_seek_no_leaks(void);

/* --- daemon ----------------------------------------------------------------------------------------------- */

/* A ddp-rendezvous process for a test. */

struct daemon {
    struct run_process *process;
    int port;
};

/* Start the daemon on `listen`, with `option` unless NULL, and wait for its ready line. Fail the test without it. */
struct daemon daemon_start(const char *listen, const char *option);

/* Start the daemon for every user, with --max-bytes=`max_bytes`. */
struct daemon daemon_start_insecure(const char *max_bytes);

/* Start the daemon with at most `max_fds` descriptors. */
struct daemon daemon_start_limited(int max_fds);

/* Send SIGTERM, and expect exit code 0. */
void daemon_stop(struct daemon *d);

#endif
