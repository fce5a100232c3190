/* nccl_plan.h -- the decisions of the NCCL backend: the states of a communicator, the function for each call, the
 * environment, and error texts. Pure. */
#ifndef WORKER_CUDA_NCCL_PLAN_H
#define WORKER_CUDA_NCCL_PLAN_H

#include "core/call.h"
#include "cuda/nccl_abi.h"

#include <stdbool.h>
#include <stddef.h>

/* The states of a communicator, as a table. Pure.
 *
 *     creating -> ready -> leaving -> closed
 *         \         |         /
 *          `----> failing ---'-> aborted -> closed
 *
 * Any thread may pass an event to nccl_step while it holds the lock. The caller executes the returned effect. A
 * communicator is aborted at most once and not used again. */

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
    NCCL_FAULT, /* a timeout, an error of NCCL or CUDA, a peer has ended, or a rank gives up */
    NCCL_LEFT,  /* the program has made its last call */
    NCCL_GONE,  /* the abort is done */
    NCCL_CLOSE, /* the owner frees the communicator */
    NCCL_EVENTS
};

enum nccl_effect {
    NCCL_EFFECT_NONE,
    NCCL_EFFECT_ABORT,   /* notify the other ranks, then ncclCommAbort */
    NCCL_EFFECT_DESTROY, /* ncclCommFinalize and ncclCommDestroy */
    NCCL_EFFECT_WAIT,    /* wait for NCCL_GONE, because another thread aborts */
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

/* One send or receive of call->n elements. */
struct nccl_move {
    bool send;
    int peer;
    const void *from; /* of a send; else NULL */
    void *to;         /* of a receive; else NULL */
};

/* Set *move to move number i of this rank. Return false if there is no such move. A root that gathers or scatters in
 * place sends nothing to itself. */
bool nccl_move(const struct call *call, int rank, int world, int i, struct nccl_move *move);

/* --- the environment of NCCL ------------------------------------------------------------------------------ */

/* The environment of NCCL, and how the ranks of a communicator find each other. Pure. */

struct nccl_setting {
    char name[32], value[320];
};

enum { NCCL_SETTINGS_MAX = 16 };

struct nccl_facts {
    const char *run;   /* job and attempt, "ddp/<job>/<attempt>" */
    const char *iface; /* the interface of the connection to the store, "" = unknown */
    bool share_gpu;    /* several ranks on one GPU */
    int rank;
};

/* Fill `out` with settings and return their number. The caller skips variables that the user has set. */
int nccl_settings(const struct nccl_facts *facts, struct nccl_setting out[NCCL_SETTINGS_MAX]);

/* Return how many unique ids `world` ranks use with NCCL `version`, and which rank creates id i. While the ranks
 * connect, one rank answers at most NCCL_RANKS_PER_ID other ranks. */
enum { NCCL_RANKS_PER_ID = 128, NCCL_IDS_MAX = 1 << 13 };
int nccl_id_count(int world, int version);
int nccl_id_maker(int i, int count, int world);

/* Write the key of id i into `key`; bootstrap adds the prefix of job and attempt. */
enum { NCCL_KEY = 32 };
const char *nccl_id_key(char key[NCCL_KEY], int i);

/* --- error texts --- */

/* Format 22809 as "2.28.9" and 2804 as "2.8.4". Return `text`. */
enum { NCCL_VERSION_TEXT = 24 };
const char *nccl_version_text(char text[NCCL_VERSION_TEXT], int version);

/* Return DDP_ERR_UNSUPPORTED if the version is too old. */
ddp_status nccl_check_version(int version, struct ddp_err *err);

/* Set the error of a call that NCCL rejected or abandoned. `detail` is NCCL's last error text, "" or NULL. */
ddp_status nccl_fail(struct ddp_err *err, int rank, const char *call, nccl_result result, const char *detail);

/* Return the status for a result of NCCL. Only a rejected argument leaves the communicator usable, because then
 * nothing has begun. */
ddp_status nccl_status_of(nccl_result result);

/* The progress of a rank, for the text of a timeout. */
struct nccl_progress {
    uint64_t done, begun; /* numbers of the last call that is done and of the last call that has begun */
};

/* Report that the call `call` (a call_text) is late. */
ddp_status nccl_late(struct ddp_err *err, int rank, const char *call, uint32_t timeout_ms,
                     const struct nccl_progress *progress);

/* Report that not all ranks were connected in time. `iface` is NCCL_SOCKET_IFNAME, "" = not set. */
ddp_status nccl_init_late(struct ddp_err *err, int world, uint32_t timeout_ms, const char *iface);

/* The facts that the ranks compare before they call NCCL. */
struct nccl_card {
    int32_t version, device;
    int32_t share; /* nonzero with --share_gpu */
    int32_t host;  /* equal numbers mean the same host */
    char bus_id[32];
};

/* Check that all versions are equal, and that GPUs are different unless they may be shared. `cards` has a card for
 * each rank. */
ddp_status nccl_check_cards(const struct nccl_card *cards, int world, struct ddp_err *err);

#endif
