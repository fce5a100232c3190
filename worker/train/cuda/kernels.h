/* kernels.h -- the kernels in the .cu files of this folder: names, threads per block, arguments. Each kernel has one
 * argument, a struct, so that host code and GPU code use the same declaration. Sums have a fixed order, so a repeated
 * kernel gives the same bits. */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stddef.h>

/* Columns: name, threads per block, name of the struct of arguments without "_args". */
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
    KERNEL_PACK = 8,        /* values that a thread reads at once; rows begin at a multiple of this number */
    KERNEL_WARPS = 8,       /* warps in a block of 256 threads */
    KERNEL_COLUMNS = 32,    /* columns per block in the kernels column_sums and layer_norm_sums */
    KERNEL_TILE = 64,       /* queries or keys per block in attention_tiles.cu */
    KERNEL_HEAD = 64,       /* maximum width of an attention head */
    KERNEL_SQUARES = 16384, /* elements per block in a sum of squares */
    KERNEL_ROWS = 8,        /* maximum number of rows that the kernel sum_rows adds */
};

/* The arguments of the kernels. "Values" are activations, and the weights that kernels read, of the module's type:
 * float, bf16 or fp16. All other numbers are float or double. All pointers lead to device memory of the caller, which
 * must remain valid until the kernel has ended. */

/* Adds the floats of `right` to the floats of `left`. */
struct add_args {
    float *left;
    const float *right;
    size_t n;
};
/* Converts floats to the type of values (float, bf16 or fp16). */
struct narrow_args {
    void *to;
    const float *from;
    size_t n;
};

/* gelu_forward reads x and writes `to`. All other activation kernels change `to` in place. In a backward kernel, `to`
 * contains the gradient of the output before the call, and the gradient of the input afterwards. */
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

/* layer_norm_backward adds to dx. layer_norm_sums sums the gradients of weight and bias over strips of `strip` rows.
 * Row b of `part` has the 2 n sums of strip b. */
struct layer_norm_args {
    void *y; /* dx in backward */
    const void *dy, *x, *weight, *bias;
    float *mean, *scale, *part;
    size_t rows, n, strip;
};
/* Sums the columns of dy over strips of `strip` rows. Row b of `part` has the n sums of strip b. */
struct column_sums_args {
    float *part;
    const void *dy;
    size_t rows, n, strip;
};
/* Sets to[i] to the sum of part[k * stride + i] over all k. */
struct join_sums_args {
    float *to;
    const float *part;
    size_t n, parts, stride;
};

/* Each block computes `loss` and `hit` for one target. If `gradient` is set, the block replaces the target's logits in
 * z by their gradient. Each value of `weight` applies to `length` consecutive targets. If the value is 0, `loss` and
 * `hit` are 0. */
struct cross_entropy_args {
    void *z;
    const int *target;
    const float *weight;
    float *loss, *hit;
    size_t length, n, stride;
    int gradient;
};
/* A single block adds the losses to total[0], and the hits (correct predictions) to total[1]. */
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
/* `order` has the positions of the batch, sorted by token. Each block computes the gradient of one distinct token:
 * block b sums the rows of dy at positions order[first[b]] up to order[first[b + 1] - 1]. */
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

/* compute.h describes the layout. `dots` has the dot product of y and dy for each query and head. In
 * attention.cu a warp processes one query or key of a head. In attention_tiles.cu a block processes KERNEL_TILE
 * queries or keys. */
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

/* Adds `many` rows of n numbers. The result to[i] is the sum of rows[k * stride + i] over all k below `many`. The
 * numbers are added in pairs, as the tree ((0+1)+(2+3))+... */
struct sum_rows_args {
    float *to;
    const float *rows;
    size_t n, stride;
    int many;
};

/* Writes one matrix (the columns) for each picture in `from`. The matrix has one row for each pair of a channel and a
 * kernel weight (k, l). A row has one value for each output pixel (line, column), and then zeros up to `pitch` values.
 * The value is input pixel (y, x) of the channel, with
 * y = (line * step - before + k) / apart and x = (column * step - before + l) / apart. The value is 0 if (y, x) is
 * outside the picture, or if y or x is not a whole number. `to` has n values. */
struct columns_args {
    void *to;
    const void *from;
    size_t n, pitch;
    int channels, side, to_side, kernel;
    int step, before, apart;
};
/* Sets to[i][o][tap] to weight[o][i][taps - 1 - tap], for input channel i < in and output channel o < out. */
struct turn_weight_args {
    void *to;
    const void *weight;
    size_t in, out, taps;
};

/* Batch normalization of rows x channels x spatial values.
 *
 * In norm_measure and norm_sums, block (c, s) sums channel c over strip s and writes the sums to record s of `part`. A
 * strip has `strip` rows; the last strip may have fewer. A record has values for all channels:
 *
 *   - norm_measure: means, sums of squared distances from the means, and the number of values that each mean covers.
 *   - norm_sums: sums of dy and sums of dy (x - mean).
 *
 * Each thread of norm_join and norm_join_sums joins the values of one channel from all records. `saved` has the means
 * and 1 / deviations of all channels, and the number of values that each mean covers. */
struct norm_args {
    void *y; /* dx in backward */
    const void *x, *dy, *weight, *bias;
    double *part, *all; /* part: records of `parts` strips or ranks; all: joined record, or NULL */
    double *saved;      /* NULL if running_mean and running_var are used instead */
    float *running_mean, *running_var; /* both NULL if they must not be updated */
    float *dweight, *dbias;
    size_t rows, strip, parts;
    int channels, spatial;
    double eps, momentum;
};

/* struct shortcut in compute.h explains the sizes. n is the number of values in `to`. */
struct shortcut_args {
    void *to;
    const void *from;
    size_t n;
    int in, out, side, out_side, stride;
};
/* pool_forward computes the mean of each plane of n values. pool_backward computes the n gradients of a plane from
 * the gradient of the mean. */
struct pool_args {
    void *to;
    const void *from;
    size_t planes, n;
};

/* Block b sets part[b] to the sum of squares of KERNEL_SQUARES elements of x. */
struct squares_args {
    double *part;
    const float *x;
    size_t n;
};
/* A single block computes norm[0], which is unscale times the norm of the gradients. norm[1] is unscale times the
 * factor that clips norm[0] to `most`. */
struct join_squares_args {
    float *norm;
    const double *part;
    size_t parts;
    float most, unscale;
};
/* p has the weights as float. w is the copy that other kernels read, or NULL. g is multiplied by *factor.
 * worker/reducer/optim.c explains the other numbers. */
struct update_adam_args {
    float *p, *m, *v;
    void *w;
    const float *g, *factor;
    size_t n;
    float step_size, root_bias2, weight1, beta2, weight2, eps, decay, shrink;
};
/* m is NULL without momentum. */
struct update_sgd_args {
    float *p, *m;
    void *w;
    const float *g, *factor;
    size_t n;
    float lr, decay, momentum, old, fresh;
    int nesterov;
};

#endif
