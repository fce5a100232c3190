/* The parser reads every request of the table, in every dialect and cut at every byte. Limits are tested at and above
 * their values, and the dialects are distinguished. */
#include "store/encode.h"
#include "store/ops.h"
#include "store/wire.h"
#include "tests/prog/table_pages.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define PLENTY (1ull << 40)

/* --- building requests from the same tables ------------------------------------------------------------------ */

static void put_field(struct buf *out, const struct field *f)
{
    bool ok = true;
    if (f->shape == SHAPE_U32)
        ok = append_u32(out, WIRE_MAGIC);
    else if (f->shape == SHAPE_I64)
        ok = append_i64(out, -5);
    else if (f->shape == SHAPE_BLOB)
        ok = append_blob(out, slice_str("blob"));
    else if (f->shape == SHAPE_LIST)
        ok = append_u64(out, 2) && append_blob(out, slice_str("one")) && append_blob(out, slice_str(""));
    else if (f->shape == SHAPE_PAIRS)
        ok = append_u64(out, 1) && append_blob(out, slice_str("key")) && append_blob(out, slice_str("value"));
    cr_assert(ok);
}

static void put_request(struct buf *out, const struct op *op, enum dialect dialect)
{
    cr_assert(append_u8(out, (uint8_t)op->code[dialect]));
    for (int i = 0; i < OP_FIELDS; i++)
        put_field(out, &field_table[op->field[i]]);
}

/* Return a scan that has read the first request of a connection: VALIDATE in dialect C, GETNUMKEYS in dialects A and B.
 * Opcode 7 is WATCH_KEY in dialect A and DELETE_KEY in dialect B. PyTorch sends WATCH_KEY only on a separate
 * connection, so after GETNUMKEYS opcode 7 must be DELETE_KEY of dialect B. */
static struct wire greeted(enum dialect dialect)
{
    struct wire w;
    struct request req;
    struct ddp_err err;
    size_t used;
    const uint8_t *hello = (const uint8_t *)(dialect == DIALECT_C ? "\0\xce\xf7\x85\x3c" : "\6");
    wire_init(&w, dialect == DIALECT_B);
    cr_assert_eq(wire_decode(&w, slice_of(hello, dialect == DIALECT_C ? 5 : 1), PLENTY, &req, &used, &err),
                 WIRE_OK);
    return w;
}

/* Return a scan that can read `op` next. VALIDATE and WATCH_KEY begin a connection, so the scan has read nothing before
 * them. Before any other `op`, the scan has read a greeting. */
static struct wire before(const struct op *op, enum dialect dialect)
{
    struct wire w;
    wire_init(&w, dialect == DIALECT_B);
    return op->id == OP_VALIDATE || op->id == OP_WATCH_KEY ? w : greeted(dialect);
}

static void check_fields(const struct op *op, const struct request *req)
{
    struct slice list, item;
    cr_assert_eq(req->op, op);
    for (int i = 0; i < OP_FIELDS; i++) {
        const struct field *f = &field_table[op->field[i]];
        if (f->shape == SHAPE_I64)
            cr_assert_eq(req->number, -5);
        if (f->shape == SHAPE_BLOB)
            cr_assert(slice_equal(req->blob[i], slice_str("blob")));
        if (f->shape != SHAPE_LIST && f->shape != SHAPE_PAIRS)
            continue;
        const char *second = f->shape == SHAPE_LIST ? "" : "value";
        list = req->blob[i];
        cr_assert(wire_next(&list, &item));
        cr_assert(wire_next(&list, &item) && slice_equal(item, slice_str(second)));
        cr_assert_not(wire_next(&list, &item));
    }
}

/* Cut the request at every byte. The scan returns MORE for the bytes before the cut. Then it returns OK for the whole
 * request with one more byte at the end. */
