/* exit_text.h -- texts about the end of one worker, from facts beyond its exit code or signal. Pure: evidence.h
 * collects the facts. */
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
    CORE_UNKNOWN,    /* not applicable: the worker's signal writes no core file */
    CORE_FILE,       /* found, at `core` */
    CORE_PIPED,      /* the kernel passed the core file to the program in `core` */
    CORE_LOST,       /* written, but not found; `core` is the kernel's pattern */
    CORE_NO_LIMIT,   /* no core file: the size limit is 0 */
    CORE_NO_PATTERN, /* no core file: the kernel's pattern is empty */
    CORE_NOT_DUMPED, /* no core file, although the limits allow one */
};

enum { TIMER_SHOWN = 128, CGROUP_SHOWN = 256, OBJECT_SHOWN = 64, CPU_SHOWN = 64 };

/* The name of the file that holds a group's memory limit. */
#define CGROUP_LIMIT_FILE(v2) ((v2) ? "memory.max" : "memory.limit_in_bytes")

/* The facts about the end of a worker. In a zeroed struct no fact is known. */
struct worker_evidence {
    enum oom_kind oom;
    bool oom_named;            /* the kernel's log names this process */
    bool oom_likely;           /* only the machine's counter rose, which other jobs may have caused */
    bool oom_unseen;           /* no counter of OOM kills can be read here, not even the machine's */
    unsigned long long kills;  /* increase of the counter of OOM kills */
    char cgroup[CGROUP_SHOWN]; /* name of the group that reached its limit; "" for the whole machine */
    bool cgroup_v2;            /* the group's version, which decides how the limit's file is named */
    uint64_t peak_rss;         /* peak memory of the worker, or of a child that the worker reaped; in bytes */
    uint64_t limit, peak;      /* limit and peak of the group `cgroup`, in bytes; 0 = not known */
    uint64_t shm_size, shm_free;   /* size and free space of /dev/shm, in bytes; size 0 = no /dev/shm */
    bool stdout_gone, stderr_gone; /* the reader of ddprun's own stdout (stderr) is gone */
    bool fault_known;
    uint64_t fault;            /* the address that could not be accessed */
    char object[OBJECT_SHOWN]; /* program or library of the fault, with offset; "" = not known */
    enum coredump_kind coredump_kind;
    char core[PATH_MAX];
    uint64_t coredump_size;
    char timer[TIMER_SHOWN]; /* scope of the worker's timer that expired; "" = none */
    int port; /* the port that was held for the worker's store and taken by user `port_uid`; 0 = none */
    unsigned port_uid;
    uint64_t cpu_limit_s, file_limit; /* ulimit -t, and ulimit -f in bytes; 0 = none */
    uint64_t open_files, processes;   /* ulimit -n, ulimit -u; 0 = none */
    uint64_t locked;                  /* ulimit -l in bytes; UINT64_MAX = none, 0 = not known */
    uint64_t pids_max;   /* lowest pids.max of the worker's groups of version 2; 0 = none or not known */
    char cpu[CPU_SHOWN]; /* model of the processor, for SIGILL */
};

/* The four functions below append to `out`, or append nothing without a known fact. They return false when memory is
 * short. `w` has ended. `e` may be NULL. */

/* Append a short text for the headline: "out of memory (SIGKILL)", "exit 7". */
bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append what the facts show about the cause: "limit 64 MiB of cgroup /x, peak 64 MiB". */
bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the remedy. */
bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out);

/* Append the place of the core file and the command that opens it, or how to get a core file. `program` is the
 * executed file. */
bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out);

/* --- kernel's messages about control groups, kills and crashes -------------------------------------------- */

/* Find the number after `key` in lines like "oom_kill 3". Return false if no line has this key. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* Parse a file that contains one number. Return 0 for "max", and for the number that means "no limit" in version
 * 1. */
uint64_t limit_in(struct slice text);

/* Counters of one memory group, before the worker started and after its end. */
struct oom_count {
    unsigned long long kills, hits; /* processes killed in the group; how often the limit was reached */
};

struct oom_watch {
    const char *name;
    bool v2;
    bool late; /* the group was not watched before, so part of its count may be older than the worker */
    struct oom_count before, now;
    uint64_t limit, peak; /* 0 = none or not known */
};

/* Set the oom members of `e`. `watches` are ordered from the innermost group outwards. `system_kills` is the increase
 * of the machine's counter. Facts from the kernel's log (kernel_log_line) are kept. */
void oom_judge(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
               struct worker_evidence *e);

/* Parse one line of the kernel's log. If the line is about the end of process `pid`, set the facts that it
 * contains. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* Turn kernel.core_pattern into a pattern for fnmatch(3): each unknown part becomes '*'. Return false if the kernel's
 * pattern is a pipe, or the result is longer than PATH_MAX. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* Find the address of the fault in the first bytes of a core file of this machine. Return false when the bytes do not
 * contain that address. */
bool coredump_fault(struct slice head, uint64_t *address);

#endif
