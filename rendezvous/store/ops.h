/* ops.h -- the requests of the protocol, one row each. Only these rows describe the requests. The enum op_id,
 * op_table[], the decoder (wire.c), the names in logs and the table in docs/protocol.md are made from these rows. */
#ifndef RENDEZVOUS_OPS_H
#define RENDEZVOUS_OPS_H

#include "base/buf.h"

#include <stdint.h>

/* The three versions of PyTorch's protocol. A: torch up to 2.0. B: torch 2.1. C: torch 2.2 and newer, with the
 * requests that only ddprun has. */
enum dialect { DIALECT_A, DIALECT_B, DIALECT_C, DIALECTS };

#define WIRE_MAGIC 0x3C85F7CEu /* follows the opcode of VALIDATE, as in PyTorch's TCPStoreBackend.hpp */

/* Limits: the bytes of a blob, or the items of a list. PyTorch has no such limits. */
#define WIRE_MAX_KEY     8192u
#define WIRE_MAX_VALUE   (8u << 20)
#define WIRE_MAX_JSON    (1u << 20)
#define WIRE_MAX_KEYS    131072u
#define WIRE_MAX_RANKS   131072u
#define WIRE_MAX_MEMBERS (4u * WIRE_MAX_RANKS) /* 4 bytes for each rank */
#define WIRE_MAX_PROOF   512u

/* clang-format off */

/* The fields of requests. `limit` is the maximum size of a blob in bytes, or the maximum number of items of a list. The
 * last column is the text in docs/protocol.md, and the name in errors. */
#define WIRE_FIELDS(X)                                                                                       \
    /* name    shape     limit             text in docs/protocol.md */                                       \
    X(NIL,      NOTHING, 0,                "")                                                               \
    X(MAGIC,    U32,     0,                "u32 0x3C85F7CE")                                                 \
    X(NONCE,    U32,     0,                "u32 nonce")                                                      \
    X(DELTA,    I64,     0,                "i64 delta")                                                      \
    X(WORLD,    I64,     0,                "i64 world_size")                                                 \
    X(TIMEOUT,  I64,     0,                "i64 timeout_ms")                                                 \
    X(KEY,      BLOB,    WIRE_MAX_KEY,     "key")                                                            \
    X(QUEUE,    BLOB,    WIRE_MAX_KEY,     "queue")                                                          \
    X(NAME,     BLOB,    WIRE_MAX_KEY,     "name")                                                           \
    X(VALUE,    BLOB,    WIRE_MAX_VALUE,   "value")                                                          \
    X(EXPECTED, BLOB,    WIRE_MAX_VALUE,   "expected")                                                       \
    X(DESIRED,  BLOB,    WIRE_MAX_VALUE,   "desired")                                                        \
    X(JSON,     BLOB,    WIRE_MAX_JSON,    "JSON")                                                           \
    X(MEMBERS,  BLOB,    WIRE_MAX_MEMBERS, "members")                                                        \
    X(PROOF,    BLOB,    WIRE_MAX_PROOF,   "message")                                                        \
    X(KEYS,     LIST,    WIRE_MAX_KEYS,    "keys")                                                           \
    X(PAIRS,    PAIRS,   WIRE_MAX_KEYS,    "pairs")

/* To add a request, add a row, a handler (hub/requests.c) and a test. `make protocol` updates docs/protocol.md.
 *
 * The columns C, B and A are the opcodes in these dialects; NO = the dialect does not have the request. `waits`: the
 * reply may be sent much later; CANCEL_WAIT or the next request ends the wait. `wakes`: the request may end waits of
 * other connections. */
