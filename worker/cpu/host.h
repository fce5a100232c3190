/* host.h -- collectives among the ranks of one host, by shared memory: in place when all ranks can reach the buffers,
 * otherwise through slots, in steps. */
#ifndef WORKER_CPU_HOST_H
#define WORKER_CPU_HOST_H

#include "core/backend.h"
#include "cpu/barrier.h"
#include "cpu/shm.h"

struct net;

struct cpu_comm {
    struct comm comm; /* first */
    int rank, world;  /* among the ranks of this host, see shm.h */
    int group_size;   /* ranks on all hosts */
    struct net *net;  /* owned; NULL when all ranks are on this host */
    uint32_t step_timeout_ms;
    struct meeting meeting;
    struct shm_control *control; /* at the start of the meeting's segment */
    struct shm_barrier barrier;
    struct regions regions;
    uint64_t turn;   /* number of slot steps done; its parity selects the next slot of a pair */
    const void **in; /* world places for reduce_range, so that no call allocates */
    void **out;      /* as `in` */
};

/* Start the next call: its sequence number, its mark, its time. */
void cpu_begin(struct cpu_comm *cpu, const struct call *call);

/* Return how many bytes `rank` of this host passes, and their address, from its mark; NULL when they are private or
 * it passes none. The mark stays valid for this call and the next. */
size_t cpu_in_bytes(const struct cpu_comm *cpu, const struct call *call, int rank);
void *cpu_input_of(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Copy between cores. */
void cpu_copy(void *to, const void *from, size_t bytes);

/* True if all ranks can reach the buffers that `rank` passes. A rank that passes none counts as reachable. Valid for
 * our own rank once the call has begun, for all after a barrier; then with the same answers on every rank. */
bool cpu_in_reach(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Carry out a call with values, already begun, when all ranks are on this host and there are several. */
ddp_status host_run(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err);

#endif
