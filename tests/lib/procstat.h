/* procstat.h -- a running process in /proc: its children, memory and CPU time; and the limits of this
 * process. It does not use Criterion, because the programs that start thousands of jobs link it, too. */
#ifndef PROCSTAT_H
#define PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Return the n-th child of a process, eldest first: for ddprun's pid the agent, for the agent a worker (or an orphan
 * it has adopted). 0 without such a child, or if the kernel has no /proc/PID/task/TID/children. */
pid_t procstat_child(pid_t of, int n);

/* Return the resident memory, now and at its peak, in KiB; -1 when the process is gone. */
long procstat_rss_kib(pid_t pid);
long procstat_peak_kib(pid_t pid);

/* Return the CPU time used so far, user and system, in ms; -1 when the process is gone. */
long procstat_cpu_ms(pid_t pid);

/* Return the number of open descriptors; -1 when the process is gone. */
int procstat_fds(pid_t pid);

/* True if a sanitizer's run-time is loaded, so that memory and time are not the program's. */
bool procstat_is_sanitized(pid_t pid);

/* --- rlimits ---------------------------------------------------------------------------------------------- */

/* The limits of this process and of processes that it starts. (Not named limits.h, because tests/lib is searched
 * before the C library's headers.) */

/* Raise the limit of descriptors: to `most` as root, else up to the hard limit. Return it. */
uint32_t limits_raise_descriptors(uint32_t most);

/* Limit the size of files, memory files included: EFBIG takes the same path as ENOSPC. RLIM_INFINITY = as before. */
void limits_cut_files(rlim_t bytes);

#endif
