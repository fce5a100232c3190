/* job_record.h -- the record that a running job leaves in the runtime directory, so that a later start finds and ends what is left of it.
 *
 * Whether files may be created in a directory by name: TMPDIR and XDG_RUNTIME_DIR may come from another user,
 * as with `sudo -E`, who could replace what lies in a directory of his by a link.
 *
 * Safe is a directory when it and every directory above it belong to this user or to root, and only the owner may rename or
 * remove what lies there: not writable for others, unless sticky as /tmp is. */
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

/* Write the path without links to `out`: only by this path the directory is safe. False: `why` has the reason, which names
 * the directory at fault. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* A directory of this user's alone, for files that live as long as a job: its record
 * and its workers' error files. A record is named after the job's cookie, error files after its first digits.
 *
 * It is the first usable one of $XDG_RUNTIME_DIR/ddprun, /run/user/UID/ddprun, /tmp/ddprun-UID, $TMPDIR/ddprun-UID and
 * /var/tmp/ddprun-UID. It belongs to this user alone (owner, 0700, no symbolic link) and lies in a safe directory,
 * because workers open their error files there by name. It stays when jobs end: to make and
 * remove a directory on a disk takes as long as to start a worker. */

enum { RUNTIME_DIRS = 5, RUNTIME_NAME_DIGITS = 8 };

/* The one to put files into, made where it is not there yet: a descriptor, which the caller closes. -1: errno; `path` is
 * the one that was tried last. */
int runtime_dir_make(char path[PATH_MAX]);

/* Which one that would be; nothing is made. False: none. */
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

/* A process: the pid and when it was started. */
struct record_process {
    int pid;
    uint64_t start_ticks;
};

/* Text without newlines. */
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

/* False when it is not the whole text of a record. */
bool record_parse(const char *text, struct record *out);

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* The processes of a job whose guardian and agent were killed together have no ancestor left; they are found by the cookie in
 * their environment. */

/* For what a dead agent, or a dead job, has left: long enough for the largest memory to be given back, short enough for
 * a user who waits for the prompt. */
enum { SWEEP_LIMIT_MS = 5000 };

struct leftovers {
    const char *cookie;   /* value of DDPRUN_COOKIE */
    uint64_t start_ticks; /* what was started before that cannot be the job's */
    int killed;           /* result: how many were found */
};

/* --- record ----------------------------------------------------------------------------------------------- */

/* A file for each running job, by which the next start finds what a killed one has left. It lies in the
 * runtime directory, and so do the workers' error files, which go with it.
 *
 * A second file beside it, "DIGITS.store", has the address of the job's store: by both, ddpctl finds the jobs of its user. */

/* In one of the two, before the first worker: `guardian` and `agent` run `job`. `cgroup` is the directory of the job's
 * control group, "" = none. DDP_ERR_IO: there is no place for it. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Write the address of the job's store beside its record. A failure costs only that ddpctl does not find it. */
void record_write_store(const char *cookie, const char *address);

/* A job of this user that runs now. */
struct record_job {
    char job[RECORD_JOB_MAX], store[ENDPOINT_TEXT_MAX];
    int pid;         /* of the ddprun that the user started */
    uint64_t age_ms; /* since that started */
};

/* Call `visit` for each job of this user that runs on this host, in this PID namespace, and has named its store. Files that
 * another user owns are ignored. */
void record_each(void (*visit)(void *user, const struct record_job *job), void *user);

/* Nothing is left of the job: its files go. */
void record_remove(const char *cookie);

/* Read all records. If guardian and agent are both gone, kill the processes that their job left, report it in a line
 * (unless `quiet`), and remove the record. Running jobs, jobs of other PID namespaces while these exist or may exist,
 * and a job that contains this process are left alone. */
void record_sweep(bool quiet);

#endif
