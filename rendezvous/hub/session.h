/* session.h -- one connection's conversation, and the hub it happens in. Private to the core; the shell knows
 * hub.h only. From the top down, and each file uses only those below it:
 *
 *     hub.c               connections come and go; time passes for the jobs
 *     requests.c          bytes become requests; the handlers of PyTorch's and of our own
 *     control.c           the JSON calls of agents and operators; inspect.c: those that only look
 *     rounds.c            a job's rendezvous: what it decides is done, and its nodes are told
 *     monitor.c           looks at a job while something waits, and tells its nodes what is new
 *     torch_observer.c    what PyTorch's ranks do while their groups come together
 *     peer_identity.c     whose process a plain connection is
 *     attempt.c           a session enters a job, leaves it, is freed; an attempt begins and ends
 *     job.c               jobs are made, found, freed; who declares them, their barriers and nodes
 *     lost_rank.c         a rank ends while others wait for it
 *     schedule.c           when a job that waits is looked at
 *     events.c            what happens in a job, for an event log
 *     session.c           a session is made, found, waits, speaks for a rank; what goes out; what is known of a rank
 *
 * A handler answers by appending to hub->out, which goes to the connection that asks once all its bytes are
 * worked off; it returns false, with hub->err saying why, when the connection must be closed. */
#ifndef RENDEZVOUS_HUB_SESSION_H
#define RENDEZVOUS_HUB_SESSION_H

#include "base/list.h"
#include "ddp/error.h"
#include "diagnosis/rejected.h"
#include "hub/hub.h"
#include "hub/job.h"
#include "store/quota.h"
#include "store/table.h"
#include "store/wire.h"

struct cJSON;
struct snapshot;
struct snapshot_claim;
union message;

/* The role behind a connection, from IDENTIFY; a plain c10d client sends none. */
#define ROLES(X)        \
    X(PLAIN, "plain")   \
    X(WORKER, "worker") \
    X(AGENT, "agent")   \
    X(CTL, "ctl")

enum role {
#define X(name, text) ROLE_##name,
    ROLES(X)
#undef X
        ROLE_COUNT
};

/* The state of node connections alone: nine in ten connections are those of workers, and do not pay for it. */
struct session_node {
    struct session *session;      /* whose it is */
    struct table_node by_address; /* in hub->agents */
    uint64_t joined_ms;           /* for the first time */
    uint32_t told_wait;           /* schedule_state.wait of its last full report */
};

#define SESSION_NO_UID UINT32_MAX /* no user has it */

struct session {
    struct table_node node; /* in hub->sessions, by id */
    conn_id id;
    char *peer;         /* owned */
    struct job *job;    /* borrowed; NULL until it is known which */
    struct list in_job; /* in job.sessions */
    struct wire wire;
    struct buf in;              /* the unfinished request; its capacity is charged to session_quota() */
    struct store_waiter waiter; /* its wait for keys */
    uint64_t waits_since_ms;
    uint64_t heard_ms;  /* when the last byte came */
    struct list midway; /* in hub->midway[has_spoken] while a request is unfinished */
    uint64_t midway_since_ms;
    struct list by_rank;          /* in member.sessions, of a worker */
    struct barrier_seat seat;     /* its place in a named barrier */
    struct session_node *as_node; /* owned; NULL = it has never joined a rendezvous */
    struct torch_client *torch;   /* owned; NULL = it has used none of PyTorch's keys */
    uint32_t rank;                /* of a worker */
    uint32_t era;                 /* the hub's when it was accepted */
    uint32_t uid; /* of the process that connected, on this host; SESSION_NO_UID = not known */
    int32_t pid;  /* of a plain client, as its agent says, else it itself; 0 = unknown */
    /* Small things last and together: a store has a hundred thousand of these. */
    uint8_t role;       /* enum role */
    uint8_t waits_in;   /* 1 + op_id of WAIT, BARRIER or BARRIER_NAMED while an answer is owed, else 0 */
    bool was_asked_for; /* agents were asked whose it is */
    bool is_held; /* in hub->peers.held or .claimed with `midway`: its requests wait until its job is known */
    bool is_paused;    /* `in` holds requests that wait for hub_resume */
    bool is_node;      /* in job->rdzv, under `id` */
    bool takes_events; /* it would write an event log for its job */
    bool has_spoken;   /* one whole request has arrived */
    uint8_t n_first;   /* its first bytes, until then */
    uint8_t first[REJECT_FIRST_MAX];
};

