/* tests/shell/test_abi.sh compiles this file with the real nccl.h and cuda_runtime_api.h, and never runs it. Our
 * declarations (worker/cuda/nccl_abi.h and cudart_abi.h) declare the real functions a second time, so the compiler
 * reports any difference. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
} our_config;

#define NCCL_ABI_TYPES
typedef ncclResult_t nccl_result;
typedef ncclDataType_t nccl_type;
typedef ncclRedOp_t nccl_redop;
typedef ncclUniqueId nccl_id;
typedef ncclConfig_t nccl_config;
#include "cuda/nccl_abi.h"

#define CUDART_ABI_TYPES
typedef cudaError_t cuda_error;
typedef enum cudaMemcpyKind cuda_copy_kind;
typedef struct cudaPointerAttributes cuda_pointer;
#include "cuda/cudart_abi.h"

/* The enums of CUDA and NCCL are unsigned and have four bytes, as our declarations assume. */
#define SAME_SIZE(type) _Static_assert(sizeof(type) == sizeof(unsigned) && (type)-1 > 0, #type)
SAME_SIZE(ncclResult_t);
SAME_SIZE(ncclDataType_t);
SAME_SIZE(cudaError_t);
SAME_SIZE(enum cudaMemcpyKind);
_Static_assert(sizeof(ncclRedOp_t) == sizeof(unsigned), "ncclRedOp_t");
_Static_assert(sizeof(ncclUniqueId) == 128, "ncclUniqueId");

#define X(ours, theirs, value, words) _Static_assert((int)ours == (int)theirs, #theirs);
NCCL_RESULT_LIST(X)
#undef X
#define X(ddp, ours, theirs, value) _Static_assert((int)ours == (int)theirs, #theirs);
NCCL_TYPE_LIST(X)
NCCL_OP_LIST(X)
#undef X

#define SAME_PLACE(member) \
    _Static_assert(offsetof(our_config, member) == offsetof(ncclConfig_t, member), #member)
SAME_PLACE(size);
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);
#ifdef NCCL_API_MAGIC
_Static_assert(NCCL_API_MAGIC == ((unsigned)NCCL_CONFIG_MAGIC_HIGH << 16 | NCCL_CONFIG_MAGIC_LOW), "magic");
#endif

_Static_assert((int)CUDA_INVALID_VALUE == (int)cudaErrorInvalidValue, "invalid value");
_Static_assert((int)CUDA_NO_MEMORY == (int)cudaErrorMemoryAllocation, "no memory");
_Static_assert((int)CUDA_OLD_DRIVER == (int)cudaErrorInsufficientDriver, "old driver");
_Static_assert((int)CUDA_NO_DEVICE == (int)cudaErrorNoDevice, "no device");
_Static_assert((int)CUDA_NOT_READY == (int)cudaErrorNotReady, "not ready");
_Static_assert((int)CUDA_MEMORY_HOST == (int)cudaMemoryTypeHost, "host memory");
_Static_assert((int)CUDA_MEMORY_DEVICE == (int)cudaMemoryTypeDevice, "device memory");
_Static_assert((int)CUDA_MEMORY_MANAGED == (int)cudaMemoryTypeManaged, "managed memory");
_Static_assert((int)CUDA_COPY_DEFAULT == (int)cudaMemcpyDefault, "copy");
_Static_assert((int)CUDA_STREAM_NON_BLOCKING == (int)cudaStreamNonBlocking, "stream");
_Static_assert((int)CUDA_EVENT_NO_TIMING == (int)cudaEventDisableTiming, "event");
_Static_assert(offsetof(struct cudaPointerAttributes, type) == 0 &&
                   offsetof(struct cudaPointerAttributes, device) == 4 &&
                   sizeof(struct cudaPointerAttributes) <= 24 + 24 * sizeof(long),
               "cudaPointerAttributes");

#define X(member, symbol, needed, result, parameters) result symbol parameters;
NCCL_FUNCTION_LIST(X)
#undef X
#define X(member, symbol, result, parameters) result CUDARTAPI symbol parameters;
CUDART_FUNCTION_LIST(X)
#undef X
