/* wire.c -- see wire.h. The functions scan_* read one unit after the other: the opcode, an integer, the count of a
 * list, or a blob with its length. If a unit is incomplete, the function sets `need` and returns, and the next call
 * begins with the same unit. For the most frequent requests, wire_decode has a separate loop, which takes half the time
 * of the functions scan_*. */
#include "store/wire.h"

#include "store/encode.h"

#include <inttypes.h>

void wire_init(struct wire *w, bool dialect_b)
{
    *w = (struct wire){ .need = 1, .dialect = dialect_b ? DIALECT_B : DIALECT_A };
}

/* Return the address of the byte at offset `at`. struct wire has offsets instead of pointers, because the caller's
 * buffer may have another address at the next call. */
static const uint8_t *byte_at(struct slice in, size_t at)
{
    return (const uint8_t *)in.data + at;
}

/* Interrupt the scan until the request has `need` bytes: store `need`, and return WIRE_MORE. `need` must exceed the
 * number of bytes that have arrived, because WIRE_MORE makes the caller wait for more bytes. */
static enum wire_status wait_for(struct wire *w, size_t need)
{
    w->need = need;
    return WIRE_MORE;
}

/* Fail with a message such as "GET: the key or name has 9000 bytes: expected at most 8192". */
static enum wire_status fail_limit(struct ddp_err *err, const struct wire *w, const char *what, uint64_t got,
                                   const char *unit, uint64_t limit)
{
    ddp_fail(err, DDP_ERR_LIMIT, "%s: the %s has %" PRIu64 " %s: expected at most %" PRIu64, w->op->name,
             what, got, unit, limit);
    return WIRE_BAD;
}

/* Fail because the request needs `got` bytes, but the quota of the store has only `left` bytes left. */
static enum wire_status fail_full(struct ddp_err *err, const struct wire *w, uint64_t got, uint64_t left)
{
    ddp_fail(err, DDP_ERR_LIMIT,
             "%s: the store is full: the request has %" PRIu64 " bytes or more, and %" PRIu64
             " bytes are left; remove keys, or use ddp-rendezvous with a larger --max-bytes",
             w->op->name, got, left);
    return WIRE_BAD;
}

/* Detect dialect C, in which a connection begins with 0 (VALIDATE) and WIRE_MAGIC. In the older dialects, 0 is SET, and
 * the next bytes are the length of a key, which must be far below WIRE_MAGIC. */
static enum wire_status greet(struct wire *w, struct slice in)
{
    if (*byte_at(in, 0) == 0) {
        if (in.len < 5)
            return wait_for(w, 5);
        if (get_u32(byte_at(in, 1)) == WIRE_MAGIC)
            w->dialect = DIALECT_C;
    }
    w->greeted = true;
    return WIRE_OK;
}

/* Detect dialect B. Opcodes above 8 exist in B, but not in A. Opcode 7 is WATCH_KEY in A and DELETE_KEY in B. PyTorch
 * uses a separate connection for WATCH_KEY, so opcode 7 after another opcode means DELETE_KEY. */
static void detect_dialect_b(struct wire *w, uint8_t code)
{
    if (w->dialect == DIALECT_A && (code > 8 || (code == 7 && w->past_watch)))
        w->dialect = DIALECT_B;
    if (code != 7)
        w->past_watch = true;
}

/* Scan the opcode. On a new connection, first detect the dialect. If the first byte of a connection is not an opcode,
 * the peer is usually a port scanner, an HTTP client or a TLS client. */
static enum wire_status scan_opcode(struct wire *w, struct slice in, struct ddp_err *err)
{
    bool first = !w->greeted;
    if (first && greet(w, in) == WIRE_MORE)
        return WIRE_MORE;
    uint8_t code = *byte_at(in, 0);
    detect_dialect_b(w, code);
    w->op = op_find(w->dialect, code);
    if (w->op == NULL || (w->op->id == OP_VALIDATE && !first)) {
        ddp_fail(err, DDP_ERR_CORRUPT,
                 w->op ? "VALIDATE: must be the first request, but was sent again"
                       : "unknown request 0x%02x%s",
                 code, first ? " in the first byte: the client does not use the store's protocol" : "");
        return WIRE_BAD;
    }
    w->at = 1;
    return WIRE_OK;
}

