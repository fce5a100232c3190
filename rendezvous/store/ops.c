/* ops.c -- see ops.h.
 *
 * The rows are expanded three times: into op_table, into one array from opcode to row for each dialect
 * (so decoding costs one look), and into the lines of the protocol page. Nothing here is written by hand
 * for a single request. */
#include "store/ops.h"

#include <string.h>

const struct field field_table[FIELDS] = {
#define X(name, shape, limit, text) [FIELD_##name] = { SHAPE_##shape, limit, text },
    WIRE_FIELDS(X)
#undef X
};

#define NO (-1)
const struct op op_table[OPS] = {
#define X(name, c, b, a, f0, f1, f2, waits, wakes, response, text)                         \
    [OP_##name] = { OP_##name, #name, { a, b, c }, { FIELD_##f0, FIELD_##f1, FIELD_##f2 }, \
                    waits,     wakes, response,    text },
    STORE_OPS(X)
#undef X
};

/* For each opcode the row + 1. A request that a dialect lacks gets a place of its own behind the 256 real
 * ones, so that no two rows share one. */
#define PLACE(code, name) ((code) < 0 ? 256 + OP_##name : (code))
static const uint8_t row_by_code[DIALECTS][256 + OPS] = {
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

const struct op *op_by_code(enum dialect dialect, uint8_t code)
{
    uint8_t row = row_by_code[dialect][code];
    return row ? &op_table[row - 1] : NULL;
}

static bool print_code(struct buf *out, int code)
{
    return code < 0 ? buf_printf(out, " – |") : buf_printf(out, " 0x%02x |", (unsigned)code);
}

static bool print_fields(struct buf *out, const struct op *op)
{
    bool ok = buf_printf(out, op->field[0] == FIELD_NIL ? " –" : " ");
    for (int i = 0; i < OP_FIELDS && op->field[i] != FIELD_NIL; i++)
        ok = ok && buf_printf(out, "%s`%s`", i ? ", " : "", field_table[op->field[i]].text);
    return ok && buf_printf(out, " |");
}

static bool print_row(struct buf *out, const struct op *op)
{
    return buf_printf(out, "| %s |", op->name) && print_code(out, op->code[DIALECT_C]) &&
           print_code(out, op->code[DIALECT_B]) && print_code(out, op->code[DIALECT_A]) &&
           print_fields(out, op) &&
           buf_printf(out, " %s | %s | %s |\n", op->response,
                      op->waits && op->wakes ? "waits, wakes"
                      : op->waits            ? "waits"
                      : op->wakes            ? "wakes"
                                             : "",
                      op->text);
}

/* Markdown, because the page is read on a web site as well as in an editor; empty cells stay empty. */
bool ops_print_markdown(struct buf *out)
{
    bool ok = buf_printf(out, "| request | C | B | A | fields | response | | what it does |\n"
                              "|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < OPS; i++)
        ok = ok && print_row(out, &op_table[i]);
    return ok;
}
