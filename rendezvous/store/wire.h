/* wire.h -- a parser that turns bytes into requests; the bytes of a request may arrive in pieces of any size. The
 * parser owns no memory, and reserves no memory for bytes that have not arrived. So a client cannot fill the memory by
 * announcing a long request. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include "ddp/error.h"
#include "store/ops.h"

enum wire_status { WIRE_OK, WIRE_MORE, WIRE_BAD };

/* How much of the present request has been scanned. The caller keeps all bytes of an incomplete request, and passes all
 * of them again when more bytes arrive. With this struct, no field is scanned twice.
 *
 *     SET "/a" "hi", dialect C
 *     01 | 02 00 00 00 00 00 00 00 | 2f 61 | 02 00 00 00 00 00 00 00 | 68 69
 *     opcode   length of the key      key     length of the value      value
 *      ^at 0   ^at 1, need 9          ^at 1, need 11 ...
 *
 * The struct owns nothing: `op` is a row of the constant table op_table. */
struct wire {
    const struct op *op;      /* NULL until the opcode has been scanned */
    size_t at;                /* number of scanned bytes of the request */
    size_t need;              /* the next scan needs this many bytes of the request, including the opcode */
    size_t start[OP_FIELDS];  /* offset of each field's content */
    size_t length[OP_FIELDS]; /* length of each field's content */
    uint32_t left;            /* number of blobs of the list that have not been scanned */
    uint32_t count;           /* number of items of the list; a pair is one item */
    uint8_t dialect;          /* enum dialect; valid if `greeted`; detect_dialect_b may set DIALECT_B later */
    uint8_t field;            /* index of the next field to scan */
    bool greeted;             /* the first bytes were scanned; they show whether the dialect is C */
    bool in_list;             /* the count of the list has been scanned */
    bool past_watch;          /* an opcode other than 7 was received; see detect_dialect_b in wire.c */
};

struct request {
    const struct op *op;
    /* The content of each field: the bytes of a blob, or the blobs of a list for wire_next. Borrowed from the decoded
     * bytes. The slice of an integer field is empty. */
    struct slice blob[OP_FIELDS];
    int64_t number; /* value of the integer field; 0 = the request has no such field */
    uint32_t count; /* number of items of the list, where a pair is one item; 0 = the request has no list */
};

/* Prepare the parser for a new connection. A connection that begins with VALIDATE has dialect C. For any other
 * connection, `dialect_b` decides: true means dialect B; false means dialect A, until a request shows that the dialect
 * is B. */
void wire_init(struct wire *w, bool dialect_b);

/* Decode the first request of `in`. `in` must contain all bytes of this request that have arrived, and may contain
 * further requests.
 *
 *     WIRE_OK:   *req points into `in`; *used is the length of the request in bytes.
 *     WIRE_MORE: the request is incomplete; call again with the same bytes and further bytes.
 *     WIRE_BAD:  the request is invalid, or longer than `max_bytes`, the bytes that the quota has left. `err` has the
 *                reason. Close the connection, because the start of the next request is unknown. */
enum wire_status wire_decode(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                             size_t *used, struct ddp_err *err);

/* Restart the scan of the current request. The caller then passes the same bytes again. */
void wire_rewind(struct wire *w);

/* Remove the first blob of a decoded list. Return false if the list is empty. */
bool wire_next(struct slice *list, struct slice *item);

#endif
