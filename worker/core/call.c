/* call.c -- see call.h.
 *
 * The functions here serve all kinds of calls, because the table in call.h describes the differences. A new collective
 * needs a row of this table, a public function in collectives.c, and code in each backend. */
#include "core/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct call_rule call_rules[CALL_KINDS] = {
#define X(kind, word, in, out, reduces, rooted) [CALL_##kind] = { word, in, out, reduces, rooted },
    CALL_KIND_LIST(X)
#undef X
};

struct dtype_row {
    const char *name;
    size_t bytes;
};

static const struct dtype_row dtypes[] = {
#define X(name, word, bytes) [DDP_##name] = { word, bytes },
    DDP_DTYPE_LIST(X)
#undef X
};

static const char *const ops[] = {
#define X(name, word) [DDP_##name] = word,
    DDP_OP_LIST(X)
#undef X
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Return the size of an element in bytes, or 0 for an unknown type. `dtype` may come from a peer, so this function and
 * the next two check the range. */
size_t ddp_dtype_size(ddp_dtype dtype)
{
    return (size_t)dtype < COUNT(dtypes) ? dtypes[dtype].bytes : 0;
}

const char *ddp_dtype_name(ddp_dtype dtype)
{
    return (size_t)dtype < COUNT(dtypes) ? dtypes[dtype].name : "?";
}

const char *ddp_op_name(ddp_op op)
{
    return (size_t)op < COUNT(ops) ? ops[op] : "?";
}

/* Return the size of the buffer that one rank passes on `side`, in bytes. */
static size_t side_bytes(const struct call *call, enum call_side side, int rank, int world)
{
    size_t bytes = (size_t)call->n * ddp_dtype_size(call->dtype);
    bool at_root = rank == call->root;

    switch (side) {
    case AT_NONE:
        return 0;
    case AT_ALL:
        return bytes;
    case AT_ROOT:
        return at_root ? bytes : 0;
    case AT_ALL_WORLD:
        return bytes * (size_t)world;
    case AT_ROOT_WORLD:
        return at_root ? bytes * (size_t)world : 0;
    }
    return 0;
}

/* Return the size of the input of `rank`, in bytes. The product in side_bytes cannot overflow, because check_values
 * limits it. */
size_t call_in_bytes(const struct call *call, int rank, int world)
{
    return side_bytes(call, call_rules[call->kind].in, rank, world);
}

size_t call_out_bytes(const struct call *call, int rank, int world)
{
    return side_bytes(call, call_rules[call->kind].out, rank, world);
}

/* Check numbers and enums. world * n elements may take at most half of the address space, so that later sums of sizes
 * cannot overflow. */
static ddp_status check_values(const struct call *call, int world, struct ddp_err *err)
{
    const struct call_rule *rule = &call_rules[call->kind];
    size_t size = ddp_dtype_size(call->dtype);

    if (size == 0)
        return ddp_fail(err, DDP_ERR_ARG, "%s: dtype=%d: expected a value of ddp_dtype", rule->word,
                        (int)call->dtype);
    if (rule->reduces && (size_t)call->op >= COUNT(ops))
        return ddp_fail(err, DDP_ERR_ARG, "%s: op=%d: expected a value of ddp_op", rule->word, (int)call->op);
    if (rule->rooted && (call->root < 0 || call->root >= world))
        return ddp_fail(err, DDP_ERR_ARG, "%s: root=%d: expected a rank from 0 to %d", rule->word, call->root,
                        world - 1);
    if (call->n > SIZE_MAX / 2 / size / (size_t)world)
        return ddp_fail(err, DDP_ERR_ARG, "%s: %" PRIu64 " elements of %s do not fit into the address space",
                        rule->word, call->n, ddp_dtype_name(call->dtype));
    return DDP_OK;
}

/* Return true if the buffers overlap in a forbidden way. Two ways are allowed: both buffers are the same block, or
 * the smaller buffer is this rank's part of the larger buffer, as in all_gather(in = out + rank * n). */
static bool overlaps_wrongly(const struct call *call, size_t in_bytes, size_t out_bytes, int rank)
{
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;

    if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in)
        return false;
    if (in_bytes == out_bytes)
        return in != out;
    return in_bytes < out_bytes ? in != out + (uintptr_t)rank * in_bytes
                                : out != in + (uintptr_t)rank * out_bytes;
}

/* Check values before buffers, because the sizes of buffers depend on the values. */
ddp_status call_check(const struct call *call, int rank, int world, struct ddp_err *err)
{
    const char *word = call_rules[call->kind].word;
    ddp_status status = check_values(call, world, err);
    if (status != DDP_OK)
        return status;
    size_t in_bytes = call_in_bytes(call, rank, world), out_bytes = call_out_bytes(call, rank, world);

    if ((in_bytes > 0 && call->in == NULL) || (out_bytes > 0 && call->out == NULL))
        return ddp_fail(err, DDP_ERR_ARG, "%s: `%s` is NULL", word, in_bytes > 0 && !call->in ? "in" : "out");
    if (overlaps_wrongly(call, in_bytes, out_bytes, rank))
        return ddp_fail(err, DDP_ERR_ARG, "%s: `in` and `out` overlap; use separate buffers, or %s", word,
                        in_bytes == out_bytes
                            ? "the same buffer for both"
                            : "let the smaller buffer be this rank's part of the larger buffer");
    return DDP_OK;
}

/* Format a call. CALL_TEXT is large enough for every kind with the longest numbers. */
const char *call_text(char text[CALL_TEXT], const struct call *call, uint64_t seq)
{
    if ((size_t)call->kind >= CALL_KINDS)
        return strcpy(text, "an unknown call");
    const struct call_rule *rule = &call_rules[call->kind];
    int used = snprintf(text, CALL_TEXT, "%s #%" PRIu64, rule->word, seq);

    if (rule->in != AT_NONE)
        used += snprintf(text + used, CALL_TEXT - (size_t)used, " (%s x %" PRIu64,
                         ddp_dtype_name(call->dtype), call->n);
    if (rule->reduces)
        used += snprintf(text + used, CALL_TEXT - (size_t)used, ", %s", ddp_op_name(call->op));
    if (rule->rooted)
        used += snprintf(text + used, CALL_TEXT - (size_t)used, ", root %d", call->root);
    if (rule->in != AT_NONE)
        snprintf(text + used, CALL_TEXT - (size_t)used, ")");
    if (call->kind == CALL_SHARED_ALLOC)
        snprintf(text + used, CALL_TEXT - (size_t)used, " (%" PRIu64 " bytes)", call->n);
    return text;
}

size_t call_encode_reason(char text[CALL_REASON], const struct ddp_err *reason)
{
    return (size_t)snprintf(text, CALL_REASON, "-%d %s", (int)reason->code, reason->msg);
}

void call_decode_reason(const char *text, struct ddp_err *reason)
{
    char *words;
    long code = strtol(text[0] == '-' ? text + 1 : "0", &words, 10);
    ddp_fail(reason, code > DDP_IN_PROGRESS && code <= DDP_ERR_LIMIT ? (ddp_status)code : DDP_ERR_CORRUPT,
             "%.1000s", text[0] == '-' && *words == ' ' ? words + 1 : text);
}
