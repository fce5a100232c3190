/* store_link.h -- the agent's connection to the store: an ordinary TCP client, for a store on any host.
 *
 * connect -> IDENTIFY as agent -> join -> `round`; then the messages of messages.h as events occur, and a heartbeat
 * each second, whose answer shows that the store lives. Nothing here blocks; requests before the connection is up are
 * sent when it is. */
#ifndef LAUNCHER_NET_STORE_LINK_H
#define LAUNCHER_NET_STORE_LINK_H

#include "base/buf.h"
#include "base/limits.h"
#include "ddp/error.h"
#include "net/messages.h"
#include "store/ops.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Requests and answers of the link as bytes, queued and received.
 *
 * A request is its opcode, a length and JSON; an answer is a length and JSON. Only IDENTIFY's answer has a status in
 * front. Both ways are bounded. */

struct cJSON;

enum { LINK_QUEUE_MAX = 4 << 20 }; /* ten times what the starts and ends of 1,000 workers take */

/* Requests that are not sent yet. */
struct link_queue {
    struct buf bytes;
    bool full, no_memory; /* a request did not fit: nothing is taken any more */
};

struct cJSON;
struct store_link;

enum { LINK_DROPPED_MAX = 128 };

/* The store's messages. All arguments are borrowed until the return. */
struct store_link_calls {
    void (*round)(void *user, const struct heard_round *round);
    void (*waiting)(void *user, const struct heard_waiting *waiting);
    void (*stop)(void *user, const struct failure *cause);
    void (*verdict)(void *user, const struct heard_verdict *verdict);
    /* The object of the push "findings". */
    void (*findings)(void *user, const struct cJSON *push);
    /* The join is taken; `spare`: a round runs, this node will be taken in at the next one. The store's clock is at
     * `store_ms`, and `instance` names this life of the job. */
    void (*joined)(void *user, bool spare, const char *instance, uint64_t store_ms);
    /* An event of the store, for the event log: an object of base/events.h. */
    void (*event)(void *user, const struct cJSON *event);
    /* The store does not want this node in the job; `code` is a row of diagnosis/findings.h, `advice` may be "". */
    void (*refused)(void *user, const char *code, const char *why, const char *advice);
    /* A beat goes out: add what has changed since the last one. */
    void (*beat)(void *user, struct message_heartbeat *beat);
    /* Which process owns the connection `conn` from `peer` to `store`, both "ADDRESS:PORT"? Answered by say_vouch;
     * with `any` by say_owner, when it is a process of another job. */
    void (*who)(void *user, int64_t conn, const char *peer, const char *store, bool any);
    /* The answer to store_link_ask_status. */
    void (*status)(void *user, const struct cJSON *answer);
    /* Where are the threads of these ranks ("" = of all)? Answered by encode_sampled. */
    void (*sample)(void *user, int64_t id, const char *ranks, bool is_native);
    /* As `findings`, of one: a worker has exited with 0 while others wait for it in a barrier that will not open; or
     * the one that failed first had waited for others until its time-out. */
    void (*left_waiting)(void *user, const struct cJSON *push);
    /* The connection is gone, senseless or silent; called at most once, by a later turn of the loop than what
     * caused it, never inside a call of yours. */
    void (*lost)(void *user, const char *why);
};

/* The details of a loss. */
struct link_fate {
    char dropped
        [LINK_DROPPED_MAX]; /* the store has given this node up: "silent for 3000 ms"; "" = it did not say */
    uint64_t stood_ms;      /* this process stood still for so long just before; 0 = it did not */
};

struct store_link_options {
    uv_loop_t *loop;
    int fd; /* of dial.h: connected and greeted, the link's from now on; -1 = connect to `address` */
    const char *address; /* a literal */
    int port;
    const struct plan *plan; /* borrowed, like `who`, until the link is closed */
    struct link_who who;
    uint64_t beat_ms;
    uint64_t
        silent_ms; /* a store that says nothing for so long is lost; 0 = never: it lives in this process */
    struct store_link_calls calls;
    void *user;
};

/* Begin to connect, and join. DDP_OK: *out is yours, end it with store_link_close. */
ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err);

/* Join the next round. */
void store_link_join(struct store_link *link);

/* Tell what messages.h has made of it: it carries the number of the round, and `json` is taken. NULL as link: it is
 * only freed. A store that takes nothing is lost when what waits for it has grown too much, so memory stays bounded. */
void store_link_tell(struct store_link *link, struct cJSON *json);

/* The same within a few milliseconds, together with others of its kind: 256 workers that start, or end well, would
 * otherwise wake the store 256 times while they need the processor themselves. */
void store_link_mention(struct store_link *link, struct cJSON *json);

/* Valid until the link is closed; nothing in it before `lost`. */
const struct link_fate *store_link_fate(const struct store_link *link);

/* Ask for the store's facts about each worker. False when the store is not connected yet, or lost. */
bool store_link_ask_status(struct store_link *link);

/* Close at once; the memory goes with the last close callback of the loop. No callback of yours
 * comes any more. NULL is allowed. */
void store_link_close(struct store_link *link);

/* --- state ------------------------------------------------------------------------------------------------ */

/* The link itself, private to store_link.c and its tests. */

enum { LINK_READ_BYTES = 4096, LINK_INSTANCE_MAX = LIMIT_INSTANCE };

/* Two buffers for what goes out: libuv needs the bytes of a write to stay where they are until it
 * is done, so new words gather in `out` meanwhile. This also puts the words about many workers into
 * few writes. */
struct store_link {
    struct store_link_options options;
    uv_tcp_t tcp;
    uv_timer_t heartbeat, patience;
    uv_prepare_t before_poll;
    uv_connect_t connect;
    uv_write_t write;
    struct link_queue out; /* not yet handed to libuv */
    struct buf sending;    /* libuv's until on_written */
    struct buf in;
    char chunk[LINK_READ_BYTES];
    uint64_t asked, answered; /* requests but IDENTIFY, and answers to them */
    uint64_t asked_join;      /* number of the latest join */
    uint64_t begun_join;      /* and of the one that the latest round has answered */
    char instance[LINK_INSTANCE_MAX];
    int round; /* 0 = none yet */
    uint64_t heard_ms, beat_at_ms;
    uint64_t stood_ms, woke_ms; /* how long this process stood still last, and until when */
    struct link_fate fate;
    bool connected, writing, welcome, closing;
    bool urgent; /* something in `out` is */
    int open_handles;
};

static inline bool link_is_over(const struct store_link *link)
{
    return link->closing || link->options.calls.lost == NULL;
}

/* --- store_link.c --- */

#endif
