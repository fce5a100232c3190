/* hurry.h -- be served first by the processor, where we have the right to.
 *
 * Linux shares the processor between sessions (autogroup), and each process that calls setsid opens one. So
 * a job that forks wildly leaves its launcher one part in a hundred, at the very moment when it has to be
 * stopped. And whoever starts 256 workers would have to wait behind those that run already, for each of the others. */
#ifndef LAUNCHER_HURRY_H
#define LAUNCHER_HURRY_H

#include <stdbool.h>

struct hurry {
    bool on;
    int policy, nice, slack_ns; /* as they were; a timer may be late by the slack */
};

/* Only for the time in which workers are being started or stopped: nobody else on this processor comes to a turn before
 * we sleep. Without the right to it (CAP_SYS_NICE) nothing changes, nor for who is served first anyway, nor where the
 * kernel would kill us for it (RLIMIT_RTTIME). What we start meanwhile is served as usual, and calls hurry_inherit. */
void hurry_begin(struct hurry *h);
void hurry_end(struct hurry *h);

/* In the child, before execve: be as if our parent had not been in a hurry. Makes system calls only. */
void hurry_inherit(const struct hurry *h);

#endif
