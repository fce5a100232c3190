/* dial.h -- from a host name to a connection with the store: every address is tried, the first that answers as a store wins. */
#ifndef LAUNCHER_NET_DIAL_H
#define LAUNCHER_NET_DIAL_H

#include "base/endpoint.h"
#include "ddp/error.h"
#include "net/dial_plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* base/connector.h's look-up on the loop; libuv's own would keep the loop, and with it ddprun, from ending meanwhile. */
struct loop_lookup;

/* Begin; `done` is called on the loop, once. NULL: no memory, descriptor or thread. The lookup is yours until
 * loop_lookup_end, which may be called at any time, from `done` too; `done` is not called after it. */
struct loop_lookup *loop_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user);
void loop_lookup_end(struct loop_lookup *lookup); /* NULL is allowed */

/* From the address of the rendezvous to a connection with a store that answers.
 *
 *     resolve -> route -> connect -> hello         again, with growing pauses, until the budget is used up
 *
 * Every node dials like this, also the one that has just started the store. Nothing blocks: names are resolved on a
 * thread, connections are polled. The results of each stage are kept with their times; the user gets a message after
 * two seconds, after each change, every 30 seconds, and in full at the time-out. */

struct join_dial;

/* A store that answers. */
struct join_dial_found {
    int fd; /* yours: connected, non-blocking, close-on-exec, TCP_NODELAY. VALIDATE has been said and answered
                     for (dialect C); no byte of an answer is left to read. Go on with IDENTIFY. */
    char address[ENDPOINT_HOST_MAX]; /* of the store, numeric: MASTER_ADDR for the workers of this node */
    int port;
    char source[ENDPOINT_HOST_MAX]; /* our own address on the way there, numeric */
};

struct join_dial_options {
    uv_loop_t *loop;
    const char *host; /* name or literal; copied */
    int port;
    bool master; /* this node is the one that has, or should have, the store: a loopback address is fine */
    uint64_t budget_ms;     /* from join_dial_start on */
    const char *knob;       /* what sets the budget, "--timeout"; static */
    const char *who;        /* "node 0's store" or "the store": the awaited side, in messages; copied */
    const char *note;       /* a line for the full report, or NULL; copied */
    const char *local_only; /* see dial_options; borrowed */
    const char *code;      /* unless NULL: the code of `note`, which is then all there is to report; static */
    const char *this_host; /* name of this node, for messages; borrowed */
    /* One of the two is called, once; the dial has ended then, free it with join_dial_close, also from inside. */
    void (*found)(void *user, const struct join_dial_found *found);
    /* The budget is used up, or it can never work. `code` is a name of dial_plan.h, `report` several lines without
     * a newline at the end; borrowed until the return. */
    void (*failed)(void *user, const char *code, const char *report);
    /* Words for the user meanwhile, some lines without a newline at the end. */
    void (*say)(void *user, const char *words);
    void *user;
};

/* Begin. DDP_OK: *out is yours. */
ddp_status join_dial_start(const struct join_dial_options *options, struct join_dial **out,
                           struct ddp_err *err);

/* End it at once; no callback comes any more, the memory goes with the loop's last close callback. NULL is allowed. */
void join_dial_close(struct join_dial *dial);

#endif
