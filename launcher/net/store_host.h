/* store_host.h -- decides whether this node hosts the store of the job, and starts a hosted store.
 *
 * With one node the store listens on 127.0.0.1 (or on --master_addr), with several nodes only on the endpoint's
 * address. hosting.h decides. A name is looked up first, repeatedly until the name is known or the budget is used
 * up. */
#ifndef LAUNCHER_NET_STORE_HOST_H
#define LAUNCHER_NET_STORE_HOST_H

#include "net/hosting.h"
#include "server/server.h"

#include <uv.h>

/* The addresses of this machine. */

enum { OWN_ADDRESSES_MAX = 64 };

/* Lists the addresses of interfaces that are up, as numbers, and returns how many there are; 0 if the kernel gives no list. */
int own_addresses(struct own_address own[OWN_ADDRESSES_MAX]);

/* Checks that --local_addr is a numeric address of this machine. The error DDP_ERR_ARG lists the valid addresses. */
ddp_status own_address_check(const char *address, struct ddp_err *err);

/* --- the held port ---------------------------------------------------------------------------------------- */

/* A port that is reserved for a worker to listen on later. If ddprun only searched for a free port and closed it
 * again, another connection of this machine could get the port before the worker needs it, seconds later. */

/* Bind a socket to *port on every address without listening, and return the socket, which the caller owns. With *port 0,
 * the kernel chooses a port, which is stored there. The kernel assigns the port of this socket to no other process. A process that requests this port with SO_REUSEADDR, as PyTorch's
 * store does, may listen on it. Return -1 and set errno on failure. */
int port_hold(int *port);

enum { NOTE_MAX = HOSTING_WORDS_MAX };

/* The place of the store: the input of join_dial, and MASTER_PORT. */
struct store_place {
    struct store_server
        *server; /* owned by the caller, which stops the store; NULL = another process hosts the store */
    char host[ENDPOINT_HOST_MAX]; /* address to dial; numeric if the store was started here */
    int port;
    bool here;                           /* the store is, or will be, on this machine */
    char note[NOTE_MAX];                 /* a sentence for the user, or "" */
    char report_note[HOSTING_WORDS_MAX]; /* a line for the report when the store is not found, or "" */
    const char *code;                    /* unless NULL, `note` is the error if no store answers at once */
};

/* Why this node cannot host the store. All texts are borrowed during the call. */
struct host_failure {
    const char *code;  /* name of the finding */
    const char *words; /* the error, then lines with "  try      ADVICE" and the code, if any */
    const char *at;    /* where a refusing store may report this to the other nodes: an address, "" = on every
                        * address; NULL = nowhere, because the other nodes do not wait for this one */
};

struct store_host;

struct store_host_options {
    uv_loop_t *loop;
    struct plan *plan; /* borrowed; its port becomes the real port */
    /* Either `found` or `failed` is called, once, and ends the search. Without a lookup the call happens before
     * store_host_find returns. */
    void (*found)(void *user, const struct store_place *place);
    /* The search has failed. */
    void (*failed)(void *user, const struct host_failure *failure);
    /* Prints a text for the user while a name is not known. */
    void (*say)(void *user, const char *words);
    void *user;
};

/* Starts the search. After DDP_OK the caller owns *out and calls store_host_close. *out is NULL if the search has
 * already ended. */
ddp_status store_host_find(const struct store_host_options *options, struct store_host **out,
                           struct ddp_err *err);

/* Ends the search, but does not stop a started server. The call is also allowed inside `found` and `failed`. NULL is
 * allowed. */
void store_host_close(struct store_host *host);

/* Starts the store of a job with one node, without a callback. If the default port is in use, `note` names the free
 * port that replaces the default port. Otherwise `note` is "". After DDP_OK the caller owns *out. */
ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err);

/* --- the refusing store ------------------------------------------------------------------------------------- */

/* A store that rejects every node with the failure of this node, so that the other nodes of the job do not wait until
 * their timeout. With a secret, only nodes that have the secret get the failure. */
struct refusing_store;

/* Starts a refusing store on the job's port. After DDP_OK the caller owns *out. Returns DDP_ERR_IO if the port is in
 * use. */
ddp_status refusing_store_start(const struct plan *plan, const struct host_failure *failure,
                                struct refusing_store **out, struct ddp_err *err);

/* Returns how many nodes the store has rejected. */
int refusing_store_count(const struct refusing_store *store);

/* Sends the last answers, and frees the store. NULL is allowed. */
void refusing_store_stop(struct refusing_store *store);

#endif
