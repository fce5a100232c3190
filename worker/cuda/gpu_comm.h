/* gpu_comm.h -- the common part of both backends of libddp_cuda: the GPU, a stream, the cpu communicator, and the
 * memory of ddp_shared_alloc. An allocation succeeds on all ranks or on no rank, because a later collective needs the
 * block on every rank. */
#ifndef WORKER_CUDA_GPU_COMM_H
#define WORKER_CUDA_GPU_COMM_H

#include "core/backend.h"
#include "core/call.h"
#include "cuda/gpu.h"

extern const struct comm_ops nccl_comm_ops;

struct block;

/* The common part of the two GPU backends. It is the first member of each backend's struct. */
struct gpu_comm {
    struct comm comm; /* must be the first member */
    struct comm *cpu; /* owned; NULL before it is open */
    int rank, world;
    uint32_t step_timeout_ms;
    struct gpu gpu;             /* gpu.device is -1 before the GPU is open */
    struct CUstream_st *stream; /* this backend's stream */
    /* event that is recorded on the program's stream when a call begins; staged.c also records it on `stream` when a
     * call ends */
    struct CUevent_st *before;
    struct block *blocks; /* owned: list of the blocks of ddp_shared_alloc */
    uint64_t allocations; /* number of allocations so far, equal on all ranks */
    /* Runs `call` on `cpu`. The NCCL backend holds a lock meanwhile. */
    ddp_status (*run_cpu)(struct gpu_comm *base, const struct call *call, struct ddp_err *err);
};

/* Allocate a zeroed block of `bytes` bytes, which begins with a struct gpu_comm. Fill this struct from `setup`.
 * The caller owns the block. Return NULL if memory is short. */
void *gpu_comm_make(size_t bytes, const struct comm_ops *ops, const struct comm_setup *setup,
                    struct ddp_err *err);

/* Open the GPU, and create the stream and the event. */
ddp_status gpu_comm_open(struct gpu_comm *base, const struct comm_setup *setup, struct ddp_err *err);

/* Finish the `open` function of a backend. After an error, report the failure to the other ranks and close the backend.
 * *err stays this rank's own error. */
ddp_status gpu_comm_finish_open(struct gpu_comm *base, ddp_status status, struct comm **out,
                                struct ddp_err *err);

/* Set *in to true if the input of the call is in device memory or managed memory. Set *in to false if the input is in
 * other memory, or if this rank has no input. Set *out in the same way for the output. After an error the caller stops
 * all ranks, because the other ranks would wait for this rank. */
ddp_status gpu_comm_place(const struct gpu_comm *base, const struct call *call, bool *in, bool *out,
                          struct ddp_err *err);

/* Free the blocks, the stream, the event and the cpu communicator. */
void gpu_comm_close(struct gpu_comm *base);

/* Implement the members of struct comm_ops (core/backend.h) that are the same functions in both backends. */
ddp_status gpu_comm_shared_alloc(struct comm *comm, size_t bytes, void **out, struct ddp_err *err);
ddp_status gpu_comm_shared_free(struct comm *comm, void *block, struct ddp_err *err);
ddp_status gpu_comm_copy(struct comm *comm, void *to, const void *from, size_t bytes, void *stream,
                         struct ddp_err *err);
ddp_status gpu_comm_zero(struct comm *comm, void *at, size_t bytes, void *stream, struct ddp_err *err);
ddp_status gpu_comm_finish(struct comm *comm, void *stream, struct ddp_err *err);
void gpu_comm_give_up(struct comm *comm, struct ddp_err *err);

#endif
