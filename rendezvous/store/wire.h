/* wire.h -- a resumable parser that turns bytes into requests, with three results.
 *
 *     SET "/a" "hi", dialect C
 *     01 | 02 00 00 00 00 00 00 00 | 2f 61 | 02 00 00 00 00 00 00 00 | 68 69
 *     opcode   length of the key      key     length of the value      value
 *      ^at 0   ^at 1, need 9          ^at 1, need 11 ...
 *
 * A `struct wire` keeps how far the current request is scanned, so every byte is read once however the stream is cut,
 * and how many bytes the next scan needs. The caller keeps the bytes of the unfinished request and passes them from
 * its first byte on; the scan owns no memory.
 *
 * A length is compared with its limit before it is added to anything. Nothing is reserved for it: memory grows with
 * the received bytes. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include "ddp/error.h"
#include "store/ops.h"

enum wire_status { WIRE_OK, WIRE_MORE, WIRE_BAD };

struct wire {
    const struct op *op;      /* NULL while the opcode is missing */
    size_t at;                /* bytes of the request that are scanned */
    size_t need;              /* with fewer bytes than this the result is WIRE_MORE */
    size_t start[OP_FIELDS];  /* where each field's content begins ... */
    size_t length[OP_FIELDS]; /* ... and how long it is */
    uint32_t left;            /* blobs of a list that are still missing */
    uint32_t count;           /* items of the list */
    uint8_t dialect;          /* enum dialect, once `greeted` */
    uint8_t field;            /* index of the field being scanned */
    bool greeted;             /* the dialect is known */
    bool in_list;             /* the list's count is read */
    bool settled; /* a command other than WATCH_KEY has arrived: opcode 7 means DELETE_KEY from now on */
};

struct request {
    const struct op *op;
    struct slice
        blob[OP_FIELDS]; /* content of the n-th field: a blob's bytes, or a list's items for wire_next */
    int64_t number;      /* the field that is an integer, if any */
    uint32_t count;      /* items of the list, if any */
};

/* Initialise the scan of a new connection. `dialect_b`: old dialects count as torch 2.1. */
void wire_init(struct wire *w, bool dialect_b);

/* Decode the request at the front of `in`, which has all its received bytes, and perhaps more.
 *
 * WIRE_OK:   *req is filled with views into `in`, *used bytes belong to it, and the scan is at the next request.
 * WIRE_MORE: *req is invalid; call again with the same bytes and more.
 * WIRE_BAD:  err has the reason; the connection must be closed.
 *
 * A request longer than `max_bytes` (the rest of the quota) is bad. */
enum wire_status wire_decode(struct wire *w, struct slice in, uint64_t max_bytes, struct request *req,
                             size_t *used, struct ddp_err *err);

/* Forget the scanned part of a request; the same bytes will be passed again. */
void wire_rewind(struct wire *w);

/* Remove the next blob from the front of a decoded list; false at its end. */
bool wire_next(struct slice *list, struct slice *item);

#endif
