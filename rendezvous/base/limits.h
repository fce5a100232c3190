/* limits.h -- limits, defaults and keys that several programs or several layers of one program share. All are in one
 * header, because both ends of a connection must use the same values. The functions for error texts add the limits of
 * the system (ulimit, cgroups, quota), because an errno does not name the limit that was reached. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
    LIMIT_NODES = 16384, /* maximum number of nodes of a job */
    LIMIT_NPROC = 4096,  /* maximum number of workers of a node */
    LIMIT_LISTED = 256,  /* maximum number of node names in a list that the store sends */
    LIMIT_TEXT = 256,    /* bytes of a name (host, job), with the NUL */
    LIMIT_WORDS = 512,   /* bytes of a sentence, or of a line from the end of a worker's log, with the NUL */
    LIMIT_LAST_LINES = 12, /* maximum number of a worker's last log lines in a report */
    LIMIT_INSTANCE = 64,   /* bytes of the random text that distinguishes two runs of a job, with the NUL */
    LIMIT_TOKEN = 32,      /* number of hexadecimal digits of the token with which a node connects again */

    RDZV_DEFAULT_PORT = 29400, /* port of an elastic job's store and of ddp-rendezvous, as in torchrun */

    /* heartbeats that a node sends within the node timeout, so one late heartbeat does no harm */
    BEATS_TO_LOSS = 3,
    BEAT_MIN_MS = 100, /* shortest time between two heartbeats, for a short --node_timeout */

    /* If a timer expires more than this many ms too late, the process counts as suspended in the meantime. */
    STOOD_STILL_MS = 500,
};

/* Return the time between two heartbeats of a node. */
static inline uint64_t limit_beat_ms(uint64_t node_timeout_ms)
{
    const uint64_t beat_ms = node_timeout_ms / BEATS_TO_LOSS;
    return beat_ms > BEAT_MIN_MS ? beat_ms : BEAT_MIN_MS;
}

/* Format a soft limit of this process, such as RLIMIT_NPROC. The text is like that of `ulimit`: "512" or
 * "unlimited". */
enum { RLIMIT_TEXT_MAX = 24 };
static inline const char *rlimit_text(int resource, char out[RLIMIT_TEXT_MAX])
{
    struct rlimit limit;
    snprintf(out, RLIMIT_TEXT_MAX, "unlimited");
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(out, RLIMIT_TEXT_MAX, "%llu", (unsigned long long)limit.rlim_cur);
    return out;
}

/* The remedy if memory is short. In a message, this text follows the reason. */
#define MEMORY_REMEDY "; free memory, or raise the limit (ulimit -v, or memory.max of the cgroup)"

/* Format the remedy of an error that does not depend on a path. These errors are too many open files, a lack of memory,
 * and a file that is longer than 'ulimit -f' permits. Example: "; raise the limit of 1024 open files with 'ulimit -n'".
 * The text is "" for any other error. */
enum { FILES_REMEDY_MAX = 96 };
const char *files_remedy(int error, char out[FILES_REMEDY_MAX]);

/* Read the file `name` in the directory ROOT/GROUP and in each directory above it, up to `root`. Each file contains a
 * number, or "max", which counts as UINT64_MAX. Return the lowest number in these files. The caller may pass the result
 * of an earlier call as `lowest`. If `lowest` is lower than all numbers in the files, return `lowest`. The value 0
 * means that no number was found, both in `lowest` and in the result. `group` is changed to "". */
uint64_t lowest_limit_above(const char *root, char *group, const char *name, uint64_t lowest);

/* Shorten `path` until it names an existing file or directory. Return false for a device or a pipe, because neither is
 * on a disk. Also return false if `path` cannot be examined. */
bool find_on_disk(char path[PATH_MAX]);

/* Describe the file system of `fd`, and the quota that this user, or the user's group, has on this file system.
 * Example: " is on ext4 of /dev/sdb1, where user 1000 has 2 GiB of 2 GiB and 7 of 100 files". If the kernel does not
 * report the quota, leave out the quota. This happens if a file server manages the quotas, or if Linux is older than
 * 5.14. The text is "" if the file system is unknown. `fd` may have O_PATH. */
enum { QUOTA_SHOWN = 512 };
void quota_text(int fd, char out[QUOTA_SHOWN]);

/* Format an error of an open, a read or a write of `path`, with its remedies: "No space left on device (0 bytes and 7
 * inodes free); delete files there, or OTHER". After EDQUOT, the text has the quota instead of the free space. `other`
 * is the caller's remedy, which is left out if it does not help, for example after EMFILE. Pass "" if the caller has no
 * remedy, and NULL for a text without any remedy. If `path` does not exist, use the nearest directory above it that
 * exists. After ENOSPC or EDQUOT for a device or a pipe, the text proposes only `other`, because there are no files
 * to delete. */
enum { WRITE_ERROR_MAX = 256 + QUOTA_SHOWN };
const char *path_error_text(int error, const char *path, const char *other, char out[WRITE_ERROR_MAX]);

/* Call path_error_text for a write to a file that the user has chosen. The remedy is to use another path, or to create
 * the directory of the file if the directory does not exist. */
const char *write_error_text(int error, const char *path, char out[WRITE_ERROR_MAX]);

/* Format an error of fork or of the start of a thread. After EAGAIN and ENOMEM add the limits on processes, and a
 * remedy: "Resource temporarily unavailable (ulimit -u 4096; pids.max 512; 4090 threads and load 12.5 on this host);
 * end other processes or raise the limit". pids.max is the lowest limit of this process's cgroups, and is left out if
 * it cannot be read. */
enum { FORK_ERROR_MAX = 256 };
const char *fork_error_text(int error, char out[FORK_ERROR_MAX]);

/* Format an error of an allocation of shared memory, with the limits that were read and MEMORY_REMEDY: "Cannot
 * allocate memory (ulimit -v unlimited; memory.max 64 MiB; 3 GiB available on this host); ...". memory.max is the
 * lowest limit of this process's cgroups, and is left out if it cannot be read. */
enum { MEMORY_ERROR_MAX = 256 + FILES_REMEDY_MAX };
const char *memory_error_text(int error, char out[MEMORY_ERROR_MAX]);

/* Key whose value is the number of waiting nodes that a restart would add to the job. If the key does not exist, the
 * number is 0. */
#define GROW_WAITING_KEY "ddprun/waiting_nodes"
/* Prefix of keys: "ddprun/grow/3" exists if rank 3 agrees to a restart with a larger world. */
#define GROW_AGREED_KEY "ddprun/grow/"
/* Prefix of keys: "ddprun/progress/3" has the highest step that rank 3 has finished, in decimal digits. */
#define PROGRESS_KEY "ddprun/progress/"

#endif
