/* nccl_words.h -- errors of the NCCL backend, in words. Pure. */
#ifndef CUDA_NCCL_WORDS_H
#define CUDA_NCCL_WORDS_H

#include "core/call.h"
#include "cuda/nccl_abi.h"

/* "2.28.9" of 22809, "2.8.4" of 2804; returns `text`. */
enum { NCCL_VERSION_TEXT = 24 };
const char *nccl_version_text(char text[NCCL_VERSION_TEXT], int version);

/* DDP_ERR_UNSUPPORTED when it is too old. */
ddp_status nccl_check_version(int version, struct ddp_err *err);

/* A call that NCCL refused, or that it has given up. `detail` is NCCL's own last sentence, may be "" or NULL. */
ddp_status nccl_fail(struct ddp_err *err, int rank, const char *call, nccl_result result, const char *detail);

/* Does the communicator live on after this result of a call? Only where nothing has begun. */
ddp_status nccl_status_of(nccl_result result);

/* How far a rank is: for time-outs. */
struct nccl_progress {
    uint64_t done, begun; /* numbers of calls */
};

/* `call` (call_text) was not done in time. */
ddp_status nccl_late(struct ddp_err *err, int rank, const char *call, uint32_t timeout_ms,
                     const struct nccl_progress *progress);

/* Not all ranks came together in time. `iface` is NCCL_SOCKET_IFNAME, "" = not set. */
ddp_status nccl_init_late(struct ddp_err *err, int world, uint32_t timeout_ms, const char *iface);

/* What each rank has brought, for the comparison before NCCL is asked. */
struct nccl_card {
    int32_t version, device;
    int32_t share; /* --share_gpu */
    int32_t host;  /* equal numbers = one host */
    char bus_id[32];
};

/* Versions must be equal, and GPUs different unless they are to be shared. `cards`: one for each rank. */
ddp_status nccl_check_cards(const struct nccl_card *cards, int world, struct ddp_err *err);

#endif
