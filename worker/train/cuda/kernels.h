/* kernels.h -- the GPU's kernels as the host sees them: names, threads of a block, arguments. The kernels are in the
 * .cu files of this folder. Each kernel takes one struct by value, so host and device cannot disagree about the order
 * of arguments.
 *
 * A module is compiled for one type of values (float, bf16 or fp16): activations and the weights that kernels read.
 * Statistics, losses, gradients of parameters and the optimizer's state are always float. Sums have a fixed order, so
 * a repeated kernel gives the same bits. Pure. */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stddef.h>

/* name, threads of a block, arguments: struct NAME_args */
#define KERNEL_LIST(X)                                           \
    X(add, 256, add)                                             \
    X(narrow, 256, narrow)                                       \
    X(gelu_forward, 256, gelu)                                   \
    X(gelu_backward, 256, gelu)                                  \
    X(relu_forward, 256, activation)                             \
    X(relu_backward, 256, activation)                            \
    X(sigmoid_forward, 256, activation)                          \
    X(sigmoid_backward, 256, activation)                         \
    X(log_softmax_forward, 256, activation)                      \
    X(log_softmax_backward, 256, activation)                     \
    X(layer_norm_forward, 256, layer_norm)                       \
    X(layer_norm_backward, 256, layer_norm)                      \
    X(layer_norm_sums, 256, layer_norm)                          \
    X(column_sums, 256, column_sums)                             \
    X(join_sums, 256, join_sums)                                 \
    X(cross_entropy, 256, cross_entropy)                         \
    X(join_losses, 256, join_losses)                             \
    X(embedding_forward, 256, embedding_forward)                 \
    X(embedding_backward_tokens, 256, embedding_backward_tokens) \
    X(embedding_backward_places, 256, embedding_backward_places) \
    X(attention_forward, 256, attention)                         \
    X(attention_dots, 256, attention_back)                       \
    X(attention_backward_queries, 256, attention_back)           \
    X(attention_backward_keys, 256, attention_back)              \
    X(attention_forward_tiles, 128, attention)                   \
    X(attention_backward_query_tiles, 128, attention_back)       \
    X(attention_backward_key_tiles, 128, attention_back)         \
    X(sum_rows, 256, sum_rows)                                   \
    X(columns, 256, columns)                                     \
    X(turn_weight, 256, turn_weight)                             \
    X(norm_measure, 256, norm)                                   \
    X(norm_join, 256, norm)                                      \
    X(norm_apply, 256, norm)                                     \
    X(norm_sums, 256, norm)                                      \
    X(norm_join_sums, 256, norm)                                 \
    X(norm_gradient, 256, norm)                                  \
    X(shortcut_forward, 256, shortcut)                           \
    X(shortcut_backward, 256, shortcut)                          \
    X(pool_forward, 256, pool)                                   \
    X(pool_backward, 256, pool)                                  \
    X(squares, 256, squares)                                     \
    X(join_squares, 256, join_squares)                           \
    X(update_adam, 256, update_adam)                             \
    X(update_sgd, 256, update_sgd)

enum kernel {
#define X(name, threads, args) KERNEL_##name,
    KERNEL_LIST(X)
#undef X
        KERNELS
};

enum {
    KERNEL_PACK = 8,        /* rows that are read 16 bytes at a time have a multiple of this length */
    KERNEL_WARPS = 8,       /* rows of a block of 256 threads if a warp processes one row */
    KERNEL_COLUMNS = 32,    /* columns that a block sums */
    KERNEL_TILE = 64,       /* queries or keys of a block of attention; also the widest head there */
    KERNEL_HEAD = 128,      /* widest head of attention without tiles */
    KERNEL_SQUARES = 16384, /* elements whose squares a block sums */
    KERNEL_ROWS = 8,        /* maximum number of rows of sum_rows */
};

/* left += right, both float. */
struct add_args {
    float *left;
    const float *right;
    size_t n;
};
/* Converts float to values. */
struct narrow_args {
    void *to;
    const float *from;
    size_t n;
};

/* gelu forward computes y = f(x) from x. All other kernels work in place and know x only through y. Backward turns d
 * into the gradient of x. */
struct gelu_args {
    void *to;
    const void *x;
    size_t n;
};
struct activation_args {
    void *to;
    const void *y; /* the output of forward */
    size_t rows, n;
};

/* Backward adds to dx. The gradients of weight and bias are summed in parts: block blockIdx.y of layer_norm_sums sums
 * `strip` rows into row blockIdx.y of `part`, which has 2 n numbers. */
struct layer_norm_args {
    void *y; /* in backward, dx */
    const void *dy, *x, *weight, *bias;
    float *mean, *scale, *part;
    size_t rows, n, strip;
};
/* Sums the columns of dy, as layer_norm_sums does; a row of `part` has n numbers. */
struct column_sums_args {
    float *part;
    const void *dy;
    size_t rows, n, strip;
};
/* to[i] = the sum of part[k * stride + i] over k */
struct join_sums_args {
    float *to;
    const float *part;
    size_t n, parts, stride;
};