static void check_every_cut(const struct op *op, enum dialect dialect)
{
    struct buf bytes = { 0 };
    struct request req;
    struct ddp_err err;
    size_t used;
    put_request(&bytes, op, dialect);
    size_t len = bytes.len;
    cr_assert(append_u8(&bytes, 0xff));
    for (size_t cut = 0; cut < len; cut++) {
        struct wire w = before(op, dialect);
        cr_assert_eq(wire_decode(&w, slice_of(bytes.data, cut), PLENTY, &req, &used, &err), WIRE_MORE,
                     "%s at %zu", op->name, cut);
        cr_assert_eq(wire_decode(&w, buf_slice(&bytes), PLENTY, &req, &used, &err), WIRE_OK, "%s", op->name);
        cr_assert_eq(used, len);
        check_fields(op, &req);
    }
    buf_free(&bytes);
}

Test(wire, every_request_in_every_dialect_cut_at_every_byte)
{
    int seen = 0;
    for (int d = 0; d < DIALECTS; d++)
        for (int i = 0; i < OPS; i++)
            if (op_table[i].code[d] >= 0) {
                check_every_cut(&op_table[i], d);
                seen++;
            }
    cr_assert_eq(seen, 9 + 12 + 23);
}

/* --- dialects ------------------------------------------------------------------------------------------------ */

static enum wire_status decode(struct wire *w, const void *bytes, size_t len, enum op_id *id)
{
    struct request req;
    struct ddp_err err;
    size_t used;
    enum wire_status status = wire_decode(w, slice_of(bytes, len), PLENTY, &req, &used, &err);
    if (status == WIRE_OK)
        *id = req.op->id;
    return status;
}

static void expect_op(struct wire *w, uint8_t code, enum op_id want)
{
    uint8_t zeros[64] = { code };
    enum op_id id = OPS;
    cr_assert_eq(decode(w, zeros, sizeof(zeros), &id), WIRE_OK);
    cr_assert_eq(id, want, "0x%02x is %s", code, op_table[id].name);
}

Test(wire, an_old_set_is_not_a_greeting)
{
    struct wire w;
    enum op_id id;
    wire_init(&w, false);
    cr_assert_eq(decode(&w, "\0", 1, &id), WIRE_MORE);
    cr_assert_eq(decode(&w, "\0\1\0\0\0", 5, &id), WIRE_MORE);
    cr_assert_eq(decode(&w, "\0\1\0\0\0\0\0\0\0k\0\0\0\0\0\0\0\0", 18, &id), WIRE_OK);
    cr_assert_eq(id, OP_SET);
    cr_assert_eq(w.dialect, DIALECT_A);
}

Test(wire, a_wrong_magic_is_an_old_set_with_an_absurd_key)
{
    struct wire w;
    enum op_id id;
    wire_init(&w, false);
    cr_assert_eq(decode(&w, "\0\xce\xf7\x85\x3d\0\0\0\0", 9, &id), WIRE_BAD);
}

Test(wire, a_second_greeting_is_bad)
{
    struct wire w = greeted(DIALECT_C);
    enum op_id id;
    cr_assert_eq(decode(&w, "\0\xce\xf7\x85\x3c", 5, &id), WIRE_BAD);
}

Test(wire, unknown_requests_are_bad)
{
    enum op_id id;
    for (int code = 0; code < 256; code++) {
        struct wire c = greeted(DIALECT_C), a = greeted(DIALECT_A);
        uint8_t byte = (uint8_t)code;
        bool known_c = (code >= 1 && code <= 0x12) || (code >= 0x80 && code <= 0x83);
        cr_assert_eq(decode(&c, &byte, 1, &id) == WIRE_BAD, !known_c, "0x%02x", (unsigned)code);
        cr_assert_eq(decode(&a, &byte, 1, &id) == WIRE_BAD, code > 11, "0x%02x", (unsigned)code);
    }
}

Test(wire, seven_is_watch_key_on_a_fresh_connection_only)
{
    struct wire w;
    wire_init(&w, false);
    expect_op(&w, 7, OP_WATCH_KEY);
    expect_op(&w, 7, OP_WATCH_KEY);
    expect_op(&w, 8, OP_DELETE_KEY);
    w = greeted(DIALECT_A);
    expect_op(&w, 7, OP_DELETE_KEY);
}

