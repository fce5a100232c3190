/* nccl_plan.h -- the pure part of the NCCL backend: the states of a communicator, the NCCL function of each call, the
 * environment, and error texts. A pure part needs neither NCCL nor a GPU, so unit tests check it on every machine. The
 * callers nccl_comm.c and nccl_watch.c call NCCL and CUDA. */
#ifndef WORKER_CUDA_NCCL_PLAN_H
#define WORKER_CUDA_NCCL_PLAN_H

#include "core/call.h"
#include "cuda/nccl_abi.h"

#include <stdbool.h>
#include <stddef.h>

/* The states of a communicator:
 *
 *     creating -> ready -> leaving -> closed
 *         \         |         /
 *          `----> failing ---'-> aborted -> closed
 *
 * A thread calls nccl_step while it holds the lock. The same thread then executes the returned effect. The thread keeps
 * the lock, except in parts of the effects ABORT and WAIT. A communicator is aborted at most once and then not used
 * again. */

enum nccl_state {
    NCCL_CREATING,
    NCCL_READY,
    NCCL_LEAVING,
    NCCL_FAILING,
    NCCL_ABORTED,
    NCCL_CLOSED,
    NCCL_STATES
};

enum nccl_event {
    NCCL_MET,   /* all ranks are connected */
    NCCL_FAULT, /* a timeout, an error of NCCL or CUDA, a dead peer, or a rank that gives up */
    NCCL_LEFT,  /* the program has called finalize, its last call */
    NCCL_GONE,  /* the abort is done */
    NCCL_CLOSE, /* the owner frees the communicator */
    NCCL_EVENTS
};

enum nccl_effect {
    NCCL_EFFECT_NONE,
    NCCL_EFFECT_ABORT,   /* notify the other ranks, then call ncclCommAbort */
    NCCL_EFFECT_DESTROY, /* call ncclCommFinalize, then ncclCommDestroy */
    NCCL_EFFECT_WAIT,    /* wait until another thread has aborted the communicator */
};

struct nccl_step {
    enum nccl_state next;
    enum nccl_effect effect;
};

struct nccl_step nccl_step(enum nccl_state state, enum nccl_event event);

/* --- function of each call -------------------------------------------------------------------------------- */

enum nccl_way {
    NCCL_WAY_NOTHING, /* the call moves no values */
    NCCL_WAY_ALL_REDUCE,
    NCCL_WAY_REDUCE,
    NCCL_WAY_BROADCAST,
    NCCL_WAY_ALL_GATHER,
    NCCL_WAY_REDUCE_SCATTER,
    NCCL_WAY_MOVES, /* a group of sends and receives */
};

struct nccl_plan {
    enum nccl_way way;
    nccl_type type;
    nccl_redop op;
};

struct nccl_plan nccl_plan(const struct call *call);

/* One send or receive of call->n elements. Both pointers are borrowed from the call. */
struct nccl_move {
    bool send;
    int peer;
    const void *from; /* NULL for a receive */
    void *to;         /* NULL for a send */
};

/* Set *move to move number i of this rank. Return false if this rank has no move i. A root that gathers or scatters
 * in place sends nothing to itself. */
bool nccl_move(const struct call *call, int rank, int world, int i, struct nccl_move *move);

/* --- the environment of NCCL ------------------------------------------------------------------------------ */

/* An environment variable for NCCL. */
struct nccl_setting {
    char name[32], value[320];
};

enum { NCCL_SETTINGS_MAX = 16 };

/* The facts for nccl_settings; both texts are borrowed. */
struct nccl_facts {
    const char *run;   /* "ddp/<job>/<attempt>" */
    const char *iface; /* interface of the connection to the store; "" if unknown */
    bool share_gpu;    /* true if several ranks use one GPU */
    int rank;
};

/* Fill `out` with environment variables for NCCL, and return their number. The caller must keep the value of a variable
 * that the user has set. */
int nccl_settings(const struct nccl_facts *facts, struct nccl_setting out[NCCL_SETTINGS_MAX]);

/* nccl_id_count returns the number of unique ids that a world uses with NCCL `version`. nccl_id_maker returns the
 * rank that creates id i. The ranks of a communicator find each other with these ids. While the ranks connect, the
 * creator of an id serves at most NCCL_RANKS_PER_ID ranks. */
enum { NCCL_RANKS_PER_ID = 128, NCCL_IDS_MAX = 1 << 13 };
int nccl_id_count(int world, int version);
int nccl_id_maker(int i, int count, int world);

/* Write the key of id i to `key` and return `key`. bootstrap.c adds the prefix of job and attempt. */
enum { NCCL_KEY = 32 };
const char *nccl_id_key(char key[NCCL_KEY], int i);

/* --- error texts ------------------------------------------------------------------------------------------ */

/* Return DDP_ERR_UNSUPPORTED if the version is too old. */
ddp_status nccl_check_version(int version, struct ddp_err *err);

/* Report that NCCL has failed in `call`. `detail` is NCCL's last error text, "" or NULL. */
ddp_status nccl_fail(struct ddp_err *err, int rank, const char *call, nccl_result result, const char *detail);

/* The progress of a rank, for the text of a timeout. */
struct nccl_progress {
    uint64_t done, begun; /* done: number of the last finished call; begun: number of the last begun call */
};

/* Report that a call is late. `call` is the text of the call, from call_text(). */
ddp_status nccl_late(struct ddp_err *err, int rank, const char *call, uint32_t timeout_ms,
                     const struct nccl_progress *progress);

/* Report that NCCL has not connected all ranks in time. `iface` is the value of NCCL_SOCKET_IFNAME, or "" if this
 * variable is not set. */
ddp_status nccl_init_late(struct ddp_err *err, int world, uint32_t timeout_ms, const char *iface);

/* The values that the ranks compare before they use NCCL. */
struct nccl_card {
    int32_t version, device;
    int32_t share; /* nonzero with --share_gpu */
    int32_t host;  /* number of the host, equal on all of its ranks */
    char bus_id[32];
};

/* Check that all ranks have the same NCCL version, and that no two ranks use the same GPU without --share_gpu. `cards`
 * has one element for each rank. */
ddp_status nccl_check_cards(const struct nccl_card *cards, int world, struct ddp_err *err);

#endif
