/* nccl_lib.c -- see nccl_lib.h. */
#include "cuda/nccl_lib.h"

#include "cuda/lib_open.h"
#include "cuda/nccl_words.h"

#include <stdio.h>

static const char *const places[] = { "libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                      "/usr/local/lib/libnccl.so.2", NULL };

static const struct lib_kind kind = {
    "NCCL", "DDP_NCCL_LIBRARY", places,
    "Install libnccl2 from NVIDIA's repository, or `pip install nvidia-nccl-cu13` (or -cu12), whose file is "
    "site-packages/nvidia/nccl/lib/libnccl.so.2"
};

static const struct lib_symbol symbols[] = {
#define X(member, symbol, needed, result, parameters) { #symbol, needed, offsetof(struct nccl_lib, member) },
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* The version first: an old library also lacks functions, and its number says more than their names. */
static ddp_status check_version(struct nccl_lib *lib, struct ddp_err *err)
{
    ddp_status status = lib_symbols(&kind, lib->handle, symbols, 1, lib, err);
    if (status != DDP_OK)
        return status;
    if (lib->get_version(&lib->version) != NCCL_SUCCESS)
        lib->version = 0;
    return nccl_check_version(lib->version, err);
}

ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err)
{
    size_t place = 0;
    *lib = (struct nccl_lib){ 0 };
    ddp_status status = lib_open(&kind, path, &place, &lib->handle, err);
    if (status == DDP_OK)
        status = check_version(lib, err);
    if (status == DDP_OK)
        status = lib_symbols(&kind, lib->handle, symbols, sizeof(symbols) / sizeof(symbols[0]), lib, err);
    return status;
}
