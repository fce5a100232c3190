/* pids.h -- the number of a process, and how to hold on to what it means now: numbers are given anew. */
#ifndef LAUNCHER_PIDS_H
#define LAUNCHER_PIDS_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor of the process that has this number now (Linux 5.3), which the caller closes; -1: errno. */
int pids_hold(pid_t pid);

/* Signal the process behind the descriptor, whoever has its number meanwhile. False: errno. */
bool pids_signal(int pidfd, int signal);

/* Do both work here? Looks each time. */
bool pids_can_hold(void);

/* The number that was given away last; none above it is in use until they wrap around. -1: no process can be made. */
pid_t pids_newest(void);

#endif
