/* ctl_jobs.c -- see ctl_jobs.h. Pure: ddpctl.c reads the records. */
#include "ctl/ctl_jobs.h"

#include "base/text.h"

#include <string.h>

static bool is_wanted(const struct ctl_job *job, const char *id)
{
    return id == NULL || strcmp(job->id, id) == 0;
}

/* "ADDRESS  PID  AGE  JOB", the id last, because it may have any length. */
static bool list_jobs(const struct ctl_job *jobs, size_t n, const char *id, struct buf *list)
{
    bool ok = buf_printf(list, "%-24s %8s %10s  %s\n", "ADDRESS", "PID", "AGE", "JOB");
    for (size_t i = 0; i < n && ok; i++) {
        const unsigned long long s = jobs[i].age_ms / 1000;
        if (is_wanted(&jobs[i], id))
            ok = buf_printf(list, "%-24s %8d %4llu:%02llu:%02llu  %s\n", jobs[i].store, jobs[i].pid, s / 3600,
                            s / 60 % 60, s % 60, jobs[i].id);
    }
    if (list->len > 0)
        text_disarm(list->data, list->len, '\n');
    return ok;
}

ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err)
{
    size_t stores = 0;
    *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (is_wanted(&jobs[i], id) && (*found == NULL || strcmp((*found)->store, jobs[i].store) != 0)) {
            *found = &jobs[i];
            stores++;
        }
    if (stores == 1)
        return DDP_OK;
    if (stores > 1 && !list_jobs(jobs, n, id, list))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (stores > 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "several jobs of yours run on this machine; choose one with --addr%s",
                        id == NULL ? " or --job" : "");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "no job%s%.128s%s of yours runs on this machine, and DDPRUN_STORE_ADDR and MASTER_ADDR name no "
        "store; give --addr HOST:PORT (ddprun's default port is 29500, ddp-rendezvous's 29400)",
        id != NULL ? " '" : "", id != NULL ? id : "", id != NULL ? "'" : "");
}
