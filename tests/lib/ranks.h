/* ranks.h -- run a function as N worker processes around a store of the test's own.
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
 * Each rank is a forked process with RANK, WORLD_SIZE ... set as a launcher would. It reports through
 * memory that it shares with the test, because a Criterion assertion in a forked process would be lost. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "ddp/ddp.h"

#include <stdbool.h>
#include <sys/types.h>

enum { RANKS_MAX = 16 };

/* The result of a rank; `status` and `words` are free for the rank, e.g. for the expected error. */
struct rank {
    int rank, world;
    unsigned flags;
    const void *user; /* as passed in */
    pid_t pid;
    int port; /* of the store; 0 = not there yet */
    ddp_status status;
    char words[1024];
    char failure[1024]; /* first failed expectation, "" = none */
    uint64_t value;     /* free use: a hash of results */
    int exit_status;    /* of waitpid; filled in by ranks_run */
};

struct ranks {
    int n;
    struct rank *rank; /* n of them */
};

enum {
    RANKS_PLAIN_STORE = 0,  /* as under torchrun: nothing but c10d's own opcodes */
    RANKS_DDPRUN_STORE = 1, /* DDPRUN_STORE=1 */
    RANKS_SKIP_LAST = 2,    /* the last rank is never started */
};

typedef void (*rank_main)(struct rank *me);

/* Start `n` ranks, wait until all have ended (150 s, then they are killed). `user` may be NULL. */
struct ranks ranks_run(int n, rank_main main, unsigned flags, const void *user);
void ranks_free(struct ranks *ranks);

/* Every rank has exited with 0 and without a failed expectation. */
void ranks_expect_ok(const struct ranks *ranks);

/* All of it for ranks of which nothing else is asked. */
void ranks_all_well(int n, rank_main main, unsigned flags, const void *user);

/* Rank `rank` got `status`, and all of `parts` (ending with NULL) occur in its words. */
void ranks_expect_error(const struct ranks *ranks, int rank, ddp_status status, const char *const parts[]);

/* In a rank: initialise (NULL options allowed), or end this rank with a failure. */
ddp_ctx *rank_init(struct rank *me, const ddp_options *options);

/* Keep `status` and the words that go with it. */
void rank_keep(struct rank *me, ddp_status status);

/* End this rank with a failure unless `truth`. */
void rank_expect(struct rank *me, bool truth, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define rank_expect_ok(me, call)                                                     \
    do {                                                                             \
        ddp_status rank_status_ = (call);                                            \
        rank_expect(me, rank_status_ == DDP_OK, "%s:%d: %s: %s", __FILE__, __LINE__, \
                    ddp_status_name(rank_status_), ddp_last_error());                \
    } while (0)

/* Open descriptors of this process. */
int rank_open_files(void);

#endif
