/* collective_check.c -- see collective_check.h. The pure functions (encoding and comparing records) come first, then
 * the exchange through the store. The rank that arrives last publishes one verdict, so that either all ranks enter the
 * collective or no rank does. */
#include "core/collective_check.h"

#include "base/clock.h"
#include "core/bootstrap.h"
#include "core/crc32c.h"
#include "core/context.h"
#include "ddp/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = CTX_PREFIX + 64, SLICE_MS = 100 };

/* --- the text of a record ------------------------------------------------------------------------------- */

/* Append one line. Replace newlines in `line` by blanks, because names of parameters may contain newlines. */
static void format_line(char *to, size_t room, const char *line)
{
    snprintf(to, room, "\n%s", line);
    for (char *c = to + 1; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
}

struct call_record {
    int rank;
    char call[CHECK_LINE], what[CHECK_LINE], before[CHECK_LINE];
};

/* Write a record as text: the rank, then one line for each of the other fields. Replace newlines within a field by
 * blanks. Return the length of the text. */
static size_t collective_check_encode(char text[CHECK_TEXT], const struct call_record *own)
{
    const char *const lines[] = { own->call, own->what, own->before };
    size_t len = (size_t)snprintf(text, CHECK_TEXT, "%d", own->rank);
    for (size_t i = 0; i < 3; i++) {
        format_line(text + len, CHECK_TEXT - len, lines[i]);
        len += strlen(text + len);
    }
    return len;
}

/* Parse a line up to the next newline. Return false if the line is too long. */
static bool parse_line(const char **at, char line[CHECK_LINE])
{
    if (**at != '\n')
        return false;
    const size_t len = strcspn(*at + 1, "\n");
    if (len >= CHECK_LINE)
        return false;
    memcpy(line, *at + 1, len);
    line[len] = '\0';
    *at += len + 1;
    return true;
}

/* Decode `text`, which ends with a NUL. Return false if `text` is not a record. */
static bool collective_check_decode(const char *text, struct call_record *own)
{
    char *end;
    const long rank = strtol(text, &end, 10);
    const char *at = end;
    if (end == text || rank < 0 || rank > (1 << 20))
        return false;
    own->rank = (int)rank;
    return parse_line(&at, own->call) && parse_line(&at, own->what) && parse_line(&at, own->before) &&
           *at == '\0';
}

static const char *or_else(const char *line, const char *fallback)
{
    return line[0] != '\0' ? line : fallback;
}

/* Compare two records. DDP_ERR_MISMATCH names both ranks, the lower one first, and the first difference: the call,
 * its purpose, or the result of the previous call. */
static ddp_status collective_check_compare(const struct call_record *a, const struct call_record *b,
                                           struct ddp_err *err)
{
    const struct call_record *low = a->rank < b->rank ? a : b, *high = low == a ? b : a;
    if (strcmp(low->call, high->call) != 0)
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "ranks disagree: rank %d called %s, rank %d called %s; call the same collectives in "
                        "the same order and with the same arguments on all ranks",
                        low->rank, low->call, high->rank, high->call);
    if (strcmp(low->what, high->what) != 0)
        return ddp_fail(
            err, DDP_ERR_MISMATCH,
            "ranks disagree: in %s, rank %d passes %s, but rank %d passes %s; pass the same data in "
            "the same order on all ranks",
            low->call, low->rank, or_else(low->what, "unknown data"), high->rank,
            or_else(high->what, "unknown data"));
    if (strcmp(low->before, high->before) != 0)
        return ddp_fail(
            err, DDP_ERR_MISMATCH,
            "ranks have different values after a call (checksums): on rank %d %s, on rank %d %s; the program "
            "wrote into the buffer during the call, or the memory is faulty",
            low->rank, or_else(low->before, "no call"), high->rank, or_else(high->before, "no call"));
    return DDP_OK;
}

/* Return true if all ranks have the same values after a call of `kind`. */
static bool collective_check_leaves_same(enum call_kind kind)
{
    return kind == CALL_ALL_REDUCE || kind == CALL_BROADCAST || kind == CALL_ALL_GATHER;
}

/* --- one context ---------------------------------------------------------------------------------------- */

