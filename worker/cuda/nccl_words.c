/* nccl_words.c -- see nccl_words.h. */
#include "cuda/nccl_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Up to 2.8 a minor version had one digit. */
const char *nccl_version_text(char text[NCCL_VERSION_TEXT], int version)
{
    if (version < 10000)
        snprintf(text, NCCL_VERSION_TEXT, "%d.%d.%d", version / 1000, version % 1000 / 100, version % 100);
    else
        snprintf(text, NCCL_VERSION_TEXT, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    return text;
}

ddp_status nccl_check_version(int version, struct ddp_err *err)
{
    char found[NCCL_VERSION_TEXT], least[NCCL_VERSION_TEXT];
    if (version >= NCCL_LEAST)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "NCCL %s is too old: %s or newer is needed, which can be asked not to block. Install it, "
                    "and name its "
                    "libnccl.so.2 in DDP_NCCL_LIBRARY when the old one has to stay",
                    nccl_version_text(found, version), nccl_version_text(least, NCCL_LEAST));
}

struct result_row {
    const char *name, *words;
};

static const struct result_row results[] = {
#define X(ours, theirs, value, words) [value] = { #theirs, words },
    NCCL_RESULT_LIST(X)
#undef X
};

static const char *result_name(nccl_result result)
{
    return result < sizeof(results) / sizeof(results[0]) ? results[result].name : "an unknown error";
}

static const char *result_words(nccl_result result)
{
    return result < sizeof(results) / sizeof(results[0]) ? results[result].words
                                                         : "of a newer NCCL than this library knows";
}

ddp_status nccl_status_of(nccl_result result)
{
    switch (result) {
    case NCCL_SUCCESS:
        return DDP_OK;
    case NCCL_IN_PROGRESS:
        return DDP_IN_PROGRESS;
    case NCCL_INVALID_ARGUMENT:
        return DDP_ERR_ARG;
    case NCCL_REMOTE_ERROR:
        return DDP_ERR_PEER_LOST;
    default:
        return DDP_ERR_NCCL;
    }
}

ddp_status nccl_fail(struct ddp_err *err, int rank, const char *call, nccl_result result, const char *detail)
{
    bool more = detail != NULL && detail[0] != '\0';
    return ddp_fail(err, nccl_status_of(result), "at rank %d: %.120s: %s (%s)%s%.300s%s", rank, call,
                    result_name(result), result_words(result), more ? "; NCCL says: " : "",
                    more ? detail : "", more ? "" : "; NCCL_DEBUG=WARN lets NCCL say more");
}

ddp_status nccl_late(struct ddp_err *err, int rank, const char *call, uint32_t timeout_ms,
                     const struct nccl_progress *progress)
{
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "at rank %d: %.120s on the GPU is not done after %u ms; done are %" PRIu64
                    " calls, %" PRIu64
                    " were begun. A rank that says nothing is the one that has not come, or computes; "
                    "DDPRUN_STEP_TIMEOUT_MS is the limit",
                    rank, call, timeout_ms, progress->done, progress->begun);
}

ddp_status nccl_init_late(struct ddp_err *err, int world, uint32_t timeout_ms, const char *iface)
{
    return ddp_fail(
        err, DDP_ERR_TIMEOUT,
        "NCCL has not brought %d ranks together within %u ms, though all have joined: its connections use "
        "NCCL_SOCKET_IFNAME=%.60s; is there a firewall between the hosts? NCCL_DEBUG=INFO shows how far it "
        "came",
        world, timeout_ms, iface[0] ? iface : "(not set)");
}

static ddp_status check_versions(const struct nccl_card *cards, int world, struct ddp_err *err)
{
    char first[NCCL_VERSION_TEXT], other[NCCL_VERSION_TEXT];
    for (int r = 1; r < world; r++)
        if (cards[r].version != cards[0].version)
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "rank 0 has loaded NCCL %s, rank %d NCCL %s: install one version, or name one in "
                            "DDP_NCCL_LIBRARY",
                            nccl_version_text(first, cards[0].version), r,
                            nccl_version_text(other, cards[r].version));
    return DDP_OK;
}

static bool same_gpu(const struct nccl_card *a, const struct nccl_card *b)
{
    return a->host == b->host && memcmp(a->bus_id, b->bus_id, sizeof(a->bus_id)) == 0;
}

/* NCCL finds that out, too, and calls it invalid usage. */
ddp_status nccl_check_cards(const struct nccl_card *cards, int world, struct ddp_err *err)
{
    ddp_status status = check_versions(cards, world, err);
    for (int a = 0; a < world && status == DDP_OK; a++)
        for (int b = a + 1; b < world && status == DDP_OK; b++)
            if (same_gpu(&cards[a], &cards[b]) && !(cards[a].share && cards[b].share))
                status = ddp_fail(
                    err, DDP_ERR_ARG,
                    "ranks %d and %d have the same GPU (device %d, %.31s), which NCCL refuses: let each take "
                    "its own "
                    "(ddp_options.device, CUDA_VISIBLE_DEVICES), or start with ddprun --share_gpu, for tests",
                    a, b, cards[a].device, cards[a].bus_id);
    return status;
}
