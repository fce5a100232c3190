/* cpu.h -- the insides of the cpu backend, shared by its files, from the top down:
 *
 *     cpu_comm.c    opens, closes, takes a call and chooses the way
 *     cpu_shared.c  ddp_shared_alloc and ddp_shared_free
 *     cpu_call.c    how a call begins, and one without values
 *     net*.c        ranks on several hosts: net.h
 *     cpu_direct.c  buffers lie in shared memory: work on them where they are
 *     cpu_slots.c   buffers are private: through slots, in steps */
#ifndef WORKER_CPU_H
#define WORKER_CPU_H

#include "core/backend.h"
#include "cpu/shm_barrier.h"
#include "cpu/shm_join.h"
#include "cpu/shm_regions.h"

struct net;

struct cpu_comm {
    struct comm comm; /* first */
    int rank, world;  /* among the ranks of this host, see shm_control.h */
    int group_size;   /* ranks on all hosts */
    struct net *net;  /* owned; NULL when all ranks are on this host */
    uint32_t step_timeout_ms;
    struct shm_meeting meeting;
    struct shm_control *control; /* at the start of the meeting's segment */
    struct shm_barrier barrier;
    struct regions regions;
    uint64_t turn;   /* slot steps done; its parity says which slot of a pair is next */
    const void **in; /* world places for reduce_range, so that no call allocates */
    void **out;      /* likewise */
};

/* Start the next call: its sequence number, its mark, its time. */
void cpu_begin(struct cpu_comm *cpu, const struct call *call);

/* Wait for all ranks of all hosts; their calls are compared. */
ddp_status cpu_meet(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err);

/* How many bytes `rank` of this host passes, and where they lie, as its mark says; NULL when they are private or
 * it passes none. The mark stays as it is for this call and the next. */
size_t cpu_in_bytes(const struct cpu_comm *cpu, const struct call *call, int rank);
void *cpu_input_of(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Copy between cores. */
void cpu_copy(void *to, const void *from, size_t bytes);

/* Do the buffers that `rank` passes lie where all can see them? A rank that passes none hides none. True of
 * our own rank once the call has begun, of all after a barrier; then with the same answers on every rank. */
bool cpu_in_reach(const struct cpu_comm *cpu, const struct call *call, int rank);

/* Do the call where the buffers lie, all of them in reach; a barrier must lie behind, and one must follow. */
void cpu_direct_run(struct cpu_comm *cpu, const struct call *call);

/* The first step of our own values into the slots; may come before the first barrier of the call. */
void cpu_slots_give(struct cpu_comm *cpu, const struct call *call);

/* Do the call through the slots, after its first barrier. `given`: before it, every rank that has something
 * to give has given its first step. */
ddp_status cpu_slots_run(struct cpu_comm *cpu, const struct call *call, bool given, struct ddp_err *err);

ddp_status cpu_shared_alloc(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
ddp_status cpu_shared_free(struct comm *comm, void *block, struct ddp_err *err);

#endif
