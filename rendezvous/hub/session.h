/* session.h -- the state of one connection, and of the hub. Private to the core; the shell includes hub.h
 * only. Each file uses only those below it:
 *
 *     hub.c               connections open and close; time passes for the jobs
 *     requests.c          bytes become requests; the handlers of PyTorch's opcodes and of ddprun's
 *     control.c           the JSON calls of agents and operators; inspect.c: those that only read
 *     stacks.c            asks the agents where the threads of ranks are
 *     rounds.c            carries out the decisions of a job's rendezvous, and notifies its nodes
 *     monitor.c           checks a job while nodes or ranks wait, and reports to its nodes
 *     torch_observer.c    the actions of PyTorch's ranks while their groups form
 *     gate.c              connections from other hosts, and AUTH
 *     peer_identity.c     the process of a plain connection
 *     attempt.c           a session enters a job, leaves it, is freed; an attempt begins and ends
 *     job.c               jobs are made, found, freed; their declaration, barriers and nodes
 *     lost_rank.c         a rank ends while others wait for it
 *     schedule.c          when a waiting job is checked
 *     events.c            the events of a job, for an event log
 *     session.c           a session is made, found, waits, gets a rank; replies; the facts about a rank
 *
 * A handler appends its reply to hub->out, which goes to the requesting connection after all its bytes are
 * processed. It returns false if the connection must be closed; hub->err has the reason. */
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

struct auth;
struct cJSON;
struct snapshot;
struct snapshot_claim;
union message;

/* The role of a connection, from IDENTIFY; a plain c10d client sends none. */
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

/* The extra state of node connections. It is separate, because nine in ten connections belong to workers. */
struct session_node {
    struct session *session;      /* its owner */
    struct table_node by_address; /* in hub->agents */
    uint64_t joined_ms;           /* for the first time */
    uint32_t told_wait;           /* schedule_state.wait of its last full report */
};

/* The state of a connection from another host until it is admitted (gate.c). */
enum stranger_state { STRANGER_NONE, STRANGER_GREETING, STRANGER_HELD, STRANGER_ASKED, STRANGER_STATES };

#define SESSION_NO_UID UINT32_MAX /* no user has this id */

struct session {
    struct table_node node; /* in hub->sessions, by id */
    conn_id id;
    char *peer;         /* owned */
    struct job *job;    /* borrowed; NULL until it is known */
    struct list in_job; /* in job.sessions */
    struct wire wire;
    struct buf in;              /* the unfinished request; its capacity is charged to session_quota() */
    struct store_waiter waiter; /* its wait for keys */
    uint64_t waits_since_ms;
    uint64_t heard_ms;  /* when the last byte arrived */
    struct list midway; /* in hub->midway[has_spoken] while a request is unfinished */
    uint64_t midway_since_ms;
    struct list by_rank;          /* in member.sessions, of a worker */
    struct barrier_seat seat;     /* its place in a named barrier */
    struct session_node *as_node; /* owned; NULL = it has never joined a rendezvous */
    struct auth *auth;            /* owned; NULL = it has never sent AUTH */
    struct list stranger;         /* in the line of its stranger_state, since then */
    uint64_t stranger_since_ms;
    struct torch_client *torch; /* owned; NULL = it has used none of PyTorch's keys */
    uint32_t rank;              /* of a worker */
    uint32_t era;               /* the hub's when it was accepted */
    uint32_t uid;               /* of the process that connected, on this host; SESSION_NO_UID = not known */
    int32_t pid;                /* pid of a plain client, from its agent or else from itself; 0 = unknown */
    /* Small fields last and together, because a store may have a hundred thousand sessions. */
    uint8_t role;     /* enum role */
    uint8_t waits_in; /* 1 + op_id of WAIT, BARRIER, BARRIER_NAMED or CONTROL while a reply is due, else 0 */
    uint8_t stranger_state; /* enum stranger_state */
    uint8_t stranger_bytes; /* decoded so far */
    bool is_ddprun;         /* a stranger that looked for a store of ddprun, or sent AUTH */
    bool was_asked_for;     /* the agents were asked for its process */
    bool is_held; /* in hub->peers.held or .claimed with `midway`: its requests wait until its job is known */
    bool is_paused;    /* `in` holds requests that wait for hub_resume */
    bool is_node;      /* in job->rdzv, under `id` */
    bool takes_events; /* it would write an event log for its job */
    bool has_spoken;   /* one whole request has arrived */
    uint8_t n_first;   /* its first bytes, until then */
    uint8_t first[REJECT_FIRST_MAX];
};