/* One block per target. If `gradient` is set, z becomes its gradient. `loss` and `hit` are 0 if the row's weight is
 * 0. */
struct cross_entropy_args {
    void *z;
    const int *target;
    const float *weight;
    float *loss, *hit;
    size_t length, n, stride;
    int gradient;
};
/* One block. Adds the losses to total[0] and the hits to total[1]. */
struct join_losses_args {
    double *total;
    const float *loss, *hit;
    size_t n;
};

struct embedding_forward_args {
    void *y;
    const int *token;
    const void *tokens, *places;
    size_t count, length, n;
};
/* One block for each token that occurs. `order` has the positions sorted by token. Block b has the positions from
 * order[first[b]] up to, but without, order[first[b + 1]]. Adds to dtokens. */
struct embedding_backward_tokens_args {
    float *dtokens;
    const void *dy;
    const int *token, *order, *first;
    size_t n;
};
struct embedding_backward_places_args {
    float *dplaces;
    const void *dy;
    size_t rows, length, max_length, n;
};

/* As in layers/layers.h. `dots` has the products of y and dy, one for each log_sum. A warp processes one query or key
 * of a head. In kernels called tiles, a block processes KERNEL_TILE queries or keys with tensor cores (16 bits
 * only). */
struct attention_args {
    void *y;
    float *log_sum;
    const void *qkv;
    size_t rows, length, heads, width;
};
struct attention_back_args {
    void *dqkv;
    const void *dy, *qkv, *y;
    const float *log_sum;
    float *dots;
    size_t rows, length, heads, width;
};

/* to[i] = the sum of rows[k * stride + i] for k < many, added as the tree ((0+1)+(2+3))+... */
struct sum_rows_args {
    float *to;
    const float *rows;
    size_t n, stride;
    int many;
};

/* The columns of pictures: for each picture of `from` a matrix with a row of `pitch` values for each channel and tap
 * (k, l). Place (line, column) of a row has the value of `from` at line (line * step - before + k) / apart, and at
 * the column computed in the same way. The value is 0 if the computed line or column is not a whole number or is
 * outside the picture. n: values of `to`. */
struct columns_args {
    void *to;
    const void *from;
    size_t n, pitch;
    int channels, side, to_side, kernel;
    int step, before, apart;
};
/* to[i][o][tap] = weight[o][i][the tap counted from the last one] */
struct turn_weight_args {
    void *to;
    const void *weight;
    size_t in, out, taps;
};

/* Batch normalization of rows x channels x spatial values.
 *
 * In norm_measure and norm_sums, blockIdx.x is the channel; block blockIdx.y processes `strip` rows and writes record
 * blockIdx.y of `part`. A record of norm_measure is mean[channels], squares[channels] (of distances from the mean)
 * and count. A record of norm_sums has the sums of dy and of dy (x - mean). In norm_join and norm_join_sums, a thread
 * joins the records of one channel. `saved` is mean, 1 / deviation, count. */
struct norm_args {
    void *y; /* in backward, dx */
    const void *x, *dy, *weight, *bias;
    double *part,
        *all;      /* records of `parts` strips or ranks; the joined record, which may be NULL in norm_join */
    double *saved; /* NULL: norm_join does not learn, norm_apply uses the running numbers */
    float *running_mean, *running_var; /* NULL: no running numbers are updated */
    float *dweight, *dbias;
    size_t rows, strip, parts;
    int channels, spatial;
    double eps, momentum;
};

/* As in layers/layers.h. n: values of y, or of dx. */
struct shortcut_args {
    void *to;
    const void *from;
    size_t n;
    int in, out, side, out_side, stride;
};
/* `planes` planes of n values; y or dy has one value for each plane */
struct pool_args {
    void *to;
    const void *from;
    size_t planes, n;
};

/* part[block] = the sum of the squares of KERNEL_SQUARES elements of x */
struct squares_args {
    double *part;
    const float *x;
    size_t n;
};
/* One block. norm[0] = unscale x the root of the sum; norm[1] = unscale x the factor that limits the norm to
 * `most`. */
struct join_squares_args {
    float *norm;
    const double *part;
    size_t parts;
    float most, unscale;
};
/* p is the float master, w the copy that kernels read (NULL: none). g is multiplied by *factor. The numbers have the
 * meaning of worker/reducer/optim.c. */
struct update_adam_args {
    float *p, *m, *v;
    void *w;
    const float *g, *factor;
    size_t n;
    float step_size, root_bias2, weight1, beta2, weight2, eps, decay, shrink;
};
/* m may be NULL */
struct update_sgd_args {
    float *p, *m;
    void *w;
    const float *g, *factor;
    size_t n;
    float lr, decay, momentum, old, fresh;
    int nesterov;
};

#endif
