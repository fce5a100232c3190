/* job.h -- one job that the hub serves: its keys, its barriers, its members, and the connections that belong to it.
 *
 * A hub inside a launcher serves one job for its whole life. ddp-rendezvous serves many at once by name: an action of
 * one (a restart empties its keys) does not touch the others. There is always at least one job; until it is declared
 * it has no name, and plain c10d clients may use it. The first declaration adopts it.
 *
 *     connection -> session -> job -> store | barriers | members
 *                                (time and output are the hub's)
 *
 * A connection enters its job as soon as the job is known: from IDENTIFY, from a call of its agent, or at its first
 * request for a key when there is only one job. */
#ifndef RENDEZVOUS_HUB_JOB_H
#define RENDEZVOUS_HUB_JOB_H

#include "base/limits.h"
#include "record/stacks.h"
#include "diagnosis/profile.h"
#include "diagnosis/rejected.h"
#include "diagnosis/torch_keys.h"
#include "hub/monitor.h"
#include "job/members.h"
#include "store/barrier.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct hub;
struct job_source;
struct rdzv;
struct rdzv_record;
struct rdzv_round;
struct session;

/* The events of a job, for an event log: joins and departures of nodes, rounds, stops, verdicts, barriers.
 *
 * The store does not write files. Each event is one JSON object (base/events.h; docs/output.md, "Event log"). It goes
 * to the server's own log, if any, and to *one* agent of the job that has requested events in its `join`. When that
 * agent leaves, the next one takes over and first receives the latest events again, because some may have been on
 * their way. Each event carries "instance" and "n", so that a reader of several logs recognises duplicates. */
struct job_events {
    bool asked;        /* an agent wants them, now or before */
    uint64_t taker;    /* its connection; 0 = none, the next event finds one */
    struct buf recent; /* the latest events, each with its NUL */
    char *members;     /* owned: those of the round that begins, as JSON; NULL = none */
};

/* A busy store sends at most this many events per second; the others are counted, and the count is sent. */
struct event_limit {
    uint64_t number; /* of the latest event */
    uint64_t second;
    uint32_t in_second, lost;
};

/* Stacks that an operator has asked for (stacks.c). */
struct job_sample {
    int64_t id;           /* of the latest question */
    uint64_t until_ms;    /* then it is answered without the nodes that are missing; 0 = none is under way */
    struct stacks stacks; /* of the nodes that have answered */
    struct buf askers;    /* conn_id of those who wait */
    struct buf nodes;     /* struct sampled_node: those that have not answered */
    char ranks[LIMIT_TEXT]; /* as asked for */
    bool native;
    bool for_hang;    /* the monitor waits, too, */
    bool for_profile; /* ... or the profile */
};

/* The search for a rank for which all others wait. */
struct job_hang {
    struct hang_watch watch;
    char action[16];       /* after a report: "report", "stop", "restart" */
    bool asks;             /* stacks.c shall take a sample */
    struct cJSON *fresh;   /* owned: a sample that the monitor has not looked at; NULL = none */
    struct cJSON *rows[2]; /* owned: of the last two samples, the earlier one first; NULL = none */
    uint64_t rows_ms[2];
};

/* The search for a rank that makes the others wait in each step (--profile_ranks). */
struct job_profile {
    bool is_on;
    struct profile counts; /* of this attempt */
    uint64_t due_ms;       /* of the next sample, while a round runs */
    bool has_news;         /* a rank has become slow; the monitor shall report it */
};