/* Plain connections whose job is being determined (peer_identity.c). */
struct peer_lines {
    struct list held;     /* sessions without a known job, the oldest first */
    struct list claimed;  /* held ones that one agent has claimed, the first claim first */
    struct list released; /* sessions whose job is known now; their held bytes are processed next */
};

struct hub {
    struct hub_limits limits;
    struct hub_sink sink;
    uint64_t now_ms; /* of the current call */
    struct quota quota;
    struct quota strangers;     /* the share of all connections without a job, if the hub serves many jobs */
    struct table jobs;          /* owns them; there is always one */
    struct table sources;       /* of these jobs (job.h), by key; owns them */
    uint64_t jobs_deadline_ms;  /* no later than the nearest deadline of any job */
    uint64_t stood_ms, woke_ms; /* length of this process's last standstill, and its end */
    uint32_t era;               /* counts the attempts of all jobs */
    struct table sessions;      /* owns them */
    struct list
        midway[2]; /* sessions with an unfinished request, oldest first: their [0] first, [1] later one */
    struct table agents; /* the sessions of nodes, of all jobs, by their address */
    struct peer_lines peers;
    struct {
        struct list line; /* the oldest first */
        unsigned count;
    } gate[STRANGER_STATES]; /* lines of strangers */
    struct session *feeding; /* its bytes are being processed; `out` is for it */
    struct buf out;
    bool must_repeat;   /* the current request must be repeated: its reply cannot be sent yet */
    bool is_backed_up;  /* the current session must read before its next request */
    bool answers_later; /* the current CONTROL request gets its answer by a push */
    struct ddp_err err; /* error of a handler; no text = memory is short */
    struct rejects rejects;
    struct refusals refusals;
    char asked_job[MEMBER_TEXT_MAX]; /* job that the current session named and could not enter; "" = none */
    struct ddp_err drop_fed;         /* with text: the rendezvous has dropped the current session */
    struct event_limit events;
    uint32_t lives;   /* rendezvous so far; each job instance gets the next number */
    uint32_t n_nodes; /* connections of agents that have joined a job */
    uint64_t counter[HUB_COUNTERS];
    uint64_t requests, closed_by_us;
};

/* requests.c: process `bytes`. False: close the connection; hub->err has the reason (no text = memory is
 * short). */
bool requests_feed(struct hub *hub, struct session *s, struct slice bytes);

/* job.c: the functions that a job's barriers call. */
struct barrier_env job_barrier_env(struct job *job);

/* attempt.c: begin an attempt of the job under `name`, declared by an agent or by its first worker. The
 * sessions of the attempt before leave the job. False if memory is short: then nothing has changed. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent);
/* Remove the keys, end all waits silently, and reset the ranks. */
void attempt_end(struct job *job);

