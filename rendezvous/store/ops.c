/* ops.c -- see ops.h. The rows of ops.h fill three tables: field_table, op_table, and op_by_code. The last table has an
 * array for each dialect, because a request may have another opcode in each dialect. */
#include "store/ops.h"

#include <string.h>

const struct field field_table[FIELDS] = {
#define X(name, shape, limit, text) [FIELD_##name] = { SHAPE_##shape, limit, text },
    WIRE_FIELDS(X)
#undef X
};

#define NO (-1)
const struct op op_table[OPS] = {
#define X(name, c, b, a, f0, f1, f2, waits, ...) \
    [OP_##name] = { OP_##name, #name, { a, b, c }, { FIELD_##f0, FIELD_##f1, FIELD_##f2 }, waits },
    STORE_OPS(X)
#undef X
};

/* The index of a row in op_by_code. If the dialect does not have the request, the index is 256 + op_id. The row cannot
 * be left out, because STORE_OPS(X) makes an initializer of every row. Opcodes have one byte, so no lookup reads the
 * entries from 256 on. */
#define PLACE(code, name) ((code) < 0 ? 256 + OP_##name : (code))
const struct op *const op_by_code[DIALECTS][256 + OPS] = {
#define X(name, c, b, a, ...) [PLACE(a, name)] = &op_table[OP_##name],
    [DIALECT_A] = { STORE_OPS(X) },
#undef X
#define X(name, c, b, ...) [PLACE(b, name)] = &op_table[OP_##name],
    [DIALECT_B] = { STORE_OPS(X) },
#undef X
#define X(name, c, ...) [PLACE(c, name)] = &op_table[OP_##name],
    [DIALECT_C] = { STORE_OPS(X) },
#undef X
};
