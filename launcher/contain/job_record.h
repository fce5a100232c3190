/* job_record.h -- the record of a running job in the runtime directory. A later start reads the record to find and kill
 * the processes of a dead job. A record must be in a safe directory, because another user could otherwise replace the
 * files by links. */
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

/* Resolve all links in `path`, write the result to `out`, and check that `out` is a safe directory. Use only `out`
 * afterwards, because another user may be able to change a link in `path`. If a directory is unsafe, return false,
 * write this directory and the reason to `why`, and set errno.
 *
 * With `sudo -E`, TMPDIR and XDG_RUNTIME_DIR may name a directory of another user. A directory is safe if this user or
 * root owns the directory and all directories above. Other users must not have write permission for any of these
 * directories. Only a sticky directory, such as /tmp, may be writable for other users. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* Check that no other user can change the program `path`: the program belongs to this user or root, and its directory
 * is safe. Set `out` and `why` as safe_dir does. */
bool safe_program(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX]);

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* The runtime directory belongs to this user, and only this user can enter it. The directory contains the record of
 * each running job and the error files of the job's workers. These files are removed when the job ends. The name of a
 * record is the job's cookie. The name of an error file begins with the cookie's first RUNTIME_NAME_DIGITS digits.
 *
 * ddprun uses the first usable directory of $XDG_RUNTIME_DIR/ddprun, /run/user/UID/ddprun, /tmp/ddprun-UID,
 * $TMPDIR/ddprun-UID and /var/tmp/ddprun-UID. A usable directory is owned by this user, has mode 0700, is not a
 * symbolic link, and is in a safe directory. The directory is not removed when a job ends, because creating it again
 * would take as long as starting a worker. */

enum { RUNTIME_DIRS = 5, RUNTIME_NAME_DIGITS = 8 };

/* Open the runtime directory, and create the directory if needed. Return the descriptor, which the caller closes.
 * Return -1 and set errno on failure; `path` is then the last directory that was tried. */
int runtime_dir_make(char path[PATH_MAX]);

/* Open the n-th candidate of the list above; `n` is from 0 to RUNTIME_DIRS - 1. Return the descriptor, which the caller
 * closes. Return -1 if the candidate is missing, unsafe, or the same directory as an earlier candidate. XDG_RUNTIME_DIR
 * is usually /run/user/UID, whose jobs must not be found twice. */
int runtime_dir_open(int n);

/* Write the path of the runtime directory to `path`, without creating it. Return false if no directory is usable. */
bool runtime_dir_find(char path[PATH_MAX]);

/* --- record text ------------------------------------------------------------------------------------------ */

/* The text of a running job's record. The next start of ddprun may kill processes because of this text. So ddprun
 * ignores a text with any error. */

enum {
    RECORD_BOOT_CHARS = BOOT_ID_CHARS,
    RECORD_JOB_MAX = 129, /* bytes of a job id, with the NUL; --rdzv_id has at most 128 characters */
    RECORD_MAX = 8192     /* longest text of a record, in bytes */
};

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* If guardian and agent are killed together, the job's processes are found by the cookie in their environment. */

/* Time limit in ms for killing the processes that a dead agent or a dead job has left. These processes may have
 * gigabytes of memory. The kernel must release this memory before the processes are gone. */
enum { SWEEP_LIMIT_MS = 5000 };

/* --- record ----------------------------------------------------------------------------------------------- */

/* Records are files in the runtime directory, one for each running job. */

/* Write the record of `job`, before its first worker starts. `guardian` and `agent` are pids. `cgroup` is the directory
 * of the control group, or "". Return DDP_ERR_IO if no directory is usable. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Add the address of the job's store to its record, which record_write() has written. Without this address, ddpctl does
 * not find the job. Return false on failure; the record may then end with half a line, so add nothing more. */
bool record_name_store(const char *cookie, const char *store);

/* A running job of this user. */
struct record_job {
    char job[RECORD_JOB_MAX], store[ENDPOINT_TEXT_MAX];
    int pid;         /* pid of the guardian */
    uint64_t age_ms; /* time since the job started */
};

/* Call `visit` for each running job of this user on this host. Skip a job in another PID namespace, and a job without a
 * known store. Ignore files of other users. */
void record_each(void (*visit)(void *user, const struct record_job *job), void *user);

/* Remove the record and all other files of this job, which has ended. */
void record_remove(const char *cookie);

/* Read all records. If guardian and agent of a job are both gone, kill the processes of the job, and remove the record.
 * Print a line for each such job if `quiet` is false. Skip running jobs, and a job that contains this process. Skip a
 * job of another PID namespace, too, if that namespace may still have processes. */
void record_sweep(bool quiet);

#endif
