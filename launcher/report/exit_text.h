/* exit_text.h -- texts about the end of a worker: the exit code or signal, and the cause according to the facts of
 * evidence.h. All functions are pure. */
#ifndef LAUNCHER_REPORT_EXIT_TEXT_H
#define LAUNCHER_REPORT_EXIT_TEXT_H

#include "agent/agent.h"
#include "base/buf.h"

#include <limits.h>

/* The memory limit that was reached when the kernel killed a process. */
enum oom_kind {
    OOM_NONE,
    OOM_CGROUP, /* a control group reached its limit */
    OOM_SYSTEM, /* the whole machine had no memory left */
};

/* The place of the core file, or the reason why it is missing. */
enum coredump_kind {
    CORE_UNKNOWN,    /* not examined, or the signal writes no core file */
    CORE_FILE,       /* the core file was found; `core` is its path */
    CORE_PIPED,      /* the kernel passed the core file to a program; `core` is the program's command line */
    CORE_LOST,       /* the core file was written but not found; `core` is the kernel's pattern */
    CORE_NO_LIMIT,   /* not written: the size limit is 0 */
    CORE_NO_PATTERN, /* not written: the kernel's pattern is empty */
    CORE_NOT_DUMPED, /* not written, although limit and pattern allow a core file */
};

/* Sizes of the texts below, including the NUL. Longer texts are cut. */
enum { TIMER_SHOWN = 128, CGROUP_SHOWN = 256, OBJECT_SHOWN = 64, CPU_SHOWN = 64 };

/* Name of the file with a group's memory limit. */
#define CGROUP_LIMIT_FILE(v2) ((v2) ? "memory.max" : "memory.limit_in_bytes")

/* The facts about the end of a worker. A zeroed struct means that no fact is known. */
struct worker_evidence {
    enum oom_kind oom;
    bool oom_named; /* the kernel's log names the worker */
    /* no control group can be read, and the machine's counter of OOM kills has risen. The killed process may belong to
     * another job */
    bool oom_likely;
    bool oom_unseen;               /* no counter of OOM kills can be read */
    unsigned long long kills;      /* how many processes the kernel killed */
    char cgroup[CGROUP_SHOWN];     /* name of the group that reached its limit; "" for the whole machine */
    bool cgroup_v2;                /* the group is of version 2; version 1 has other file names */
    uint64_t peak_rss;             /* highest peak memory of the worker and its reaped children, in bytes */
    uint64_t limit, peak;          /* memory limit and peak memory of `cgroup` in bytes; 0 if unknown */
    uint64_t shm_size, shm_free;   /* size and free bytes of /dev/shm; shm_size is 0 if /dev/shm is missing */
    bool stdout_gone, stderr_gone; /* the reader of ddprun's stdout is gone; the same for stderr */
    bool fault_known;
    uint64_t fault;            /* address that the worker could not access */
    char object[OBJECT_SHOWN]; /* program or library that contained the fault, with offset; "" if unknown */
    enum coredump_kind coredump_kind;
    char core[PATH_MAX];
    uint64_t coredump_size;
    char timer[TIMER_SHOWN]; /* name of the expired timer; "" if no timer has expired */
    int port;                /* port of the worker's store if user `port_uid` has taken this port; else 0 */
    unsigned port_uid;
    uint64_t cpu_limit_s, file_limit; /* ulimit -t in seconds, ulimit -f in bytes; 0: no limit */
    /* In the limits below, UINT64_MAX means "no limit", and 0 "not known". */
    uint64_t open_files, processes; /* ulimit -n, ulimit -u */
    uint64_t locked, stack;         /* ulimit -l, ulimit -s; in bytes */
    uint64_t pids_max;              /* lowest pids.max of the worker's cgroups */
    uint64_t address_space;         /* ulimit -v in bytes */
    uint64_t group_limit;           /* memory limit of the cgroup with the least memory left, in bytes */
    uint64_t group_used;            /* memory that the cgroup of `group_limit` uses, in bytes */
    uint64_t available;             /* memory available on the machine, in bytes */
    /* limit of reserved memory, and memory that is reserved now, in bytes; 0 unless vm.overcommit_memory is 2 */
    uint64_t commit_limit, committed;
    char cpu[CPU_SHOWN]; /* processor model, for SIGILL */
};

