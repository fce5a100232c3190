/* fake_nccl.c -- the NCCL of fake_gpu.h.
 *
 * In every collective each rank sends some bytes to every other rank, through a box for each pair of ranks. Then each
 * rank combines the received values, and begins with the value of rank 0. */
#include "fake_gpu.h"

#include "cuda/nccl_abi.h"
#include "ddp/group.h"
#include "core/half.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define X(member, symbol, needed, result, parameters) EXPORT result symbol parameters;
NCCL_FUNCTION_LIST(X)
#undef X

enum { RANKS = 8, BOX = 1 << 17 };

struct box {
    atomic_uint bytes; /* number of bytes in `data`; 0 = the box is empty */
    char data[BOX];
};

/* The memory that all ranks of a communicator share. */
struct board {
    atomic_int joined;
    struct box box[RANKS][RANKS]; /* box[from][to] */
};

struct ncclComm {
    struct board *board;
    int rank, ranks;
    atomic_uint error;
    atomic_bool aborted;
    bool connected;
    atomic_int under_way;
    int calls;
    struct op *group; /* operations of the group that is being collected */
};

/* --- ids, life ---------------------------------------------------------------------------------------------------- */

nccl_result ncclGetVersion(int *version)
{
    *version = fake_number("FAKE_NCCL_VERSION", 22809);
    return NCCL_SUCCESS;
}

nccl_result ncclGetUniqueId(nccl_id *id)
{
    int fd = memfd_create("fake nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0)
        return NCCL_SYSTEM_ERROR;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/proc/%d/fd/%d", getpid(), fd);
    return NCCL_SUCCESS;
}

static nccl_result init(struct ncclComm **out, int ranks, const nccl_id *id, int rank,
                        const nccl_config *config)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    int fd = open(id->internal, O_RDWR | O_CLOEXEC), own = -1;
    if (config->magic != 0xcafebeef || config->size != sizeof(*config) || config->blocking != 0 ||
        ranks > RANKS || fd < 0)
        return NCCL_INVALID_ARGUMENT;
    comm->board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (sscanf(id->internal, "/proc/%d/fd/%d", &fd, &own) == 2 && fd == getpid())
        comm->calls = -own; /* if `calls` is negative, -calls is the descriptor to close when all ranks have
                             * joined */
    comm->rank = rank;
    comm->ranks = ranks;
    atomic_fetch_add(&comm->board->joined, 1);
    *out = comm;
    return NCCL_IN_PROGRESS;
}

nccl_result ncclCommInitRankConfig(struct ncclComm **comm, int ranks, nccl_id id, int rank,
                                   nccl_config *config)
{
    return init(comm, ranks, &id, rank, config);
}

nccl_result ncclCommInitRankScalable(struct ncclComm **comm, int ranks, int rank, int id_count, nccl_id *ids,
                                     nccl_config *config)
{
    return id_count > 0 ? init(comm, ranks, ids, rank, config) : NCCL_INVALID_ARGUMENT;
}

static bool is_connected(struct ncclComm *comm)
{
    const char *how = getenv("FAKE_NCCL_INIT");
    if (how != NULL && strcmp(how, "die") == 0)
        raise(SIGKILL);
    if (comm->connected || (how != NULL && strcmp(how, "hang") == 0) ||
        atomic_load(&comm->board->joined) < comm->ranks)
        return comm->connected;
    if (comm->calls < 0)
        close(-comm->calls);
    comm->calls = 0;
    return comm->connected = true;
}

