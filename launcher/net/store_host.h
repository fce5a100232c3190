/* store_host.h -- find out whether this node has the store of the job, and start it here if so.
 *
 * With one node the store listens on 127.0.0.1 (or where --master_addr says), with several on the endpoint's address
 * alone: hosting.h decides. A name is looked up first, again and again while it is not known and the budget lasts. */
#ifndef LAUNCHER_NET_STORE_HOST_H
#define LAUNCHER_NET_STORE_HOST_H

#include "net/hosting.h"
#include "server/server.h"

#include <uv.h>

/* The addresses of this machine. */

enum { OWN_ADDRESSES_MAX = 64 };

/* Is --local_addr one of them, as a number? DDP_ERR_ARG: a sentence that lists those that would be. */
ddp_status own_address_check(const char *address, struct ddp_err *err);

/* --- the held port ---------------------------------------------------------------------------------------- */

/* A port that is kept free for a worker to listen on later. A port that is only looked up and closed again may be
 * given to any connection of this machine before the worker, seconds later, needs it. */

/* A socket that is bound, on every address, and does not listen: the kernel gives its port to no process that does
 * not name it, and lets those that name it with SO_REUSEADDR (as PyTorch's store does) listen there. Returns it,
 * owned by the caller, and its port; -1 (errno) on failure. */
int port_hold(int *port);

enum { NOTE_MAX = HOSTING_WORDS_MAX };

/* Where the store is: what join_dial needs, and MASTER_PORT. */
struct store_place {
    struct store_server
        *server; /* owned by the caller, who stops it; NULL = another process hosts the store */
    char host[ENDPOINT_HOST_MAX]; /* to dial: a literal when it was started here */
    int port;
    bool here;                           /* it is, or will be, on this machine */
    char note[NOTE_MAX];                 /* a sentence for the user, or "" */
    char report_note[HOSTING_WORDS_MAX]; /* a line for the report when the store is not found, or "" */
    const char *code; /* unless NULL: `note` is what is wrong if no store answers there at once */
};

struct store_host;

struct store_host_options {
    uv_loop_t *loop;
    struct plan *plan; /* borrowed; its port becomes the real one */
    /* One of the two is called, once, perhaps before store_host_find returns: at once when there is no name to look
     * up. Then the search has ended. */
    void (*found)(void *user, const struct store_place *place);
    /* It can never work. `code` names the finding; borrowed until the return. */
    void (*failed)(void *user, const char *code, const char *words);
    /* Words for the user while a name is not known. */
    void (*say)(void *user, const char *words);
    void *user;
};

/* DDP_OK: *out is yours, end it with store_host_close; NULL when it has ended already. */
ddp_status store_host_find(const struct store_host_options *options, struct store_host **out,
                           struct ddp_err *err);

/* NULL is allowed; from `found` and `failed`, too. A server that was found is not its business any more. */
void store_host_close(struct store_host *host);

/* The same for a job of one node, at once; `note` says when the default port is in use and any free one is taken (else it
 * is ""). DDP_OK: *out is yours. */
ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err);

#endif
