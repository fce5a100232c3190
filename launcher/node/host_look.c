/* host_look.c -- see host_look.h.
 *
 * Only reading of limits here; which of them are too small for so many workers is decided in
 * report/host_findings.c. */
#include "node/host_look.h"

#include "base/log.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static uint64_t limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? HOST_NO_LIMIT : (uint64_t)limit;
}

/* Of files the hard limit, to which the agent raises its own soft one; of the others the one that counts.
 * Root is not held to RLIMIT_NPROC by the kernel. */
static void read_limits(struct host_facts *f)
{
    struct rlimit limit;
    f->nofile = f->nproc = f->memlock = HOST_NO_LIMIT;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        f->nofile = limit_of(limit.rlim_max);
    if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0)
        f->nproc = limit_of(limit.rlim_cur);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        f->memlock = limit_of(limit.rlim_cur);
}

/* A directory with something in it besides itself and the one above. The kernel makes /sys/class/infiniband
 * as soon as the module is there, with or without a card. */
static bool is_used(const char *path)
{
    DIR *dir = opendir(path);
    int entries = 0;
    while (dir != NULL && readdir(dir) != NULL)
        entries++;
    if (dir != NULL)
        closedir(dir);
    return entries > 2;
}

/* What an ordinary user may have (f_bavail): the blocks kept for root help no worker. */
static void read_shm(struct host_facts *f)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        return;
    f->shm_size = (uint64_t)fs.f_blocks * fs.f_frsize;
    f->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

int host_look(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX])
{
    struct host_facts facts = { .has_infiniband = is_used("/sys/class/infiniband") };
    read_limits(&facts);
    read_shm(&facts);
    return host_findings(&facts, workers, host, out);
}

void host_warn(int workers, const char *host)
{
    struct finding found[HOST_FINDINGS_MAX];
    const int n = host_look(workers, host, found);
    for (int i = 0; i < n; i++)
        log_warn("%s; %s [%s]", found[i].sentence, found[i].advice, finding_code_name(found[i].code));
}
