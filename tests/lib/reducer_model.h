/* reducer_model.h -- a small model for the tests of the reducer, with gradients whose averages each rank can work out for
 * itself: they are small integers, so every sum is exact in every type.
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
#ifndef TESTS_REDUCER_MODEL_H
#define TESTS_REDUCER_MODEL_H

#include "ranks.h"

enum { PARAMS = 6 };

/* Parameter 2 is of doubles, in model_scale, 3 has a shape; the others are in model_w. */
extern const size_t model_counts[PARAMS], model_fc2_shape[2];
extern float model_w[PARAMS][500];
extern double model_scale[9];

/* Buffers for those who want some. */
extern float model_mean[33], model_seen[1];

void toy_params(ddp_param params[PARAMS]);

/* Limits that make four buckets of it. */
ddp_reducer_options toy_options(void);

/* Run `main` as ranks on hosts, each a letter: "aab". In the rank: join the others there. */
void model_run_on(const char *hosts, rank_main main);
ddp_ctx *toy_join(struct rank *me);
ddp_reducer *toy_open(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options);

/* The gradient of element e of parameter p that `rank` finds in `step`. */
double toy_gradient(int rank, int step, size_t p, size_t e);

/* The arrays of the reducer. */
double toy_get(ddp_reducer *reducer, size_t p, size_t e);
void toy_set(ddp_reducer *reducer, size_t p, size_t e, double value);
void toy_clear(ddp_reducer *reducer);
void toy_accumulate(ddp_reducer *reducer, int rank, int step, size_t p);

/* The backward pass, in an order that differs from rank to rank and from step to step. */
void toy_backward(struct rank *me, ddp_reducer *reducer, int step);

/* Compare the results of the reducer for all steps first .. last with the sums over ranks and the options. */
double toy_averaged(const ddp_reducer_options *o, size_t p, double sum, double divisor);
void model_expect_average(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int first,
                          int last);

#endif
