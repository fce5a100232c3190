/* nccl.h -- private to the files of the NCCL backend, from the top down:
 *
 *     nccl_comm.c     opens, closes, takes a call and chooses the way; memory
 *     nccl_join.c     the ranks find each other: the library, cards, unique ids, the interface
 *     nccl_watch.c    the thread that watches calls in progress; how a communicator fails
 *
 * and pure: nccl_plan.c (which function, the life of a communicator, the environment, error texts).
 *
 * Happy path of a call: an event on the program's stream, ours waits for it -> NCCL's function on ours -> an event
 * after it, which the program's stream waits for when the program wants the result. The host does not wait.
 *
 * A cpu communicator beside it carries barriers and values in host memory, detects dead peers, and distributes one
 * reason to all ranks. `cpu_lock` is held in its calls, `lock` protects all members below it in the struct; a thread
 * that holds `lock` only tries cpu_lock, and never waits for it. */
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
    int version;  /* 22809 */
#define X(member, symbol, needed, result, parameters) result(*member) parameters;
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Fewer than a stream takes before a launch blocks, so that we wait in our own code. */
enum { NCCL_FLIGHTS = 256 };

/* A call in progress. */
struct nccl_flight {
    struct CUevent_st *after; /* after the call on our stream; created at first use */
    struct call call;         /* for error texts; its pointers are not used */
    bool queued;              /* `after` is on the stream */
    uint64_t since_ms;        /* when it could begin: it was posted, and the previous one was done */
    uint32_t timeout_ms;
};

struct nccl_comm {
    struct comm comm; /* first */
    struct comm *cpu; /* owned */
    const struct comm_host *host;
    struct recorder *recorder; /* recorder of the context; gets finished calls */
    int rank, world;
    uint32_t init_timeout_ms, step_timeout_ms;
    struct gpu gpu;
    struct nccl_lib lib;
    struct blocks blocks; /* of shared_alloc */
    char iface[64];       /* value of NCCL_SOCKET_IFNAME, for texts */
    pthread_mutex_t cpu_lock;

    pthread_mutex_t lock;
    pthread_cond_t changed, wanted; /* state or `done` has changed; there is something to watch */
    pthread_t watch;
    bool watched, closing;
    enum nccl_state state;
    struct ddp_err failed; /* why the state is failing or aborted; final once it has a code */
    struct ncclComm *nccl; /* NULL before its creation and after its end */
    uint64_t creating_until_ms;
    struct ddp_err
        suspect; /* NCCL's error, held back: a peer's end explains it better, and may be detected a moment later */
    uint64_t suspect_since_ms;
    struct CUstream_st *stream;               /* ours */
    struct CUevent_st *before;                /* on the program's stream, at the time of a call */
    uint64_t begun, done;                     /* numbers of calls, from 1 */
    struct nccl_flight flights[NCCL_FLIGHTS]; /* of call k: [k % NCCL_FLIGHTS] */
};

/* --- nccl_watch.c: calls under way; `lock` is held in all of these --------------------------------------- */

/* True if there is room for one more call. */
bool flight_has_room(const struct nccl_comm *n);

/* The call begins; it is on the stream; it was never begun. */
struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call);
ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err);
void flight_undo(struct nccl_comm *n);

/* Check the events to find finished calls. */
ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err);

/* Return the flight of the oldest call, NULL when none is in progress. */
const struct nccl_flight *flight_oldest(const struct nccl_comm *n);

/* --- nccl_watch.c: the watch ----------------------------------------------------------------------------- */

ddp_status watch_start(struct nccl_comm *n, struct ddp_err *err);
void watch_stop(struct nccl_comm *n);

/* `lock` is held: make the communicator fail because of `err`, on all ranks. Afterwards n->failed has the reason;
 * return its code. */
ddp_status watch_fault(struct nccl_comm *n, struct ddp_err *err);

/* `lock` is held: wait a moment for something to change. */
void watch_pause(struct nccl_comm *n, uint32_t us);

/* `lock` is held: DDP_OK while calls may be made, or the reason why not. */
ddp_status watch_alive(struct nccl_comm *n, struct ddp_err *err);

/* A call of the cpu communicator. */
ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err);

/* --- nccl_join.c ------------------------------------------------------------------------------------------------ */

/* Load NCCL; `path` "" = the usual places. DDP_ERR_UNSUPPORTED: missing or too old. */
ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err);

/* Collective, when the cpu communicator is open: the communicator is ready. */
ddp_status join_all(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err);

/* A world of one is ready at once. */
ddp_status join_nobody(struct nccl_comm *n, struct ddp_err *err);

#endif
