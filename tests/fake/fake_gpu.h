/* fake_gpu.h -- a CUDA runtime and an NCCL for machines that have neither: device memory is host memory, a stream is a
 * thread, ranks exchange values through shared memory. Both are in libfake_gpu.so, which tests name in
 * DDP_CUDART_LIBRARY and DDP_NCCL_LIBRARY. Both are asynchronous like the real libraries: a call returns when its work
 * is on the stream, and the work is done later. The environment selects the faults (with defaults in parentheses):
 *
 *     FAKE_CUDA_DEVICES=N             there are N devices (8)
 *     FAKE_CUDA_NAME=TEXT             name of each device (a fake GPU)
 *     FAKE_CUDA_DRIVER=0              there is no driver
 *     FAKE_CUDA_PITCH=N               rows of a copy may be at most N bytes apart (2147483647, as in CUDA)
 *     FAKE_CUDA_POINTER=CODE          CUDA reports this error instead of the kind of memory of a pointer
 *     FAKE_NCCL_VERSION=N             ncclGetVersion reports N (22809)
 *     FAKE_NCCL_INIT=hang             the ranks never connect; with `die` instead of `hang`, this rank dies
 *     FAKE_NCCL_HANG=RANK:CALL        this call of this rank, counted from 1, never ends
 *     FAKE_NCCL_ERROR=RANK:CALL:CODE  in this call the communicator gets this asynchronous error
 *     FAKE_NCCL_REJECT=RANK:CALL      this call is rejected as an invalid argument, and the error stays
 *     FAKE_NCCL_SHUT=1                calls begin only when this variable is 0
 *     FAKE_NCCL_LAZY=1                the first call must first connect, and returns ncclInProgress */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

struct CUstream_st;

/* Run `run(user)` when the stream reaches this point. */
void fake_launch(struct CUstream_st *stream, void (*run)(void *user), void *user);

/* Return the current device of the calling thread. Tests find this function with dlsym. */
unsigned fake_device(void);

/* Read a number from the environment. */
int fake_number(const char *name, int missing);

#endif
