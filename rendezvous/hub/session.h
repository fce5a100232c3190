/* session.h -- the state of one connection, and of the hub. Private to hub/: the server includes only hub.h. */
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
struct secret;
struct snapshot;
struct snapshot_claim;
union message;

/* The role of a connection, from IDENTIFY. A plain client, such as PyTorch's TCPStore (c10d), sends no role. */
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

/* The part of a session's state that only sessions of nodes need. It is allocated separately to save memory. */
struct session_node {
    struct session *session;      /* the session that owns this struct; session_moves_node() changes it */
    struct table_node by_address; /* entry in hub->agents */
    uint64_t joined_ms;           /* time of the first join */
    /* Value of schedule_state.wait when the node last got a full report. If schedule_state.wait has changed since then,
     * the next report to the node is full again. */
    uint32_t reported_wait;
    /* The fields below allow a node to connect again after a broken connection. The store counts and keeps the
     * frames that it sends to the node, starting with the answer to the first join. This answer contains the token. A
     * client that has the token can take over the node. */
    char token[LIMIT_TOKEN + 1]; /* "" = the node must not connect again */
    struct kept sent;            /* answers and pushes that the node has not confirmed */
    uint64_t received;           /* number of CONTROL requests from the node, for the answer to `resume` */
    struct list cut;             /* entry in hub->cut while the connection is broken */
    uint64_t cut_until_ms;       /* while in hub->cut: time at which the store frees the node */
    char cut_why[96];            /* how the connection broke */
};

/* The state of a connection from another host until gate.c admits the connection. */
enum stranger_state {
    STRANGER_NONE,      /* the connection was admitted, or its client runs on this host */
    STRANGER_GREETING,  /* has sent only VALIDATE, PING, `hello` or AUTH; no agent can identify the client */
    STRANGER_HELD,      /* has sent a request that gate.c holds; no agent can identify the client */
    STRANGER_ASKED,     /* the agents at the client's address were asked which user owns the connection */
    STRANGER_HANDSHAKE, /* the TLS handshake is not complete; an agent runs at the client's address */
    STRANGER_STATES
};

#define SESSION_NO_UID UINT32_MAX /* an id that no user has */

/* One connection. Only session_free() frees it. */
struct session {
    struct table_node node; /* entry in hub->sessions; the key is the id */
    conn_id id;
    char *peer;         /* owned: address and port of the client, "10.0.0.2:41234" or "[::1]:41234" */
    struct job *job;    /* borrowed; NULL until the job is known */
    struct list in_job; /* entry in job.sessions */
    struct wire wire;
    struct buf in;              /* the unfinished request; its capacity is charged to session_quota() */
    struct store_waiter waiter; /* the session's wait for keys */
    uint64_t waits_since_ms;    /* start of the present wait; valid if facts_waits_by() is not NULL */
    uint64_t last_received_ms;  /* when the last byte arrived */
    struct list midway;         /* entry in hub->midway if a request is unfinished, or in hub->peers */
    uint64_t midway_since_ms;   /* when the session entered hub->midway or hub->peers */
    struct list by_rank;        /* entry in member.sessions if the client is a worker */
    struct barrier_waiter barrier_waiter; /* the session's wait in a named barrier */
    struct session_node *as_node;         /* owned; NULL = the session has never joined a rendezvous */
    struct auth *auth;                    /* owned; NULL = the session has never sent AUTH */
    struct list stranger;                 /* entry in the list of strangers with this stranger_state */
    uint64_t stranger_since_ms;           /* when the session entered its present list of strangers */
    const struct secret *tenant; /* borrowed: the tenant whose jobs the session may use; NULL = all jobs */
    char *tls_job;   /* owned: job that the client named in TLS; "" if it named no job; NULL without TLS */
    conn_id voucher; /* connection of the agent that has named the session's process; 0 = no agent */
    struct torch_client *torch; /* owned; NULL = the session has used no key of PyTorch */
    uint16_t stranger_bytes;    /* number of the stranger's bytes that the hub has decoded */
    uint16_t stranger_kib;      /* the stranger's part of hub->held_kib */
    uint32_t rank;              /* rank of a worker; valid while the session is in member.sessions */
    /* hub->era when the connection was accepted, or when the session last joined a job as a worker. If job.era is
     * higher, an attempt of the job has ended since then. The session must not use the keys of the new attempt. */
    uint32_t era;
    uint32_t uid; /* user of a client on this host; SESSION_NO_UID = unknown */
    int32_t pid;  /* pid of a plain client, as an agent or the client has reported; 0 = unknown */
    /* Small fields are last to save memory: a store may have a hundred thousand sessions. */
    uint8_t role;           /* enum role */
    uint8_t waits_in;       /* 1 + op_id of an unanswered WAIT, BARRIER, BARRIER_NAMED or CONTROL; 0 = none */
    uint8_t stranger_state; /* enum stranger_state */
    bool is_ddprun;         /* the stranger has sent `hello` or AUTH, which only ddprun sends */
    bool was_asked_for;     /* the hub has asked the agents which process has this connection */
    bool awaits_tls;        /* the stranger has not completed the TLS handshake */
    bool is_held;           /* requests wait until gate.c admits the stranger, or until the job is known */
    bool is_stopped : 1;    /* gate.c has stopped reading from this stranger */
    bool is_paused : 1;     /* the requests in `in` wait until the server calls hub_resume */
    bool is_claim : 1;      /* several jobs could claim the session, and an agent has claimed it */
    bool is_node;           /* the session is a node of job->rdzv; `id` is the id of the node */
    bool takes_events;      /* has requested the events of its job */
    bool has_spoken;        /* the first request has arrived completely */
    uint8_t n_first;        /* number of bytes in `first` */
    uint8_t first[REJECT_FIRST_MAX]; /* first bytes of the connection, which show the client's protocol */
};