Test(wire, eight_deletes_until_nine_to_eleven_prove_dialect_b)
{
    struct wire w = greeted(DIALECT_A);
    expect_op(&w, 8, OP_DELETE_KEY);
    expect_op(&w, 11, OP_CANCEL_WAIT);
    expect_op(&w, 8, OP_APPEND);
    expect_op(&w, 9, OP_MULTI_GET);
    expect_op(&w, 10, OP_MULTI_SET);
}

Test(wire, the_launcher_may_say_that_it_is_torch_2_1)
{
    struct wire w;
    wire_init(&w, true);
    expect_op(&w, 8, OP_APPEND);
    expect_op(&w, 7, OP_DELETE_KEY);
}

/* --- limits -------------------------------------------------------------------------------------------------- */

/* Scan a request's opcode and first length or count. */
static enum wire_status head(enum op_id op, uint64_t n, uint64_t max_bytes)
{
    struct wire w = greeted(DIALECT_C);
    struct request req;
    struct ddp_err err;
    size_t used;
    uint8_t bytes[9] = { (uint8_t)op_table[op].code[DIALECT_C] };
    write_le(bytes + 1, n, 8);
    enum wire_status status = wire_decode(&w, slice_of(bytes, sizeof(bytes)), max_bytes, &req, &used, &err);
    cr_assert(status != WIRE_BAD || err.msg[0] != '\0');
    return status;
}

Test(wire, a_length_is_compared_before_it_is_believed)
{
    cr_assert_eq(head(OP_GET, 8192, PLENTY), WIRE_MORE);
    cr_assert_eq(head(OP_GET, 8193, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_QUEUE_POP, 8193, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_CONTROL, 1 << 20, PLENTY), WIRE_MORE);
    cr_assert_eq(head(OP_CONTROL, (1 << 20) + 1, PLENTY), WIRE_BAD);
    for (int power = 31; power < 64; power++)
        cr_assert_eq(head(OP_GET, 1ull << power, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_GET, UINT64_MAX, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_GET, UINT64_MAX - 8, PLENTY), WIRE_BAD);
}

Test(wire, a_count_is_compared_before_it_is_believed)
{
    cr_assert_eq(head(OP_WAIT, 131072, PLENTY), WIRE_MORE);
    cr_assert_eq(head(OP_WAIT, 131073, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_MULTI_SET, 131072, PLENTY), WIRE_MORE);
    cr_assert_eq(head(OP_MULTI_SET, 131073, PLENTY), WIRE_BAD);
    cr_assert_eq(head(OP_MULTI_GET, UINT64_MAX, PLENTY), WIRE_BAD);
}

Test(wire, a_request_that_cannot_fit_the_quota_is_refused_at_its_head)
{
    cr_assert_eq(head(OP_GET, 100, 109), WIRE_MORE);
    cr_assert_eq(head(OP_GET, 100, 108), WIRE_BAD);
    cr_assert_eq(head(OP_WAIT, 1000, 9 + 8000), WIRE_MORE);
    cr_assert_eq(head(OP_WAIT, 1000, 9 + 7999), WIRE_BAD);
    cr_assert_eq(head(OP_MULTI_SET, 1000, 9 + 15999), WIRE_BAD);
}

/* Scan a complete SET request with the key "k" and a value of `n` bytes. */
static enum wire_status set_of(size_t n)
{
    struct wire w = greeted(DIALECT_C);
    struct request req;
    struct ddp_err err;
    struct buf bytes = { 0 };
    void *zeros = calloc(1, n);
    size_t used;
    cr_assert(append_u8(&bytes, 1) && append_blob(&bytes, slice_str("k")) &&
              append_blob(&bytes, slice_of(zeros, n)));
    enum wire_status status = wire_decode(&w, buf_slice(&bytes), PLENTY, &req, &used, &err);
    free(zeros);
    buf_free(&bytes);
    return status;
}

