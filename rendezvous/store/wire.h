/* wire.h -- a parser that turns bytes into requests. A request may arrive in pieces of any size.
 *
 *     SET "/a" "hi", dialect C
 *     01 | 02 00 00 00 00 00 00 00 | 2f 61 | 02 00 00 00 00 00 00 00 | 68 69
 *     opcode   length of the key      key     length of the value      value
 *      ^at 0   ^at 1, need 9          ^at 1, need 11 ...
 *
 * The caller keeps all bytes of an incomplete request, and passes them again with more bytes. `struct wire` stores
 * how much of the request has been scanned, so that no field is scanned twice. The parser owns no memory.
 *
 * Each length is compared with its limit before any calculation with it. No memory is reserved for bytes that have
 * not arrived. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include "ddp/error.h"
#include "store/ops.h"

enum wire_status { WIRE_OK, WIRE_MORE, WIRE_BAD };

struct wire {
    const struct op *op;      /* NULL until the opcode has been scanned */
    size_t at;                /* number of scanned bytes of the request */
    size_t need;              /* bytes that the request must have before the next scan */
    size_t start[OP_FIELDS];  /* offset of each field's content */
    size_t length[OP_FIELDS]; /* length of each field's content */
    uint32_t left;            /* blobs of the list that have not been scanned */
    uint32_t count;           /* number of items of the list; a pair is one item */
    uint8_t dialect;          /* enum dialect; not known before `greeted` is true */
    uint8_t field;            /* index of the next field to scan */
    bool greeted; /* the first byte of the connection has been scanned, and the dialect is known */
    bool in_list; /* the count of the list has been scanned */
    bool settled; /* an opcode other than 7 was received; so opcode 7 is DELETE_KEY */
};

struct request {
    const struct op *op;
    /* The content of each field: the bytes of a blob, or the blobs of a list, to be read with wire_next. */
    struct slice blob[OP_FIELDS];
    int64_t number; /* value of the integer field, or 0 */
    uint32_t count; /* number of items of the list, or 0; a pair is one item */
};

/* Prepare the parser for a new connection. If the connection does not begin with VALIDATE, its dialect is B if
 * `dialect_b` is true, else A. */
void wire_init(struct wire *w, bool dialect_b);

/* Decode the first request of `in`, which must begin with all bytes of this request that have arrived. Further
 * requests may follow.
 *
 *     WIRE_OK:   *req has views into `in`; *used is the length of the request.
 *     WIRE_MORE: the request is incomplete; call again with the same bytes and more.
 *     WIRE_BAD:  the request is invalid, or longer than `max_bytes`, the rest of the quota. err has the reason; close
 *                the connection. */
enum wire_status wire_decode(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                             size_t *used, struct ddp_err *err);

/* Restart the scan of the current request. The caller then passes the same bytes again. */
void wire_rewind(struct wire *w);

/* Remove the first blob of a decoded list. Return false if the list is empty. */
bool wire_next(struct slice *list, struct slice *item);

#endif