/* Sessions whose requests wait until the hub finds their job (peer_identity.c). Each such session is in one of these
 * lists. */
struct peer_lines {
    struct list held;     /* sessions without a known job, the oldest first */
    struct list claimed;  /* held sessions that an agent has claimed, in the order of the claims */
    struct list released; /* sessions whose job is now known; the hub processes their held bytes next */
};

/* The whole store. Only one thread uses it. A callback of the sink must not call the hub. */
struct hub {
    struct hub_limits limits;
    struct hub_sink sink;
    uint64_t now_ms;            /* time of the server's current call of the hub */
    struct quota quota;         /* counts and limits all memory that clients can make the store allocate */
    struct quota strangers;     /* in a hub of many jobs: the part of `quota` for connections without a job */
    struct table jobs;          /* all jobs, owned; there is always at least one job */
    struct table sources;       /* owned: the sources, which are users or addresses (job.h) */
    uint64_t jobs_deadline_ms;  /* the earliest deadline of all jobs, or an earlier time */
    uint64_t stood_ms, woke_ms; /* stood_ms: length of this process's latest suspension; woke_ms: its end */
    uint32_t era;               /* number of ended attempts of all jobs; a new session copies this number */
    struct table sessions;      /* all sessions, owned */
    /* Sessions with an unfinished request, the oldest first. [0]: their first request; [1]: a later one. */
    struct list midway[2];
    struct table agents; /* sessions of the nodes of all jobs; the key is the address */
    struct peer_lines peers;
    struct {
        struct list line;    /* the strangers, the oldest first */
        unsigned count;      /* number of strangers in the list `line` */
    } gate[STRANGER_STATES]; /* the strangers in each state (gate.c) */
    uint64_t held_kib;       /* size of the held bytes of all strangers, in KiB */
    /* The session whose bytes are being processed; NULL = none. This session must not be freed meanwhile. */
    struct session *processing;
    struct buf out;     /* answers that are not sent yet, for the session in `processing` */
    bool must_repeat;   /* the hub handles the current request again later, when it can send the reply */
    bool is_backed_up;  /* the current session must read its replies before its next request is handled */
    bool answers_later; /* the handler of the current CONTROL request sends its answer itself */
    struct ddp_err err; /* error of the current request; it has no text if memory is short */
    struct rejects rejects;
    struct refusals refusals;
    /* The job that the current session has requested but not entered; "" if there is no such job. A record of a
     * rejection contains this name. */
    char asked_job[MEMBER_TEXT_MAX];
    struct ddp_err drop_reason; /* why the session in `processing` was dropped; no text = not dropped */
    struct event_limit events;
    uint32_t n_instances; /* number of rendezvous so far; rendezvous N has an instance id that ends with N */
    uint32_t n_nodes;     /* number of agents that are connected and have joined a job */
    struct list cut;      /* nodes with a broken connection (attempt.c) */
    uint64_t counter[HUB_COUNTERS];
    uint64_t requests;     /* number of decoded requests since the start of the hub */
    uint64_t closed_by_us; /* number of connections that the hub has closed since its start */
};

