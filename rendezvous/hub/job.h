/* job.h -- one job that the hub serves: its keys, its barriers, its members, and the connections that belong to it. A
 * hub inside a launcher serves one job for its whole life, but ddp-rendezvous serves many jobs by name. A new hub
 * already has one job without a name, so that plain c10d clients may use its keys. */
#ifndef RENDEZVOUS_HUB_JOB_H
#define RENDEZVOUS_HUB_JOB_H

#include "base/limits.h"
#include "record/stacks.h"
#include "diagnosis/profile.h"
#include "diagnosis/rejected.h"
#include "diagnosis/torch_keys.h"
#include "hub/monitor.h"
#include "hub/schedule.h"
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
 * Each event is one JSON object (base/events.h; docs/output.md, "Event log"). The store does not write files. It sends
 * each event to the server's own log, if any. It also sends the event to one agent that has requested events in its
 * `join`. This agent is the receiver. When the receiver leaves, another such agent becomes the receiver, and first
 * receives the latest events again. A reader of several logs recognizes duplicates by "instance" and "n". */
struct job_events {
    bool asked;        /* an agent has requested events; cleared when find_receiver() finds no such agent */
    uint64_t receiver; /* session id of the receiver; 0 = none: the store chooses one at the next event */
    struct buf recent; /* texts of the latest events; each text ends with a NUL */
    char *members;     /* owned: ranks of each node as JSON, for the event that a round begins; NULL = none */
};

/* The counters of the hub's events. All jobs together may record at most PER_SECOND barrier events per second
 * (events.c). Events beyond this limit are lost, and a later event reports how many were lost. */
struct event_limit {
    uint64_t number;    /* number of the latest event */
    uint64_t second;    /* the present second, on the clock of hub->now_ms */
    uint32_t in_second; /* number of all barrier events in the present second */
    uint32_t lost;      /* number of barrier events that exceeded the limit in the present second */
};

/* An open request for stacks (stacks.c). */
struct job_sample {
    int64_t id;             /* id of the latest request */
    uint64_t until_ms;      /* when to answer without the missing nodes; 0 if no request is open */
    struct stacks stacks;   /* stacks of the nodes that have answered */
    struct buf askers;      /* array of conn_id: the operators that wait for the answer */
    struct buf nodes;       /* array of struct sampled_node: the nodes that have not answered */
    char ranks[LIMIT_TEXT]; /* the requested ranks, such as "0,2-5"; "" = all */
    bool native;            /* the requested stacks include C frames */
    struct cJSON *calls;    /* owned: calls from the ranks' flight records; NULL = none */
    bool for_hang;          /* the monitor needs the answer to detect a hang */
    bool for_profile;       /* the profile needs the answer to find a slow rank */
};

/* The stacks that the nodes of a round recorded before they stopped their workers (stacks.c). */
struct job_survivors {
    struct stacks stacks;
    uint32_t nodes; /* number of nodes of the round that have reported `stopped` */
};

/* The search for a rank that hangs while all other ranks wait for it. */
struct job_hang {
    struct hang_watch watch;
    char action[16]; /* --on_hang: "report", "stop" or "restart" */
    bool asks;       /* the monitor needs a sample from stacks.c */
    /* owned: rows and calls of a sample that the monitor has not compared yet; NULL = none */
    struct cJSON *fresh, *fresh_calls;
    struct cJSON *rows[2];  /* owned: rows of the last two samples, the earlier sample first; NULL = none */
    struct cJSON *calls[2]; /* owned: collective calls of the last two samples; NULL = none */
    uint64_t rows_ms[2];    /* when the last two samples arrived */
    struct hang_history *history; /* owned; NULL = no sample since the last sign of progress */
    /* why the last suspicion whose samples were compared ended without a verdict; NULL = no such suspicion yet */
    const char *why_not;
    bool is_reported;    /* the nodes have received a finding about a hang that is not over */
    uint64_t resumed_ms; /* time of the first sign of progress after the reported hang; 0 = no sign yet */
    bool is_over;        /* the hang is over, but report_over() has not notified the nodes yet */
};

/* The search for a slow rank (--profile_ranks), which is a rank for which the other ranks wait in each step. */
struct job_profile {
    bool is_on;
    struct profile counts; /* counts of the samples in the current window of this attempt */
    uint64_t due_ms;       /* time of the next sample; 0 while no round runs */
    bool has_news;         /* a rank has become slow, and the monitor has not reported it yet */
};

/* A job and its neighbours:
 *
 *     connection -> session -> job -> store | barriers | members
 *
 * A connection enters its job when the job is known: by IDENTIFY, by `join`, or by an agent's `vouch`. If the hub has
 * only one job, a connection enters the job with its first request for a key. */