#define STORE_OPS(X)                                                                                         \
    /* name          C     B   A   fields                    waits  wakes  response, what it does */         \
    X(VALIDATE,      0x00, NO, NO, MAGIC, NIL, NIL,          false, false, "none",                           \
      "selects dialect C")                                                                                   \
    X(SET,           0x01, 0,  0,  KEY, VALUE, NIL,          false, true,  "none",                           \
      "replaces a value")                                                                                    \
    X(COMPARE_SET,   0x02, 1,  1,  KEY, EXPECTED, DESIRED,   false, true,  "current",                        \
      "sets `desired` if the key holds `expected`; a missing key counts as empty")                           \
    X(GET,           0x03, 2,  2,  KEY, NIL, NIL,            false, false, "value",                          \
      "returns a value, empty if missing")                                                                   \
    X(ADD,           0x04, 3,  3,  KEY, DELTA, NIL,          false, true,  "i64 sum",                        \
      "adds to a counter in decimal text; a missing counter is 0")                                           \
    X(CHECK,         0x05, 4,  4,  KEYS, NIL, NIL,           false, false, "u8: 0 yes, 1 no",                \
      "asks whether all keys exist; non-empty queues count as keys")                           \
    X(WAIT,          0x06, 5,  5,  KEYS, NIL, NIL,           true,  false, "u8 0",                           \
      "waits until all keys exist, as in CHECK")                                                                    \
    X(GETNUMKEYS,    0x07, 6,  6,  NIL, NIL, NIL,            false, false, "i64 count",                      \
      "counts keys, but not queues")                                                                         \
    X(WATCH_KEY,     NO,   NO, 7,  KEY, NIL, NIL,            false, false, "u8 3",                           \
      "has no effect")                                                                                       \
    X(DELETE_KEY,    0x08, 7,  8,  KEY, NIL, NIL,            false, false, "i64: 1 removed, 0 missing",      \
      "removes a key")                                                                                       \
    X(APPEND,        0x09, 8,  NO, KEY, VALUE, NIL,          false, true,  "none",                           \
      "appends to a value; a missing key counts as empty")                                                   \
    X(MULTI_GET,     0x0a, 9,  NO, KEYS, NIL, NIL,           false, false, "count × value",                  \
      "like GET, for each key")                                                                              \
    X(MULTI_SET,     0x0b, 10, NO, PAIRS, NIL, NIL,          false, true,  "none",                           \
      "sets all keys, or none")                                                                              \
    X(CANCEL_WAIT,   0x0c, 11, NO, NIL, NIL, NIL,            false, false, "u8 1",                           \
      "ends the connection's wait")                                                                          \
    X(PING,          0x0d, NO, NO, NONCE, NIL, NIL,          false, false, "u32 nonce",                      \
      "echoes a number")                                                                                     \
    X(QUEUE_PUSH,    0x0e, NO, NO, QUEUE, VALUE, NIL,        false, true,  "none",                           \
      "appends a value to a queue")                                                                          \
    X(QUEUE_POP,     0x0f, NO, NO, QUEUE, NIL, NIL,         false, false, "i64 old length, [value]",         \
      "removes the first value")                                                                             \
    X(QUEUE_LEN,     0x10, NO, NO, QUEUE, NIL, NIL,          false, false, "i64 length",                     \
      "counts the values")                                                                                   \
    X(LIST_KEYS,     0x11, NO, NO, NIL, NIL, NIL,            false, false, "i64 count, count × key",         \
      "lists all keys, unsorted")                                                                            \
    X(BARRIER,       0x12, NO, NO, KEY, WORLD, NIL,          true,  true,  "u8 0",                           \
      "adds 1 to a key's number; waits until this number is `world_size`")                                   \
    X(IDENTIFY,      0x80, NO, NO, JSON, NIL, NIL,           false, false, "u8 status, text",                \
      "identifies the client")                                                                               \
    X(BARRIER_NAMED, 0x81, NO, NO, NAME, TIMEOUT, MEMBERS,   true,  true,  "u8 outcome, JSON",               \
      "joins a named barrier")                                                                               \
    X(CONTROL,       0x82, NO, NO, JSON, NIL, NIL,           false, true,  "JSON",                           \
      "carries a JSON call")                                                                                 \
    X(AUTH,          0x83, NO, NO, PROOF, NIL, NIL,          false, false, "answer, but none to a proof",    \
      "proves that both sides have the secret (`rendezvous/auth/auth.h`)")

/* clang-format on */

enum field_shape { SHAPE_NOTHING, SHAPE_U32, SHAPE_I64, SHAPE_BLOB, SHAPE_LIST, SHAPE_PAIRS };

enum field_id {
#define X(name, shape, limit, text) FIELD_##name,
    WIRE_FIELDS(X)
#undef X
        FIELDS
};

enum op_id {
#define X(name, ...) OP_##name,
    STORE_OPS(X)
#undef X
        OPS
};

struct field {
    enum field_shape shape;
    uint32_t limit;   /* blob: maximum number of bytes; list: maximum number of items; integer: 0 */
    const char *text; /* for errors and docs/protocol.md */
};

enum { OP_FIELDS = 3 }; /* maximum number of fields of a request */

struct op {
    enum op_id id;
    const char *name;
    int16_t code[DIALECTS];   /* opcode in each dialect; -1 = not in this dialect */
    uint8_t field[OP_FIELDS]; /* enum field_id; FIELD_NIL after the last field */
    bool waits;               /* the reply may be sent much later */
};

extern const struct field field_table[FIELDS];
extern const struct op op_table[OPS];

/* Return the request that has this opcode in this dialect, or NULL. */
const struct op *op_find(enum dialect dialect, unsigned char code);

#endif
