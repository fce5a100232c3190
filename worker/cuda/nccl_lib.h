/* nccl_lib.h -- NCCL as a table of functions. */
#ifndef CUDA_NCCL_LIB_H
#define CUDA_NCCL_LIB_H

#include "ddp/error.h"

#include "cuda/nccl_abi.h"

struct nccl_lib {
    void *handle; /* of dlopen; NCCL has threads of its own, and stays loaded */
    int version;  /* 22809 */
#define X(member, symbol, needed, result, parameters) result(*member) parameters;
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* `path` "" = the usual places. DDP_ERR_UNSUPPORTED: not there, or too old. */
ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err);

#endif
