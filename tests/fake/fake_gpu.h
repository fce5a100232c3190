/* fake_gpu.h -- a CUDA runtime and an NCCL for machines that have neither: device memory is host memory, a
 * stream is a thread, ranks exchange values through shared memory. Both are in libfake_gpu.so, which tests name in
 * DDP_CUDART_LIBRARY and DDP_NCCL_LIBRARY. They behave like the real ones and are asynchronous: a call is on its
 * stream when it returns, and done some time later. The environment selects the faults:
 *
 *     FAKE_CUDA_DEVICES=N             there are N devices (8)
 *     FAKE_CUDA_NAME=TEXT             what the driver calls them (a fake GPU)
 *     FAKE_CUDA_DRIVER=0              there is no driver
 *     FAKE_CUDA_PITCH=N               rows of a copy may lie N bytes apart (2147483647, as in CUDA)
 *     FAKE_NCCL_VERSION=N             ncclGetVersion says N (22809)
 *     FAKE_NCCL_INIT=hang             the ranks never come together; `die`: this one dies on the way
 *     FAKE_NCCL_HANG=RANK:CALL        that call of that rank, counted from 1, never ends
 *     FAKE_NCCL_ERROR=RANK:CALL:CODE  in that call the communicator gets that asynchronous error
 *     FAKE_NCCL_SHUT=1                calls wait until it is 0 before they begin
 *     FAKE_NCCL_LAZY=1                the first call answers ncclInProgress, as one that has to connect */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

struct CUstream_st;

/* Run `run(user)` when the stream reaches this point. */
void fake_launch(struct CUstream_st *stream, void (*run)(void *user), void *user);

/* Read a number from the environment. */
int fake_number(const char *name, int missing);

#endif
