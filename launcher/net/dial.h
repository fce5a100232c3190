/* dial.h -- connects to the store by host name. A dial tries every address and uses the first address at which a store
 * answers, because a name may also have addresses that this node cannot reach. The file also probes the path to another
 * node with large packets. */
#ifndef LAUNCHER_NET_DIAL_H
#define LAUNCHER_NET_DIAL_H

#include "auth/tls.h"
#include "base/endpoint.h"
#include "ddp/error.h"
#include "net/dial_plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A name lookup of base/connector.h whose result arrives as an event of the libuv loop. libuv's own lookup cannot be
 * cancelled, and would delay the exit of ddprun. */
struct loop_lookup;

/* Begin a lookup, which calls `done` once, on the loop. Return NULL if no memory, descriptor or thread is available.
 * The caller must call loop_lookup_end, which is also allowed before and inside `done`. After loop_lookup_end, `done`
 * is not called, and `user` is not used. */
struct loop_lookup *loop_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user);

/* End a lookup. NULL is allowed. */
void loop_lookup_end(struct loop_lookup *lookup);

/* A dial is one node's attempt to connect to the store. These stages are repeated with growing pauses until a store
 * answers or the timeout is over:
 *
 *     resolve -> route -> connect -> hello
 *
 * A node dials if its own process does not host the store. No call blocks: a thread resolves names, and
 * connections are polled. The user gets a message with the current finding after 2 s, when the finding changes, and
 * every 30 s. At the timeout the user gets a full report with the results of each stage. */
struct join_dial;

/* A store that has answered. */
struct join_dial_found {
    /* owned by the caller: connected and non-blocking; the next request on this socket is IDENTIFY or AUTH */
    int fd;
    char address[ENDPOINT_HOST_MAX]; /* numeric address of the store; the workers get it as MASTER_ADDR */
    int port;
    struct tls *tls;                /* owned by the caller; NULL if not encrypted */
    struct secret *secret;          /* owned by the caller: the secret that MUNGE has delivered, or NULL */
    struct tls_context *context;    /* owned by the caller: TLS with `secret`, or NULL */
    char source[ENDPOINT_HOST_MAX]; /* numeric address of this node's end of the connection */
};

struct join_dial_options {
    uv_loop_t *loop;
    const char *host; /* name or numeric address of the store; copied */
    int port;
    bool master; /* this node hosts the store, or should host it, so the address may be a loopback address */
    uint64_t budget_ms; /* timeout of the dial, counted from join_dial_start */
    const char *knob;   /* name of the option that sets `budget_ms`, or NULL if no option sets it; static */
    const char *who;    /* "node 0's store" or "the store", for messages; copied */
    const char *note;   /* a line for the full report, or NULL; copied */
    /* a warning that follows each message about waiting; "" or NULL: none; borrowed */
    const char *local_only;
    /* number of earlier connections that failed; if it is above 0, the dial begins with a pause */
    unsigned n_failed;
    int max_segment; /* largest TCP segment in both directions, in bytes; 0 for the kernel's default */
    /* Static. If `code` is not NULL, a failed dial reports `code` and `note` instead of a finding. But if a store has
     * refused this node, the dial reports the answer of this store instead of `code` and `note`. */
    const char *code;
    /* Borrowed. If not NULL, use TLS, and accept only a store that has the secret. */
    const struct tls_context *tls;
    /* Borrowed: the job id. If not NULL, the dial uses TLS with the secret that MUNGE unseals. A store at a loopback
     * address is an exception: it is used without TLS. */
    const char *munge_job;
    const char *this_host; /* name of this node, for messages; borrowed */
    /* The dial calls `found` or `failed` once, and ends. The owner then calls join_dial_close, perhaps inside the
     * callback. */
    void (*found)(void *user, const struct join_dial_found *found);
    /* Called when the dial has timed out or can never succeed. `code` is the name of a finding. `report` may
     * have several lines, and does not end with a newline. If a store has refused this node, both texts are
     * from the store's answer. Both texts are borrowed during the call. */
    void (*failed)(void *user, const char *code, const char *report);
    /* Called during the dial with a message for the user. `words` may have several lines, does not end with a
     * newline, and is borrowed during the call. */
    void (*print)(void *user, const char *words);
    void *user;
};

/* Begin a dial. After DDP_OK the caller owns *out. */
ddp_status join_dial_start(const struct join_dial_options *options, struct join_dial **out,
                           struct ddp_err *err);

/* End the dial at once, without a callback. libuv frees the memory later. NULL is allowed. */
void join_dial_close(struct join_dial *dial);

/* Check whether the path to `address`, a numeric address of another node, loses large packets (path_next). Return
 * PROBE_LOSES if large packets are lost, and set *lost_bytes to their size. For any other result, set *lost_bytes to 0.
 * Return PROBE_CARRIES if a large packet has arrived, or if a router has reported a smaller MTU. Return PROBE_UNKNOWN
 * if an error has occurred, or if small packets got no answer. Block for at most about PATH_PROBE_MS, so do not call
 * this function from the event loop. */
enum { PATH_PROBE_MS = 1000 };
enum path_step path_probe(const char *address, int *lost_bytes);

#endif
