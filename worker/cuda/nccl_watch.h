/* nccl_watch.h -- the communicator of the NCCL backend, private to its files. Each call runs between two events of
 * CUDA, so the host does not wait. A cpu communicator detects dead peers and publishes failures. */
#ifndef WORKER_CUDA_NCCL_WATCH_H
#define WORKER_CUDA_NCCL_WATCH_H

#include "core/backend.h"
#include "cuda/gpu_comm.h"
#include "cuda/nccl_abi.h"
#include "cuda/nccl_plan.h"

#include <pthread.h>

/* The functions of NCCL. */
struct nccl_lib {
    void *handle; /* from dlopen; never closed: NCCL's threads run its code */
    int version;  /* NCCL's version number, such as 22809 */
#define X(member, symbol, needed, result, parameters) result(*member) parameters;
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Maximum number of calls in progress. With more, a launch could block in CUDA. */
enum { NCCL_FLIGHTS = 256 };

/* A call in progress. On this backend's stream: wait for the program's stream, NCCL's function, event `after`. The
 * program's stream waits for `after` when it needs the result. */
struct nccl_flight {
    struct CUevent_st *after; /* recorded after the call; created at first use */
    struct call call;         /* the call, for error texts */
    bool queued;              /* true if `after` was recorded */
    uint64_t since_ms;        /* this call's start or the previous call's end, the later of both */
    uint32_t timeout_ms;
};

/* A communicator. base.cpu also runs barriers and calls with values in host memory. The files:
 *
 *     nccl_comm.c     loads NCCL, joins the ranks; opens and closes a communicator; runs calls; allocates memory
 *     nccl_watch.c    handles calls in progress, the watch thread, and the failure of a communicator
 *     nccl_plan.c     the pure part */
struct nccl_comm {
    struct gpu_comm base; /* must be the first member */
    const struct comm_host *host;
    struct recorder *recorder; /* the context's recorder; receives finished calls */
    uint32_t init_timeout_ms;
    struct nccl_lib lib;
    char iface[64];           /* value of NCCL_SOCKET_IFNAME, for error texts */
    pthread_mutex_t cpu_lock; /* held during calls of the cpu communicator */

    /* Protects all members that follow. Its holder may try cpu_lock, but never waits for it. */
    pthread_mutex_t lock;
    /* `changed`: `state` or `done` has changed; `wanted`: the watch thread has work */
    pthread_cond_t changed, wanted;
    pthread_t watch;       /* the watch thread */
    bool watched, closing; /* the watch thread runs; it must end */
    enum nccl_state state;
    struct ddp_err failed;      /* why the communicator failed; final after failed.code is set */
    struct ncclComm *nccl;      /* NULL before the creation and after the end */
    uint64_t creating_until_ms; /* deadline of the creation in clock_ms() */
    struct ddp_err suspect;     /* NCCL's error, reported after SUSPECT_MS */
    uint64_t suspect_since_ms;
    uint64_t begun, done;                     /* numbers of the last begun and the last finished call */
    struct nccl_flight flights[NCCL_FLIGHTS]; /* call k is in flights[k % NCCL_FLIGHTS] */
};

/* --- nccl_watch.c: calls in progress; the caller holds `lock` ----------------------------------------- */

/* Return true if there is room for one more call. */
bool flight_has_room(const struct nccl_comm *n);

/* Begin a call, which gets the next number. */
struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call);

/* Record the event `after` on the stream. The call must already be on the stream. */
ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err);

/* Mark calls as done whose event `after` has occurred. */
ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err);

/* Return the oldest call in progress, or NULL. */
const struct nccl_flight *flight_oldest(const struct nccl_comm *n);

/* --- nccl_watch.c: the watch -------------------------------------------------------------------------- */

/* Start the watch thread. */
ddp_status watch_start(struct nccl_comm *n, struct ddp_err *err);

/* End the watch thread, and wait for its end. */
void watch_stop(struct nccl_comm *n);

/* Make the communicator fail on all ranks with `err`, or set *err to an earlier failure. Return err->code. The
 * caller holds `lock`, which this function releases for a time. */
ddp_status watch_fault(struct nccl_comm *n, struct ddp_err *err);

/* Wait until `changed` is signalled, for `us` microseconds at most. The caller holds `lock`. */
void watch_pause(struct nccl_comm *n, uint32_t us);

/* Return DDP_OK, or set *err to the reason if the communicator has failed. The caller holds `lock`. */
ddp_status watch_alive(struct nccl_comm *n, struct ddp_err *err);

/* Run `call` on the cpu communicator while holding `cpu_lock`. */
ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err);

#endif