/* Plain connections whose job is asked for (peer_identity.c). */
struct peer_lines {
    struct list held;     /* sessions whose job is not known, the one that waits longest first */
    struct list claimed;  /* held ones that one agent has claimed, the first claim first */
    struct list released; /* sessions whose job is known by now; what they have sent is worked off next */
};

struct hub {
    struct hub_limits limits;
    struct hub_sink sink;
    uint64_t now_ms; /* of the call that is being worked on */
    struct quota quota;
    struct quota strangers; /* the share of all connections without a job, where the hub serves many jobs */
    struct table jobs;      /* owns them; there is always one */
    struct table sources;   /* of these jobs (job.h), by key; owns them */
    uint64_t jobs_deadline_ms;  /* no later than the nearest deadline of any job */
    uint64_t stood_ms, woke_ms; /* how long this process stood still last, and until when */
    uint32_t era;               /* counts the attempts of all jobs */
    struct table sessions;      /* owns them */
    struct list
        midway[2]; /* sessions with an unfinished request, oldest first: their [0] first, [1] later one */
    struct table agents; /* the sessions that are nodes, of all jobs, by the address they come from */
    struct peer_lines peers;
    struct session *feeding; /* whose bytes are being worked off; `out` is for it */
    struct buf out;
    bool must_repeat;   /* the request that is being worked off: its reply may not be sent yet */
    bool is_backed_up;  /* the one being fed must read before its next request */
    struct ddp_err err; /* why a handler gave up; no words = memory is short */
    struct rejects rejects;
    struct refusals refusals;
    char asked_job[MEMBER_TEXT_MAX]; /* that the one being fed named and was not let in; "" = none */
    struct ddp_err drop_fed;         /* with words: the rendezvous has dropped the one being fed */
    struct event_limit events;
    uint32_t lives;   /* of jobs' rendezvous, for their instances */
    uint32_t n_nodes; /* connections of agents that have joined a job */
    uint64_t counter[HUB_COUNTERS];
    uint64_t requests, closed_by_us;
};

/* requests.c: work off `bytes`. False: close the connection, hub->err says why (no words = memory is short). */
bool requests_feed(struct hub *hub, struct session *s, struct slice bytes);

/* job.c: what the barriers of a job ask of it. */
struct barrier_env job_barrier_env(struct job *job);

/* attempt.c: an attempt of the job begins under `name`, declared by an agent or by its first worker; the sessions of
 * the attempt before are let go. False when memory is short: then nothing has changed. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent);
/* The keys go, all waits end silently, the ranks are forgotten. */
void attempt_end(struct job *job);

/* peer_identity.c: ask the agents at its address whose it is, once. */
void peer_ask(struct hub *hub, struct session *s);
/* The same, and what process it is if it is none of their workers: that is slow, and only asked when there is trouble. False:
 * it was not asked now. */
bool peer_ask_owner(struct hub *hub, struct session *s);
/* Its unfinished business waits until its job is known. */
bool peer_hold(struct hub *hub, struct session *s);
/* Is there room for what a held one goes on sending? */
bool peer_holds(struct hub *hub, const struct session *s);
uint64_t peer_deadline(const struct hub *hub);
void peer_tick(struct hub *hub);

/* control.c: the JSON calls of agents and operators, which messages.h lists. The answer to one call goes into hub->out. False when memory is short. */
bool control_answer(struct hub *hub, struct session *s, struct slice request);