struct job {
    struct table_node node;     /* entry in hub->jobs; the key is the name */
    struct hub *hub;            /* borrowed */
    char name[MEMBER_TEXT_MAX]; /* "" if the job is not declared */
    struct job_source *source;  /* borrowed; NULL if the job is not declared, or in a hub with only one job */
    struct quota share;  /* with many jobs: a part of source->share, or of hub->quota if `source` is NULL */
    struct quota *quota; /* the quota that all memory of this job is charged to: `share` or hub->quota */
    struct store *store; /* owned */
    bool is_observed;    /* torch_observe() was called, so the store reports the use of PyTorch's keys */
    struct barriers barriers;
    struct members members;
    struct rdzv *rdzv; /* owned; NULL = no agent has joined yet */
    char *round_nodes; /* owned: the nodes of the round as JSON; NULL = no round yet */
    uint32_t spares;   /* number of waiting nodes that a restart would let into the round */
    uint32_t agreed;   /* all ranks below this number have agreed to a restart with more nodes */
    struct schedule_state watch;
    struct job_hang hang;
    struct job_profile profile;
    struct torch_meets meets; /* the latest barriers that PyTorch's ranks have entered in this attempt */
    struct finding given_up;  /* the finding about the first rank that gave up a wait */
    uint64_t given_up_ms;     /* when the first rank gave up a wait; 0 = no rank has given up */
    struct job_events events;
    struct notices notices;  /* findings of nodes about themselves */
    struct notices troubles; /* findings that ranks of this attempt have reported */
    struct job_sample sample;
    struct job_survivors survivors;
    struct list sessions; /* the connections of the job (session.in_job) */
    /* The value of hub->era when the latest attempt ended; 0: none has ended. A session with a lower
     * session.era must not use the job's keys. */
    uint32_t era;
    uint64_t left_ms; /* time of the latest event: the job was created or named, or a connection left */
};

/* Add a job without a name to hub->jobs, which owns the job. Return NULL if memory or quota is short. */
struct job *job_new(struct hub *hub);
/* Remove the job from hub->jobs and free it. Call this only when no session is in the job. */
void job_free(struct job *job);

/* Return the job `name`, or NULL. The hub owns all jobs; a job that this function, job_only or job_claim returns is
 * valid until job_free. */
struct job *job_find(const struct hub *hub, const char *name);
/* Return the only job that `s` may use. Return NULL if `s` may use several jobs or no job. In a hub of many jobs, a
 * client that has named its job in TLS may use only the named job. */
struct job *job_only(const struct hub *hub, const struct session *s);
/* Return the job `name`. If no job has this name, give the name to the nameless job. If there is no nameless job, add a
 * job and charge it to the source of `s`. If the hub serves only one job, return this job for any `name`. Return NULL
 * if memory is short, or if the source has reached its limit of jobs. */
struct job *job_claim(struct hub *hub, const struct session *s, const char *name);
/* Change the name of the job, and its key in hub->jobs. If `name` is "", the job becomes undeclared. */
void job_rename(struct job *job, const char *name);

/* Return true if `name` contains the name, the present attempt and the world size of this job. */
bool job_is_at(const struct job *job, const struct job_name *name);

/* Write a line to the log. The barriers and the rendezvous call this function. `job` points to a struct job. */
void job_log(void *job, const char *line);

/* Return the time in ms at which to drop the job if no client connects; UINT64_MAX = never. */
uint64_t job_forget_at(const struct job *job);
/* Lower hub->jobs_deadline_ms to the job's deadline. Call this after each change that makes the job's deadline
 * earlier. */
void job_touch(struct job *job);

/* In a hub of many jobs each job belongs to a source: a user of this host, or the address of another host (for IPv6
 * its /64 network). All sources have equal shares of the store's quota. */

/* Make the job's quota a part of the source's share, or of the store's quota if `source` is NULL. */
void job_set_source(struct job *job, struct job_source *source);

/* The nodes of a job: the sessions of the agents that have joined the job's rendezvous. */

/* Allocate session.as_node before the join. Return false if memory is short. */
bool job_node_room(struct session *s);
/* Make the session a node. Call job_node_room() first. */
void job_node_joined(struct session *s);
/* Remove the node of a closed connection from the rendezvous, for the reason `how`. */
void job_node_gone(struct session *s, const char *how);
/* End the session's role as a node. The rendezvous has already removed the node. */
void job_node_ends(struct session *s);

/* Restart every node's heartbeat timeout after a suspension of this process. */
void job_excuse_silence(struct job *job);

/* --- events.c ------------------------------------------------------------------------------------------------- */

/* Record that this session has requested the events. */
void events_ask(struct job *job, struct session *s);
/* Withdraw the session's request for events. */
void events_leave(struct job *job, struct session *s);
/* Free the kept events, and zero the struct. */
void events_free(struct job_events *events);

/* Store the ranks of each node in job->events.members, for the event that the round begins. */
void events_members(struct job *job, const struct rdzv_round *world);
/* Record an event. The rendezvous calls events_record. Barriers call events_opened and events_ended. `job` points to a
 * struct job. */
void events_record(void *job, const struct rdzv_record *record);
void events_opened(void *job, const struct barrier *barrier);
void events_ended(void *job, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
/* Send a finding to all nodes that have requested events. */
void events_finding(struct job *job, const struct finding *finding);

#endif
