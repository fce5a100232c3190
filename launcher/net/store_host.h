/* store_host.h -- decide whether this node hosts the store of the job, and start it if so.
 *
 * With one node the store listens on 127.0.0.1 (or on --master_addr), with several only on the endpoint's address:
 * hosting.h decides. A name is looked up first, repeatedly until it is known or the budget is used up. */
#ifndef LAUNCHER_NET_STORE_HOST_H
#define LAUNCHER_NET_STORE_HOST_H

#include "net/hosting.h"
#include "server/server.h"

#include <uv.h>

/* The addresses of this machine. */

enum { OWN_ADDRESSES_MAX = 64 };

/* Check that --local_addr is one of them, as a number. DDP_ERR_ARG: a sentence that lists the valid ones. */
ddp_status own_address_check(const char *address, struct ddp_err *err);

/* --- the held port ---------------------------------------------------------------------------------------- */

/* A port that is reserved for a worker to listen on later. A port that is only looked up and closed again may go to
 * any connection of this machine before the worker needs it, seconds later. */

/* A socket that is bound on every address and does not listen: the kernel assigns its port to no other process, but
 * lets a process that names it with SO_REUSEADDR (as PyTorch's store does) listen there. Return it, owned by the
 * caller, and its port; -1 (errno) on failure. */
int port_hold(int *port);

enum { NOTE_MAX = HOSTING_WORDS_MAX };

/* The place of the store: what join_dial needs, and MASTER_PORT. */
struct store_place {
    struct store_server
        *server; /* owned by the caller, which stops it; NULL = another process hosts the store */
    char host[ENDPOINT_HOST_MAX]; /* address to dial: a literal when it was started here */
    int port;
    bool here;                           /* the store is, or will be, on this machine */
    char note[NOTE_MAX];                 /* a sentence for the user, or "" */
    char report_note[HOSTING_WORDS_MAX]; /* a line for the report when the store is not found, or "" */
    const char *code; /* unless NULL: `note` is the error if no store answers there at once */
};

struct store_host;

struct store_host_options {
    uv_loop_t *loop;
    struct plan *plan; /* borrowed; its port becomes the real one */
    /* One of the two is called, once, perhaps before store_host_find returns: at once if no name must be looked up.
     * Then the search has ended. */
    void (*found)(void *user, const struct store_place *place);
    /* It can never work. `code` names the finding; borrowed until the return. */
    void (*failed)(void *user, const char *code, const char *words);
    /* Text for the user while a name is not known. */
    void (*say)(void *user, const char *words);
    void *user;
};

/* DDP_OK: the caller owns *out and ends it with store_host_close; NULL when the search has ended already. */
ddp_status store_host_find(const struct store_host_options *options, struct store_host **out,
                           struct ddp_err *err);

/* NULL is allowed, also inside `found` and `failed`. A server that was found is not stopped. */
void store_host_close(struct store_host *host);

/* The same for a job of one node, at once; if the default port is in use, `note` names the free port that replaces it
 * (else ""). DDP_OK: the caller owns *out. */
ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err);

#endif
