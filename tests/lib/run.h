/* run.h -- start a program the way a user does, and read its output.
 *
 *     const char *argv[] = { bin("ddp-rendezvous"), "--version", NULL };
 *     struct run_result r = run_command(argv, NULL);
 *     cr_assert_eq(r.exit_code, 0, "%s", r.err);
 *
 * For a program that keeps running: run_start, run_until_output("listening on "), run_signal, run_wait.
 *
 * The program gets its own process group. The group is killed after the program has ended or its time is over. The
 * program dies with the test (parent-death signal). No function of the part "run" fails a test: the result contains
 * the error. */
#ifndef RUN_H
#define RUN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A test waits for a condition and not for a fixed time, because durations depend on the machine. A wait lasts
 * PATIENCE_MS only if the condition never holds.
 *
 *     for (struct patience p = { 0 }; !condition && patience_left(&p);)
 *         continue; */

enum { PATIENCE_MS = 60000 };

/* Initialize with { 0 }. The time PATIENCE_MS begins with the first call of patience_left(). */
struct patience {
    uint64_t until_ms;
};

/* Return false if PATIENCE_MS are over. Otherwise sleep for a few milliseconds and return true. */
bool patience_left(struct patience *p);

/* Read from `fd` and append the bytes to the string `seen`, until `seen` contains `text`. Return false if the file
 * ends, if `seen` is full, or if no byte arrives for PATIENCE_MS. */
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

/* A test passes the same port to several programs before one of them listens. */

/* Return a port of 127.0.0.1 without a listener. Neither the kernel nor another test uses it. */
int free_port(void);

/* Return `option` with a free port appended. The text is valid until the next call. */
const char *free_port_option(const char *option);

/* --- run -------------------------------------------------------------------------------------------------- */

struct run_options {
    /* NULL-terminated list: "NAME=value" sets, "NAME" alone removes; NULL to inherit all */
    const char *const *env;
    const char *cwd;        /* working directory; NULL for the working directory of the test */
    const char *stdin_text; /* what the program reads from stdin; NULL for /dev/null */
    bool terminal;          /* stdout and stderr are one terminal, which changes no byte; `out` has both */
    int timeout_ms;         /* ms until the group is killed and timed_out is set; 0 means PATIENCE_MS */
    pid_t (*fork)(const void *place); /* called instead of fork(), with `place`; NULL for fork() */
    const void *place;
};

struct run_result {
    int exit_code; /* -1 if a signal killed the program; 127 with a text in `err` if exec failed */
    int signal;    /* signal that ended the program; 0 if the program exited */
    /* stdout of the program, as a string; never NULL; run.c owns `out` and `err` until the test ends */
    char *out;
    char *err; /* stderr of the program, like `out`; if timed_out, the state of all its processes follows */
    bool timed_out;
};

/* Run a program to its end. `argv` ends with NULL; argv[0] is a path or is looked up in PATH. `options` may be
 * NULL. */
struct run_result run_command(const char *const argv[], const struct run_options *options);

struct run_process;

/* Start a program and return at once. Only run_until_* and run_wait read the output. Until such a call, each pipe
 * stores up to 1 MiB of output, and then the program must wait. Return NULL if fork or pipe failed. The caller must
 * pass every process to run_wait, which frees the process. */
struct run_process *run_start(const char *const argv[], const struct run_options *options);

pid_t run_pid(const struct run_process *process);

/* Signal the program alone (not its group). */
void run_signal(struct run_process *process, int signal);

/* Read until stdout (or stderr) contains `text`, and return true. Return false if the program ends first, or after
 * `timeout_ms`. */
bool run_until_output(struct run_process *process, const char *text, int timeout_ms);
bool run_until_error(struct run_process *process, const char *text, int timeout_ms);

/* Return the text on stdout so far, which is valid until the next call with this process. */
const char *run_output(struct run_process *process);

/* Wait for the end of the program. Kill its group when the timeout of the options is over. Free `process` and return
 * the result. */
struct run_result run_wait(struct run_process *process);

/* Return the path of a built program. The program is in $DDP_BUILD if this variable is set, otherwise in the build
 * directory of this test program. Eight returned paths may be in use at once. */
const char *bin(const char *program);

/* Return true if the programs were built with AddressSanitizer or ThreadSanitizer. The sanitizers need memory, /proc
 * and a place for their reports. Some tests take these away. */
bool bin_is_sanitized(void);

/* Return true if uid 65534 can reach the programs. This uid cannot reach programs below a home directory of mode 0700.
 * Only root may call this function. */
bool bin_is_open_to_nobody(void);

/* Switch off the check for leaks in programs that this test starts later. LeakSanitizer fails if a program is killed or
 * traced during the check. */
void bin_seek_no_leaks(void);

/* Return true if `text` contains each of `parts`, which are separated by '|', in this order. */
bool has_parts(const char *text, const char *parts);

/* --- daemon ----------------------------------------------------------------------------------------------- */

/* A ddp-rendezvous process for a test. */

struct daemon {
    struct run_process *process;
    int port;
};

/* Start the daemon on `listen`, with one more option unless `option` is NULL, and wait for its ready line. Fail the
 * test if that line is missing. */
struct daemon daemon_start(const char *listen, const char *option);

/* Start the daemon on 127.0.0.1:0 for every user of this host, with --max-bytes=`max_bytes`. */
struct daemon daemon_start_insecure(const char *max_bytes);

/* Start the daemon on 127.0.0.1:0, with no more than `max_fds` descriptors. */
struct daemon daemon_start_limited(int max_fds);

/* Send SIGTERM. Fail the test unless the daemon exits with 0. */
void daemon_stop(struct daemon *d);

#endif
