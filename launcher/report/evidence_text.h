/* evidence_text.h -- read what the kernel writes about control groups, kills and crashes. Only text and bytes in here;
 * evidence.c fetches them. */
#ifndef LAUNCHER_EVIDENCE_TEXT_H
#define LAUNCHER_EVIDENCE_TEXT_H

#include "report/end_words.h"

/* The number behind `key` in lines like "oom_kill 3"; false when there is no such line. */
bool counter_in(struct slice text, const char *key, unsigned long long *value);

/* A file that holds one number; "max", and what v1 writes for "no limit", are 0. */
uint64_t limit_in(struct slice text);

/* What one observer of memory saw before the worker started and when it had ended. */
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

/* Judge: `watches` from the innermost group outwards, `system_kills` by how much the machine's own counter
 * rose. Sets the oom members of `e`. What the kernel's log said (kernel_log_line) stays. */
void oom_judge(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
               struct worker_evidence *e);

/* One line of the kernel's log: does it say something about the end of process `pid`? Sets what it says. */
void kernel_log_line(struct slice line, int pid, struct worker_evidence *e);

/* kernel.core_pattern as a pattern for fnmatch(3): what is not known in advance becomes '*'. False when it
 * is a pipe, or longer than PATH_MAX. */
bool core_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX]);

/* The address of the fault, from the first bytes of a core file of this machine. False when they do not tell. */
bool core_fault(struct slice head, uint64_t *address);

#endif
