/* job_tell.h -- all nodes of a job are told why it does not come together; job_watch.h says when. */
#ifndef RENDEZVOUS_JOB_TELL_H
#define RENDEZVOUS_JOB_TELL_H

struct job;

/* Before the rendezvous' own tick: it may end the job. */
void job_tell_if_due(struct job *job);

#endif
