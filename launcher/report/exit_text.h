/* exit_text.h -- texts about the end of a worker: exit code or signal, and the cause. All functions are pure. */
#ifndef LAUNCHER_REPORT_EXIT_TEXT_H
#define LAUNCHER_REPORT_EXIT_TEXT_H

#include "agent/agent.h"
#include "base/buf.h"

#include <limits.h>

/* The memory limit that led to a kill by the kernel. */
enum oom_kind {
    OOM_NONE,
    OOM_CGROUP, /* of a control group */
    OOM_SYSTEM, /* of the whole machine */
};

/* The place of the core file, or the reason why it is missing. */
enum coredump_kind {
    CORE_UNKNOWN,    /* not examined, or a signal without a core file */
    CORE_FILE,       /* `core` is its path */
    CORE_PIPED,      /* passed to a program; `core` is its command line */
    CORE_LOST,       /* written but not found; `core` is the kernel's pattern */
    CORE_NO_LIMIT,   /* not written: the size limit is 0 */
    CORE_NO_PATTERN, /* not written: the kernel's pattern is empty */
    CORE_NOT_DUMPED, /* not written for another reason */
};

/* Sizes of the texts below, including the NUL. */
enum { TIMER_SHOWN = 128, CGROUP_SHOWN = 256, OBJECT_SHOWN = 64, CPU_SHOWN = 64 };

/* Name of the file with a group's memory limit. */
#define CGROUP_LIMIT_FILE(v2) ((v2) ? "memory.max" : "memory.limit_in_bytes")

/* The facts about the end of a worker; 0 and "" mean that a fact is not known. */
struct worker_evidence {
    enum oom_kind oom;
    bool oom_named; /* the kernel's log names the worker */
    /* only the machine's counter has risen: maybe for another job */
    bool oom_likely;
    bool oom_unseen;               /* no counter of OOM kills can be read */
    unsigned long long kills;      /* number of killed processes */
    char cgroup[CGROUP_SHOWN];     /* group that reached its limit; "": the whole machine */
    bool cgroup_v2;                /* version 2 of control groups, with other file names */
    uint64_t peak_rss;             /* peak memory of the worker or a reaped child, in bytes */
    uint64_t limit, peak;          /* of `cgroup`, in bytes; 0 if unknown */
    uint64_t shm_size, shm_free;   /* of /dev/shm, in bytes; shm_size 0: /dev/shm is missing */
    bool stdout_gone, stderr_gone; /* ddprun's stdout or stderr has no reader */
    bool fault_known;
    uint64_t fault;            /* address that could not be accessed */
    char object[OBJECT_SHOWN]; /* program or library of the fault, with offset; "" if unknown */
    enum coredump_kind coredump_kind;
    char core[PATH_MAX];
    uint64_t coredump_size;
    char timer[TIMER_SHOWN]; /* expired timer; "" if no timer has expired */
    int port;                /* port of the worker's store that user `port_uid` has taken; else 0 */
    unsigned port_uid;
    uint64_t cpu_limit_s, file_limit; /* ulimit -t in seconds, ulimit -f in bytes; 0: no limit */
    /* In the limits below, UINT64_MAX means "no limit", and 0 "not known". */
    uint64_t open_files, processes; /* ulimit -n, ulimit -u */
    uint64_t locked, stack;         /* ulimit -l, ulimit -s; in bytes */
    uint64_t pids_max;              /* lowest pids.max of the worker's cgroups */
    uint64_t address_space;         /* ulimit -v in bytes */
    uint64_t group_limit;           /* of the cgroup with the least memory left, in bytes */
    uint64_t group_used;            /* memory use of this cgroup, in bytes */
    uint64_t available;             /* memory available on the machine, in bytes */
    /* vm.overcommit_memory=2: allowed and present reservations, in bytes; otherwise 0 */
    uint64_t commit_limit, committed;
    char cpu[CPU_SHOWN]; /* processor model, for SIGILL */
};

/* --- a worker's end ----------------------------------------------------------------------------------------- */

/* Format a limit of worker_evidence as " (1024)", or as " (64 KiB)" if `is_bytes` is true; "" if unknown. */
enum { LIMIT_SHOWN = 48 };
const char *limit_text(char out[LIMIT_SHOWN], uint64_t limit, bool is_bytes);

/* Format the group's memory limit as " (64 MiB, of which 10 MiB are in use)", or like limit_text() without a limit. */
const char *group_memory_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the machine's memory as " (20 MiB are available)"; "" if unknown. */
const char *available_text(char out[LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the size of /dev/shm as " (64 MiB, of which 10 MiB are free)"; "" if unknown. */
const char *shm_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e);

/* Format the limit of reserved memory as "; vm.overcommit_memory=2 permits 8 GiB, and 7.9 GiB are reserved"; "" in
 * another mode. */
enum { COMMIT_SHOWN = 128 };
const char *commit_text(char out[COMMIT_SHOWN], const struct worker_evidence *e);

/* Return ddprun's exit code for this failure; 0 for a restart without a failure. */
int failure_code(const struct failure *cause);

enum { ENDING_MAX = 96 };

/* Format the end of a worker: "exit 7", "killed by SIGSEGV (signal 11)", "could not be started: No such file or
 * directory" or "still running". */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker);

/* Return the verdict as a word for JSON. */
const char *verdict_name(enum worker_verdict verdict);

/* --- a worker's end, with evidence -------------------------------------------------------------------------- */

/* The four functions below append to `out` and return false when memory is short. `w` has ended, and `e` may be NULL.
 * Only end_headline always appends a text. */

/* Append a short text for the headline: "out of memory (SIGKILL)", "exit 7". */
bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the cause, for example "limit 64 MiB of cgroup /x, peak 64 MiB". */
bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the remedy. */
bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the core file and the command that opens it, or how to get one. `program` is the executed file. */
bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out);

/* --- kernel's messages about control groups, kills and crashes -------------------------------------------- */

/* Find the number after `key` in a line such as "oom_kill 3". Return false if no line has this key. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* Parse a file with one limit. Return 0 without a limit, which is "max" in version 2 and a very large number in
 * version 1. */
uint64_t limit_in(struct slice text);

/* Counters of a control group for memory, before the worker's start and after its end. */
struct oom_count {
    unsigned long long kills, hits; /* killed processes, and how often the limit was reached */
};

struct oom_watch {
    const char *name;
    bool v2;
    bool late; /* found after the worker's end, so `before` is unknown */
    struct oom_count before, now;
    uint64_t limit, peak; /* in bytes; 0: unknown or no limit */
};

/* Set the memory facts of `e`, but keep an e->oom of kernel_log_line. `watches` begin with the innermost group.
 * `system_kills` is the increase of the machine's OOM kills. */
void oom_find_cause(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
                    struct worker_evidence *e);

/* Parse a line of the kernel's log. If it is about the end of process `pid`, store its facts. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* Convert kernel.core_pattern to a pattern for fnmatch(3). `uses_pid` is kernel.core_uses_pid. Return false if the
 * kernel passes core files to a program, or the result is too long. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* Find the address of the fault in the first bytes of a core file. Return false if it is not there. */
bool coredump_fault(struct slice head, uint64_t *address);

#endif
