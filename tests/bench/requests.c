/* requests.c -- see requests.h. Only the opcodes differ between dialects. */
#include "requests.h"

#include "store/encode.h"

#include <stdlib.h>

static void need(bool ok)
{
    if (!ok)
        abort();
}

static void put_op(struct buf *out, enum dialect dialect, enum op_id op)
{
    need(append_u8(out, (uint8_t)op_table[op].code[dialect]));
}

void request_add(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_ADD);
    need(append_blob(out, slice_str(key)) && append_i64(out, 1));
}

void request_get(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_GET);
    need(append_blob(out, slice_str(key)));
}

void request_set(struct buf *out, enum dialect dialect, const char *key)
{
    static const char value[REQUEST_VALUE_BYTES];
    put_op(out, dialect, OP_SET);
    need(append_blob(out, slice_str(key)) && append_blob(out, slice_of(value, sizeof(value))));
}

void request_wait(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_WAIT);
    need(append_u64(out, 1) && append_blob(out, slice_str(key)));
}
