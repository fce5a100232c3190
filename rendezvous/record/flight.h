/* flight.h -- a rank's flight recorder: the layout of its latest calls in memory. Pure.
 *
 * Launcher and worker share the memory: one page of a memory file for each worker, passed by DDPRUN_PAGE. So
 * the record survives a rank that is stopped, loops or was killed. Under another launcher the memory belongs
 * to the worker alone. A worker writes with relaxed atomics, each of which is one instruction and never
 * waits. A concurrent reader may see one half-old entry, but never more than one. No number from here is used
 * as a size or an index before it is compared with its limit.
 *
 * The words for kinds, types and operations are in the page, too, because libddp has their table and the
 * launcher does not link it. */
#ifndef RENDEZVOUS_RECORD_FLIGHT_H
#define RENDEZVOUS_RECORD_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLIGHT_OPS = 1024, /* calls that are kept */
    FLIGHT_WORD = 16,  /* bytes of a word, with the NUL */
    FLIGHT_KINDS = 16,
    FLIGHT_NAMES = 8,            /* types, and reduce operations */
    FLIGHT_NAME = 64,            /* bytes of the name of a host or job; a longer one is cut */
    FLIGHT_PAGE_BYTES = 1 << 17, /* of one worker; page-aligned on every machine */
    FLIGHT_MAGIC = 0x31746c66,   /* "flt1" */
};

/* State of a call, in PyTorch's words where PyTorch has one. */
#define FLIGHT_STATES(X)      \
    X(NONE, "none")           \
    X(SCHEDULED, "scheduled") \
    X(STARTED, "started")     \
    X(COMPLETED, "completed") \
    X(FAILED, "failed")

enum flight_state {
#define X(name, word) FLIGHT_##name,
    FLIGHT_STATES(X)
#undef X
};

/* One call; times are of the monotonic clock, 0 = not yet. `call` is number << 16 | kind << 8 | state. */
struct flight_op {
    _Atomic uint64_t call, record, n, bytes;
    _Atomic uint64_t values;     /* type | operation << 8 | root << 32 */
    _Atomic uint64_t place;      /* bucket + 1, 0 = none | timeout << 32 */
    _Atomic uint64_t created_ns; /* the bucket was posted, or the call was made */
    _Atomic uint64_t started_ns, ended_ns;
    _Atomic uint64_t ticket; /* of an asynchronous backend, 0 = none */
    _Atomic uint64_t step;   /* as in the head, when it began */
};

struct flight {
    _Atomic uint32_t magic; /* FLIGHT_MAGIC once the rest of the head is written */
    int32_t rank, world_size, pid, attempt;
    int64_t wall_ns; /* added to a time it gives nanoseconds since 1970 */
    char job[FLIGHT_NAME], host[FLIGHT_NAME], backend[FLIGHT_WORD];
    char kinds[FLIGHT_KINDS][FLIGHT_WORD];
    char dtypes[FLIGHT_NAMES][FLIGHT_WORD], ops[FLIGHT_NAMES][FLIGHT_WORD];
    _Alignas(64) _Atomic uint64_t step;       /* the latest reported step + 1; 0 = none */
    _Atomic uint64_t call;                    /* of the latest operation */
    _Atomic uint64_t records;                 /* operations ever begun */
    _Atomic uint64_t kept_records, kept_call; /* at the time of the worker's last file */
    _Alignas(64) struct flight_op op[FLIGHT_OPS];
};

_Static_assert(sizeof(struct flight) <= FLIGHT_PAGE_BYTES, "a record fits its page");

static inline bool flight_is_used(const struct flight *f)
{
    return atomic_load_explicit(&f->magic, memory_order_acquire) == FLIGHT_MAGIC;
}

static inline uint64_t flight_call(uint64_t seq, unsigned kind, enum flight_state state)
{
    return seq << 16 | (uint64_t)(kind & 0xff) << 8 | (uint64_t)state;
}

static inline uint64_t flight_seq(uint64_t call)
{
    return call >> 16;
}

static inline unsigned flight_kind(uint64_t call)
{
    return call >> 8 & 0xff;
}

static inline enum flight_state flight_state(uint64_t call)
{
    return (enum flight_state)(call & 0xff);
}

/* Mark that the worker has written its file; check whether it has, since the last call. */
void flight_note_kept(struct flight *f);
bool flight_is_kept(const struct flight *f);

/* A call, as known when it begins. */
struct flight_begin {
    uint64_t seq, n, bytes, created_ns, now_ns;
    unsigned kind, dtype, op;
    uint32_t root, timeout_ms;
    int bucket; /* -1 = none */
    enum flight_state state;
};

/* Add an entry in place of the oldest one. */
struct flight_op *flight_add(struct flight *f, const struct flight_begin *begin);

/* Record progress of an entry: STARTED (from SCHEDULED), COMPLETED, FAILED. */
void flight_settle(struct flight *f, struct flight_op *op, enum flight_state state, uint64_t now_ns);

/* Copy a word of the page, which may hold any bytes from a worker. The copy ends with a NUL and is printable;
 * "?" for an index outside the table. */
const char *flight_word(char out[FLIGHT_WORD], const char (*words)[FLIGHT_WORD], size_t n, unsigned index);

/* Write the whole record as JSON (docs/libddp.md), in pieces; `why` is the reason for it. It needs no heap
 * and no state of the C library, so that a signal handler may call it. False if `put` has returned false. */
typedef bool (*flight_put)(void *user, const char *text, size_t len);
bool flight_json(const struct flight *f, const char *why, uint64_t now_ns, flight_put put, void *user);

/* Format the path of a rank's record: `pattern` with the rank for each %r, else the directory that gets
 * flight_RANK.json. False if it does not fit. */
bool flight_path(char *out, size_t size, const char *pattern, int rank);

/* flight_file.c: write the record to a new file, mode 0600. The rank writes it, or its launcher if the rank
 * cannot. An existing file is unlinked first, and no link is followed. False leaves an incomplete file, or
 * none. Safe in signal handlers. */
bool flight_file_write(const struct flight *flight, const char *path, const char *why);

/* The value of DDPRUN_PAGE, by which a worker finds its page:
 *
 *     4711:9:1:52713:3      descriptor 9 of process 4711, which is file 52713 of device 1; page 3 of it
 *
 * A memory file without a name leaves nothing behind when processes are killed; it is opened as
 * /proc/4711/fd/9. Device and inode prove that the descriptor is still the same file. */
struct flight_page {
    int pid, fd;
    uint64_t device, inode, index;
};

enum { FLIGHT_PAGE_TEXT = 128 };

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page);

/* Parse the value. False if `text` is malformed; *page is undefined then. */
bool flight_page_parse(const char *text, struct flight_page *page);

#endif