struct job {
    struct table_node node;     /* in hub->jobs, by name */
    struct hub *hub;            /* borrowed */
    char name[MEMBER_TEXT_MAX]; /* "" = not declared */
    struct job_source *source;  /* borrowed; NULL = not declared, or the hub serves only one job */
    struct quota share;  /* part of the source's share, else of hub->quota, if the hub serves many jobs */
    struct quota *quota; /* what all memory of this job is charged to: `share`, or hub->quota itself */
    struct store *store; /* owned */
    bool is_observed;    /* torch_observe() */
    struct barriers barriers;
    struct members members;
    struct rdzv *rdzv; /* owned; NULL = other programs place its ranks */
    char *round_nodes; /* owned: the nodes of the round as JSON, sent to all of them */
    uint32_t spares,
        agreed; /* nodes that a larger round could accept; ranks that agreed to it, counted from 0 */
    struct schedule_state watch;
    struct job_hang hang;
    struct job_profile profile;
    struct torch_meets meets; /* of PyTorch's ranks in this attempt */
    struct finding given_up;  /* the wait in which the first of them gave up, */
    uint64_t given_up_ms;     /* ... and when; 0 = none did */
    struct job_events events;
    struct notices notices;  /* findings of its nodes about themselves */
    struct notices troubles; /* what ranks of this attempt have reported */
    struct job_sample sample;
    struct list sessions; /* the connections that belong to it (session.in_job) */
    uint32_t era;     /* the hub's era when its attempt began: older connections must not touch the keys */
    uint64_t left_ms; /* when the last of its connections closed */
};

/* Add a job without a name to hub->jobs, which owns it. NULL when memory or quota is short. */
struct job *job_new(struct hub *hub);
/* Remove the job from hub->jobs and free it; no session may be in it. */
void job_free(struct job *job);

/* Return the job of that name, or NULL. */
struct job *job_find(const struct hub *hub, const char *name);
/* Return the only job; NULL when there are several. */
struct job *job_only(const struct hub *hub);
/* Return the job that `s` means by `name`: the job of that name, the one without a name, which then gets it, or a new
 * one. The source of `s` pays for the last two. A hub that serves one job has one answer, and the caller compares the
 * names. NULL when memory is short, or the source has no room for one more job. */
struct job *job_claim(struct hub *hub, const struct session *s, const char *name);
void job_rename(struct job *job, const char *name);

/* True if this attempt, with this world, runs. */
bool job_is_at(const struct job *job, const struct job_name *name);

/* The log of barriers and the rendezvous. */
void job_log(void *job, const char *line);

/* Return when to drop it if nothing happens, UINT64_MAX = never. */
uint64_t job_forget_at(const struct job *job);
/* A job has changed: move hub->jobs_deadline_ms forward to its deadline if that is earlier. */
void job_touch(struct job *job);

/* The source of a job, where the hub serves many jobs: the unit that the store's quota is divided by. A source is the
 * uid of a process on this host, otherwise an address; the /64 network counts for IPv6. It exists as long as it has a
 * job.
 *
 * Make the job's share a part of the share of `source`; NULL: of the whole store. */
void job_set_source(struct job *job, struct job_source *source);

/* The nodes of a job: connections of agents that have joined its rendezvous. */

/* Allocate the state that only nodes need, before the join; false when memory is short. */
bool job_node_room(struct session *s);
/* Make this session, which has the state, a node. */
void job_node_joined(struct session *s);
/* The session is no longer a node: its connection is closed, for the reason `how`. */
void job_node_gone(struct session *s, const char *how);
/* The session is no longer a node, and the rendezvous knows. */
void job_node_ends(struct session *s);

/* Restart every node's heartbeat timeout, because this process was suspended. */
void job_pardon(struct job *job);

/* --- events.c ------------------------------------------------------------------------------------------------------ */

/* Record that this session offers to write the event log. */
void events_ask(struct job *job, struct session *s);
/* The session no longer belongs to the job. */
void events_leave(struct job *job, struct session *s);
void events_free(struct job_events *events);

/* Log the ranks of each node of a round together with its event. */
void events_members(struct job *job, const struct rdzv_round *world);
/* rdzv_env.record, barrier_env.opened and .ended; `job` is a struct job. */
void events_record(void *job, const struct rdzv_record *record);
void events_opened(void *job, const struct barrier *barrier);
void events_ended(void *job, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
/* Push a finding to the nodes. */
void events_finding(struct job *job, const struct finding *finding);

#endif
