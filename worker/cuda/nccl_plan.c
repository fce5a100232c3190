/* nccl_plan.c -- see nccl_plan.h. The states of a communicator are a table, so every pair of state and event has a
 * result. Neither FAILING nor any state after it has the effect ABORT, so a communicator is aborted at most once. */
#include "cuda/nccl_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NO(state)                      \
    {                                  \
        NCCL_##state, NCCL_EFFECT_NONE \
    }
#define GO(state)                      \
    {                                  \
        NCCL_##state, NCCL_EFFECT_NONE \
    }
#define ABORT                           \
    {                                   \
        NCCL_FAILING, NCCL_EFFECT_ABORT \
    }
#define WAIT                           \
    {                                  \
        NCCL_FAILING, NCCL_EFFECT_WAIT \
    }
#define DESTROY                          \
    {                                    \
        NCCL_CLOSED, NCCL_EFFECT_DESTROY \
    }

/* Next state and effect for each state and event. A failed communicator is aborted before its owner closes it. */
static const struct nccl_step table[NCCL_STATES][NCCL_EVENTS] = {
    /*                   MET           FAULT        LEFT          GONE         CLOSE      */
    [NCCL_CREATING] = { GO(READY), ABORT, NO(CREATING), NO(CREATING), ABORT },
    [NCCL_READY] = { NO(READY), ABORT, GO(LEAVING), NO(READY), DESTROY },
    [NCCL_LEAVING] = { NO(LEAVING), ABORT, NO(LEAVING), NO(LEAVING), DESTROY },
    [NCCL_FAILING] = { NO(FAILING), NO(FAILING), NO(FAILING), GO(ABORTED), WAIT },
    [NCCL_ABORTED] = { NO(ABORTED), NO(ABORTED), NO(ABORTED), NO(ABORTED), GO(CLOSED) },
    [NCCL_CLOSED] = { NO(CLOSED), NO(CLOSED), NO(CLOSED), NO(CLOSED), NO(CLOSED) },
};

struct nccl_step nccl_step(enum nccl_state state, enum nccl_event event)
{
    return table[state][event];
}

/* --- function of each call -------------------------------------------------------------------------------- */

static const enum nccl_way ways[CALL_KINDS] = {
    [CALL_ALL_REDUCE] = NCCL_WAY_ALL_REDUCE,
    [CALL_REDUCE] = NCCL_WAY_REDUCE,
    [CALL_BROADCAST] = NCCL_WAY_BROADCAST,
    [CALL_ALL_GATHER] = NCCL_WAY_ALL_GATHER,
    [CALL_REDUCE_SCATTER] = NCCL_WAY_REDUCE_SCATTER,
    [CALL_GATHER] = NCCL_WAY_MOVES,
    [CALL_SCATTER] = NCCL_WAY_MOVES,
};

static const nccl_type types[] = {
#define X(dtype, ours, theirs, value) [dtype] = ours,
    NCCL_TYPE_LIST(X)
#undef X
};

static const nccl_redop ops[] = {
#define X(op, ours, theirs, value) [op] = ours,
    NCCL_OP_LIST(X)
#undef X
};

struct nccl_plan nccl_plan(const struct call *call)
{
    struct nccl_plan plan = { NCCL_WAY_NOTHING, types[call->dtype], ops[call->op] };
    if (call->n > 0)
        plan.way = ways[call->kind];
    return plan;
}

/* Return the part of `rank` in a buffer that has a part for each rank. */
static char *part(const struct call *call, const void *base, int rank)
{
    return (char *)(uintptr_t)base + (size_t)rank * (size_t)call->n * ddp_dtype_size(call->dtype);
}

/* Set *move to move number i, or return false if there is no such move. A scatter has the moves of a gather in the
 * opposite direction. `inner` is one rank's part, and `outer` is the root's buffer with the parts of all ranks. In
 * move 0 a rank sends its `inner` to the root (gather), or receives `inner` from the root (scatter). The root also
 * has moves 1 to `world`: move i is between part i - 1 of `outer` and rank i - 1. */
