/* comm.h -- what a backend has to be able to do: one table of functions.
 *
 * A backend joins the ranks (open), runs calls that call_check has passed (run), hands out memory that its
 * collectives like best (shared_alloc), and can be broken off from any thread (abort). It never keeps a
 * pointer of a call after run has returned, unless it says otherwise by a work handle (the cpu backend
 * never does). */
#ifndef WORKER_COMM_H
#define WORKER_COMM_H

#include "call.h"

struct bootstrap;

/* Embedded first in every backend's own struct. */
struct comm {
    const struct comm_ops *ops;
};

struct comm_setup {
    int rank, world_size;
    uint32_t step_timeout_ms;
    const char *iface, *port_range; /* DDP_IFACE, DDP_PORT_RANGE; "" = any */
    const struct bootstrap
        *bootstrap; /* how to reach the others before the backend can; NULL in a world of one */
};

struct comm_ops {
    const char *name;
    bool
        blocks; /* run() waits for the other ranks; else it only says what is to happen on the call's stream */
    /* Collective. DDP_OK: *out is the caller's until close. */
    ddp_status (*open)(const struct comm_setup *setup, struct comm **out, struct ddp_err *err);
    ddp_status (*run)(struct comm *comm, const struct call *call, struct ddp_err *err);
    /* Collective. The block belongs to the backend, and dies with it at the latest. */
    ddp_status (*shared_alloc)(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
    ddp_status (*shared_free)(struct comm *comm, void *block, struct ddp_err *err);
    /* Has somebody died or given up? Never waits. */
    ddp_status (*check)(struct comm *comm, struct ddp_err *err);
    /* Let every rank's current and later calls fail with DDP_ERR_ABORTED and `why` (copied). Any thread. */
    void (*abort)(struct comm *comm, const char *why);
    /* Frees; not collective. */
    void (*close)(struct comm *comm);
};

extern const struct comm_ops cpu_comm_ops;

#endif