nccl_result ncclCommGetAsyncError(struct ncclComm *comm, nccl_result *error)
{
    *error = atomic_load(&comm->error);
    if (*error == NCCL_SUCCESS && !is_connected(comm))
        *error = NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(nccl_result result)
{
    (void)result;
    return "an error of the fake NCCL";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    return comm != NULL && atomic_load(&comm->error) != 0 ? "the cable was pulled" : "";
}

static void release(struct ncclComm *comm)
{
    while (atomic_load(&comm->under_way) > 0)
        usleep(100);
    munmap(comm->board, sizeof(struct board));
    free(comm);
}

nccl_result ncclCommFinalize(struct ncclComm *comm)
{
    (void)comm;
    return NCCL_SUCCESS;
}

nccl_result ncclCommDestroy(struct ncclComm *comm)
{
    release(comm);
    return NCCL_SUCCESS;
}

nccl_result ncclCommAbort(struct ncclComm *comm)
{
    atomic_store(&comm->aborted, true);
    release(comm);
    return NCCL_SUCCESS;
}

/* --- exchanging --------------------------------------------------------------------------------------------------- */

struct side {
    char *at;
    size_t bytes, done;
};

struct op {
    struct ncclComm *comm;
    int number;
    struct side to[RANKS], from[RANKS];
    char *room; /* one operand of each rank; NULL if nothing is combined */
    void *out;
    size_t count;
    nccl_type type;
    nccl_redop redop;
};

static bool push(struct box *box, struct side *side)
{
    size_t n = side->bytes - side->done;
    if (n == 0 || atomic_load_explicit(&box->bytes, memory_order_acquire) != 0)
        return false;
    n = n < BOX ? n : BOX;
    memcpy(box->data, side->at + side->done, n);
    side->done += n;
    atomic_store_explicit(&box->bytes, (unsigned)n, memory_order_release);
    return true;
}

static bool pull(struct box *box, struct side *side)
{
    size_t n = atomic_load_explicit(&box->bytes, memory_order_acquire);
    if (n == 0 || side->done == side->bytes)
        return false;
    memmove(side->at + side->done, box->data, n);
    side->done += n;
    atomic_store_explicit(&box->bytes, 0, memory_order_release);
    return true;
}

static bool exchange(struct op *op)
{
    struct ncclComm *c = op->comm;
    bool left = true;
    while (left && !atomic_load(&c->aborted)) {
        bool moved = false;
        left = false;
        for (int r = 0; r < c->ranks; r++) {
            moved |= push(&c->board->box[c->rank][r], &op->to[r]);
            moved |= pull(&c->board->box[r][c->rank], &op->from[r]);
            left |= op->to[r].done < op->to[r].bytes || op->from[r].done < op->from[r].bytes;
        }
        if (!moved)
            usleep(20);
    }
    return !left;
}

/* --- combining ---------------------------------------------------------------------------------------------------- */

static size_t size_of(nccl_type type)
{
    static const size_t sizes[] = {
#define X(dtype, ours, theirs, value)                         \
    [value] = (dtype) == DDP_U8                           ? 1 \
              : (dtype) == DDP_F16 || (dtype) == DDP_BF16 ? 2 \
              : (dtype) == DDP_I32 || (dtype) == DDP_F32  ? 4 \
                                                          : 8,
        NCCL_TYPE_LIST(X)
#undef X
    };
    return sizes[type];
}

/* Convert NCCL's name of a type to libddp's name. */
static ddp_dtype dtype_of(nccl_type type)
{
    static const ddp_dtype names[] = {
#define X(dtype, ours, theirs, value) [value] = (dtype),
        NCCL_TYPE_LIST(X)
#undef X
    };
    return names[type];
}

static double combine(nccl_redop op, double a, double b)
{
    switch (op) {
    case NCCL_PROD:
        return a * b;
    case NCCL_MAX:
        return a > b ? a : b;
    case NCCL_MIN:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

static void reduce(const struct op *op)
{
    const size_t part = op->count * size_of(op->type);
    const ddp_dtype type = dtype_of(op->type);
    for (size_t i = 0; i < op->count; i++) {
        double value = one_value_get(op->room, i, type);
        for (int r = 1; r < op->comm->ranks; r++)
            value = combine(op->redop, value, one_value_get(op->room + (size_t)r * part, i, type));
        one_value_store(op->out, i, type, op->redop == NCCL_AVG ? value / op->comm->ranks : value);
    }
}

/* --- a call on its stream ------------------------------------------------------------------------------- */

/* Return true if the variable `name`, "RANK:CALL[:CODE]", refers to this operation. *code gets CODE, or 0. */
static bool is_meant(const char *name, const struct op *op, unsigned *code)
{
    int rank, number;
    const char *value = getenv(name);
    *code = 0;
    if (value != NULL && sscanf(value, "%d:%d:%u", &rank, &number, code) >= 2 && rank == op->comm->rank &&
        number == op->number)
        return true;
    *code = 0;
    return false;
}

static void until_aborted(const struct op *op)
{
    while (!atomic_load(&op->comm->aborted))
        usleep(1000);
}

static void run(void *user)
{
    struct op *op = user;
    unsigned code;
    while (fake_number("FAKE_NCCL_SHUT", 0) && !atomic_load(&op->comm->aborted))
        usleep(1000);
    if (is_meant("FAKE_NCCL_ERROR", op, &code))
        atomic_store(&op->comm->error, code);
    if (code != 0 || is_meant("FAKE_NCCL_HANG", op, &code))
        until_aborted(op);
    else if (exchange(op) && op->room != NULL)
        reduce(op);
    atomic_fetch_sub(&op->comm->under_way, 1);
    free(op->room);
    free(op);
}

static struct op *op_make(struct ncclComm *comm)
{
    struct op *op = calloc(1, sizeof(*op));
    op->comm = comm;
    return op;
}

static nccl_result launch(struct op *op, struct CUstream_st *stream)
{
    int number = op->number = ++op->comm->calls;
    unsigned code;
    if (is_meant("FAKE_NCCL_REJECT", op, &code)) {
        atomic_store(&op->comm->error, NCCL_INVALID_ARGUMENT);
        free(op->room);
        free(op);
        return NCCL_INVALID_ARGUMENT;
    }
    atomic_fetch_add(&op->comm->under_way, 1);
    fake_launch(stream, run, op); /* fake_launch frees the operation */
    return number == 1 && fake_number("FAKE_NCCL_LAZY", 0) ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
}

static char *part(const void *at, int i, size_t bytes)
{
    return (char *)(uintptr_t)at + (size_t)i * bytes;
}

/* Allocate room for one operand of each rank. The operands will be combined into `out`. */
static void to_combine(struct op *op, void *out, size_t count, nccl_type type, nccl_redop redop)
{
    size_t bytes = count * size_of(type);
    op->room = malloc(bytes * (size_t)op->comm->ranks);
    op->out = out;
    op->count = count;
    op->type = type;
    op->redop = redop;
    for (int r = 0; r < op->comm->ranks; r++)
        op->from[r] = (struct side){ part(op->room, r, bytes), bytes, 0 };
}

nccl_result ncclAllReduce(const void *in, void *out, size_t count, nccl_type type, nccl_redop redop,
                          struct ncclComm *comm, struct CUstream_st *stream)
{
    struct op *op = op_make(comm);
    for (int r = 0; r < comm->ranks; r++)
        op->to[r] = (struct side){ part(in, 0, 0), count * size_of(type), 0 };
    to_combine(op, out, count, type, redop);
    return launch(op, stream);
}

nccl_result ncclReduce(const void *in, void *out, size_t count, nccl_type type, nccl_redop redop, int root,
                       struct ncclComm *comm, struct CUstream_st *stream)
{
    struct op *op = op_make(comm);
    op->to[root] = (struct side){ part(in, 0, 0), count * size_of(type), 0 };
    if (comm->rank == root)
        to_combine(op, out, count, type, redop);
    return launch(op, stream);
}

nccl_result ncclReduceScatter(const void *in, void *out, size_t count, nccl_type type, nccl_redop redop,
                              struct ncclComm *comm, struct CUstream_st *stream)
{
    struct op *op = op_make(comm);
    size_t bytes = count * size_of(type);
    for (int r = 0; r < comm->ranks; r++)
        op->to[r] = (struct side){ part(in, r, bytes), bytes, 0 };
    to_combine(op, out, count, type, redop);
    return launch(op, stream);
}

nccl_result ncclBroadcast(const void *in, void *out, size_t count, nccl_type type, int root,
                          struct ncclComm *comm, struct CUstream_st *stream)
{
    struct op *op = op_make(comm);
    size_t bytes = count * size_of(type);
    for (int r = 0; r < comm->ranks && comm->rank == root; r++)
        op->to[r] = (struct side){ part(in, 0, 0), bytes, 0 };
    op->from[root] = (struct side){ out, bytes, 0 };
    return launch(op, stream);
}

nccl_result ncclAllGather(const void *in, void *out, size_t count, nccl_type type, struct ncclComm *comm,
                          struct CUstream_st *stream)
{
    struct op *op = op_make(comm);
    size_t bytes = count * size_of(type);
    for (int r = 0; r < comm->ranks; r++) {
        op->to[r] = (struct side){ part(in, 0, 0), bytes, 0 };
        op->from[r] = (struct side){ part(out, r, bytes), bytes, 0 };
    }
    return launch(op, stream);
}

/* --- groups of moves ------------------------------------------------------------------------------------ */

static _Thread_local int depth;
static _Thread_local struct op *collected;
static _Thread_local struct CUstream_st *collected_stream;

static struct op *collect(struct ncclComm *comm, struct CUstream_st *stream)
{
    if (collected == NULL)
        collected = op_make(comm);
    collected_stream = stream;
    return collected;
}

nccl_result ncclSend(const void *in, size_t count, nccl_type type, int peer, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    if (depth == 0)
        return NCCL_INVALID_USAGE;
    collect(comm, stream)->to[peer] = (struct side){ part(in, 0, 0), count * size_of(type), 0 };
    return NCCL_SUCCESS;
}

nccl_result ncclRecv(void *out, size_t count, nccl_type type, int peer, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    if (depth == 0)
        return NCCL_INVALID_USAGE;
    collect(comm, stream)->from[peer] = (struct side){ out, count * size_of(type), 0 };
    return NCCL_SUCCESS;
}

nccl_result ncclGroupStart(void)
{
    depth++;
    return NCCL_SUCCESS;
}

nccl_result ncclGroupEnd(void)
{
    struct op *op = collected;
    if (--depth > 0 || op == NULL)
        return NCCL_SUCCESS;
    collected = NULL;
    return launch(op, collected_stream);
}