Test(wire, a_value_may_have_8_mib_and_not_a_byte_more)
{
    cr_assert_eq(set_of(8 << 20), WIRE_OK);
    cr_assert_eq(set_of((8 << 20) + 1), WIRE_BAD);
}

Test(wire, a_list_may_have_131072_keys)
{
    struct wire w = greeted(DIALECT_C);
    struct request req;
    struct ddp_err err;
    struct buf bytes = { 0 };
    size_t used;
    cr_assert(append_u8(&bytes, 6) && append_u64(&bytes, 131072));
    for (int i = 0; i < 131072; i++)
        cr_assert(append_blob(&bytes, slice_of(&i, sizeof(i))));
    cr_assert_eq(wire_decode(&w, buf_slice(&bytes), PLENTY, &req, &used, &err), WIRE_OK);
    cr_assert_eq(req.count, 131072);
    buf_free(&bytes);
}

/* While a value arrives slowly, the scan reports how many bytes are missing and does not read earlier bytes again. */
Test(wire, what_is_scanned_is_not_scanned_again)
{
    struct wire w = greeted(DIALECT_C);
    struct request req;
    struct ddp_err err;
    struct buf bytes = { 0 };
    char value[1000] = { 0 };
    size_t used;
    cr_assert(append_u8(&bytes, 0x0b) && append_u64(&bytes, 3));
    for (int i = 0; i < 3; i++)
        cr_assert(append_blob(&bytes, slice_str("key")) &&
                  append_blob(&bytes, slice_of(value, sizeof(value))));
    size_t looks = 0;
    for (size_t n = 1; n <= bytes.len; n++) {
        looks += n >= w.need;
        enum wire_status status = wire_decode(&w, slice_of(bytes.data, n), PLENTY, &req, &used, &err);
        cr_assert_eq(status, n < bytes.len ? WIRE_MORE : WIRE_OK);
    }
    cr_assert_eq(looks, 1 + 1 + 3 * 4); /* opcode, count, length and bytes of 3 keys and 3 values */
    buf_free(&bytes);
}

/* --- ops ------------------------------------------------------------------------------------------------------ */

/* Tests of the table of requests, and of docs/protocol.md, which is made from it. */

Test(ops, every_code_leads_back_to_its_row)
{
    for (int i = 0; i < OPS; i++)
        for (int d = 0; d < DIALECTS; d++)
            if (op_table[i].code[d] >= 0)
                cr_assert_eq(op_find(d, (unsigned char)op_table[i].code[d]), &op_table[i]);
    cr_assert_null(op_find(DIALECT_C, 0x13));
    cr_assert_null(op_find(DIALECT_A, 12));
    cr_assert_null(op_find(DIALECT_B, 12));
}

Test(ops, our_own_requests_begin_at_0x80_and_are_not_in_the_old_dialects)
{
    for (int i = OP_IDENTIFY; i < OPS; i++) {
        cr_assert_geq(op_table[i].code[DIALECT_C], 0x80);
        cr_assert_lt(op_table[i].code[DIALECT_A], 0);
        cr_assert_lt(op_table[i].code[DIALECT_B], 0);
    }
}

Test(ops, the_protocol_page_is_what_the_table_says)
{
    struct buf page = { 0 }, table = { 0 };
    FILE *in = fopen("docs/protocol.md", "r");
    if (in == NULL)
        cr_skip_test("skipped, because it is not run from the top folder");
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), in)) > 0;)
        cr_assert(buf_append(&page, chunk, n));
    fclose(in);
    cr_assert(buf_append(&page, "", 1) && page_of_requests(&table) && buf_append(&table, "", 1));
    cr_assert_not_null(strstr((char *)page.data, (char *)table.data),
                       "docs/protocol.md: run `make protocol`");
    buf_free(&page);
    buf_free(&table);
}