/* Scan a blob: its length, then its content. Compare the length with its limit before using it in a calculation. If
 * both parts are complete, set *length to the length of the content, and move `at` to the end of the blob. */
static enum wire_status scan_blob(struct wire *w, struct slice in, uint32_t limit, uint64_t max_bytes,
                                  size_t *length, struct ddp_err *err)
{
    if (in.len - w->at < 8)
        return wait_for(w, w->at + 8);
    uint64_t n = get_u64(byte_at(in, w->at));
    if (n > limit)
        return fail_limit(err, w, limit == WIRE_MAX_KEY ? "key or name" : "value", n, "bytes", limit);
    if (w->at + 8 + n > max_bytes)
        return fail_full(err, w, w->at + 8 + n, max_bytes);
    if (in.len - w->at - 8 < n)
        return wait_for(w, w->at + 8 + (size_t)n);
    w->at += 8 + (size_t)n;
    *length = (size_t)n;
    return WIRE_OK;
}

/* Scan the count of a list, and compare it with its limit before using it in a calculation. Each blob of the list has
 * at least the 8 bytes of its length. If these bytes alone exceed the quota, reject the list at once. */
static enum wire_status scan_count(struct wire *w, struct slice in, const struct field *f, uint64_t max_bytes,
                                   struct ddp_err *err)
{
    if (in.len - w->at < 8)
        return wait_for(w, w->at + 8);
    uint64_t n = get_u64(byte_at(in, w->at));
    if (n > f->limit)
        return fail_limit(err, w, "list", n, "items", f->limit);
    uint32_t blobs = (uint32_t)n * (f->shape == SHAPE_PAIRS ? 2 : 1);
    if (w->at + 8 + blobs * 8ull > max_bytes)
        return fail_full(err, w, w->at + 8 + blobs * 8ull, max_bytes);
    w->at += 8;
    w->count = (uint32_t)n;
    w->left = blobs;
    w->in_list = true;
    w->start[w->field] = w->at;
    return WIRE_OK;
}

/* Scan the blobs of a list. `left` also counts a blob that is incomplete, so that the next call continues with this
 * blob. */
static enum wire_status scan_list(struct wire *w, struct slice in, const struct field *f, uint64_t max_bytes,
                                  struct ddp_err *err)
{
    enum wire_status status = w->in_list ? WIRE_OK : scan_count(w, in, f, max_bytes, err);
    for (; status == WIRE_OK && w->left > 0; w->left -= status == WIRE_OK) {
        bool is_value = f->shape == SHAPE_PAIRS && w->left % 2 == 1;
        size_t length;
        status = scan_blob(w, in, is_value ? WIRE_MAX_VALUE : WIRE_MAX_KEY, max_bytes, &length, err);
    }
    w->length[w->field] = w->at - w->start[w->field];
    return status;
}

static enum wire_status scan_integer(struct wire *w, struct slice in, size_t bytes)
{
    if (in.len - w->at < bytes)
        return wait_for(w, w->at + bytes);
    w->start[w->field] = w->at;
    w->length[w->field] = bytes;
    w->at += bytes;
    return WIRE_OK;
}

static enum wire_status scan_field(struct wire *w, struct slice in, const struct field *f, uint64_t max_bytes,
                                   struct ddp_err *err)
{
    switch (f->shape) {
    case SHAPE_U32:
        return scan_integer(w, in, 4);
    case SHAPE_I64:
        return scan_integer(w, in, 8);
    case SHAPE_BLOB:
        w->start[w->field] = w->at + 8;
        return scan_blob(w, in, f->limit, max_bytes, &w->length[w->field], err);
    case SHAPE_LIST:
    case SHAPE_PAIRS:
        return scan_list(w, in, f, max_bytes, err);
    case SHAPE_NOTHING:
        break;
    }
    return WIRE_OK;
}

