/* Decode any bytes in one piece, and again in pieces whose size depends on the first byte. Both ways must give the same
 * requests, every view must be inside the input, and a list must end where its field ends. */
#include "store/wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_view(struct slice in, struct slice view)
{
    const uint8_t *begin = in.data, *at = view.data;
    assert(at == NULL || (at >= begin && at + view.len <= begin + in.len));
}

static uint64_t digest(struct slice in, const struct request *req)
{
    uint64_t sum = (uint64_t)req->op->id * 31 + (uint64_t)req->number + req->count;
    for (int i = 0; i < OP_FIELDS; i++) {
        check_view(in, req->blob[i]);
        enum field_shape shape = field_table[req->op->field[i]].shape;
        struct slice item, list = req->blob[i];
        uint64_t items = 0;
        if (shape != SHAPE_LIST && shape != SHAPE_PAIRS)
            continue;
        for (; wire_next(&list, &item); items++)
            check_view(in, item);
        assert(items == (uint64_t)req->count * (shape == SHAPE_PAIRS ? 2 : 1));
    }
    return sum;
}

/* Decode the whole stream in steps of `step` bytes. Return a hash of all requests, of the last status, and of the
 * number of decoded bytes. */
static uint64_t decode_all(const uint8_t *data, size_t size, size_t step, bool dialect_b)
{
    struct wire w;
    struct request req;
    struct ddp_err err;
    size_t done = 0, here = 0, used;
    uint64_t sum = 0;
    enum wire_status status = WIRE_MORE;
    wire_init(&w, dialect_b);
    while (here < size && status != WIRE_BAD) {
        here = size - here < step ? size : here + step;
        struct slice in;
        while (in = slice_of(data + done, here - done),
               (status = wire_decode(&w, in, MAX_BYTES, &req, &used, &err)) == WIRE_OK) {
            assert(used > 0 && used <= in.len);
            sum = sum * 1000003 + digest(in, &req);
            done += used;
        }
    }
    assert(status != WIRE_BAD || err.msg[0] != '\0');
    return sum * 1000003 + done * 4 + status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t step = (data[0] & 0x7f) + 1u;
    bool dialect_b = data[0] >> 7;
    assert(decode_all(data + 1, size - 1, size, dialect_b) ==
           decode_all(data + 1, size - 1, step, dialect_b));
    return 0;
}
