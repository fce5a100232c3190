/* link_frames.c -- see link_frames.h. Lengths are little-endian on the wire, whatever machine this is.
 *
 * The launcher has its own few lines of the protocol beside the hub's: it sends two kinds of requests and
 * reads one kind of answer, and is fed like the hub's parser: more bytes needed, one answer, or nonsense. */
#include "node/link_frames.h"

#include <cjson/cJSON.h>

enum { LENGTH_BYTES = 8 };

static void put_u64(struct buf *out, uint64_t value)
{
    uint8_t bytes[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    buf_append(out, bytes, sizeof(bytes));
}

/* The greeting of PyTorch's clients, which every store expects before anything else; the first bytes of a
 * queue that is empty always fit. */
void link_queue_validate(struct link_queue *q)
{
    const uint32_t magic = WIRE_MAGIC;
    const uint8_t bytes[] = { (uint8_t)op_table[OP_VALIDATE].code[DIALECT_C], magic & 0xff,
                              (magic >> 8) & 0xff, (magic >> 16) & 0xff, magic >> 24 };
    buf_append(&q->bytes, bytes, sizeof(bytes));
}

/* Once it was full nothing more is taken: a gap in what the store hears would be worse than a loss. The
 * limit is compared by subtraction, which cannot run over. */
static bool has_room(struct link_queue *q, size_t bytes)
{
    q->full = q->full || bytes > LINK_QUEUE_MAX - q->bytes.len;
    q->no_memory = q->no_memory || (!q->full && buf_reserve(&q->bytes, bytes) == NULL);
    return !q->full && !q->no_memory;
}

/* Takes the tree over in any case. Room for all three parts is made before the first is written, so a frame
 * is never there by half. */
bool link_queue_add(struct link_queue *q, enum op_id op, cJSON *json)
{
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    const size_t len = text != NULL ? strlen(text) : 0;
    const uint8_t code = (uint8_t)op_table[op].code[DIALECT_C];
    cJSON_Delete(json);
    q->no_memory = q->no_memory || text == NULL;
    const bool fits = has_room(q, 1 + LENGTH_BYTES + len);
    if (fits) {
        buf_append(&q->bytes, &code, 1);
        put_u64(&q->bytes, len);
        buf_append(&q->bytes, text, len);
    }
    cJSON_free(text);
    return fits;
}

void link_queue_free(struct link_queue *q)
{
    buf_free(&q->bytes);
}

/* A length is compared with its limit before anything is done with it. What is left is subtracted and not
 * added up, which cannot run over. */
int link_answer(const struct buf *in, uint8_t *status, struct slice *text, size_t *used)
{
    const size_t at = status != NULL ? 1 : 0;
    uint64_t len = 0;
    if (in->len < at + LENGTH_BYTES)
        return 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        len |= (uint64_t)in->data[at + (size_t)i] << (8 * i);
    if (len > WIRE_MAX_JSON)
        return -1;
    if (in->len - at - LENGTH_BYTES < len)
        return 0;
    if (status != NULL)
        *status = in->data[0];
    *text = slice_of(in->data + at + LENGTH_BYTES, (size_t)len);
    *used = at + LENGTH_BYTES + (size_t)len;
    return 1;
}