/* gate.c: a connection from another host was accepted. */
void gate_meet(struct hub *hub, struct session *s);
/* An agent has joined: ask it for the strangers at its address. */
void gate_agent_joined(struct hub *hub, const struct session *agent);
uint64_t gate_deadline(const struct hub *hub);
void gate_tick(struct hub *hub);
/* Whether a stranger's next request may be decoded. */
enum gate_verdict { GATE_PASS, GATE_HOLD, GATE_MORE, GATE_HELLO };
enum gate_verdict gate_look(const struct session *s, struct slice bytes);
/* Answer the request with which a launcher looks for the store, and remove it from *bytes. */
bool gate_hello(struct hub *hub, struct session *s, struct slice *bytes);
/* Count the decoded bytes. False: close the connection. */
bool gate_count(struct hub *hub, struct session *s, size_t bytes);
/* Hold its bytes; true if more of them still fit. */
bool gate_hold(struct hub *hub, struct session *s);
bool gate_holds(struct hub *hub, const struct session *s);
/* Handle a message of AUTH. */
bool gate_auth(struct hub *hub, struct session *s, struct slice message);
/* Check and remove the tag of a frame, if the session has sent AUTH. */
bool gate_check_tag(struct hub *hub, struct session *s, const struct op *op, struct slice *frame);
/* True if the session may make agents' calls: it has the secret, if the store has one. */
bool gate_is_agent(const struct hub *hub, const struct session *s);
/* True unless AUTH named another job. */
bool gate_is_job(const struct session *s, const char *job);

/* peer_identity.c: ask the agents at its address whose connection that is. False: there is none. */
bool peer_ask_user(struct hub *hub, struct session *s);
/* Ask the agents at its address once for its process. */
void peer_ask(struct hub *hub, struct session *s);
/* Ask also for a description of a process that is not a worker. That is slow, and only done when too many take part.
 * False: not asked now. */
bool peer_ask_owner(struct hub *hub, struct session *s);
/* Hold its unfinished requests until its job is known. */
bool peer_hold(struct hub *hub, struct session *s);
/* True if further bytes of a held session still fit. */
bool peer_holds(struct hub *hub, const struct session *s);
uint64_t peer_deadline(const struct hub *hub);
void peer_tick(struct hub *hub);

/* control.c: the JSON calls of agents and operators, which messages.h lists. The reply to one call goes into
 * hub->out. False if memory is short. */
bool control_answer(struct hub *hub, struct session *s, struct slice request);

