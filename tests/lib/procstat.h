/* procstat.h -- what a running process uses, from /proc: for tests that bound the memory and the work of a server. */
#ifndef TESTS_LIB_PROCSTAT_H
#define TESTS_LIB_PROCSTAT_H

#include <stdbool.h>
#include <sys/types.h>

/* Resident memory now and at its highest, in KiB; -1 when the process is gone. */
long procstat_rss_kib(pid_t pid);
long procstat_peak_kib(pid_t pid);

/* CPU time used so far, user and system, in ms; -1 when the process is gone. */
long procstat_cpu_ms(pid_t pid);

/* Open descriptors; -1 when the process is gone. */
int procstat_fds(pid_t pid);

/* Is a sanitizer's run-time loaded? Then memory and time are its, not the program's. */
bool procstat_is_sanitized(pid_t pid);

#endif
