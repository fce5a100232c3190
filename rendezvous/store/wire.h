/* wire.h -- a parser that turns bytes into requests. A request may arrive in pieces of any size.
 *
 *     SET "/a" "hi", dialect C
 *     01 | 02 00 00 00 00 00 00 00 | 2f 61 | 02 00 00 00 00 00 00 00 | 68 69
 *     opcode   length of the key      key     length of the value      value
 *      ^at 0   ^at 1, need 9          ^at 1, need 11 ...
 *
 * A `struct wire` stores how many bytes of the current request have been scanned, so that no field is scanned twice.
 * It also stores how many bytes the next scan needs. The caller keeps all bytes of the unfinished request and passes
 * these bytes with every call. The parser owns no memory.
 *
 * A length is compared with its limit before it is used in any calculation. The parser reserves no memory for an
 * announced length. Memory grows only with the received bytes. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include "ddp/error.h"
#include "store/ops.h"

enum wire_status { WIRE_OK, WIRE_MORE, WIRE_BAD };

struct wire {
    const struct op *op;      /* NULL until the opcode has been scanned */
    size_t at;                /* scanned bytes of the request */
    size_t need;              /* the result is WIRE_MORE until the request has this many bytes */
    size_t start[OP_FIELDS];  /* where the content of each field begins */
    size_t length[OP_FIELDS]; /* how long the content of each field is */
    uint32_t left;            /* blobs of the list that have not been scanned */
    uint32_t count;           /* items of the list; a pair is one item */
    uint8_t dialect;          /* enum dialect; an assumption until `greeted` is true */
    uint8_t field;            /* index of the field that is scanned next */
    bool greeted;             /* the first byte of the connection has been scanned */
    bool in_list;             /* the count of the list has been scanned */
    bool settled;             /* an opcode other than 7 has arrived, so opcode 7 now means DELETE_KEY */
};

struct request {
    const struct op *op;
    struct slice blob
        [OP_FIELDS]; /* content of each field: the bytes of a blob, or the items of a list for wire_next */
    int64_t number;  /* value of the integer field, if any */
    uint32_t count;  /* items of the list, if any; a pair is one item */
};

/* Prepare the parser for a new connection. A connection that does not begin with VALIDATE is assumed to use dialect B
 * if `dialect_b` is set, otherwise dialect A. */
void wire_init(struct wire *w, bool dialect_b);

/* Decode the request at the front of `in`. `in` contains all bytes of this request that have arrived, and may contain
 * further requests.
 *
 *     WIRE_OK:   *req has views into `in`, *used is the length of the request; the next call decodes the next request.
 *     WIRE_MORE: *req is invalid; call again with the same bytes and more.
 *     WIRE_BAD:  err has the reason; close the connection.
 *
 * The result is also WIRE_BAD if the request is longer than `max_bytes` (the rest of the quota). */
enum wire_status wire_decode(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                             size_t *used, struct ddp_err *err);

/* Restart the scan of the current request. The caller then passes the same bytes again. */
void wire_rewind(struct wire *w);

/* Remove the next blob from the front of a decoded list. Return false if the list is empty. */
bool wire_next(struct slice *list, struct slice *item);

#endif