/* The files of hub/ that use this header. Each file uses only files below it in this list:
 *
 *     hub.c               handles new and closed connections, and checks all deadlines
 *     requests.c          decodes bytes into requests, and handles the opcodes of PyTorch and of ddprun
 *     control.c           handles the JSON calls of agents, ranks and ddpctl; inspect.c: calls that only read
 *     stacks.c            asks the agents for the call stacks of ranks
 *     rounds.c            carries out the decisions of a job's rendezvous, and notifies its nodes
 *     monitor.c           checks a job while nodes or ranks wait, and reports to its nodes
 *     torch_observer.c    records what PyTorch's ranks do while their groups form
 *     gate.c              checks connections from other hosts, and handles AUTH
 *     peer_identity.c     finds the process of a plain connection
 *     attempt.c           moves sessions into and out of jobs, frees sessions, begins and ends attempts
 *     job.c               creates, finds, declares and frees jobs; handles their barriers and nodes
 *     lost_rank.c         reports a rank that ends while other ranks wait for it
 *     schedule.c          decides when a waiting job is checked
 *     events.c            formats the events of a job, for an event log
 *     session.c           creates and finds sessions, records their waits and ranks, sends replies */

/* Process `bytes` (requests.c). Return true if the connection stays open. Return false if the connection must be
 * closed. hub->err then has the reason, or no text if memory is short.
 *
 * A handler of a request returns true or false in the same way, and appends its reply to hub->out. */
bool requests_process(struct hub *hub, struct session *s, struct slice bytes);

/* Begin an attempt of a job (attempt.c). `by_agent` is true if an agent has declared the attempt, and false if the
 * first worker has declared it. The sessions of the previous attempt leave the job. If memory is short, change nothing
 * and return false. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent);
/* Remove the keys, end all waits, and reset the ranks. The waiting clients get no answer. */
void attempt_end(struct job *job);

/* Handle a new connection from another host (gate.c). */
void gate_meet(struct hub *hub, struct session *s);
/* Ask the agents about the strangers in GREETING and HELD at the address of `agent`, which has just joined. */
void gate_agent_joined(struct hub *hub, const struct session *agent);
/* Return the time at which gate_tick() must be called next; UINT64_MAX = never. gate_tick() rejects strangers that have
 * exceeded the time limit of their state. */
uint64_t gate_deadline(const struct hub *hub);
void gate_tick(struct hub *hub);
/* The verdict on a stranger's next request. GATE_PASS: decode the request. GATE_HOLD: hold the request. GATE_MORE: wait
 * for more bytes. GATE_HELLO: answer `hello`. GATE_OTHER_VERSION: refuse an AUTH of another version. */
enum gate_verdict { GATE_PASS, GATE_HOLD, GATE_MORE, GATE_HELLO, GATE_OTHER_VERSION };
/* Return the verdict on the request that begins with `bytes`. */
enum gate_verdict gate_check(const struct session *s, struct slice bytes);
/* Answer a stranger's `hello`, with which a launcher searches for a store. Remove the request from *bytes. */
bool gate_hello(struct hub *hub, struct session *s, struct slice *bytes);
/* Answer an AUTH of another version before the whole request has arrived, because the request may exceed the limit for
 * strangers. Return false. */
bool gate_refuse_version(struct hub *hub, struct session *s, struct slice bytes);
/* Count the decoded bytes of a stranger. Return false if the total exceeds the limit. The caller must then close the
 * connection. */
bool gate_count(struct hub *hub, struct session *s, size_t bytes);
/* Begin to hold a stranger: from now on, the hub keeps the stranger's bytes and handles no request. Return false if the
 * kept bytes exceed the limit. The caller must then close the connection. */
bool gate_hold(struct hub *hub, struct session *s);
/* Return true if the held bytes of a stranger are within their limit. In the state STRANGER_ASKED this limit is high,
 * but the hub stops reading from the stranger at a lower limit (HELD_BYTES in gate.c). The hub also stops reading if
 * all strangers together hold too many bytes. The hub reads again after an agent has confirmed the stranger's user. */
bool gate_holds(struct hub *hub, struct session *s);
/* Handle a message of AUTH. */
bool gate_auth(struct hub *hub, struct session *s, struct slice message);
/* Check and remove the tag of a frame if the session has sent AUTH. Return false if the tag is wrong. */
bool gate_check_tag(struct hub *hub, struct session *s, const struct op *op, struct slice *frame);
/* Return true if the session may make the calls of agents. This is true if the store has no secret, or if the session
 * has passed AUTH as an agent. */
