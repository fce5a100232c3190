/* store_host.h -- decides whether this node hosts the store of the job, and if so, starts the store. If a node must
 * host the store but cannot, it tries to start a refusing store, which rejects every node. Otherwise the other nodes
 * would wait until their timeout. */
#ifndef LAUNCHER_NET_STORE_HOST_H
#define LAUNCHER_NET_STORE_HOST_H

#include "net/hosting.h"
#include "server/server.h"

#include <uv.h>

enum { OWN_ADDRESSES_MAX = 64 };

/* List the numeric addresses of this machine's interfaces that are up. Return their number, or 0 if the kernel returns
 * no list. */
int own_addresses(struct own_address own[OWN_ADDRESSES_MAX]);

/* Check that --local_addr is a numeric address of this machine. The error DDP_ERR_ARG lists the valid addresses. */
ddp_status own_address_check(const char *address, struct ddp_err *err);

/* --- a reserved port ---------------------------------------------------------------------------------------- */

/* The port of rank 0 is reserved, because several seconds may pass until rank 0 listens. Without the reservation,
 * another process could get the port in the meantime. */

/* Bind a socket to *port on every address without listening, and return it. The caller owns the socket. If *port is 0,
 * the kernel chooses a port. PyTorch's store can still listen on the port, because both sockets use SO_REUSEADDR.
 * Return -1 and set errno on failure. */
int port_hold(int *port);

enum { NOTE_MAX = HOSTING_WORDS_MAX };

/* The location of the store. If `server` is NULL, the caller of store_host_find dials `host` and `port` (dial.h). */
struct store_place {
    struct store_server *server;  /* owned by the caller; NULL if another process hosts the store */
    char host[ENDPOINT_HOST_MAX]; /* address to dial; numeric if the store was started here */
    int port;
    bool here;                           /* the store is, or will be, on this machine */
    char note[NOTE_MAX];                 /* a sentence for the user, or "" */
    char report_note[HOSTING_WORDS_MAX]; /* line to add to the report if no store answers, or "" */
    const char *code; /* code of the error in `note`, or NULL; reported only if no store answers */
};

/* The reason why this node cannot host the store. All texts are borrowed: the receiver copies the texts that it
 * keeps. */
struct host_failure {
    const char *code;  /* name of the finding, or NULL */
    const char *words; /* the error; further lines may contain the advice and the code of a finding */
    /* Address on which a refusing store listens. "": every address. NULL: start no refusing store. */
    const char *at;
};

/* Copy the first line of `words` to `sentence`, and the advice in `words` to `advice`. `words` describes a failure, or
 * is a message about the search for the store. */
void failure_split(const char *words, char sentence[FINDING_TEXT_MAX], char advice[FINDING_TEXT_MAX]);

struct store_host;

struct store_host_options {
    uv_loop_t *loop;
    struct plan *plan; /* borrowed; gets the actual port of the store */
    /* The search calls `found` or `failed` once, perhaps before store_host_find returns, and ends. */
    void (*found)(void *user, const struct store_place *place);
    void (*failed)(void *user, const struct host_failure *failure);
    /* Called with a message for the user during the lookup. */
    void (*print)(void *user, const char *words);
    void *user;
};

/* Start the search. With several nodes, hosting.h decides which node hosts the store. The store listens only on the
 * address of the endpoint. With --host_store=yes, the store listens on every address in two cases: the endpoint is not
 * an address of this node, or the endpoint is a name that resolves to a loopback address by mistake. If the endpoint is
 * a name, the name is looked up first. A failed lookup is repeated until the timeout. After DDP_OK the caller owns *out
 * and calls store_host_close. *out is NULL if the search has already ended. */
ddp_status store_host_find(const struct store_host_options *options, struct store_host **out,
                           struct ddp_err *err);

/* End the search. A store that was started continues to run. This function may be called inside `found` and `failed`.
 * NULL is allowed. */
void store_host_close(struct store_host *host);

/* Start the store of a job with one node. The store listens on 127.0.0.1 or --master_addr. If the default port is in
 * use, `note` names the free port that replaces the default port. Otherwise `note` is "". After DDP_OK the caller owns
 * *out. */
ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err);

/* --- the refusing store ------------------------------------------------------------------------------------- */

/* A refusing store accepts connections of other nodes. It sends the failure of this node to each node that connects,
 * and rejects the node. If the job has a secret, only nodes with the secret get the failure. */
struct refusing_store;

/* Start a refusing store on the job's port. After DDP_OK the caller owns *out. Return DDP_ERR_IO if the port is in
 * use. */
ddp_status refusing_store_start(const struct plan *plan, const struct host_failure *failure,
                                struct refusing_store **out, struct ddp_err *err);

/* Return how many nodes the store has rejected. */
int refusing_store_count(const struct refusing_store *store);

/* Send the last answers, and free the store. NULL is allowed. */
void refusing_store_stop(struct refusing_store *store);

#endif
