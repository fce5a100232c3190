/* procstat.h -- reads a process's children, memory and CPU time from /proc, and sets limits of the calling process.
 * This module does not use Criterion, because programs that start thousands of jobs link it, too. */
#ifndef PROCSTAT_H
#define PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Return the n-th child of a process, the oldest child first. Orphans that the process has adopted are children, too.
 * Return 0 if there is no such child, or if the kernel has no /proc/PID/task/TID/children. */
pid_t procstat_child(pid_t of, int n);

/* Return the present (rss) or the highest (peak) resident memory in KiB. Return -1 if the process is gone. */
long procstat_rss_kib(pid_t pid);
long procstat_peak_kib(pid_t pid);

/* Return the CPU time used so far, user and system, in ms. Return -1 if the process is gone. */
long procstat_cpu_ms(pid_t pid);

/* Return the number of open descriptors. Return -1 if the process is gone. */
int procstat_fds(pid_t pid);

/* Return true if the process has loaded a sanitizer's run-time, which uses much of the process's memory and time. */
bool procstat_is_sanitized(pid_t pid);

/* --- rlimits ---------------------------------------------------------------------------------------------- */

/* The limits of this process and its children. These functions have no separate header, because a file limits.h in
 * this directory would hide limits.h of the C library. */

/* Raise this process's limit of descriptors to the hard limit. If the hard limit is below `most`, first try to raise
 * the hard limit to `most`, which needs privileges. Return the new limit. */
uint32_t limits_raise_descriptors(uint32_t most);

/* Limit the size of files, memory files included. This simulates a full disk, because code handles EFBIG in the same
 * way as ENOSPC. RLIM_INFINITY removes the limit. */
void limits_cut_files(rlim_t bytes);

#endif
