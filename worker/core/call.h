/* call.h -- struct call, one call of a collective. Backends run a call, messages describe it, and the ranks check and
 * compare its arguments. The module is pure. */
#ifndef WORKER_CORE_CALL_H
#define WORKER_CORE_CALL_H

#include <stddef.h>
#include "ddp/group.h"

#include <stdbool.h>
#include <stdint.h>

/* A call_side describes which ranks pass a buffer, and how many elements the buffer has. `n` is the member of struct
 * call, and `world` is the number of ranks. */
enum call_side {
    AT_NONE,      /* no rank has a buffer */
    AT_ALL,       /* every rank: a buffer of n elements */
    AT_ROOT,      /* only the root: a buffer of n elements */
    AT_ALL_WORLD, /* every rank: a buffer of n * world elements */
    AT_ROOT_WORLD /* only the root: a buffer of n * world elements */
};

/* Columns: kind, name, input, output, true if the call has a reduce operation, true if the call has a root. */
#define CALL_KIND_LIST(X)                                                  \
    X(ALL_REDUCE, "all_reduce", AT_ALL, AT_ALL, true, false)               \
    X(REDUCE, "reduce", AT_ALL, AT_ROOT, true, true)                       \
    X(BROADCAST, "broadcast", AT_ROOT, AT_ALL, false, true)                \
    X(ALL_GATHER, "all_gather", AT_ALL, AT_ALL_WORLD, false, false)        \
    X(GATHER, "gather", AT_ALL, AT_ROOT_WORLD, false, true)                \
    X(SCATTER, "scatter", AT_ROOT_WORLD, AT_ALL, false, true)              \
    X(REDUCE_SCATTER, "reduce_scatter", AT_ALL_WORLD, AT_ALL, true, false) \
    X(BARRIER, "barrier", AT_NONE, AT_NONE, false, false)                  \
    X(SHARED_ALLOC, "shared_alloc", AT_NONE, AT_NONE, false, false)        \
    X(SHARED_FREE, "shared_free", AT_NONE, AT_NONE, false, false)          \
    X(INIT, "init", AT_NONE, AT_NONE, false, false)                        \
    X(FINALIZE, "finalize", AT_NONE, AT_NONE, false, false)

enum call_kind {
#define X(kind, word, in, out, reduces, rooted) CALL_##kind,
    CALL_KIND_LIST(X)
#undef X
        CALL_KINDS
};

struct call_rule {
    const char *word;
    enum call_side in, out;
    bool reduces, rooted;
};

extern const struct call_rule call_rules[CALL_KINDS];

/* A call. Pointers are borrowed until the call is done. Fields that a kind does not use are 0. */
struct call {
    enum call_kind kind;
    const void *in;
    void *out;
    /* number of elements for each rank; in shared_alloc, number of bytes; in shared_free of a backend, the number that
     * identifies the block */
    uint64_t n;
    ddp_dtype dtype;
    ddp_op op;
    int root;
    void *stream;
    uint32_t timeout_ms; /* 0 means the step timeout of the context */
};

/* Return the size of the input of `rank` in bytes, or 0 if `rank` has no input. call_out_bytes does the same for the
 * output. */
size_t call_in_bytes(const struct call *call, int rank, int world);
size_t call_out_bytes(const struct call *call, int rank, int world);

/* Check the arguments: values, overflow, NULL pointers, overlapping buffers. DDP_ERR_ARG names the wrong argument. */
ddp_status call_check(const struct call *call, int rank, int world, struct ddp_err *err);

/* Write "all_reduce #17 (f32 x 1024, sum)" into `text`, and return `text`. The values may be invalid, for example
 * from a peer. */
enum { CALL_TEXT = 96 };
const char *call_text(char text[CALL_TEXT], const struct call *call, uint64_t seq);

/* Encode an error as "-<status> <message>", and return the length of this whole string. The string becomes the value of
 * a key in the store, and `ddpctl keys` can show this value. */
enum { CALL_REASON = 1100 };
size_t call_encode_reason(char text[CALL_REASON], const struct ddp_err *reason);

/* Decode a text that call_encode_reason has written. If `text` is malformed or has an unknown status, *reason becomes
 * DDP_ERR_CORRUPT. */
void call_decode_reason(const char *text, struct ddp_err *reason);

/* --- division of elements between ranks --- */

/* Size in bytes of a unit, the smallest piece of a buffer that is assigned to a rank. A unit is two cache lines,
 * because processors prefetch lines in pairs. */
enum { PART_LINE = 128 };

/* Compute the part of rank `which` when `total` elements are divided between `count` ranks: [*at, *at + *n). A part
 * consists of whole units of PART_LINE bytes, so that two ranks never write to one unit. Only the last part may end
 * within a unit. Parts differ in size by at most one unit. The division comes before the multiplication, because the
 * product `lines * which` could overflow. */
static inline void part_of(size_t total, size_t element_bytes, int which, int count, size_t *at, size_t *n)
{
    size_t line = PART_LINE / element_bytes;
    size_t lines = (total + line - 1) / line, w = (size_t)count, r = (size_t)which;
    size_t from = lines / w * r + lines % w * r / w, to = lines / w * (r + 1) + lines % w * (r + 1) / w;

    *at = from * line < total ? from * line : total;
    *n = (to * line < total ? to * line : total) - *at;
}

#endif
