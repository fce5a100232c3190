/* host_collectives.h -- collectives among the ranks of one host through shared memory. If all ranks can reach the
 * buffers, a collective works in place. Otherwise the collective copies the values in steps through the slots of the
 * control page (shm.h). */
#ifndef WORKER_CPU_HOST_COLLECTIVES_H
#define WORKER_CPU_HOST_COLLECTIVES_H

#include "core/backend.h"
#include "cpu/barrier.h"
#include "cpu/shm.h"

struct net;

struct cpu_comm {
    struct comm comm; /* must be the first member */
    int rank, world;  /* rank on this host, and number of ranks on this host (see shm.h) */
    int group_size;   /* number of ranks on all hosts together */
    struct net *net;  /* owned; NULL when all ranks are on this host */
    uint32_t step_timeout_ms;
    struct meeting meeting;
    struct shm_control *control; /* borrowed: the beginning of meeting.segment */
    struct shm_barrier barrier;
    struct regions regions;
    /* number of steps that were copied through slots, in all calls so far; even and odd steps use different slots */
    uint64_t turn;
    const void **in; /* for reduce_range: the address of each rank's input; allocated once */
    void **out;      /* for reduce_range: the addresses of the outputs; room for `world` */
};

/* Begin the next call: increase the number of calls, write the mark of this rank (see shm.h) and set the timeout. */
void cpu_begin(struct cpu_comm *cpu, const struct call *call);

/* Return the size in bytes of the input that `rank` passes. */
size_t cpu_in_bytes(const struct cpu_comm *cpu, const struct call *call, int rank);
/* Return the address at which this process can read the input of `rank`. Return NULL if the input is in private memory
 * or has no bytes. The address comes from the mark of `rank` (struct shm_mark). The mark stays valid during this call
 * and the next call. */
void *cpu_input_of(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Copy like memcpy, but faster if the data is in the cache of another core. */
void cpu_copy(void *to, const void *from, size_t bytes);

/* Return true if all ranks can reach the buffers of `rank`: its input, and also its output if other ranks write into
 * it. A buffer without bytes counts as reachable. If `rank` is not the calling rank, call this function only after a
 * barrier. After the barrier all ranks get the same result. */
bool cpu_in_reach(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Run a call that moves data between several ranks of one host. Call cpu_begin first. */
ddp_status host_run(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err);

#endif