ddp_status collective_check_open(struct collective_check *check, const struct worker_env *env,
                                 struct ddp_err *err)
{
    check->on = strcmp(env->debug, "detail") == 0;
    if (!check->on && strcmp(env->debug, "off") != 0)
        return ddp_fail(err, DDP_ERR_ENV, "DDPRUN_DEBUG=%s: expected 'off' or 'detail'", env->debug);
    return DDP_OK;
}

void collective_check_close(struct collective_check *check)
{
    ddp_store_close(check->store);
    check->store = NULL;
}

static void key_of(char key[KEY], const struct ddp_ctx *ctx, uint64_t seq, const char *what)
{
    snprintf(key, KEY, "%s/detail/%" PRIu64 "/%s", ctx->prefix, seq, what);
}

/* --- the verdict on a call ------------------------------------------------------------------------------ */

/* Delete the keys of the previous call. All ranks have begun this call, so no rank reads the keys of the previous call
 * any more. */
static void clear_keys(struct ddp_ctx *ctx, uint64_t seq)
{
    static const char *const whats[] = { "first", "count", "go" };
    char key[KEY];
    for (size_t i = 0; i < sizeof(whats) / sizeof(*whats); i++) {
        key_of(key, ctx, seq, whats[i]);
        ddp_store_delete(ctx->check.store, key, NULL, NULL);
    }
}

/* Decode the verdict. Return DDP_OK for "+", which allows the call. Otherwise fail with the published reason. */
static ddp_status read_verdict(const char *go, struct ddp_err *err)
{
    if (go[0] != '-')
        return DDP_OK;
    call_decode_reason(go, err);
    return err->code;
}

/* Publish `err` as the verdict if no rank has published a verdict yet. All ranks must follow the first verdict. Return
 * DDP_OK if the first verdict is "+" (allowed). Otherwise set *err to the first verdict, and return its code. If the
 * store does not answer, return this rank's error. */
static ddp_status refuse_call(struct ddp_ctx *ctx, uint64_t seq, struct ddp_err *err)
{
    char key[KEY], reason[CALL_REASON];
    struct ddp_err ignored;
    void *go = NULL;
    size_t len = call_encode_reason(reason, err);
    ddp_status status = err->code;
    key_of(key, ctx, seq, "go");
    if (ddp_store_compare_set(ctx->check.store, key, "", 0, reason, len, &go, &len, &ignored) == DDP_OK)
        status = read_verdict(go, err);
    free(go);
    return status;
}

/* Publish "+", which allows all ranks to make the call. This rank has arrived last. If another rank has published a
 * failure before, return that failure. */
static ddp_status allow_call(struct ddp_ctx *ctx, uint64_t seq, struct ddp_err *err)
{
    char key[KEY];
    void *go = NULL;
    size_t len;
    key_of(key, ctx, seq, "go");
    ddp_status status = ddp_store_compare_set(ctx->check.store, key, "", 0, "+", 1, &go, &len, err);
    if (status == DDP_OK)
        status = read_verdict(go, err);
    free(go);
    if (status == DDP_OK && ctx->check.last > 0)
        clear_keys(ctx, ctx->check.last);
    return status;
}

static ddp_status ranks_missing(struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                                uint32_t waited_ms, struct ddp_err *err)
{
    char key[KEY], text[CALL_TEXT];
    int64_t came = 0;
    key_of(key, ctx, seq, "count");
    ddp_store_add(ctx->check.store, key, 0, &came, NULL);
    ddp_fail(err, DDP_ERR_TIMEOUT,
             "waited %g s for all ranks to call %s: %lld of %d arrived; DDPRUN_STEP_TIMEOUT_MS sets the "
             "default time limit",
             waited_ms / 1000.0, call_text(text, call, seq), (long long)came, ctx->env.world_size);
    return refuse_call(ctx, seq, err);
}

/* Wait for the verdict. Ask the backend every SLICE_MS whether a rank has died, because PyTorch's TCPStore does not
 * report dead ranks. */
