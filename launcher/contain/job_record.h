/* job_record.h -- the record of a running job in the runtime directory, by which a later start finds and kills the
 * job's remaining processes.
 *
 * It starts with the check that a directory is safe. TMPDIR and XDG_RUNTIME_DIR may name a directory of another user,
 * as with `sudo -E`, and that user could replace files in it by links. A directory is safe when it and every
 * directory above it belong to this user or to root and are not writable for others, unless sticky like /tmp. */
#ifndef LAUNCHER_CONTAIN_JOB_RECORD_H
#define LAUNCHER_CONTAIN_JOB_RECORD_H

#include "base/buf.h"
#include "base/endpoint.h"
#include "contain/cgroup.h"
#include "contain/procfs.h"
#include "ddp/error.h"
#include "tables/worker_env.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SAFE_DIR_WHY_MAX = 160 };

/* Write the path without links to `out`; only this path is known to be safe. False: `why` has the reason and the
 * directory. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* A directory owned by this user alone, for files that live as long as a job: its record and its workers' error
 * files. A record is named after the job's cookie, error files after its first digits.
 *
 * It is the first usable one of $XDG_RUNTIME_DIR/ddprun, /run/user/UID/ddprun, /tmp/ddprun-UID, $TMPDIR/ddprun-UID
 * and /var/tmp/ddprun-UID: owner this user, mode 0700, not a symbolic link, in a safe directory, because workers open
 * their error files there by name. It stays when jobs end, because creating and removing a directory on a disk takes
 * as long as starting a worker. */

enum { RUNTIME_DIRS = 5, RUNTIME_NAME_DIGITS = 8 };

/* Open the directory for files, and create it if it is missing; the caller closes the descriptor. -1: errno; `path`
 * is the last one tried. */
int runtime_dir_make(char path[PATH_MAX]);

/* Return which directory that would be, without creating it. False: none. */
bool runtime_dir_find(char path[PATH_MAX]);

/* --- record text ------------------------------------------------------------------------------------------ */

/* A running job's description of itself in a file, as text.
 *
 * The next start of ddprun on this host reads it and may kill processes because of it, so a record that differs from
 * our exact format is ignored. */

enum {
    RECORD_BOOT_CHARS = BOOT_ID_CHARS,
    RECORD_JOB_MAX = 129,
    RECORD_MAX = 8192 /* bytes of text */
};

/* A process: its pid and start time. */
struct record_process {
    int pid;
    uint64_t start_ticks;
};

/* in this namespace */
struct record {
    char boot[RECORD_BOOT_CHARS + 1]; /* pids and times are of this boot of the machine, */
    uint64_t pid_namespace;           /* seen in this namespace */
    struct record_process guardian, agent;
    char cookie[COOKIE_CHARS + 1];
    char job[RECORD_JOB_MAX];
    char cgroup[CGROUP_PATH_MAX]; /* directory of the job's control group; "" = none */
};

/* Append the text. False when memory is short, or a text of the record has a newline. */
bool record_print(struct buf *out, const struct record *r);

/* Parse the whole text of a record; false for anything else. */
bool record_parse(const char *text, struct record *out);

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* After guardian and agent were killed together, the job's processes have no ancestor left; find them by the cookie
 * in their environment. */

/* Time for leftovers of a dead agent or job: long enough to free the largest memory, short enough for a user who
 * waits for the prompt. */
enum { SWEEP_LIMIT_MS = 5000 };

struct leftovers {
    const char *cookie;   /* value of DDPRUN_COOKIE */
    uint64_t start_ticks; /* older processes cannot belong to the job */
    int killed;           /* result: number of processes found */
};

/* --- record ----------------------------------------------------------------------------------------------- */

/* A file for each running job, by which the next start finds the remains of a killed one. It is in the runtime
 * directory, like the workers' error files, which are removed with it.
 *
 * A second file beside it, "DIGITS.store", has the address of the job's store: with both, ddpctl finds the jobs of
 * its user. */

/* Write the record, in one of the two, before the first worker: `guardian` and `agent` run `job`. `cgroup` is the
 * directory of the job's control group, "" = none. DDP_ERR_IO: no directory is usable. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Write the address of the job's store beside its record. After a failure only ddpctl cannot find the job. */
void record_write_store(const char *cookie, const char *address);

/* A running job of this user. */
struct record_job {
    char job[RECORD_JOB_MAX], store[ENDPOINT_TEXT_MAX];
    int pid;         /* pid of the ddprun that the user started */
    uint64_t age_ms; /* since its start */
};

/* Call `visit` for each job of this user that runs on this host, in this PID namespace, with a known store. Files
 * that another user owns are ignored. */
void record_each(void (*visit)(void *user, const struct record_job *job), void *user);

/* Remove the job's files, because nothing is left of it. */
void record_remove(const char *cookie);

/* Read all records. If guardian and agent are both gone, kill the processes that their job left, report it in a line
 * (unless `quiet`), and remove the record. Running jobs, jobs of other PID namespaces while these exist or may exist,
 * and a job that contains this process are left alone. */
void record_sweep(bool quiet);

#endif
