/* nccl_watch.h -- the communicator of the NCCL backend, private to the files of this backend. Each call runs between
 * two events of CUDA, so the host does not wait. A cpu communicator beside NCCL detects dead peers and publishes the
 * reason of a failure to all ranks. */
#ifndef WORKER_CUDA_NCCL_WATCH_H
#define WORKER_CUDA_NCCL_WATCH_H

#include "core/backend.h"
#include "cuda/gpu_comm.h"
#include "cuda/nccl_abi.h"
#include "cuda/nccl_plan.h"

#include <pthread.h>

/* The functions of NCCL. */
struct nccl_lib {
    void *handle; /* from dlopen; never closed, because NCCL's threads run its code */
    int version;  /* NCCL's version number, such as 22809 */
#define X(member, symbol, needed, result, parameters) result(*member) parameters;
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Maximum number of calls in progress. With more calls a launch on the stream could block in CUDA, where this
 * backend cannot check its peers. */
enum { NCCL_FLIGHTS = 256 };

/* A call in progress, which the code calls a flight. A call records an event on the program's stream, and this
 * backend's stream waits for that event. Then NCCL's function runs on this backend's stream, followed by the event
 * `after`. The program's stream waits for `after` when the program needs the result. */
struct nccl_flight {
    struct CUevent_st *after; /* recorded on this backend's stream after the call; created at first use */
    struct call call;         /* the call, for error texts */
    bool queued;              /* true if `after` was recorded */
    uint64_t since_ms;        /* this call's start or the previous call's end, the later of both */
    uint32_t timeout_ms;
};

/* A communicator, which these files share:
 *
 *     nccl_comm.c     loads NCCL, joins the ranks; opening, closing, calls and memory
 *     nccl_watch.c    calls in progress, the watch thread, failure of a communicator
 *
 * The pure part is nccl_plan.c: the NCCL function of each call, the states of a communicator, the environment and error
 * texts. base.cpu is the cpu communicator, which also runs barriers and calls with values in host memory. nccl_close
 * frees the events, the cpu communicator and NCCL's communicator, which the struct owns. `host` and `recorder` are
 * borrowed from libddp. */
struct nccl_comm {
    struct gpu_comm base; /* must be the first member */
    const struct comm_host *host;
    struct recorder *recorder; /* the context's recorder; receives finished calls */
    uint32_t init_timeout_ms;
    struct nccl_lib lib;
    char iface[64];           /* value of NCCL_SOCKET_IFNAME, for error texts */
    pthread_mutex_t cpu_lock; /* held during calls of the cpu communicator */

    /* Protects all members that follow. A thread that holds `lock` may try to lock cpu_lock, but never waits for
     * cpu_lock. */
    pthread_mutex_t lock;
    /* `changed`: `state` or `done` has changed; `wanted`: the watch thread has work */
    pthread_cond_t changed, wanted;
    pthread_t watch;       /* the watch thread */
    bool watched, closing; /* watched: the watch thread runs; closing: the watch thread must end */
    enum nccl_state state;
    struct ddp_err failed;      /* why the communicator failed; does not change after failed.code is set */
    struct ncclComm *nccl;      /* NULL before NCCL's communicator exists, and after its end */
    uint64_t creating_until_ms; /* deadline of the creation, a time of clock_ms() */
    struct ddp_err suspect;     /* NCCL's error, reported after SUSPECT_MS if no dead peer is found */
    uint64_t suspect_since_ms;
    uint64_t begun, done; /* begun: number of the last begun call; done: number of the last finished call */
    struct nccl_flight flights[NCCL_FLIGHTS]; /* call k is in flights[k % NCCL_FLIGHTS] */
};

/* --- nccl_watch.c: calls in progress; the caller holds `lock` ----------------------------------------- */

/* Return true if there is room for one more call. */
bool flight_has_room(const struct nccl_comm *n);

/* Begin a call, which gets the next number. `n` owns the call in progress; its place is reused after the call is
 * done. */
struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call);

/* Record the event `after` on the stream, after the call. The call must already be on the stream. */
ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err);

/* Mark finished calls as done. A call is finished when its event `after` has occurred. */
ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err);

/* Return the oldest call in progress, or NULL. */
const struct nccl_flight *flight_oldest(const struct nccl_comm *n);

/* --- nccl_watch.c: the watch -------------------------------------------------------------------------- */

/* Start the watch thread. Return DDP_ERR_LIMIT if the system allows no more threads. */
ddp_status watch_start(struct nccl_comm *n, struct ddp_err *err);

/* End the watch thread, and wait for its end. */
void watch_stop(struct nccl_comm *n);

/* Make the communicator fail on all ranks with the reason `err`. If the communicator has failed before, set *err
 * to the first failure. Return err->code. The caller holds `lock`. This function releases `lock` for a time. */
ddp_status watch_fault(struct nccl_comm *n, struct ddp_err *err);

/* Wait until `changed` is signalled, for `us` microseconds at most. The caller holds `lock`. */
void watch_pause(struct nccl_comm *n, uint32_t us);

/* Return DDP_OK if the communicator has not failed. Otherwise set *err to the reason. The caller holds `lock`. */
ddp_status watch_alive(struct nccl_comm *n, struct ddp_err *err);

/* Run `call` on the cpu communicator while holding `cpu_lock`. */
ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err);

#endif