/* A handler fills `answer`, or returns false and hub->err says why not. The message is the one of its call. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const union message *m,
                             struct cJSON *answer);

/* peer_identity.c: an agent answers `who`. */
bool control_vouch(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool control_owner(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* inspect.c: the calls that only look. Any client may make them. */
bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_status(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_why(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* The job that a call is about: `name`, else the one that the caller has entered, else the only one. NULL, with hub->err, when
 * that is not clear. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name);

/* rounds.c: the rendezvous of the job, made when it has none, or when its last one is over and another may begin. NULL when memory
 * is short. */
struct rdzv *job_rendezvous(struct job *job);
/* Have all ranks agreed to a bigger world? Then the next round begins. */
void rounds_look_at_grow_keys(struct job *job);

/* torch_observer.c: subscribe to PyTorch's keys in the store of the job. A job whose clients have all introduced themselves has
 * none of them, and its store looks into no key. */
void torch_observe(struct job *job);
/* Add the members of a group that has too many to the snapshot; *claims is yours (free). False when memory is short. */
bool torch_crowd(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

/* lost_rank.c: `rank` has ended, and the barrier has failed for it; its seats are still taken. */
void lost_peer_in_barrier(struct job *job, const struct barrier *barrier, uint32_t rank);
/* A round is over. A rank that has lost a peer in a collective counts as the cause when no rank has failed. */
void lost_peer_verdict(struct job *job);
/* The connection of a client of PyTorch ends. When it gives up the setup of a group, that is noted with the reason. */
void lost_peer_leaves(struct session *s);

/* session.c: what is known of a rank now. Texts are valid until the next call. */
void facts_of_rank(struct job *job, uint32_t rank, struct rank_facts *facts);
/* The n-th key, or the barrier, that a session waits for; false when there are no more. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name);
/* The request by which it waits, "WAIT"; NULL = it does not. */
const char *facts_waits_by(const struct session *s);

/* session.c: put into hub->sessions, which owns it. False when memory is short. */
bool session_new(struct hub *hub, conn_id conn, const char *peer);
/* NULL: a connection that is not known, or not any more. */
struct session *session_find(const struct hub *hub, conn_id conn);
/* The part before the port of the peer, the same for all clients of one address. */
struct slice session_address(const struct session *s);
/* The answer to `op` will come later. */
void session_begin_wait(struct hub *hub, struct session *s, const struct op *op);
/* store_wake: what it waits for is there. */
void session_woken(void *hub, struct store_waiter *waiter);
/* Leave whatever it waits in, silently. */
void session_leave_wait(struct session *s);
/* It speaks for this rank from now on, or for none any more. */
void session_attach(struct session *s, uint32_t rank);
void session_detach(struct session *s);
/* It is this process: by an agent's word, or by its own, which counts as long as there is no other. */
void session_is_process(struct session *s, int pid, bool by_agent);
/* Agents and operators outlive attempts. */
static inline bool session_is_operator(const struct session *s)
{
    return s->role == ROLE_AGENT || s->role == ROLE_CTL;
}

/* attempt.c: it belongs to this job from now on; whatever it had in another one ends. */
void session_enter(struct session *s, struct job *job);

/* The quota that pays for this connection: that of its job, or the share of all connections without one. */
struct quota *session_quota(struct hub *hub, const struct session *s);
/* The connection is gone already, `how` says why; its waits, its place in barriers and in a rendezvous end. */
void session_free(struct hub *hub, struct session *s, const char *how);
/* Free it and have the shell close it. Never the one that is being fed: its handler returns false instead. */
void session_drop(struct hub *hub, struct session *s, const char *why);
/* The same for one that did not find its store: it is recorded, and logged once a minute for each source. */
void session_reject(struct hub *hub, struct session *s, const char *why);
/* Only remembered. True when a line in the log is due. */
bool session_note_reject(struct hub *hub, const struct session *s, const char *why);

/* The rejects, with those that are connected and silent; yours (free). NULL when memory is short. */
struct rejects *hub_all_rejects(struct hub *hub);

/* session.c: `bytes` to any session, in order with the bytes in hub->out. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes);
/* Push a JSON object to an agent, in one write with the bytes that have gathered for it; `o` stays yours. */
void hub_push(struct hub *hub, struct session *s, const struct cJSON *o);
void hub_push_text(struct hub *hub, struct session *s, struct slice text);
/* A blob to the session being fed; a big value is not copied on its way, and with `holder` not kept twice. False when memory is
 * short. */
bool hub_reply_blob(struct hub *hub, struct slice value, struct shared *holder);
/* May `feeding` be sent a reply of `bytes`? False: the handler returns true and is called again later, so ask before
 * anything is changed or appended. */
bool hub_may_reply(struct hub *hub, uint64_t bytes);
/* Send the bytes in hub->out to the session being fed. */
void hub_flush(struct hub *hub);
void hub_log(struct hub *hub, const char *fmt, ...) DDP_PRINTF(2, 3);

#endif