/* Fill *req with pointers to the scanned fields. A list stays in wire format, so that 131,072 keys need no array. */
static void fill_request(const struct wire *w, struct slice in, struct request *req)
{
    *req = (struct request){ .op = w->op, .count = w->count };
    for (int i = 0; i < OP_FIELDS; i++) {
        enum field_shape shape = field_table[w->op->field[i]].shape;
        if (shape == SHAPE_U32)
            req->number = get_u32(byte_at(in, w->start[i]));
        else if (shape == SHAPE_I64)
            req->number = (int64_t)get_u64(byte_at(in, w->start[i]));
        else if (shape != SHAPE_NOTHING)
            req->blob[i] = slice_of(byte_at(in, w->start[i]), w->length[i]);
    }
}

/* Restart the scan. Keep the dialect, which belongs to the connection. */
void wire_rewind(struct wire *w)
{
    w->op = NULL;
    w->at = 0;
    w->need = 1;
    w->count = 0;
    w->field = 0;
    w->in_list = false;
}

/* --- wire_decode and wire_next ---------------------------------------------------------------------------- */

/* Scan a request: an opcode and up to three fields. */
static enum wire_status scan_request(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                                     size_t *used, struct ddp_err *err)
{
    enum wire_status status = w->op ? WIRE_OK : scan_opcode(w, in, err);
    for (; status == WIRE_OK && w->field < OP_FIELDS; w->field += status == WIRE_OK)
        status = scan_field(w, in, &field_table[w->op->field[w->field]], max_bytes, err);
    if (status != WIRE_OK)
        return status;
    fill_request(w, in, req);
    *used = w->at;
    wire_rewind(w);
    return WIRE_OK;
}

/* Decode a request. Most requests are complete, use dialect C and have no list. A loop here decodes such a request in
 * half the time of scan_request. For all other requests, scan_request decodes the request or finds the reason for its
 * rejection. */
enum wire_status wire_decode(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                             size_t *used, struct ddp_err *err)
{
    if (in.len < w->need)
        return WIRE_MORE;
    const size_t len = in.len < max_bytes ? in.len : (size_t)max_bytes;
    const bool is_new = len > 0 && w->op == NULL && w->greeted && w->dialect == DIALECT_C;
    const struct op *op = is_new ? op_find(DIALECT_C, *byte_at(in, 0)) : NULL;
    if (op == NULL || op->id == OP_VALIDATE)
        return scan_request(w, in, max_bytes, req, used, err);
    const uint8_t *at = byte_at(in, 1);
    size_t left = len - 1;
    *req = (struct request){ .op = op };
    for (int i = 0; i < OP_FIELDS && op->field[i] != FIELD_NIL; i++) {
        const struct field *f = &field_table[op->field[i]];
        const size_t fixed = f->shape == SHAPE_U32 ? 4 : 8;
        const uint64_t blob_len = f->shape == SHAPE_BLOB && left >= fixed ? get_u64(at) : 0;
        if (f->shape == SHAPE_LIST || f->shape == SHAPE_PAIRS || left < fixed || blob_len > left - fixed ||
            blob_len > f->limit)
            return scan_request(w, in, max_bytes, req, used, err);
        if (f->shape == SHAPE_BLOB)
            req->blob[i] = slice_of(at + fixed, (size_t)blob_len);
        else
            req->number = f->shape == SHAPE_U32 ? get_u32(at) : (int64_t)get_u64(at);
        at += fixed + (size_t)blob_len;
        left -= fixed + (size_t)blob_len;
    }
    *used = len - left;
    return WIRE_OK;
}

/* Remove the first blob of `list`, and set `item` to it. scan_request has already checked the lengths of all blobs. */
bool wire_next(struct slice *list, struct slice *item)
{
    if (list->len == 0)
        return false;
    size_t n = (size_t)get_u64(list->data);
    *item = slice_of(byte_at(*list, 8), n);
    *list = slice_of(byte_at(*list, 8 + n), list->len - 8 - n);
    return true;
}
