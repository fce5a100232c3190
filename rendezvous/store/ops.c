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

/* The table has 1 + op_id for each opcode, or 0. It has no pointers, because the loader would have to relocate each
 * pointer in each start. PLACE is the index of a request: its opcode, or 256 + op_id if the dialect does not have the
 * request. Such an entry cannot be left out, because STORE_OPS(X) makes an initializer of every row. Opcodes have one
 * byte, so no lookup reads the entries from 256 on. */
#define PLACE(code, name) ((code) < 0 ? 256 + OP_##name : (code))
static const uint8_t op_by_code[DIALECTS][256 + OPS] = {
#define X(name, c, b, a, ...) [PLACE(a, name)] = OP_##name + 1,
    [DIALECT_A] = { STORE_OPS(X) },
#undef X
#define X(name, c, b, ...) [PLACE(b, name)] = OP_##name + 1,
    [DIALECT_B] = { STORE_OPS(X) },
#undef X
#define X(name, c, ...) [PLACE(c, name)] = OP_##name + 1,
    [DIALECT_C] = { STORE_OPS(X) },
#undef X
};

const struct op *op_find(enum dialect dialect, unsigned char code)
{
    const uint8_t found = op_by_code[dialect][code];
    return found != 0 ? &op_table[found - 1] : NULL;
}
