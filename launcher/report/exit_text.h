/* exit_text.h -- what is known about the end of one worker beyond its exit code or signal, and its text. Pure;
 * evidence.h collects the facts. */
#ifndef LAUNCHER_REPORT_EXIT_TEXT_H
#define LAUNCHER_REPORT_EXIT_TEXT_H

#include "agent/agent.h"
#include "base/buf.h"

#include <limits.h>

/* Did the kernel kill a process to free memory while the worker lived? */
enum oom_kind {
    OOM_NONE,
    OOM_CGROUP, /* a control group reached its limit */
    OOM_SYSTEM, /* the machine as a whole had no memory left */
};

/* The place of the core file, or the reason why it is missing. */
enum coredump_kind {
    CORE_UNKNOWN,    /* not applicable: its signal writes none */
    CORE_FILE,       /* found, at `core` */
    CORE_PIPED,      /* the kernel passed it to the program in `core` */
    CORE_LOST,       /* written, but not found; `core` is the kernel's pattern */
    CORE_NO_LIMIT,   /* none: the size limit is 0 */
    CORE_NO_PATTERN, /* none: the kernel's pattern is empty */
    CORE_NOT_DUMPED, /* none, although it was allowed */
};

enum { TIMER_SHOWN = 128, CGROUP_SHOWN = 256, OBJECT_SHOWN = 64, CPU_SHOWN = 64 };

/* The file with a group's limit of memory. */
#define CGROUP_LIMIT_FILE(v2) ((v2) ? "memory.max" : "memory.limit_in_bytes")

/* Zeroed = nothing is known. */
struct worker_evidence {
    enum oom_kind oom;
    bool oom_named;                /* the kernel's log names this process */
    bool oom_likely;               /* only the machine's counter rose, which others may have caused */
    bool oom_unseen;               /* no counter of such kills can be read here, not even the machine's */
    unsigned long long kills;      /* by how much the counter rose */
    char cgroup[CGROUP_SHOWN];     /* that group; "" for the whole machine */
    bool cgroup_v2;                /* the limit's file is named by it */
    uint64_t peak_rss;             /* peak memory of the worker, or of a child that it waited for; in bytes */
    uint64_t limit, peak;          /* limit and peak of that group, in bytes; 0 = not known */
    uint64_t shm_size, shm_free;   /* of /dev/shm, in bytes; size 0 = no /dev/shm */
    bool stdout_gone, stderr_gone; /* the reader of ddprun's own stdout (stderr) is gone */
    bool fault_known;
    uint64_t fault; /* the address that could not be accessed */
    char object
        [OBJECT_SHOWN]; /* the program or library in which the fault happened, with offset; "" = not known */
    enum coredump_kind coredump_kind;
    char core[PATH_MAX];
    uint64_t coredump_size;
    char timer[TIMER_SHOWN]; /* scope of its timer that expired; "" = none */
    int port;                /* held for its store, and taken by user `port_uid`; 0 = none was */
    unsigned port_uid;
    uint64_t cpu_limit_s, file_limit; /* ulimit -t, and ulimit -f in bytes; 0 = none */
    uint64_t open_files, processes;   /* ulimit -n, ulimit -u; 0 = none */
    uint64_t locked;                  /* ulimit -l in bytes; UINT64_MAX = none, 0 = not known */
    uint64_t pids_max;                /* lowest pids.max of its groups of version 2; 0 = none or not known */
    char cpu[CPU_SHOWN];              /* model of the processor, for SIGILL */
};

/* All three append to `out`, perhaps nothing; false when memory is short. `w` has ended; `e` may be NULL. */

/* Append "out of memory (SIGKILL)", "exit 7": short, for the headline. */
bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append "limit 64 MiB of cgroup /x, peak 64 MiB": what the facts show about the cause. */
bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the remedy. */
bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append where the core file is and how to open it, or how to get one. `program` is the executed file. */
bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out);

/* --- kernel's messages about control groups, kills and crashes -------------------------------------------- */

/* The number after `key` in lines like "oom_kill 3"; false when there is no such line. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* Parse a file that holds one number; "max", and the value of v1 for "no limit", give 0. */
uint64_t limit_in(struct slice text);

/* Counters of one memory group, before the worker started and after its end. */
struct oom_count {
    unsigned long long kills, hits; /* processes killed in the group; how often the limit was reached */
};

struct oom_watch {
    const char *name;
    bool v2;
    bool late; /* the group was not watched before: its count may be from an earlier time */
    struct oom_count before, now;
    uint64_t limit, peak; /* 0 = none or not known */
};

/* Set the oom members of `e`: `watches` from the innermost group outwards, `system_kills` is the increase of the
 * machine's counter. Facts of the kernel's log (kernel_log_line) stay. */
void oom_judge(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
               struct worker_evidence *e);

/* Parse one line of the kernel's log: if it is about the end of process `pid`, set its facts. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* Turn kernel.core_pattern into a pattern for fnmatch(3): each unknown part becomes '*'. False when it is a pipe, or
 * longer than PATH_MAX. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* Return the address of the fault from the first bytes of a core file of this machine. False when it is not there. */
bool coredump_fault(struct slice head, uint64_t *address);

#endif