bool nccl_move(const struct call *call, int rank, int world, int i, struct nccl_move *move)
{
    bool gather = call->kind == CALL_GATHER;
    const void *inner = gather ? call->in : call->out, *outer = gather ? call->out : call->in;
    bool in_place = rank == call->root && inner == part(call, outer, rank);

    if (rank == call->root && in_place) { /* in place: skip the root's copy to itself */
        i++;
        if (i > rank)
            i++;
    }
    if (i == 0)
        *move = (struct nccl_move){
            .send = gather, .peer = call->root, .from = inner, .to = (void *)(uintptr_t)inner
        };
    else if (rank == call->root && i <= world)
        *move = (struct nccl_move){
            .send = !gather, .peer = i - 1, .from = part(call, outer, i - 1), .to = part(call, outer, i - 1)
        };
    else
        return false;
    return true;
}

/* --- the environment of NCCL ------------------------------------------------------------------------------ */

/* Settings for several ranks on one GPU, for tests only. NCCL rejects two ranks with the same host and GPU, so each
 * rank gets a different host id. The GPU runs only one process at a time and switches between the processes.
 * NCCL_MAX_CTAS is 1, because the GPU interrupts a kernel of one block faster than a larger kernel. */

/* Variables for ranks that share a GPU. nccl_settings adds NCCL_HOSTID. */
static const struct nccl_setting sharing[] = {
    { "NCCL_SOCKET_IFNAME", "=lo" }, { "NCCL_ALGO", "Ring" },       { "NCCL_PROTO", "Simple" },
    { "NCCL_MAX_CTAS", "1" },        { "NCCL_NVLS_ENABLE", "0" },   { "NCCL_IB_DISABLE", "1" },
    { "NCCL_RAS_ENABLE", "0" },      { "NCCL_NET_PLUGIN", "none" }, { "NCCL_MNNVL_ENABLE", "0" },
};

/* Set the host id of this rank. The id contains the job, because ranks of two jobs on one GPU need different ids. */
static void host_id_setting(const struct nccl_facts *facts, struct nccl_setting *out)
{
    snprintf(out->name, sizeof(out->name), "NCCL_HOSTID");
    snprintf(out->value, sizeof(out->value), "ddprun-%.280s-%d", facts->run, facts->rank);
}

/* Set the interface. '=' selects exactly this interface. Without '=' NCCL would also use interfaces whose names
 * only begin with this name. */
static void iface_setting(const struct nccl_facts *facts, struct nccl_setting *out)
{
    snprintf(out->name, sizeof(out->name), "NCCL_SOCKET_IFNAME");
    snprintf(out->value, sizeof(out->value), "=%.60s", facts->iface);
}

int nccl_settings(const struct nccl_facts *facts, struct nccl_setting out[NCCL_SETTINGS_MAX])
{
    int n = 0;
    if (facts->share_gpu) {
        host_id_setting(facts, &out[n++]);
        for (size_t i = 0; i < sizeof(sharing) / sizeof(sharing[0]); i++)
            out[n++] = sharing[i];
    } else if (facts->iface[0] != '\0') {
        iface_setting(facts, &out[n++]);
    }
    return n;
}

int nccl_id_count(int world, int version)
{
    int count = (world + NCCL_RANKS_PER_ID - 1) / NCCL_RANKS_PER_ID;
    return version < NCCL_SCALABLE || count < 1 ? 1 : count < NCCL_IDS_MAX ? count : NCCL_IDS_MAX;
}

/* Return the rank that creates unique id i. Spread these ranks evenly over the world, so that different hosts
 * create ids. */
int nccl_id_maker(int i, int count, int world)
{
    return (int)((long long)i * world / count);
}

const char *nccl_id_key(char key[NCCL_KEY], int i)
{
    snprintf(key, NCCL_KEY, "nccl_id/%d", i);
    return key;
}

/* --- error texts -------------------------------------------------------------------------------------- */

enum { NCCL_VERSION_TEXT = 24 };