/* --- a worker's end ----------------------------------------------------------------------------------------- */

/* Format a limit of worker_evidence as " (1024)", or as " (64 KiB)" if `is_bytes` is true; "" if unknown. */
enum { LIMIT_SHOWN = 48 };
const char *limit_text(char out[LIMIT_SHOWN], uint64_t limit, bool is_bytes);

/* Format the memory limit of the group as " (64 MiB, of which 10 MiB are in use)". Without a limit, or if the limit is
 * not known, write the text of limit_text(). */
const char *group_memory_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the machine's memory as " (20 MiB are available)", or write "" if the memory is not known. */
const char *available_text(char out[LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the size of /dev/shm as " (64 MiB, of which 10 MiB are free)", or write "" if the size is not known. */
const char *shm_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the machine's limit of reserved memory as "; vm.overcommit_memory=2 permits 8 GiB, and 7.9 GiB are reserved",
 * or write "" in another overcommit mode. */
enum { COMMIT_SHOWN = 128 };
const char *commit_text(char out[COMMIT_SHOWN], const struct worker_evidence *e);

/* Return ddprun's exit code for this failure. Return 0 if `cause` is not a failure but another reason to restart, such
 * as new nodes. */
int failure_code(const struct failure *cause);

enum { ENDING_MAX = 96 };

/* Format the end of a worker: "exit 7", "killed by SIGSEGV (signal 11)", "could not be started: No such file or
 * directory" or "still running". All messages use this text. */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker);

/* Return the verdict as a word for JSON: "pending", "alive", "ok", "failed", "not_started", "consequence" or "victim".
 * The text is constant. */
const char *verdict_name(enum worker_verdict verdict);

/* --- a worker's end, with evidence -------------------------------------------------------------------------- */

/* The four functions below append to `out`, and return false when memory is short. `w` is a worker that has ended. `e`
 * may be NULL. end_headline always appends a text. Each of the other three functions appends nothing if it has no text
 * for this worker. */

/* Append a short text for the headline: "out of memory (SIGKILL)", "exit 7". */
bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the cause, for example "limit 64 MiB of cgroup /x, peak 64 MiB". */
bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the remedy for the end of this worker, or nothing if no remedy is known. `e` may be NULL. */
bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the path of the core file and the command that opens it, or how to get a core file next time. `program` is
 * the executed file. */
bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out);

/* --- kernel's messages about control groups, kills and crashes -------------------------------------------- */

/* Find the number after `key` in a line such as "oom_kill 3". Return false if no line has this key. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* Parse a file that contains one limit. Return 0 if there is no limit. In this case version 2 of control groups writes
 * "max", and version 1 writes a very large number. */
uint64_t limit_in(struct slice text);

/* Counters of a control group for memory, read before the worker's start and after its end. */
struct oom_count {
    unsigned long long kills, hits; /* `kills` is how many processes of the group the kernel has killed
                                     * because memory ran out. `hits` is how often the group has reached its
                                     * limit */
};

/* A control group for memory, as it was before and after the worker. `name` is borrowed. */
struct oom_watch {
    const char *name;
    bool v2;
    bool late; /* the group was found after the worker's end, so `before` is unknown */
    struct oom_count before, now;
    uint64_t limit, peak; /* limit and peak of the group in bytes; 0 if unknown or without limit */
};

/* Set the members of `e` about memory that ran out. `watches` are ordered from the innermost group outwards.
 * `system_kills` is the increase of the machine's counter of OOM kills. Keep e->oom if kernel_log_line has set it. */
void oom_find_cause(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
                    struct worker_evidence *e);

/* Parse a line of the kernel's log. If the line is about the end of process `pid`, store the facts of the line in
 * `e`. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* Convert kernel.core_pattern to a pattern for fnmatch(3), in which '*' replaces each unknown part. If `uses_pid`
 * (kernel.core_uses_pid) is true, the kernel appends the pid. Return false if the kernel passes core files to a
 * program, or if the result is too long. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* Find the address of the fault in the first bytes of a core file. Return false if these bytes do not contain the
 * address. */
bool coredump_fault(struct slice head, uint64_t *address);

#endif
