/* procstat.h -- a running process in /proc: its children, memory and CPU time; and the limits of this
 * process. It does not use Criterion, because the programs that start thousands of jobs link it, too. */
#ifndef PROCSTAT_H
#define PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* The n-th child of a process, eldest first: of ddprun's pid the agent, of the agent a worker (or an orphan
 * it has adopted). 0 without such a child, or if the kernel has no /proc/PID/task/TID/children. */
pid_t procstat_child(pid_t of, int n);

/* Resident memory now and at its highest, in KiB; -1 when the process is gone. */
long procstat_rss_kib(pid_t pid);
long procstat_peak_kib(pid_t pid);

/* CPU time used so far, user and system, in ms; -1 when the process is gone. */
long procstat_cpu_ms(pid_t pid);

/* Open descriptors; -1 when the process is gone. */
int procstat_fds(pid_t pid);

/* Is a sanitizer's run-time loaded? Then memory and time are its, not the program's. */
bool procstat_is_sanitized(pid_t pid);

/* --- rlimits ---------------------------------------------------------------------------------------------- */

/* The limits of this process and of the processes that it starts. (Not limits.h: tests/lib is in the way to
 * the C library's.) */

/* As many descriptors as the system lets us have: `most` where we are privileged, else up to the hard limit. How many. */
uint32_t limits_raise_descriptors(uint32_t most);

/* No file may grow beyond that, memory files included: EFBIG comes the same way as ENOSPC. RLIM_INFINITY = as before. */
void limits_cut_files(rlim_t bytes);

#endif