bool gate_is_agent(const struct hub *hub, const struct session *s);
/* Return true if the session may change the job as an operator. A client on another host than the store must have
 * proved that it has the secret. An agent's `vouch` is not enough: agents also vouch for workers, and workers must not
 * change the job. */
bool gate_may_change(const struct hub *hub, const struct session *s);
/* Return false if the client has named another job than `job` in AUTH or TLS. */
bool gate_is_job(const struct session *s, const char *job);
/* Return true if an agent's session may use `job`. AUTH and TLS must have named no other job. The job must belong to
 * the tenant whose secret the client has. */
bool gate_check_job(struct hub *hub, const struct session *s, const char *job);

/* Ask the agents at the session's address which user and process own the connection (peer_identity.c). Return false if
 * no agent at that address matches the job, the tenant and the user of the session. */
bool peer_ask_user(struct hub *hub, struct session *s);
/* Return true if an agent at the session's address has a working connection, so that the agent can answer. */
bool peer_is_answerable(const struct hub *hub, const struct session *s);
/* Ask the agents at the session's address which process has the connection, but only once for each session. */
void peer_ask(struct hub *hub, struct session *s);
/* Ask the agents which process owns the connection. The agents search all processes of their hosts, not only the
 * workers. This search is slow, so call this function only for a PyTorch group with too many members. Return false if
 * no agent was asked. */
bool peer_ask_owner(struct hub *hub, struct session *s);
/* Hold the session's requests until the session's job is known. Always return true. */
bool peer_hold(struct hub *hub, struct session *s);
/* Return true if the held bytes of a session are within their limit. Otherwise set hub->err. */
bool peer_holds(struct hub *hub, const struct session *s);
/* Return true if the session may be rank `rank` of `job`. A session without a tenant and without a `vouch` may be any
 * rank. If an agent has vouched for the session, the rank must run under this agent. If only the session's tenant is
 * known, an agent of this tenant at the session's address must run the rank. */
bool peer_may_be_rank(const struct hub *hub, const struct session *s, const char *job, int64_t rank);
/* Return when peer_tick() must be called next; UINT64_MAX = never. peer_tick() ends the waits for `vouch` that have
 * timed out. */
uint64_t peer_deadline(const struct hub *hub);
void peer_tick(struct hub *hub);

/* Handle a JSON call of an agent or operator (messages.h; control.c), and add the answer to hub->out. A rejected call
 * also gets an answer. Return false if memory is short. */
bool control_answer(struct hub *hub, struct session *s, struct slice request);

/* A handler fills `answer`. If it fails, it writes the reason to hub->err and returns false. `m` is the decoded
 * call. */
typedef bool (*control_call)(struct hub *hub, struct session *s, const union message *m,
                             struct cJSON *answer);

/* Handle an agent's answer to `who`: `vouch` for a process of the job, `owner` for any other process
 * (peer_identity.c). */
