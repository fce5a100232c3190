/* Checks our declarations of cuBLASLt and the driver, as nccl.c does for NCCL. tests/shell/test_abi.sh compiles this
 * file with the real headers, and never runs it. */
#include <cublasLt.h>
#include <cuda.h>

#define CUBLASLT_ABI_TYPES
typedef cublasLtHandle_t lt_handle;
typedef cublasLtMatmulDesc_t lt_desc;
typedef cublasLtMatrixLayout_t lt_layout;
typedef cublasLtMatmulPreference_t lt_request;
typedef cublasStatus_t lt_status;
typedef cublasComputeType_t lt_compute;
typedef cudaDataType_t lt_type;
typedef cublasLtMatmulDescAttributes_t lt_desc_attribute;
typedef cublasLtMatrixLayoutAttribute_t lt_layout_attribute;
typedef cublasLtMatmulPreferenceAttributes_t lt_request_attribute;
typedef cublasLtMatmulAlgo_t lt_algorithm;
typedef cublasLtMatmulHeuristicResult_t lt_choice;
#define DRIVER_ABI_TYPES
typedef CUresult driver_result;
#include "cuda/compute_abi.h"

#define SAME_SIZE(type) _Static_assert(sizeof(type) == sizeof(unsigned), #type)
SAME_SIZE(cublasStatus_t);
SAME_SIZE(cublasComputeType_t);
SAME_SIZE(cudaDataType_t);
SAME_SIZE(cublasLtMatmulDescAttributes_t);
SAME_SIZE(cublasLtMatrixLayoutAttribute_t);
SAME_SIZE(cublasLtMatmulPreferenceAttributes_t);
SAME_SIZE(CUresult);

/* A copy of our own declaration of lt_choice in compute_abi.h. The copy is needed because lt_choice means NVIDIA's type
 * in this file: CUBLASLT_ABI_TYPES makes compute_abi.h leave out its own types. The lines below compare our declaration
 * with NVIDIA's type. */
typedef struct {
    lt_algorithm algo;
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
} our_choice;
_Static_assert(sizeof(lt_algorithm) == 64, "cublasLtMatmulAlgo_t");
_Static_assert(sizeof(our_choice) == sizeof(lt_choice), "cublasLtMatmulHeuristicResult_t");
_Static_assert(offsetof(our_choice, state) == offsetof(lt_choice, state), "state");

#define X(ours, theirs, value) _Static_assert((int)ours == (int)theirs, #theirs);
CUBLASLT_VALUE_LIST(X)
#undef X
#define X(member, symbol, result, parameters) result CUBLASWINAPI symbol parameters;
CUBLASLT_FUNCTION_LIST(X)
#undef X
#define X(member, symbol, result, parameters) result CUDAAPI symbol parameters;
DRIVER_FUNCTION_LIST(X)
#undef X
