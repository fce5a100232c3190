/* procstat.h -- children, memory and CPU time of a process, and limits of this process. Without Criterion, for programs
 * that are no tests. */
#ifndef PROCSTAT_H
#define PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Return the n-th child of a process, the oldest first. Return 0 without such a child, or without
 * /proc/PID/task/TID/children. Adopted orphans count. */
pid_t procstat_child(pid_t of, int n);

/* Return the resident memory in KiB, now or at its largest, or -1 if the process is gone. */
long procstat_rss_kib(pid_t pid);
long procstat_peak_kib(pid_t pid);

/* Return the user and system time in ms, or -1 if the process is gone. */
long procstat_cpu_ms(pid_t pid);

/* Return the number of open descriptors, or -1 if the process is gone. */
int procstat_fds(pid_t pid);

/* Return true if the process has loaded a sanitizer's run-time. */
bool procstat_is_sanitized(pid_t pid);

/* --- rlimits ---------------------------------------------------------------------------------------------- */

/* The limits of this process and its children. A file limits.h here would hide the C library's. */

/* Raise the limit of descriptors to `most`, or to the hard limit. Return the new limit. */
uint32_t limits_raise_descriptors(uint32_t most);

/* Limit the size of files, also in memory, to simulate a full disk (EFBIG for ENOSPC). RLIM_INFINITY removes the
 * limit. */
void limits_cut_files(rlim_t bytes);

#endif
