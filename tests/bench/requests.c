/* requests.c -- see requests.h. The bytes are those of dialect C. */
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
    need(put_u8(out, (uint8_t)op_table[op].code[dialect]));
}

void request_add(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_ADD);
    need(put_blob(out, slice_str(key)) && put_i64(out, 1));
}

void request_get(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_GET);
    need(put_blob(out, slice_str(key)));
}

void request_set(struct buf *out, enum dialect dialect, const char *key)
{
    static const char value[REQUEST_VALUE_BYTES];
    put_op(out, dialect, OP_SET);
    need(put_blob(out, slice_str(key)) && put_blob(out, slice_of(value, sizeof(value))));
}

void request_wait(struct buf *out, enum dialect dialect, const char *key)
{
    put_op(out, dialect, OP_WAIT);
    need(put_u64(out, 1) && put_blob(out, slice_str(key)));
}
