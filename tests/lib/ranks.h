/* ranks.h -- run a function as N worker processes, with a store that the test serves.
 *
 *     static void sum(struct rank *me)
 *     {
 *         ddp_ctx *ctx = rank_init(me, NULL);
 *         ...
 *         rank_expect(me, x == 3, "x is %d", x);
 *         rank_expect_ok(me, ddp_finalize(ctx));
 *     }
 *     Test(x, y) { ranks_all_well(4, sum, RANKS_PLAIN_STORE, NULL); }
 *
 * Each rank is a forked process with RANK, WORLD_SIZE ... set as a launcher would. A rank reports through memory that
 * it shares with the test, because a Criterion assertion in a forked process would be lost. */
#ifndef RANKS_H
#define RANKS_H

#include "ddp/ddp.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS_MAX = 16 };

/* The result of a rank. Each test may use `status` and `words` as it likes, for example for the expected error. */
struct rank {
    int rank, world;
    unsigned flags;
    const void *user; /* the argument of ranks_run */
    pid_t pid;
    int port; /* port of the store; 0 = the store has not started yet */
    ddp_status status;
    char words[1024];
    char failure[1024]; /* first failed expectation, or "" if none has failed */
    uint64_t value;     /* free for any use by the test, for example for a hash of results */
    int exit_status;    /* from waitpid; filled in by ranks_run */
};

struct ranks {
    int n;
    struct rank *rank; /* `n` ranks */
};

enum {
    RANKS_PLAIN_STORE = 0,  /* a store as under torchrun, which accepts only c10d's opcodes */
    RANKS_DDPRUN_STORE = 1, /* DDPRUN_STORE=1 */
    RANKS_SKIP_LAST = 2,    /* the last rank is never started */
};

typedef void (*rank_main)(struct rank *me);

/* Start `n` ranks, and wait until all ranks have ended. After 150 s kill the ranks. `user` may be NULL. */
struct ranks ranks_run(int n, rank_main main, unsigned flags, const void *user);
void ranks_free(struct ranks *ranks);

/* Expect that every rank has exited with 0 and without a failed expectation. */
void ranks_expect_ok(const struct ranks *ranks);

/* Run ranks, and expect success as ranks_expect_ok does. */
void ranks_all_well(int n, rank_main main, unsigned flags, const void *user);

/* Expect that rank `rank` got `status`, and that all `parts` (ending with NULL) occur in the rank's text. */
void ranks_expect_error(const struct ranks *ranks, int rank, ddp_status status, const char *const parts[]);

/* Initialize the library in a rank, or end this rank with a failure. `options` may be NULL. */
ddp_ctx *rank_init(struct rank *me, const ddp_options *options);

/* Keep `status` and its error text. */
void rank_keep(struct rank *me, ddp_status status);

/* End this rank with a failure if `truth` is false. */
void rank_expect(struct rank *me, bool truth, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define rank_expect_ok(me, call)                                                     \
    do {                                                                             \
        ddp_status rank_status_ = (call);                                            \
        rank_expect(me, rank_status_ == DDP_OK, "%s:%d: %s: %s", __FILE__, __LINE__, \
                    ddp_status_name(rank_status_), ddp_last_error());                \
    } while (0)

/* Return the number of open descriptors of this process. */
int rank_open_files(void);

/* --- pretend gpu ------------------------------------------------------------------------------------------ */

/* Ranks with the GPUs of tests/fake/fake_gpu.h. */

/* Let this process find the fake runtime and NCCL. Call this before ddp_init_from_env. */
void pretend_gpu(void);

/* Options for device LOCAL_RANK. nccl_options sets no backend, and with a device the default is "nccl". staged_options
 * has the backend "cpu". */
extern const ddp_options nccl_options, staged_options;

/* --- trials ----------------------------------------------------------------------------------------------- */

/* Collectives with known results, for real processes.
 *
 * Inputs are small integers, so that every sum and product is exact. Each rank compares every element with the
 * collective's definition. */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, KINDS };
