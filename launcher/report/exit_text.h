/* exit_text.h -- what is known about the end of one worker, beyond its exit code or signal, and the words for it.
 *
 * Only facts and words in here; evidence.h looks the facts up. */
#ifndef LAUNCHER_REPORT_EXIT_TEXT_H
#define LAUNCHER_REPORT_EXIT_TEXT_H

#include "agent/agent.h"
#include "base/buf.h"

#include <limits.h>

/* Did the kernel kill for memory while the worker lived? */
enum oom_kind {
    OOM_NONE,
    OOM_CGROUP, /* a control group reached its limit */
    OOM_SYSTEM, /* the machine as a whole had no memory left */
};

/* The place of the core file, or the reason why it is missing. */
enum coredump_kind {
    CORE_UNKNOWN,    /* not asked: its signal writes none */
    CORE_FILE,       /* found, at `core` */
    CORE_PIPED,      /* the kernel gave it to the program in `core` */
    CORE_LOST,       /* written, but not found; `core` is the kernel's pattern */
    CORE_NO_LIMIT,   /* none: the size limit is 0 */
    CORE_NO_PATTERN, /* none: the kernel's pattern is empty */
    CORE_NOT_DUMPED, /* none, though it was allowed */
};

enum { TIMER_SHOWN = 128, CGROUP_SHOWN = 256, OBJECT_SHOWN = 64, CPU_SHOWN = 64 };

/* The file with a group's limit of memory. */
#define CGROUP_LIMIT_FILE(v2) ((v2) ? "memory.max" : "memory.limit_in_bytes")

/* Zeroed = nothing is known. */
struct worker_evidence {
    enum oom_kind oom;
    bool oom_named;                /* the kernel's log names this very process */
    bool oom_likely;               /* only the machine's counter rose, which others may have caused */
    bool oom_unseen;               /* no counter of such kills can be read here, not even the machine's */
    unsigned long long kills;      /* by how much the counter rose */
    char cgroup[CGROUP_SHOWN];     /* which group; "" for the whole machine */
    bool cgroup_v2;                /* decides how the limit's file is called */
    uint64_t peak_rss;             /* most memory of the worker, or of a child that it waited for; in bytes */
    uint64_t limit, peak;          /* of that group, in bytes; 0 = not known */
    uint64_t shm_size, shm_free;   /* of /dev/shm, in bytes; size 0 = no /dev/shm */
    bool stdout_gone, stderr_gone; /* the reader of ddprun's own stdout (stderr) is gone */
    bool fault_known;
    uint64_t fault;            /* the address that could not be accessed */
    char object[OBJECT_SHOWN]; /* the program or library in which it happened, with offset; "" = not known */
    enum coredump_kind coredump_kind;
    char core[PATH_MAX];
    uint64_t coredump_size;
    char timer[TIMER_SHOWN]; /* scope of its timer that ran out; "" = none did */
    int port;                /* held for its store, and taken by user `port_uid`; 0 = none was */
    unsigned port_uid;
    uint64_t cpu_limit_s, file_limit; /* ulimit -t, and ulimit -f in bytes; 0 = none */
    char cpu[CPU_SHOWN];              /* model of the processor, for SIGILL */
};

/* All three append to `out`, perhaps nothing; false when memory is short. `w` has ended; `e` may be NULL. */

/* "out of memory (SIGKILL)", "exit 7": short, for the headline. */
bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* "limit 64 MiB of cgroup /x, peak 64 MiB": what the facts say about the cause. */
bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the remedy. */
bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Where the core file is and how to look into it, or how to get one. `program` is what was executed. */
bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out);

/* --- what the kernel writes about control groups, kills and crashes --------------------------------------- */

/* The number behind `key` in lines like "oom_kill 3"; false when there is no such line. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* A file that holds one number; "max", and what v1 writes for "no limit", are 0. */
uint64_t limit_in(struct slice text);

/* Counters of one memory group, before the worker started and after its end. */
struct oom_count {
    unsigned long long kills, hits; /* processes killed in the group; how often the limit was in the way */
};

struct oom_watch {
    const char *name;
    bool v2;
    bool late; /* it was not watched before: its count may be of an earlier time */
    struct oom_count before, now;
    uint64_t limit, peak; /* 0 = none, not known */
};

/* Set the oom members of `e`: `watches` from the innermost group outwards, `system_kills` is the increase of the
 * machine's counter. Facts of the kernel's log (kernel_log_line) stay. */
void oom_judge(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
               struct worker_evidence *e);

/* One line of the kernel's log: does it say something about the end of process `pid`? Sets what it says. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* kernel.core_pattern as a pattern for fnmatch(3): what is not known in advance becomes '*'. False when it
 * is a pipe, or longer than PATH_MAX. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* The address of the fault, from the first bytes of a core file of this machine. False when they do not tell. */
bool coredump_fault(struct slice head, uint64_t *address);

#endif
