/* dial.h -- from a host name to a connection with the store: try every address; the first that answers as a store
 * wins. */
#ifndef LAUNCHER_NET_DIAL_H
#define LAUNCHER_NET_DIAL_H

#include "base/endpoint.h"
#include "ddp/error.h"
#include "net/dial_plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* The lookup of base/connector.h on the loop; libuv's own would keep the loop, and with it ddprun, alive until it
 * returns. */
struct loop_lookup;

/* Begin a lookup; `done` is called once, on the loop. NULL: no memory, descriptor or thread. The caller owns the
 * lookup until loop_lookup_end, which may be called at any time, from `done` too; `done` is not called after it. */
struct loop_lookup *loop_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user);
void loop_lookup_end(struct loop_lookup *lookup); /* NULL is allowed */

/* From the address of the rendezvous to a connection with a store that answers.
 *
 *     resolve -> route -> connect -> hello         again, with growing pauses, until the budget is used up
 *
 * Every node dials like this, even the node that has just started the store. Nothing blocks: names are resolved on a
 * thread, connections are polled. The results of each stage are kept with their times; the user gets a message after
 * two seconds, after each change, every 30 seconds, and in full at the timeout. */

struct join_dial;

/* A store that has answered. */
struct join_dial_found {
    int fd; /* owned by the caller: connected, non-blocking, close-on-exec, TCP_NODELAY. VALIDATE was sent and answered (dialect C), and no byte of the answer is left to read. IDENTIFY is next. */
    char address[ENDPOINT_HOST_MAX]; /* of the store, numeric: MASTER_ADDR for the workers of this node */
    int port;
    char source[ENDPOINT_HOST_MAX]; /* our own address on that connection, numeric */
};

struct join_dial_options {
    uv_loop_t *loop;
    const char *host; /* name or literal; copied */
    int port;
    bool master;            /* this node hosts, or should host, the store: a loopback address is fine */
    uint64_t budget_ms;     /* counted from join_dial_start */
    const char *knob;       /* the option that sets the budget, "--timeout"; static */
    const char *who;        /* "node 0's store" or "the store", for messages; copied */
    const char *note;       /* a line for the full report, or NULL; copied */
    const char *local_only; /* see dial_options; borrowed */
    const char *code;       /* unless NULL: the code of `note`, which replaces the report; static */
    const char *this_host;  /* name of this node, for messages; borrowed */
    /* One of the two is called, once. Then the dial has ended; free it with join_dial_close, which may be called
     * inside the callback. */
    void (*found)(void *user, const struct join_dial_found *found);
    /* The budget is used up, or the dial can never succeed. `code` is a name of dial_plan.h, `report` several lines
     * without a newline at the end; borrowed until the return. */
    void (*failed)(void *user, const char *code, const char *report);
    /* Text for the user during the dial: lines without a newline at the end. */
    void (*say)(void *user, const char *words);
    void *user;
};

/* Begin. DDP_OK: the caller owns *out. */
ddp_status join_dial_start(const struct join_dial_options *options, struct join_dial **out,
                           struct ddp_err *err);

/* End it at once; no callback follows. The memory is freed with the loop's last close callback. NULL is allowed. */
void join_dial_close(struct join_dial *dial);

#endif
