/* jobs.c -- time passes for all jobs of the hub, see job.h. */
#include "hub/job_source.h"
#include "hub/job_tell.h"
#include "job/rendezvous.h"
#include "hub/session.h"

/* The last one only loses what it holds: there is always a job. */
static void forget(struct job *job)
{
    struct hub *hub = job->hub;
    hub_log(hub, "job '%s' is forgotten: nobody has been connected for %d s", job->name,
            (int)((hub->now_ms - job->left_ms) / 1000));
    if (hub->jobs.count > 1) {
        job_free(job);
        return;
    }
    attempt_end(job);
    rdzv_free(job->rdzv);
    job->rdzv = NULL;
    notices_free(&job->notices);
    job_set_source(job, NULL);
    job_rename(job, "");
}

static void tick(struct job *job)
{
    barriers_tick(&job->barriers, job->hub->now_ms);
    job_tell_if_due(job);
    if (job->rdzv != NULL && rdzv_deadline(job->rdzv) <= job->hub->now_ms)
        rdzv_tick(job->rdzv, job->hub->now_ms);
    if (job_forget_at(job) <= job->hub->now_ms)
        forget(job);
}

/* All of them: that is rare, since requests touch only the job they are for. The successor is fetched before a job
 * may be freed, and the next deadline is looked for when nothing changes any more. */
void jobs_tick(struct hub *hub)
{
    struct table_node *node = table_next(&hub->jobs, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&hub->jobs, node);
        tick(TABLE_ENTRY(node, struct job, node));
    }
    hub->jobs_deadline_ms = UINT64_MAX;
    EACH_NODE(at, &hub->jobs)
    job_touch(TABLE_ENTRY(at, struct job, node));
}