static ddp_status wait_for_go(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    struct comm *comm = ctx->world.comm;
    const uint32_t timeout_ms = call->timeout_ms ? call->timeout_ms : ctx->step_timeout_ms;
    const uint64_t deadline_ms = clock_ms() + timeout_ms;
    char key[KEY], text[CALL_TEXT];
    void *go = NULL;
    size_t len;
    key_of(key, ctx, seq, "go");
    ddp_status status = ddp_store_get(ctx->check.store, key, SLICE_MS, &go, &len, err);
    while (status == DDP_ERR_TIMEOUT) {
        if (comm->ops->check(comm, err) != DDP_OK)
            return ddp_wrap(err, "before %s", call_text(text, call, seq));
        if (clock_ms() >= deadline_ms)
            return ranks_missing(ctx, call, seq, timeout_ms, err);
        status = ddp_store_get(ctx->check.store, key, SLICE_MS, &go, &len, err);
    }
    if (status == DDP_OK)
        status = read_verdict(go, err);
    free(go);
    return status;
}

/* --- a call --------------------------------------------------------------------------------------------- */

static void record_call(const struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                        struct call_record *own)
{
    char text[CALL_TEXT];
    own->rank = ctx->env.rank;
    snprintf(own->call, sizeof(own->call), "%s", call_text(text, call, seq));
    snprintf(own->what, sizeof(own->what), "%s", ctx->check.what);
    snprintf(own->before, sizeof(own->before), "%s", ctx->check.before);
}

/* Compare this rank's record with the record of the first rank that arrived, which may be this rank. If the records
 * differ, fail with this difference, even if another rank has already published another failure. */
static ddp_status compare_with_first(struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                                     struct ddp_err *err)
{
    char key[KEY], text[CHECK_TEXT];
    struct call_record mine, theirs;
    struct ddp_err mismatch;
    void *first = NULL;
    size_t len;
    record_call(ctx, call, seq, &mine);
    const size_t n = collective_check_encode(text, &mine);
    key_of(key, ctx, seq, "first");
    ddp_status status = ddp_store_compare_set(ctx->check.store, key, "", 0, text, n, &first, &len, err);
    if (status != DDP_OK)
        return status;
    if (!collective_check_decode(first, &theirs))
        status = ddp_fail(
            err, DDP_ERR_CORRUPT,
            "the store's key %s holds no valid record of a rank's call; check that no other program writes "
            "this key, and that all ranks run the same version",
            key);
    else
        status = collective_check_compare(&mine, &theirs, err);
    if (status == DDP_ERR_MISMATCH) {
        mismatch = *err;
        refuse_call(ctx, seq, &mismatch);
    }
    free(first);
    return status;
}

/* Compare this rank's call with the call of the rank that arrived first, and wait for the verdict. The last rank that
 * arrives publishes the verdict. So either all ranks enter the collective, or no rank does. */
static ddp_status meet_ranks(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    char key[KEY];
    int64_t came;
    ddp_status status = compare_with_first(ctx, call, seq, err);
    if (status != DDP_OK)
        return status;
    key_of(key, ctx, seq, "count");
    status = ddp_store_add(ctx->check.store, key, 1, &came, err);
    if (status == DDP_OK && came == ctx->env.world_size)
        return allow_call(ctx, seq, err);
    return status == DDP_OK ? wait_for_go(ctx, call, seq, err) : status;
}

ddp_status collective_check_enter(struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                                  struct ddp_err *err)
{
    ddp_status status = meet_ranks(ctx, call, seq, err);
    ctx->check.last = seq;
    ctx->check.what[0] = ctx->check.before[0] = '\0';
    return status == DDP_OK ? DDP_OK : ddp_wrap(err, "DDPRUN_DEBUG=detail");
}

/* Store a checksum of the call's result, if the call gives all ranks the same result. The next call compares the
 * checksums of the ranks. Store a checksum only with the cpu backend, because the result of another backend may be in
 * device memory. If this is the last call of the program (CALL_FINALIZE), rank 0 deletes the keys of this call. */
void collective_check_leave(struct ddp_ctx *ctx, const struct call *call, uint64_t seq)
{
    if (ctx->check.store != NULL && call->kind == CALL_FINALIZE && ctx->env.rank == 0)
        clear_keys(ctx, seq);
    if (!ctx->check.on || ctx->world.comm->ops != &cpu_comm_ops || !collective_check_leaves_same(call->kind))
        return;
    const size_t bytes = call_out_bytes(call, ctx->env.rank, ctx->env.world_size);
    snprintf(ctx->check.before, sizeof(ctx->check.before), "%s #%" PRIu64 " gave %08x",
             call_rules[call->kind].word, seq, bytes > 0 ? crc32c(0, call->out, bytes) : 0);
}
