/* job_source.h -- who declared a job, where the hub serves many jobs: the unit that the store's quota is divided by.
 *
 * A source is the uid of a process on this host, otherwise an address; the /64 network counts for IPv6. A source exists as
 * long as it has a job. */
#ifndef RENDEZVOUS_JOB_SOURCE_H
#define RENDEZVOUS_JOB_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct hub;
struct job;
struct job_source;
struct session;

/* Return the source of the connection `s`, in hub->sources; NULL when memory is short. A new one has no job: pass it to
 * job_set_source or job_source_release. */
struct job_source *job_source_of(struct hub *hub, const struct session *s);
/* Free `source` if it has no job; NULL is allowed. */
void job_source_release(struct hub *hub, struct job_source *source);

bool job_source_has_room(const struct job_source *source, uint64_t bytes);

/* From now on the job's share is a part of the share of `source`; NULL: of the whole store. */
void job_set_source(struct job *job, struct job_source *source);

#endif
