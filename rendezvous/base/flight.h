/* flight.h -- a rank's flight recorder: the last calls it has made, as they lie in memory. Pure.
 *
 * The memory is the launcher's as well as the worker's (one page of a memory file for each worker, passed by DDPRUN_PAGE), so
 * that a rank which is stopped, loops or was killed has left its record all the same. Under another launcher it is the worker's
 * own. A worker writes with plain stores: relaxed atomics, each of which is one instruction and never waits. Who reads while it
 * writes may see an entry that is half old; the words below are written so that it is one entry at most, and no number from here
 * is ever used as a size or an index before it is compared with its limit.
 *
 * The words for kinds, types and operations are in the page, too: their table is libddp's, and the launcher does not link it. */
#ifndef RENDEZVOUS_BASE_FLIGHT_H
#define RENDEZVOUS_BASE_FLIGHT_H

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
    FLIGHT_PAGE_BYTES = 1 << 17, /* of one worker; begins at a page on every machine */
    FLIGHT_MAGIC = 0x31746c66,   /* "flt1" */
};

/* state, in PyTorch's words as far as it has one */
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
    _Atomic uint64_t place;      /* bucket + 1, 0 = none | time-out << 32 */
    _Atomic uint64_t created_ns; /* the bucket was posted, or the call was made */
    _Atomic uint64_t started_ns, ended_ns;
    _Atomic uint64_t ticket; /* of an asynchronous backend, 0 = none */
    _Atomic uint64_t step;   /* as in the head, when it began */
};

struct flight {
    _Atomic uint32_t magic; /* FLIGHT_MAGIC once the rest of the head is there */
    int32_t rank, world_size, pid, attempt;
    int64_t wall_ns; /* to be added to a time to have it since 1970 */
    char job[FLIGHT_NAME], host[FLIGHT_NAME], backend[FLIGHT_WORD];
    char kinds[FLIGHT_KINDS][FLIGHT_WORD];
    char dtypes[FLIGHT_NAMES][FLIGHT_WORD], ops[FLIGHT_NAMES][FLIGHT_WORD];
    _Alignas(64) _Atomic uint64_t step;       /* the step that was told last, + 1; 0 = none was */
    _Atomic uint64_t call;                    /* of the latest operation */
    _Atomic uint64_t records;                 /* operations ever begun */
    _Atomic uint64_t kept_records, kept_call; /* as they were when the worker has written its file */
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

/* The worker has written its file now; has it, since the last call? */
void flight_note_kept(struct flight *f);
bool flight_is_kept(const struct flight *f);

/* What a call is: all that is known when it begins. */
struct flight_begin {
    uint64_t seq, n, bytes, created_ns, now_ns;
    unsigned kind, dtype, op;
    uint32_t root, timeout_ms;
    int bucket; /* -1 = none */
    enum flight_state state;
};

/* The next entry, over the oldest one. */
struct flight_op *flight_add(struct flight *f, const struct flight_begin *begin);

/* It has got further: STARTED (from SCHEDULED), COMPLETED, FAILED. */
void flight_settle(struct flight *f, struct flight_op *op, enum flight_state state, uint64_t now_ns);

/* A word of the page, whatever a worker has written there: ended and printable, "?" for one that is not in the table. */
const char *flight_word(char out[FLIGHT_WORD], const char (*words)[FLIGHT_WORD], size_t n, unsigned index);

/* The whole record as JSON (worker/README.md), in pieces; `why` it was written. Needs no memory and no C library's state, so that
 * a signal handler may call it. False when `put` has returned false. */
typedef bool (*flight_put)(void *user, const char *text, size_t len);
bool flight_json(const struct flight *f, const char *why, uint64_t now_ns, flight_put put, void *user);

/* Where rank `rank` leaves its record: `pattern` with the rank for each %r, or else the directory in which flight_RANK.json is.
 * False when it does not fit. */
bool flight_path(char *out, size_t size, const char *pattern, int rank);

/* flight_file.c: into a new file under that name, mode 0600, by the rank itself or, when it cannot, by its launcher; what had the name
 * is unlinked before, and no link followed. False leaves a file that is not whole, or none. In signal handlers, too. */
bool flight_file_write(const struct flight *flight, const char *path, const char *why);

/* How a worker finds its page, the value of DDPRUN_PAGE:
 *
 *     4711:9:1:52713:3      descriptor 9 of process 4711, which is file 52713 of device 1; page 3 of it
 *
 * A memory file without a name leaves nothing behind when processes are killed; it is opened as /proc/4711/fd/9. Device and inode
 * say whether that is still the file that was meant. */
struct flight_page {
    int pid, fd;
    uint64_t device, inode, index;
};

enum { FLIGHT_PAGE_TEXT = 128 };

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page);

/* False when `text` is none; *page is undefined then. */
bool flight_page_parse(const char *text, struct flight_page *page);

#endif
