/* ulimits.c -- see ulimits.h. */
#include "node/ulimits.h"

#include "base/log.h"

#include <sys/resource.h>
#include <unistd.h>

enum {
    FDS = 28,           /* the guardian's and the agent's own, with the store and its clients */
    FDS_PER_WORKER = 4, /* two pipes, a pidfd, a connection to the store */
    PROCESSES = 3,      /* guardian, agent, the store's thread */
};

static void warn(const char *what, rlim_t limit, rlim_t need, int workers, char letter)
{
    if (limit == RLIM_INFINITY || limit >= need)
        return;
    log_warn("the limit is %llu %s, %d worker%s and ddprun itself need about %llu: raise it with 'ulimit -%c "
             "%llu'",
             (unsigned long long)limit, what, workers, workers == 1 ? "" : "s", (unsigned long long)need,
             letter, (unsigned long long)need);
}

/* The agent raises the soft limit of descriptors by itself, so the hard one counts. Root has no limit of processes. */
void ulimits_warn(int workers)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        warn("open files", limit.rlim_max, FDS + FDS_PER_WORKER * (rlim_t)workers, workers, 'n');
    if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0)
        warn("processes and threads of this user", limit.rlim_cur, PROCESSES + (rlim_t)workers, workers, 'u');
}
