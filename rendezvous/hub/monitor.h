/* monitor.h -- all nodes of a job are told why it does not come together; schedule.h says when. */
#ifndef RENDEZVOUS_HUB_MONITOR_H
#define RENDEZVOUS_HUB_MONITOR_H

struct job;

/* Before the rendezvous' own tick: it may end the job. */
void monitor_run(struct job *job);

#endif