enum memory {
    PRIVATE,
    SHARED,
    IN_SHARED,
    MIXED,
    MEMORIES
}; /* MIXED: private on rank 0, shared on the other ranks */

struct trial {
    enum kind kind;
    ddp_dtype dtype;
    ddp_op op;
    size_t n;
    int root;
    enum memory memory;
    bool in_place;
};

/* Four memory blocks of a rank: input and output, both private and shared. With a device the shared blocks are in the
 * device's memory. */
struct trial_room {
    struct rank *me;
    ddp_ctx *ctx;
    bool device;
    char *private_in, *private_out;
    void *shared_in, *shared_out;
    size_t bytes;
};

/* Initialize the rank and allocate its blocks. */
struct trial_room room_open(struct rank *me, size_t bytes);
/* Free the blocks and finalize the rank. */
void room_close(struct trial_room *room);

/* Use `options` for all later trials of this rank. */
void trials_use(const ddp_options *options);

void trial_run(const struct trial_room *room, const struct trial *trial);

/* Try every collective with every type and operation, few elements, and every kind of memory. Run only every
 * `one_in`-th of these trials, the same trials on every rank. The function opens and closes a room. */
void trials_of_all_types(struct rank *me, unsigned one_in);
/* Try large counts with every root, in place and not in place. The function opens and closes a room. */
void trials_of_large_counts(struct rank *me);

uint64_t trial_hash(uint64_t hash, const void *data, size_t len);

/* --- reducer model ---------------------------------------------------------------------------------------- */

/* A small model for the tests of the reducer, with gradients whose averages each rank can compute. The gradients are
 * small integers, so every sum is exact in every type.
 *
 *     static void step(struct rank *me)
 *     {
 *         ddp_ctx *ctx = toy_join(me);
 *         ddp_reducer_options options = toy_options();
 *         ddp_reducer *reducer = toy_open(me, ctx, &options);
 *         toy_backward(me, reducer, 0);
 *         ...
 *     }
 *     Test(x, y) { model_run_on("aab", step); }       three ranks on two hosts */

enum { MODEL_PARAMS = 6 };

/* Parameter 2 has doubles, in model_scale; all other parameters are in model_w. Parameter 3 has the shape
 * model_fc2_shape. */
extern const size_t model_counts[MODEL_PARAMS], model_fc2_shape[2];
extern float model_w[MODEL_PARAMS][500];
extern double model_scale[9];

/* Buffers of the model: values that are not trained, such as a running mean. Only some tests use them. */
extern float model_mean[33], model_seen[1];

void toy_params(ddp_param params[MODEL_PARAMS]);

/* Return options whose limits divide the model into four buckets. */
ddp_reducer_options toy_options(void);

/* Run `main` on one rank for each letter of `hosts`. Ranks with the same letter are on one host: "aab" is three ranks
 * on two hosts. */
void model_run_on(const char *hosts, rank_main main);
/* Join the other ranks. */
ddp_ctx *toy_join(struct rank *me);
ddp_reducer *toy_open(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options);

/* Return the gradient of element e of parameter p that `rank` computes in `step`. */
double toy_gradient(int rank, int step, size_t p, size_t e);

/* Read, write or clear the gradients in the reducer's memory. */
double toy_get(ddp_reducer *reducer, size_t p, size_t e);
void toy_set(ddp_reducer *reducer, size_t p, size_t e, double value);
void toy_clear(ddp_reducer *reducer);
void toy_accumulate(ddp_reducer *reducer, int rank, int step, size_t p);

/* Run the backward pass. The order of the parameters differs between ranks and steps. */
void toy_backward(struct rank *me, ddp_reducer *reducer, int step);

/* Expect the averages of all steps from `first` to `last`. toy_averaged returns the expected result for a sum over
 * all ranks. */
double toy_averaged(const ddp_reducer_options *o, size_t p, double sum, double divisor);
void model_expect_average(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int first,
                          int last);

#endif
