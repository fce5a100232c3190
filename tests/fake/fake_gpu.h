/* fake_gpu.h -- a CUDA runtime and an NCCL for machines without them: device memory is host memory, a stream is a
 * thread, ranks share memory.
 *
 * Tests name libfake_gpu.so in DDP_CUDART_LIBRARY and DDP_NCCL_LIBRARY. Calls are asynchronous, as in the real
 * libraries. The environment selects faults (defaults in parentheses):
 *
 *     FAKE_CUDA_DEVICES=N             number of devices (8)
 *     FAKE_CUDA_NAME=TEXT             name of each device (a fake GPU)
 *     FAKE_CUDA_DRIVER=0              there is no driver
 *     FAKE_CUDA_PITCH=N               rows of a copy may be at most N bytes apart (2147483647, as in CUDA)
 *     FAKE_CUDA_POINTER=CODE          error in place of a pointer's kind of memory
 *     FAKE_NCCL_VERSION=N             ncclGetVersion reports N (22809)
 *     FAKE_NCCL_INIT=hang             the ranks never connect; `die`: this rank dies
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

/* Return the thread's current device. Tests find this function with dlsym. */
unsigned fake_device(void);

/* Read a number from the environment. */
int fake_number(const char *name, int missing);

#endif