/* Format 22809 as "2.28.9" and 2804 as "2.8.4". Before version 2.9, the minor version had only one digit in this
 * number. */
static const char *nccl_version_text(char text[NCCL_VERSION_TEXT], int version)
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
                    "NCCL %s is too old: %s or newer is required; install a newer version, or set "
                    "DDP_NCCL_LIBRARY to the path of a newer libnccl.so.2",
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
    return result < sizeof(results) / sizeof(results[0]) ? results[result].name : "unknown error";
}

static const char *result_words(nccl_result result)
{
    return result < sizeof(results) / sizeof(results[0]) ? results[result].words
                                                         : "error code of a newer NCCL";
}

/* Return the status for a result of NCCL. No error of NCCL becomes DDP_ERR_ARG. That status would leave the context
 * usable (context.c), although every error of NCCL makes the communicator unusable. */
static ddp_status nccl_status_of(nccl_result result)
{
    switch (result) {
    case NCCL_SUCCESS:
        return DDP_OK;
    case NCCL_IN_PROGRESS:
        return DDP_IN_PROGRESS;
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
                    result_name(result), result_words(result), more ? "; NCCL reports: " : "",
                    more ? detail : "", more ? "" : "; set NCCL_DEBUG=WARN for details from NCCL");
}

ddp_status nccl_late(struct ddp_err *err, int rank, const char *call, uint32_t timeout_ms,
                     const struct nccl_progress *progress)
{
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "at rank %d: %.120s on the GPU is still running after %g s (calls done: %" PRIu64
                    ", begun: %" PRIu64
                    "); a rank without this message has not made the call, or its GPU still runs earlier "
                    "kernels; DDPRUN_STEP_TIMEOUT_MS sets the time limit",
                    rank, call, timeout_ms / 1000.0, progress->done, progress->begun);
}

ddp_status nccl_init_late(struct ddp_err *err, int world, uint32_t timeout_ms, const char *iface)
{
    return ddp_fail(
        err, DDP_ERR_TIMEOUT,
        "NCCL has not connected all %d ranks within %g s, although all have joined the job; check "
        "NCCL_SOCKET_IFNAME (%.60s) and firewalls between the hosts; NCCL_DEBUG=INFO shows the "
        "progress",
        world, timeout_ms / 1000.0, iface[0] ? iface : "not set");
}

static ddp_status check_versions(const struct nccl_card *cards, int world, struct ddp_err *err)
{
    char first[NCCL_VERSION_TEXT], other[NCCL_VERSION_TEXT];
    for (int r = 1; r < world; r++)
        if (cards[r].version != cards[0].version)
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "rank 0 has loaded NCCL %s, but rank %d has loaded NCCL %s; install the same "
                            "version on all hosts, or set DDP_NCCL_LIBRARY to the same library",
                            nccl_version_text(first, cards[0].version), r,
                            nccl_version_text(other, cards[r].version));
    return DDP_OK;
}

static bool same_gpu(const struct nccl_card *a, const struct nccl_card *b)
{
    return a->host == b->host && memcmp(a->bus_id, b->bus_id, sizeof(a->bus_id)) == 0;
}

/* Check the cards (struct nccl_card) of all ranks. For two ranks with the same GPU, NCCL itself would report only
 * "invalid usage". */
ddp_status nccl_check_cards(const struct nccl_card *cards, int world, struct ddp_err *err)
{
    ddp_status status = check_versions(cards, world, err);
    for (int a = 0; a < world && status == DDP_OK; a++)
        for (int b = a + 1; b < world && status == DDP_OK; b++)
            if (same_gpu(&cards[a], &cards[b]) && !(cards[a].share && cards[b].share))
                status =
                    ddp_fail(err, DDP_ERR_ARG,
                             "ranks %d and %d have the same GPU (device %d, %.31s), which NCCL rejects; "
                             "use a different GPU for each rank (ddp_options.device, CUDA_VISIBLE_DEVICES), "
                             "or, for tests, ddprun --share_gpu",
                             a, b, cards[a].device, cards[a].bus_id);
    return status;
}
