/* session.h -- one connection's conversation, and the hub it happens in. Private to the server's core.
 *
 *     hub.c       connections come and go; time; what goes out
 *     session.c   bytes -> requests -> the handler of each, with what every request has in common
 *     requests.c  the handlers of PyTorch's requests; ours.c: those of our own; control*.c: the JSON calls
 *     attempt.c   jobs and attempts begin, ranks come and go; facts.c: what is known of a rank
 *
 * A handler answers by appending to hub->out, which goes to the connection that asks once all its bytes are
 * worked off; it returns false, with hub->err saying why, when the connection must be closed. */
#ifndef RENDEZVOUS_SESSION_H
#define RENDEZVOUS_SESSION_H

#include "core/barrier.h"
#include "base/list.h"
#include "ddp/error.h"
#include "core/hub.h"
#include "core/members.h"
#include "core/quota.h"
#include "core/store.h"
#include "core/table.h"
#include "core/wire.h"

/* Who is behind a connection, as IDENTIFY says; a plain c10d client never says. */
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

struct session {
    struct table_node node; /* in hub->sessions, by id */
    conn_id id;
    char *peer; /* owned */
    struct wire wire;
    struct buf in;              /* the unfinished request; its capacity counts against the quota */
    struct store_waiter waiter; /* its wait for keys */
    const struct op *waits_in;  /* WAIT, BARRIER or BARRIER_NAMED while an answer is owed, else NULL */
    uint64_t waits_since_ms;
    uint64_t heard_ms;  /* when the last byte came */
    struct list midway; /* in hub->midway[has_spoken] while a request is unfinished */
    uint64_t midway_since_ms;
    bool has_spoken; /* one whole request has come */
    enum role role;
    uint32_t rank;            /* of a worker */
    struct list by_rank;      /* in member.sessions, of a worker */
    struct barrier_seat seat; /* its place in a named barrier */
    uint32_t era;             /* the hub's when it was accepted */
};

struct hub {
    struct hub_limits limits;
    struct hub_sink sink;
    uint64_t now_ms; /* of the call that is being worked on */
    struct quota quota;
    struct store *store; /* owned */
    struct barriers barriers;
    struct members members;
    uint32_t
        era; /* counts attempts: a connection that was accepted in an earlier one must not touch the keys */
    struct table sessions; /* owns them */
    struct list
        midway[2]; /* sessions with an unfinished request, oldest first: their [0] first, [1] later one */
    struct session *feeding; /* whose bytes are being worked off; `out` is for it */
    struct buf out;
    struct ddp_err err; /* why a handler gave up; no words = memory is short */
    struct buf words;   /* holds facts_of_rank's texts until the next call */
    uint64_t counter[HUB_COUNTERS];
    uint64_t requests, closed_by_us;
};

/* session.c: work off `bytes`. False: close the connection, hub->err says why. */
bool session_feed(struct hub *hub, struct session *s, struct slice bytes);
/* Leave whatever it waits in, silently. */
void session_leave_wait(struct hub *hub, struct session *s);
/* It will be answered later. */
void session_begin_wait(struct hub *hub, struct session *s, const struct op *op);

/* requests.c: one per row of ops.h, NULL for a request that is not served. */
typedef bool (*request_handler)(struct hub *hub, struct session *s, const struct request *req);
extern const request_handler request_handlers[OPS];

/* ours.c: the handlers of our own requests, and the callbacks of the barriers. */
bool on_identify(struct hub *hub, struct session *s, const struct request *req);
bool on_barrier_named(struct hub *hub, struct session *s, const struct request *req);
bool on_control(struct hub *hub, struct session *s, const struct request *req);
struct barrier_env ours_barrier_env(struct hub *hub);

/* facts.c: what is known of a rank now. Texts are valid until the next call. */
void facts_of_rank(struct hub *hub, uint32_t rank, struct rank_facts *facts);
/* The n-th key, or the barrier, that a session waits for; false when there are no more. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name);

/* attempt.c: a job or an attempt begins; a connection becomes a rank, or stops being one. */
bool attempt_begin(struct hub *hub, const struct job_name *name, bool by_agent);
void attempt_attach(struct hub *hub, struct session *s, uint32_t rank);
void attempt_detach(struct hub *hub, struct session *s);

/* hub.c: `bytes` to any session, in order with what is in hub->out. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes);
/* A blob to the session being fed; a big value is not copied on its way. False when memory is short. */
bool hub_reply_blob(struct hub *hub, struct slice value);
/* Close a session that is not being fed. */
void hub_drop(struct hub *hub, struct session *s, const char *why);
void hub_log(struct hub *hub, const char *fmt, ...) DDP_PRINTF(2, 3);

#endif