/* A handler fills `answer`, or returns false with the reason in hub->err. `message` is that of its call. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const union message *m,
                             struct cJSON *answer);

/* peer_identity.c: an agent's answer to `who`. */
bool control_vouch(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool control_owner(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* stacks.c: an operator asks for stacks, an agent answers. */
bool control_stacks(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool control_sampled(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
/* The time of a question may be over. */
void stacks_tick(struct job *job);
/* Ask for the stacks of all ranks if the monitor wants them. They will be in job->hang.fresh. */
void stacks_ask(struct job *job);

/* inspect.c: the calls that only read. Any client may make them. */
bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_status(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_why(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* Return the job of a call: `name`, else the one that the caller has entered, else the only one. NULL, with
 * hub->err, if that is ambiguous. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name);

/* rounds.c: return the rendezvous of the job. It is created if the job has none, or if its last one is over and
 * another may begin. NULL if memory is short. */
struct rdzv *job_rendezvous(struct job *job);
/* Begin the next round if all ranks have agreed to a bigger world. */
void rounds_look_at_grow_keys(struct job *job);

/* torch_observer.c: subscribe to PyTorch's keys in the store of the job. A job whose clients all send
 * IDENTIFY has none of them, and its store checks no key. */
void torch_observe(struct job *job);
/* Add the members of a group that has too many to the snapshot. The caller frees *claims. False if memory is
 * short. */
bool torch_crowd(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

/* lost_rank.c: `rank` has ended, and its barrier has failed; its seats are still taken. */
void lost_peer_in_barrier(struct job *job, const struct barrier *barrier, uint32_t rank);
/* A round is over. If no rank has failed, a rank that has lost a peer in a collective counts as the cause. */
void lost_peer_verdict(struct job *job);
/* The connection of a PyTorch client ends. If the client gives up the setup of a group, record that with the reason. */
void lost_peer_leaves(struct session *s);

/* session.c: fill in the present facts about a rank. Texts are valid until the next call. */
void facts_of_rank(struct job *job, uint32_t rank, struct rank_facts *facts);
/* Return the n-th key, or the barrier, that a session waits for; false if there are no more. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name);
/* Return the request by which it waits, "WAIT"; NULL = it does not. */
const char *facts_waits_by(const struct session *s);

/* session.c: add a session to hub->sessions, which owns it. False if memory is short. */
bool session_new(struct hub *hub, conn_id conn, const char *peer);
/* Return NULL for an unknown or closed connection. */
struct session *session_find(const struct hub *hub, conn_id conn);
/* Return the peer without the port, which is the same for all clients of one address. */
struct slice session_address(const struct session *s);
/* Record that the reply to `op` will follow later. */
void session_begin_wait(struct hub *hub, struct session *s, const struct op *op);
/* store_wake: the awaited keys exist. */
void session_woken(void *hub, struct store_waiter *waiter);
/* Leave its wait silently. */
void session_leave_wait(struct session *s);
/* Attach the session to a rank, or detach it. */
void session_attach(struct session *s, uint32_t rank);
void session_detach(struct session *s);
/* Set its pid: from an agent, or its own, which counts until an agent's arrives. */
void session_is_process(struct session *s, int pid, bool by_agent);
/* Agents and operators outlive attempts. */
static inline bool session_is_operator(const struct session *s)
{
    return s->role == ROLE_AGENT || s->role == ROLE_CTL;
}

/* attempt.c: move the session to this job; its state in another job ends. */
void session_enter(struct session *s, struct job *job);

/* Return the quota that pays for this connection: that of its job, or the share of all connections without
 * one. */
struct quota *session_quota(struct hub *hub, const struct session *s);
/* Free a session whose connection is closed, for the reason `how`. Its waits and its places in barriers and in a
 * rendezvous end. */
void session_free(struct hub *hub, struct session *s, const char *how);
/* Free it and have the shell close it. Never the current session, whose handler returns false instead. */
void session_drop(struct hub *hub, struct session *s, const char *why);
/* Drop a session that did not find its store: it is recorded, and logged once a minute for each source. */
void session_reject(struct hub *hub, struct session *s, const char *why);
/* Only record the rejection. True if a log line is due. */
bool session_note_reject(struct hub *hub, const struct session *s, const char *why);

/* Return the rejects, with connected silent clients; the caller frees them. NULL if memory is short. */
struct rejects *hub_all_rejects(struct hub *hub);

/* session.c: send `bytes` to any session, in order with the bytes in hub->out. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes);
/* Push a JSON object to an agent, in one write with the bytes queued for it; the caller keeps `o`. */
void hub_push(struct hub *hub, struct session *s, const struct cJSON *o);
void hub_push_text(struct hub *hub, struct session *s, struct slice text);
/* Reply a blob to the current session. A big value is not copied on its way, and with `holder` not kept
 * twice. False if memory is short. */
bool hub_reply_blob(struct hub *hub, struct slice value, struct shared *holder);
/* True if `feeding` may get a reply of `bytes`. False: the handler returns true and is called again later, so call
 * this before changing or appending anything. */
bool hub_may_reply(struct hub *hub, uint64_t bytes);
/* Send the bytes in hub->out to the current session. */
void hub_flush(struct hub *hub);
/* session.c: a connection of another host leaves the line in which it waits. */
void session_leave_line(struct hub *hub, struct session *s);
/* It is no stranger any more; its held bytes are processed next. */
void session_admit(struct hub *hub, struct session *s);
/* It ends: leave the line, and free what AUTH has allocated. */
void session_end_auth(struct hub *hub, struct session *s);
/* Append a blob to its output, with a tag if it has sent AUTH. */
bool session_put_blob(struct session *s, struct buf *out, uint8_t kind, struct slice frame);
void hub_log(struct hub *hub, const char *fmt, ...) DDP_PRINTF(2, 3);

#endif
