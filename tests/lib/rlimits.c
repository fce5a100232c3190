/* rlimits.c -- see rlimits.h. */
#include "rlimits.h"

#include <signal.h>

/* Only a privileged process may go beyond its hard limit. */
uint32_t limits_raise_descriptors(uint32_t most)
{
    struct rlimit limit = { 0 }, wanted = { most, most };
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < most && setrlimit(RLIMIT_NOFILE, &wanted) == 0)
        return most;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

void limits_cut_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}
