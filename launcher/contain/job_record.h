/* job_record.h -- the record of a running job in the runtime directory, by which a later start finds and kills the
 * processes of a dead job. The directory must be safe, because another user could replace the files by links. */
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

enum { SAFE_DIR_WHY_MAX = 160 }; /* bytes of a reason, with the NUL */

/* Resolve all links in `path`, write the result to `out`, and check that it is a safe directory. Use only `out`
 * afterwards, because another user may change a link in `path`. If a directory is unsafe, return false, write it and
 * the reason to `why`, and set errno.
 *
 * A directory is safe if this user or root owns it and all directories above, and if no other user can write to them,
 * except to a sticky directory such as /tmp. With `sudo -E`, TMPDIR and XDG_RUNTIME_DIR may be unsafe. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* Check that no other user can change the program `path`: this user or root owns it, in a safe directory. Set `out` and
 * `why` as safe_dir does. */
bool safe_program(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* The runtime directory contains the record of each running job and the error files of its workers. Both are removed
 * when the job ends. The name of a record is the job's cookie; an error file begins with its first RUNTIME_NAME_DIGITS
 * digits.
 *
 * ddprun uses the first usable directory of $XDG_RUNTIME_DIR/ddprun, /run/user/UID/ddprun, /tmp/ddprun-UID,
 * $TMPDIR/ddprun-UID and /var/tmp/ddprun-UID. A usable directory belongs to this user, has mode 0700, is no symbolic
 * link, and is in a safe directory. It stays after a job, because its creation takes as long as the start of a worker.
 */

enum { RUNTIME_DIRS = 5, RUNTIME_NAME_DIGITS = 8 };

/* Open or create the runtime directory. Return the descriptor, which the caller closes. Return -1 and set errno on
 * failure; `path` is then the last directory that was tried. */
int runtime_dir_make(char path[PATH_MAX]);

/* Open the n-th candidate of the list above, from 0 to RUNTIME_DIRS - 1. Return the descriptor, which the caller
 * closes. Return -1 if it is missing, unsafe, or the same directory as an earlier candidate. */
int runtime_dir_open(int n);

/* Write the path of the runtime directory to `path`, without creating it. Return false if no directory is usable. */
bool runtime_dir_find(char path[PATH_MAX]);

/* --- record text ------------------------------------------------------------------------------------------ */

/* The text of a running job's record. The next start of ddprun may kill processes because of it, so a text with any
 * error is ignored. */

enum {
    RECORD_BOOT_CHARS = BOOT_ID_CHARS,
    RECORD_JOB_MAX = 129, /* bytes of a job id, with the NUL; --rdzv_id has at most 128 characters */
    RECORD_MAX = 8192     /* longest text of a record, in bytes */
};

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* If guardian and agent are killed together, the job's processes are found by the cookie in their environment. */

/* Time limit for killing the leftovers of a dead agent or job, which may have gigabytes of memory. */
enum { SWEEP_LIMIT_MS = 5000 };

/* --- record ----------------------------------------------------------------------------------------------- */

/* Records are files in the runtime directory, one for each running job. A second file, "DIGITS.store", has the address
 * of the job's store for ddpctl. */

/* Write the record of `job`, before its first worker starts. `guardian` and `agent` are pids. `cgroup` is the directory
 * of the control group, or "". Return DDP_ERR_IO if no directory is usable. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Write the address of the job's store beside its record, so that ddpctl finds the job. */
void record_write_store(const char *cookie, const char *address);

/* A running job of this user. */
struct record_job {
    char job[RECORD_JOB_MAX], store[ENDPOINT_TEXT_MAX];
    int pid;         /* pid of the guardian */
    uint64_t age_ms; /* time since the job started */
};

/* Call `visit` for each running job of this user on this host, except jobs in another PID namespace or without a known
 * store. */
void record_each(void (*visit)(void *user, const struct record_job *job), void *user);

/* Remove the record and all other files of a job that has ended. */
void record_remove(const char *cookie);

/* Read all records. If guardian and agent of a job are gone, kill its processes, remove the record, and print a line
 * unless `quiet` is true. Skip a job that contains this process, and another PID namespace that may still have
 * processes. */
void record_sweep(bool quiet);

#endif
