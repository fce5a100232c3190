/* driver_abi.h -- what we use of the CUDA driver (libcuda), declared by ourselves; see nccl_abi.h. Kernels are loaded
 * and started by it: the runtime has had no call for that in all versions. Pure. */
#ifndef CUDA_DRIVER_ABI_H
#define CUDA_DRIVER_ABI_H

struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;

#ifndef DRIVER_ABI_TYPES
#define DRIVER_ABI_TYPES
typedef unsigned driver_result; /* 0 = success */
#endif

/* member, symbol, result, parameters; all must be there */
#define DRIVER_FUNCTION_LIST(X)                                                                     \
    X(device, cuDeviceGet, driver_result, (int *device, int ordinal))                               \
    X(device_name, cuDeviceGetName, driver_result, (char *name, int room, int device))              \
    X(module_load, cuModuleLoadData, driver_result, (struct CUmod_st * *out, const void *image))    \
    X(module_function, cuModuleGetFunction, driver_result,                                          \
      (struct CUfunc_st * *out, struct CUmod_st * module, const char *name))                        \
    X(launch, cuLaunchKernel, driver_result,                                                        \
      (struct CUfunc_st * function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,  \
       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, \
       struct CUstream_st *stream, void **parameters, void **extra))                                \
    X(error_string, cuGetErrorString, driver_result, (driver_result error, const char **words))

#endif