bool control_vouch(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool control_owner(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* Handle an operator's request for stacks (control_stacks), and the stacks that an agent sends for this request
 * (control_sampled). Both functions are in stacks.c. */
bool control_stacks(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool control_sampled(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
/* Merge `rows`, the stacks that a node has sent in the message `stopped`, with the stacks of the other nodes. The last
 * verdict of the job contains the result. */
void stacks_add_survivors(struct session *s, uint32_t round, const struct cJSON *rows);
/* Return the rows that stacks_add_survivors() has merged, as a list, or NULL if no rows were merged. The caller frees
 * the list (cJSON_Delete). The rows are borrowed from the job until its next change. */
struct cJSON *stacks_of_survivors(const struct job *job);
/* Expect the stacks of a node on its new connection `to`, because its old connection `from` has broken. */
void stacks_moved(struct job *job, conn_id from, conn_id to);
/* End an open request for stacks if its time limit (job_sample.until_ms) has passed. If the store does not wait for
 * nodes to stop, also free the stacks that stacks_add_survivors() has merged. */
void stacks_tick(struct job *job);
/* Request the stacks of all ranks if the monitor or the profile needs a sample. */
void stacks_ask(struct job *job);

/* Handle the calls that only read (inspect.c). Any client may make these calls. */
bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_status(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);
bool inspect_why(struct hub *hub, struct session *s, const union message *m, struct cJSON *answer);

/* Return the job that a call is about: the job `name`, or the session's job if `name` is NULL. If the session has no
 * job either, return the only job that the session may use. If there is no such job, set hub->err and return NULL. The
 * hub owns the job. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name);

/* Return the rendezvous of the job (rounds.c). Create a rendezvous if the job has none. In a hub of many jobs, also
 * create a rendezvous if the rendezvous of the job is over. Return NULL if memory is short. The job owns the
 * rendezvous. */
struct rdzv *job_rendezvous(struct job *job);
/* Restart the round with more nodes if all ranks have agreed to this. */
void rounds_check_grow_keys(struct job *job);

/* Observe PyTorch's keys in the store of the job (torch_observer.c). Call this when the first plain client uses a
 * key. */
void torch_observe(struct job *job);
/* Search for a PyTorch group with too many members, and store its members in snapshot->surplus. If there is no such
 * group, search for two processes that act as one rank. If two such processes exist, store all processes that have
 * published an address. If the search finds nothing, surplus.n is 0. surplus.claims points to the array *claims, which
 * the caller frees. Return false if memory is short. */
bool torch_surplus(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

/* Report a rank whose end makes a barrier fail (lost_rank.c). Call this function while the other ranks still wait in
 * the barrier. */
void lost_peer_in_barrier(struct job *job, const struct barrier *barrier, uint32_t rank);
/* Report the wait that the failed rank had given up, if any. Also report the rank or the connection that the failed
 * rank had lost, if any. Call this function at the end of a round. */
void lost_peer_verdict(struct job *job);
/* Record whether a PyTorch client has given up the setup of a group. Call this when a connection of the client ends. */
void lost_peer_leaves(struct session *s);

/* Fill in the current facts about a rank (session.c). Texts are valid until the next call. */
void snapshot_of_rank(struct job *job, uint32_t rank, struct snapshot_rank *facts);
/* Set *name to the n-th key, or to the barrier, that a session waits for. Return false if the session waits for fewer
 * keys. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name);
/* Return the name of the unanswered request, such as "WAIT", or NULL if the session does not wait. The text is
 * constant. */
const char *facts_waits_by(const struct session *s);

/* Return true if the connection of the session is broken. server/clients.c has freed the connection, so the hub
 * must not send to it or close it. */
static inline bool session_is_cut(const struct session *s)
{
    return s->as_node != NULL && !list_is_empty(&s->as_node->cut);
}

/* If a node's connection breaks without a FIN, the node stays in its job until its timeout. `resume` with the node's
 * token moves the node to a new connection. */

/* Create the token of a node (session.c), and begin to keep its answers and pushes. */
void session_may_resume(struct session *s);
/* Drop the kept frames up to number `received`, because the node has received them. */
void session_confirms(struct session *s, uint64_t received);
/* Free session.as_node. */
void session_node_free(struct hub *hub, struct session *s);
/* Keep a node in its job although its connection is broken (attempt.c). `why` is the reason for the break. Return false
 * if the node is not kept. */
bool session_cut(struct session *s, const char *why);
/* Return the time at which the store frees the first node with a broken connection; UINT64_MAX = never. */
uint64_t session_cut_deadline(const struct hub *hub);
/* Free the nodes that have not connected again before their cut_until_ms. */
void session_cut_tick(struct hub *hub);
/* Move the node from its old session to `s`. The caller ends the old session. */
void session_moves_node(struct hub *hub, struct session *old, struct session *s);

/* Add a session to hub->sessions, which owns the session (session.c). Return false if memory is short. */
bool session_new(struct hub *hub, conn_id conn, const char *peer);
/* Return the session of a connection, or NULL if the connection is unknown or closed. The hub owns the session; it is
 * valid until session_free. */
struct session *session_find(const struct hub *hub, conn_id conn);
/* Return true if the job `name` belongs to the session's tenant, or if the session has no tenant. */
bool session_may_use(const struct hub *hub, const struct session *s, const char *name);
/* Return the peer's address without the port. */
struct slice session_address(const struct session *s);
/* Record that the reply to `op` is sent later. */
void session_begin_wait(struct hub *hub, struct session *s, const struct op *op);
/* Answer a wait, because the awaited keys exist. The store calls this function. */
void session_woken(void *hub, struct store_waiter *waiter);
/* End the session's wait without an answer. */
void session_leave_wait(struct session *s);
/* Attach the session to a rank of its job. The session must be detached, and `rank` must be within the world. */
void session_attach(struct session *s, uint32_t rank);
/* Detach the session from its rank. Without a rank, do nothing. */
void session_detach(struct session *s);
/* Record the pid that an agent or the client has reported. A pid from an agent replaces a pid from the client. */
void session_is_process(struct session *s, int pid, bool by_agent);
/* Return true for agents and operators, whose connections stay open between attempts. */
static inline bool session_is_operator(const struct session *s)
{
    return s->role == ROLE_AGENT || s->role == ROLE_CTL;
}

/* Move the session from its present job, if any, to this job (attempt.c). */
void session_enter(struct session *s, struct job *job);

/* Return the quota that is charged for this connection: the quota of its job, or the common quota of connections
 * without a job. The quota is borrowed from the job or the hub. */
struct quota *session_quota(struct hub *hub, const struct session *s);
/* Free a session whose connection is closed. `how` is the reason for the close. The session first leaves its waits and
 * barriers, and the rendezvous. */
void session_free(struct hub *hub, struct session *s, const char *how);
/* Free a session and make the server close its connection. A handler must not call this function for the session whose
 * request it handles. It must return false instead. */
void session_drop(struct hub *hub, struct session *s, const char *why);
/* Drop a session whose node has a new connection. The server logs no warning. */
void session_replace(struct hub *hub, struct session *s, const char *why);
/* Drop a session that this store does not accept. Record the rejection. Log at most one rejection a minute for each
 * source, so that a scanner cannot fill the log. */
void session_reject(struct hub *hub, struct session *s, const char *why);
/* Record a rejection without dropping the session. Return true if the caller should log the rejection. */
bool session_note_reject(struct hub *hub, const struct session *s, const char *why);

/* Return true if the session has sent nothing and probably belongs to a job. This is the case if the session's job is
 * known, or if an agent runs at the session's address. Such a session does not count as a foreign client, because torch
 * 1.13 opens a second connection that it seldom uses. */
bool session_is_unused(const struct hub *hub, const struct session *s);

/* Return a copy of hub->rejects, plus the connected foreign clients that have sent nothing. Return NULL if memory is
 * short. The caller frees the copy. */
struct rejects *hub_all_rejects(struct hub *hub);

/* Send `bytes` to any session. For the session in `processing`, first send its answers in hub->out (session.c). */
void hub_send(struct hub *hub, struct session *s, struct slice bytes);
/* Push a JSON object to an agent or operator. The caller still owns `o`. */
void hub_push(struct hub *hub, struct session *s, const struct cJSON *o);
/* Push the text of a JSON object. */
void hub_push_text(struct hub *hub, struct session *s, struct slice text);
/* Reply to the current session with a blob: its length, then its bytes. `holder` owns the value's memory, or is NULL.
 * Return false if memory is short. */
bool hub_reply_blob(struct hub *hub, struct slice value, struct shared *holder);
/* Return true if the current session may get a reply of this size. If the result is false, the handler must return true
 * without a reply. The hub then calls the handler again later with the same request. So a handler must call this
 * function before it changes anything. */
bool hub_may_reply(struct hub *hub, uint64_t bytes);
/* Send the bytes in hub->out to the current session. */
void hub_flush(struct hub *hub);
/* Remove a stranger from the list of its state (gate.c), and set its state to STRANGER_NONE. */
void session_leave_line(struct hub *hub, struct session *s);
/* Admit a stranger: set its state to STRANGER_NONE, and release its held requests. */
void session_admit(struct hub *hub, struct session *s);
/* Release a held session: hub.c processes its held bytes after the bytes of the current session. */
void session_release(struct hub *hub, struct session *s);
/* Remove a session from the list of its stranger_state, and free the session's data about AUTH and TLS. */
void session_end_auth(struct hub *hub, struct session *s);
/* Append a frame for the session to `out`, with a tag if the session has sent AUTH. `kind` is a part of the tag: it is
 * 0 for a result or a push, and 1 for an error. session_append_blob also keeps the frame until the node confirms it. */
bool session_append_frame(struct session *s, struct buf *out, uint8_t kind, struct slice frame);
bool session_append_blob(struct session *s, struct buf *out, uint8_t kind, struct slice frame);
/* Log a line for operators; a line of more than 1,023 bytes is cut. */
void hub_log(struct hub *hub, const char *fmt, ...) DDP_PRINTF(2, 3);

#endif
