/* nccl.h -- private to the files of the NCCL backend:
 *
 *     nccl_comm.c     opening and closing, the choice between NCCL and the cpu communicator for each call, memory
 *     nccl_join.c     connects the ranks: the library, cards, unique ids, the network interface
 *     nccl_watch.c    the watch thread, which watches calls in progress; the failure of a communicator
 *
 * and the pure nccl_plan.c (function for each call, states of a communicator, environment, error texts).
 *
 * A call: this backend's stream waits for an event on the program's stream. Then NCCL's function runs on this
 * backend's stream, and another event follows. The program's stream waits for that event when the program needs the
 * result. The host does not wait. A call in progress is a flight.
 *
 * Each communicator also has a cpu communicator. The cpu communicator runs barriers and calls with values in host
 * memory, detects dead peers, and distributes one reason for a failure to all ranks. A thread holds `cpu_lock` during
 * calls of the cpu communicator. `lock` protects all members that follow it in the struct. A thread that holds `lock`
 * may try to get cpu_lock, but never waits for it.
 */
#ifndef WORKER_CUDA_NCCL_H
#define WORKER_CUDA_NCCL_H

#include "core/backend.h"
#include "cuda/blocks.h"
#include "cuda/nccl_abi.h"
#include "cuda/nccl_plan.h"

#include <pthread.h>

/* NCCL as a table of functions. */
struct nccl_lib {
    void *handle; /* from dlopen; never closed, because NCCL has threads */
    int version;  /* for example 22809 */
#define X(member, symbol, needed, result, parameters) result(*member) parameters;
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Maximum number of calls in progress. A stream accepts more calls before a launch blocks, so this backend waits in
 * its own code, where the backend can check its peers. */
enum { NCCL_FLIGHTS = 256 };

/* A call in progress. */
struct nccl_flight {
    struct CUevent_st *after; /* event after the call on this backend's stream; created at first use */
    struct call call;         /* for error texts; its pointers are not used */
    bool queued;              /* `after` is on the stream */
    uint64_t
        since_ms; /* when the call could begin: after its posting and after the end of the previous call */
    uint32_t timeout_ms;
};

struct nccl_comm {
    struct comm comm; /* must be the first member */
    struct comm *cpu; /* owned */
    const struct comm_host *host;
    struct recorder *recorder; /* recorder of the context; receives finished calls */
    int rank, world;
    uint32_t init_timeout_ms, step_timeout_ms;
    struct gpu gpu;
    struct nccl_lib lib;
    struct blocks blocks; /* device memory of shared_alloc */
    char iface[64];       /* value of NCCL_SOCKET_IFNAME, for texts */
    pthread_mutex_t cpu_lock;

    pthread_mutex_t lock;
    pthread_cond_t changed,
        wanted; /* `changed`: state or `done` has changed; `wanted`: there is something to watch */
    pthread_t watch;
    bool watched, closing;
    enum nccl_state state;
    struct ddp_err failed; /* why the communicator is failing or aborted; final as soon as its code is set */
    struct ncclComm *nccl; /* NULL before the creation and after the end of NCCL's communicator */
    uint64_t creating_until_ms;
    struct ddp_err suspect; /* an error of NCCL that is not reported yet, because a peer may have died */
    uint64_t suspect_since_ms;
    struct CUstream_st *stream; /* this backend's stream */
    struct CUevent_st *before;  /* event on the program's stream at the time of a call */
    uint64_t begun,
        done; /* numbers, from 1, of the last call that has begun and of the last call that is done */
    struct nccl_flight flights[NCCL_FLIGHTS]; /* call k is in [k % NCCL_FLIGHTS] */
};

/* --- nccl_watch.c: calls in progress; the caller holds `lock` ----------------------------------------- */

/* Return true if there is room for one more call. */
bool flight_has_room(const struct nccl_comm *n);

/* Begin a call, note that the call is on the stream, or cancel a call that never began. */
struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call);
ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err);
void flight_undo(struct nccl_comm *n);

/* Find finished calls by their events. */
ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err);

/* Return the oldest call in progress, or NULL. */
const struct nccl_flight *flight_oldest(const struct nccl_comm *n);

/* --- nccl_watch.c: the watch -------------------------------------------------------------------------- */

ddp_status watch_start(struct nccl_comm *n, struct ddp_err *err);
void watch_stop(struct nccl_comm *n);

/* Make the communicator fail on all ranks because of `err`. Afterwards n->failed has the reason. Return its code. The
 * caller holds `lock`. */
ddp_status watch_fault(struct nccl_comm *n, struct ddp_err *err);

/* Wait for a change for `us` microseconds. The caller holds `lock`. */
void watch_pause(struct nccl_comm *n, uint32_t us);

/* Return DDP_OK while calls are possible, otherwise the reason. The caller holds `lock`. */
ddp_status watch_alive(struct nccl_comm *n, struct ddp_err *err);

/* Run a call of the cpu communicator. */
ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err);

/* --- nccl_join.c -------------------------------------------------------------------------------------- */

/* Load NCCL from `path` ("" = the usual places). Return DDP_ERR_UNSUPPORTED if NCCL is missing or too old. */
ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err);

/* Create NCCL's communicator after the cpu communicator is open; collective. */
ddp_status join_all(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err);

/* Create the communicator of a world of one, which needs no other rank. */
ddp_status join_nobody(struct nccl_comm *n, struct ddp_err *err);

#endif
