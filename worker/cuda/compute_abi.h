/* compute_abi.h -- declarations of cuBLASLt functions, so that libddp_cuda builds without NVIDIA's headers. All
 * functions here are the same in CUDA 11, 12 and 13. */
#ifndef CUDA_COMPUTE_ABI_H
#define CUDA_COMPUTE_ABI_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#ifndef CUBLASLT_ABI_TYPES
#define CUBLASLT_ABI_TYPES
struct lt_context;
typedef struct lt_context *lt_handle;
typedef struct lt_desc_ *lt_desc;
typedef struct lt_layout_ *lt_layout;
typedef struct lt_request_ *lt_request;
typedef unsigned lt_status, lt_compute, lt_type, lt_desc_attribute, lt_layout_attribute, lt_request_attribute;
typedef struct {
    uint64_t data[8];
} lt_algorithm;
typedef struct {
    lt_algorithm algo;
    size_t workspaceSize;
    lt_status state;
    float wavesCount;
    int reserved[4];
} lt_choice;
#endif

/* Columns: name in libddp_cuda, name in cuBLASLt, value. */
#define CUBLASLT_VALUE_LIST(X)                                            \
    X(LT_SUCCESS, CUBLAS_STATUS_SUCCESS, 0)                               \
    X(LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                  \
    X(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F, 68)                             \
    X(LT_R_32F, CUDA_R_32F, 0)                                            \
    X(LT_R_16F, CUDA_R_16F, 2)                                            \
    X(LT_R_16BF, CUDA_R_16BF, 14)                                         \
    X(LT_OP_N, CUBLAS_OP_N, 0)                                            \
    X(LT_OP_T, CUBLAS_OP_T, 1)                                            \
    X(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                     \
    X(LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                     \
    X(LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                 \
    X(LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                 \
    X(LT_LAYOUT_BATCH, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)             \
    X(LT_LAYOUT_APART, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)    \
    X(LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT, 1)                     \
    X(LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS, 4)                        \
    X(LT_WISH_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)     \
    X(LT_WISH_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) \
    X(LT_WISH_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
    X(LT_WISH_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) \
    X(LT_WISH_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

enum lt_values {
#define X(ours, theirs, value) ours = value,
    CUBLASLT_VALUE_LIST(X)
#undef X
};

/* Columns: member of the struct, symbol, result, parameters. Every function is required. */
#define CUBLASLT_FUNCTION_LIST(X)                                                                            \
    X(create, cublasLtCreate, lt_status, (lt_handle * out))                                                  \
    X(destroy, cublasLtDestroy, lt_status, (lt_handle handle))                                               \
    X(desc_make, cublasLtMatmulDescCreate, lt_status, (lt_desc * out, lt_compute compute, lt_type scale))    \
    X(desc_set, cublasLtMatmulDescSetAttribute, lt_status,                                                   \
      (lt_desc desc, lt_desc_attribute attribute, const void *value, size_t bytes))                          \
    X(desc_free, cublasLtMatmulDescDestroy, lt_status, (lt_desc desc))                                       \
    X(layout_make, cublasLtMatrixLayoutCreate, lt_status,                                                    \
      (lt_layout * out, lt_type type, uint64_t rows, uint64_t columns, int64_t stride))                      \
    X(layout_set, cublasLtMatrixLayoutSetAttribute, lt_status,                                               \
      (lt_layout layout, lt_layout_attribute attribute, const void *value, size_t bytes))                    \
    X(layout_free, cublasLtMatrixLayoutDestroy, lt_status, (lt_layout layout))                               \
    X(request_make, cublasLtMatmulPreferenceCreate, lt_status, (lt_request * out))                           \
    X(request_set, cublasLtMatmulPreferenceSetAttribute, lt_status,                                          \
      (lt_request request, lt_request_attribute attribute, const void *value, size_t bytes))                 \
    X(request_free, cublasLtMatmulPreferenceDestroy, lt_status, (lt_request request))                        \
    X(choose, cublasLtMatmulAlgoGetHeuristic, lt_status,                                                     \
      (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d,                   \
       lt_request request, int wanted, lt_choice out[], int *found))                                         \
    X(multiply, cublasLtMatmul, lt_status,                                                                   \
      (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout, const void *b,  \
       lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout, void *d, lt_layout d_layout, \
       const lt_algorithm *algorithm, void *workspace, size_t bytes, struct CUstream_st *stream))

/* Declarations of functions of the CUDA driver (libcuda). The driver loads and starts kernels, because some
 * versions of the runtime cannot load kernels from a file. */

struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;

#ifndef DRIVER_ABI_TYPES
#define DRIVER_ABI_TYPES
typedef unsigned driver_result; /* 0 means success */
#endif

/* Columns: member of the struct, symbol, result, parameters. Every function is required. */
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
