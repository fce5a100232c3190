/* flight.h -- a rank's flight recorder: the layout of its latest calls in memory, and functions that are pure, except
 * flight_file_write. Launcher and worker share the memory, so that the record remains if a rank hangs or is killed. A
 * worker writes with relaxed atomics, because such a write is one instruction and never waits. */
#ifndef RENDEZVOUS_RECORD_FLIGHT_H
#define RENDEZVOUS_RECORD_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLIGHT_OPS = 1024, /* number of latest calls that are kept */
    FLIGHT_WORD = 16,  /* bytes of the word for a kind, type or operation, with the NUL */
    FLIGHT_KINDS = 16,
    FLIGHT_NAMES = 8, /* maximum number of data types; also the maximum number of reduce operations */
    FLIGHT_NAME = 64, /* bytes of the name of a host or job, with the NUL; a longer name is cut */
    FLIGHT_PAGE_BYTES =
        1 << 17, /* memory of one worker in bytes; a multiple of the page size of every machine */
    FLIGHT_MAGIC = 0x31746c66, /* "flt1" */
};

/* A record that PyTorch writes has the name FLIGHT_TORCH_STEM, followed by the rank. A FIFO for PyTorch has the name
 * FLIGHT_PIPE_STEM, followed by the rank and ".pipe". */
#define FLIGHT_TORCH_STEM "flight_torch_"
#define FLIGHT_PIPE_STEM  "flight_pipe_"

/* The states of a call, and their words in JSON. If PyTorch has the same state, both use the same word. */
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

/* One call. Times are in ns of the monotonic clock. `started_ns` is 0 until the call has started, and `ended_ns` is 0
 * until the call has completed or failed. `call` is number << 16 | kind << 8 | state. */
struct flight_op {
    _Atomic uint64_t call, record, n, bytes;
    _Atomic uint64_t values;     /* type | operation << 8 | root << 32 */
    _Atomic uint64_t place;      /* (bucket + 1, or 0 without a bucket) | timeout in ms << 32 */
    _Atomic uint64_t created_ns; /* when the bucket was queued; without a bucket, when the call began */
    _Atomic uint64_t started_ns, ended_ns;
    _Atomic uint64_t ticket; /* ticket of an asynchronous backend; 0 if the call has no ticket */
    _Atomic uint64_t step;   /* `step` of struct flight when the call began */
};

/* The page of one worker in a memory file (struct flight_page), which ddprun shares with its workers. If the worker
 * cannot map a page of ddprun, for example because torchrun has started the worker, its page is private memory.
 *
 * A concurrent reader may see an entry with both old and new values. A number from the page is compared with its limit
 * before it is used as a size or an index.
 *
 * The page also has the words for kinds, types and operations. The table of these words is in libddp, which is not
 * linked to the launcher. */
struct flight {
    _Atomic uint32_t magic; /* set to FLIGHT_MAGIC after the rest of the head was written */
    int32_t rank, world_size, pid, attempt;
    int64_t wall_ns; /* monotonic time + wall_ns = nanoseconds since 1970 */
    char job[FLIGHT_NAME], host[FLIGHT_NAME], backend[FLIGHT_WORD];
    char kinds[FLIGHT_KINDS][FLIGHT_WORD];
    char dtypes[FLIGHT_NAMES][FLIGHT_WORD], ops[FLIGHT_NAMES][FLIGHT_WORD];
    _Alignas(64) _Atomic uint64_t step;       /* the latest reported step + 1; 0 if no step was reported */
    _Atomic uint64_t call;                    /* copy of `call` from the latest flight_op */
    _Atomic uint64_t records;                 /* number of all operations that have begun */
    _Atomic uint64_t kept_records, kept_call; /* `records` and `call` when the worker last wrote its file */
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

/* Record that the worker has written its file. Afterwards, flight_is_kept returns true until the worker records
 * another call. */
void flight_note_kept(struct flight *f);
bool flight_is_kept(const struct flight *f);

/* The facts about a call that are known when it begins. */
struct flight_begin {
    uint64_t seq, n, bytes, created_ns, now_ns;
    unsigned kind, dtype, op;
    uint32_t root, timeout_ms;
    int bucket; /* number of the bucket; -1 if the call has no bucket */
    enum flight_state state;
};

/* Add an entry, and overwrite the oldest entry if the page is full. The page owns the entry. */
struct flight_op *flight_add(struct flight *f, const struct flight_begin *begin);

/* Set the state of a call to STARTED, COMPLETED or FAILED. */
void flight_finish(struct flight *f, struct flight_op *op, enum flight_state state, uint64_t now_ns);

/* Copy entry `index` of the table `words` in the page. A worker may have written any bytes there, but the copy
 * is printable and ends with a NUL. For an index outside the table, the copy is "?". */
const char *flight_word(char out[FLIGHT_WORD], const char (*words)[FLIGHT_WORD], size_t n, unsigned index);

/* Write the whole record as JSON (docs/libddp.md). Pass the text to `put` in pieces. Return false if `put` has returned
 * false. `why` is the reason for writing the record. A signal handler may call this function, because it needs no heap
 * and no state of the C library. */
typedef bool (*flight_put)(void *user, const char *text, size_t len);
bool flight_json(const struct flight *f, const char *why, uint64_t now_ns, flight_put put, void *user);

/* Format the path of a rank's record. `pattern` has %r for the rank; without %r, `pattern` is the directory for
 * flight_RANK.json. Return false if the path does not fit. */
bool flight_path(char *out, size_t size, const char *pattern, int rank);

/* Write the record to a new file `temporary` with mode 0600, and then rename this file to `path`, so that a reader
 * never finds half a record (flight_file.c). `why` is the reason for writing, and becomes a part of the record. An old
 * file `temporary` is unlinked first, and no link is followed. Return false if the record was not written; `path` is
 * then unchanged. The rank calls this function. If the rank has not written its latest record, its launcher calls this
 * function instead. Signal handlers may call this function. */
bool flight_file_write(const struct flight *flight, const char *path, const char *temporary, const char *why);

/* The value of DDPRUN_FLIGHT_SHM, with which a worker finds its page:
 *
 *     4711:9:1:52713:3      page 3 of the file that process 4711 has open as descriptor 9: inode 52713 of device 1
 *
 * The file has no name, so it disappears with the processes. Device and inode prove that the descriptor is still the
 * same file. */
struct flight_page {
    int pid, fd;
    uint64_t device, inode, index;
};

enum { FLIGHT_PAGE_TEXT = 128 };

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page);

/* Parse `text`, the value of DDPRUN_FLIGHT_SHM. Return false, with an undefined *page, if `text` is malformed. */
bool flight_page_parse(const char *text, struct flight_page *page);

#endif
