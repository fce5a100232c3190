/* session.h -- one connection's conversation, and the hub it happens in. Private to the server's core.
 *
 *     hub.c       connections come and go; time; what goes out
 *     session.c   bytes -> requests -> the handler of each, with what every request has in common
 *     requests.c  the handlers of PyTorch's requests; ours.c: those of our own; control.c: the JSON calls
 *
 * A handler answers by appending to hub->out, which goes to the connection that asks once all its bytes are
 * worked off; it returns false, with hub->err saying why, when the connection must be closed. */
#ifndef RENDEZVOUS_SESSION_H
#define RENDEZVOUS_SESSION_H

#include "base/list.h"
#include "ddp/error.h"
#include "hub.h"
#include "quota.h"
#include "store.h"
#include "table.h"
#include "wire.h"

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
};

struct hub {
    struct hub_limits limits;
    struct hub_sink sink;
    uint64_t now_ms; /* of the call that is being worked on */
    struct quota quota;
    struct store *store;   /* owned */
    struct table sessions; /* owns them */
    struct list
        midway[2]; /* sessions with an unfinished request, oldest first: their [0] first, [1] later one */
    struct session *feeding; /* whose bytes are being worked off; `out` is for it */
    struct buf out;
    struct ddp_err err; /* why a handler gave up; no words = memory is short */
    uint64_t counter[HUB_COUNTERS];
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

/* hub.c: `bytes` to any session, in order with what is in hub->out. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes);
/* A blob to the session being fed; a big value is not copied on its way. False when memory is short. */
bool hub_reply_blob(struct hub *hub, struct slice value);
/* Close a session that is not being fed. */
void hub_drop(struct hub *hub, struct session *s, const char *why);
void hub_log(struct hub *hub, const char *fmt, ...) DDP_PRINTF(2, 3);

#endif
