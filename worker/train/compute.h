/* compute.h -- the layers, their sizes and their memory, on the CPU or on a GPU. The CPU version is pure. On a GPU a
 * call only queues its work and returns, so that the host need not wait; `end` reports calls that have failed. */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include "train/layers/real.h"
#include "train/models/model.h"

#include "ddp/optim.h"

/* The first parameter of every function of a layer. The functions for the CPU do not use this parameter. */
#define ON_CPU struct compute *on_cpu __attribute__((unused))

/* The sizes of y = x W^T: x has `rows` rows of `in` numbers, and y has `rows` rows of `out` numbers. */
struct linear {
    size_t rows, in, out;
};

/* In-place activations. The backward pass needs only the output. */
enum activation { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

/* The shortcut: the input that a residual block adds to its result. If the block halves the picture and has more
 * channels, the shortcut uses every second pixel of every second line. It adds channels of zeros (option A of He et al.
 * 2015). As in PyTorch programs with option A, half of these zero channels come before the input's channels. */
struct shortcut {
    size_t in, out, side; /* channels of x; channels of y, at least `in`; side of x */
    size_t stride;        /* the side of y is side / stride, rounded up */
};

/* Causal self-attention with several heads: each token uses only itself and earlier tokens. */
struct attention {
    size_t rows, length, heads, width; /* `width` = `heads` * width of one head */
};

/* Return the number of scratch elements that forward and backward need, on the CPU or on a device. */
size_t attention_scratch(const struct attention *a);

/* Return log(sum(exp(z))) on the CPU. Subtract the largest z first, so that nothing overflows. */
real log_sum_exp(const real *z, size_t n);

/* Convolutions of square pictures, as in torch's nn.Conv2d(in, out, 3, stride, padding=1, bias=False). A picture has
 * channels x side x side numbers and is padded with zeros. A weight has [out][in][3][3] numbers. Pictures are
 * processed one by one, so the result of a picture does not depend on the other pictures. */

enum { CONV_KERNEL = 3, CONV_PADDING = 1, CONV_TAPS = CONV_KERNEL * CONV_KERNEL };

struct conv {
    size_t in, out, side; /* channels of x; channels of y; side of x, at least 2 */
    size_t stride;        /* 1 or 2 */
};

size_t conv_side(const struct conv *c);    /* returns the side of y */
size_t conv_columns(const struct conv *c); /* returns the number of scratch elements for any pass */

/* Return the number of multiplications and additions in a forward pass for one picture. */
double conv_flops(const struct conv *c);

/* Batch normalization (ddp/syncbn.h) of rows x channels x spatial values. All arrays are borrowed. */
struct batch_norm {
    size_t channels, spatial;
    double eps, momentum;
    const void *weight, *bias;         /* one value (see struct compute_ops) for each channel */
    float *running_mean, *running_var; /* both NULL if they must not be updated */
    double *saved;                     /* set by the forward pass: means, 1 / standard deviations, count */
};

/* Results since the last report. */
struct compute_report {
    double loss; /* sum over all targets */
    double norm; /* norm of the gradients in the last call of compute_ops.norm */
};

struct compute {
    const struct compute_ops *ops;
    size_t value_bytes; /* bytes of a value: 4, or 2 with 16-bit precision on a GPU */
    size_t pack;        /* rows are padded to a multiple of this number of values */
    bool remote;        /* true on a device: `report` returns the losses later */
    double peak_tflops; /* peak rate of the device; 0 if unknown */
};

enum {
    COMPUTE_APART = 128, /* gradients begin at a multiple of 128 elements, and so do parameters on a device */
    COMPUTE_LEAF = 16384, /* number of elements in a leaf; the norm sums squares first within each leaf */
    COMPUTE_ROWS = 8,     /* maximum number of rows that sum_rows adds */
};

/* A range of parameters with their gradients and state. */
struct compute_update {
    float *p; /* masters: the parameters that the optimizer updates */
    void *w;  /* copy of p that the layers read; NULL if the layers read p itself */
    const float *g;
    float *m, *v; /* state of the optimizer */
    size_t n;
};

/* The functions of the layers and their memory. Arrays of values (activations, and the weights that layers read) have
 * the type `void *`. A value is a float on the CPU, and has the type of --precision on a GPU. All other numbers are
 * float. A row of n values has room for compute_stride(c, n) values. A batch has `rows` rows of `n` values. Functions
 * set their output arrays. If a function adds to an array instead, its comment mentions the addition. */
struct compute_ops {
    /* Returns zeroed memory, or NULL if memory is short. */
    void *(*alloc)(struct compute *c, size_t bytes);
    void (*release)(struct compute *c, void *memory);
    void (*zero)(struct compute *c, void *at, size_t bytes);

    /* Called before each forward pass. Sets *on to the batch `from`, with addresses that the layers can read. *on is
     * valid until the next call of `begin`. `pixels` is the number of pixels in a row, 0 for tokens. */
    ddp_status (*begin)(struct compute *c, const struct model_batch *from, size_t pixels,
                        struct model_batch *on, struct ddp_err *err);
    /* Called after each pass. Returns an error if any call since `begin` has failed. */
    ddp_status (*end)(struct compute *c, struct ddp_err *err);

    /* Computes a row of y for each token: the token's row in `tokens` plus the row of its position in `places`. */
    void (*embedding_forward)(struct compute *c, void *y, const struct model_batch *batch, const void *tokens,
                              const void *places, size_t n);
    /* Adds the gradient of each token to the token's row of dtokens. If the head uses the same weight, dtokens already
     * has the gradient of the head. Overwrites dplaces, which has `max_length` rows. */
    void (*embedding_backward)(struct compute *c, real *dtokens, real *dplaces, const void *dy,
                               const struct model_batch *batch, size_t max_length, size_t n);
    /* Normalizes each row as torch's nn.LayerNorm does. Stores the row's mean, and 1 / sqrt(variance + 1e-5) as
     * `scale`, for backward. */
    void (*layer_norm_forward)(struct compute *c, void *y, real *mean, real *scale, const void *x,
                               const void *weight, const void *bias, size_t rows, size_t n);
    /* Adds to dx, because dx already has the gradient of the residual connection around the block. */
    void (*layer_norm_backward)(struct compute *c, void *dx, real *dweight, real *dbias, const void *dy,
                                const void *x, const real *mean, const real *scale, const void *weight,
                                size_t rows, size_t n);
    /* Computes y = before + x W^T + bias. The weight W has the shape [out][in], as in torch's nn.Linear. `before` may
     * be NULL, or equal to y. If `before` is NULL, `bias` may also be NULL. */
    void (*linear_forward)(struct compute *c, void *y, const void *before, const void *x, const void *weight,
                           const void *bias, struct linear l);
    /* dbias may be NULL. */
    void (*linear_backward_params)(struct compute *c, real *dweight, real *dbias, const void *dy,
                                   const void *x, struct linear l);
    void (*linear_backward_input)(struct compute *c, void *dx, const void *dy, const void *weight,
                                  struct linear l);
    /* For each token, qkv has the queries of all heads, then the keys of all heads, then the values of all heads.
     * Forward fills log_sum with rows x heads x length numbers, which backward reads. scratch has
     * attention_scratch() numbers. */
    void (*attention_forward)(struct compute *c, void *y, real *log_sum, const void *qkv, real *scratch,
                              const struct attention *a);
    void (*attention_backward)(struct compute *c, void *dqkv, const void *dy, const void *y, const void *qkv,
                               const real *log_sum, real *scratch, const struct attention *a);
    /* GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Backward turns d, the gradient of y, into the
     * gradient of x. */
    void (*gelu_forward)(struct compute *c, void *y, const void *x, size_t n);
    void (*gelu_backward)(struct compute *c, void *d, const void *x, size_t n);
    /* Activates y in place. Backward turns d, the gradient of the output y, into the gradient of the input. */
    void (*activation_forward)(struct compute *c, enum activation f, void *y, size_t rows, size_t n);
    void (*activation_backward)(struct compute *c, enum activation f, void *d, const void *y, size_t rows,
                                size_t n);
    /* conv_forward convolves pictures, and the other two functions compute the gradients of weight and x. scratch has
     * conv_columns() numbers. */
    void (*conv_forward)(struct compute *c, const struct conv *conv, void *y, const void *x,
                         const void *weight, size_t rows, real *scratch);
    void (*conv_backward_params)(struct compute *c, const struct conv *conv, real *dweight, const void *dy,
                                 const void *x, size_t rows, real *scratch);
    /* Sets dx, or adds to dx if `add` is true. */
    void (*conv_backward_input)(struct compute *c, const struct conv *conv, void *dx, const void *dy,
                                const void *weight, size_t rows, bool add, real *scratch);
    /* Adds the shortcut of x (struct shortcut) to y. */
    void (*shortcut_forward)(struct compute *c, const struct shortcut *s, void *y, const void *x,
                             size_t rows);
    void (*shortcut_backward)(struct compute *c, const struct shortcut *s, void *dx, const void *dy,
                              size_t rows);
    /* Computes the mean of each plane of n numbers, as torch's nn.AdaptiveAvgPool2d(1) does. */
    void (*pool_forward)(struct compute *c, void *y, const void *x, size_t planes, size_t n);
    void (*pool_backward)(struct compute *c, void *dx, const void *dy, size_t planes, size_t n);
    /* Sets d to the gradient of the loss with respect to z. d and z may be the same array. `wide` is true for models
     * with many classes; d and z must then be the same array. Returns the sum of the losses of rows with a weight above
     * 0. On a device, returns 0, and `report` returns the sum later. */
    double (*cross_entropy)(struct compute *c, void *d, void *z, const struct model_batch *batch,
                            size_t classes, bool wide);
    /* Used when a model is tested. Returns the sum of the losses. On a device, waits for the sum, and also sets
     * *correct to the number of correct predictions. The CPU version does not set *correct. */
    double (*examine)(struct compute *c, void *z, const struct model_batch *batch, size_t classes,
                      size_t *correct);

    void (*add)(struct compute *c, float *left, const float *right, size_t n); /* left += right */

    /* --- only on a device; NULL on the CPU ---------------------------------------------------------------- */

    void *(*stream)(struct compute *c); /* returns the stream on which all work is queued */

    /* The next five functions compute batch normalization in parts. Between the parts, resnet.c exchanges records with
     * other ranks. A record has batch_norm_numbers() doubles: means, sums of squared distances from the means, and a
     * count. */
    void (*norm_measure)(struct compute *c, const struct batch_norm *n, double *record, const void *x,
                         size_t rows);
    /* Computes n->saved and the running mean and variance from the records of all ranks. */
    void (*norm_learn)(struct compute *c, const struct batch_norm *n, const double *records, size_t ranks);
    /* Normalizes with n->saved. If `test` is true, normalizes with the running mean and variance instead. */
    void (*norm_apply)(struct compute *c, const struct batch_norm *n, void *y, const void *x, size_t rows,
                       bool test);
    /* Computes for each channel the sum of dy and the sum of dy times (x - mean). The array `sums` has 2 * channels
     * values. Sets the gradients of weight and bias from this rank's rows. */
    void (*norm_sums)(struct compute *c, const struct batch_norm *n, double *sums, float *dweight,
                      float *dbias, const void *dy, const void *x, size_t rows);
    /* Computes dx from the sums of all ranks. dx and dy may be the same array. */
    void (*norm_gradient)(struct compute *c, const struct batch_norm *n, void *dx, const double *sums,
                          const void *dy, const void *x, size_t rows);

    /* Allocates the weights of all tensors on the device as one array, and copies the values from the host. If the
     * weights are float, they are also the master copies. Each tensor gets room for compute_room() values. The size of
     * the array, in values, is rounded up to a multiple of `multiple`. */
    ddp_status (*place)(struct compute *c, struct model_tensors *t, size_t multiple, struct ddp_err *err);
    /* `send` copies the values of all tensors from the host to the device. `fetch` copies the values back. */
    ddp_status (*send)(struct compute *c, const struct model_tensors *t, struct ddp_err *err);
    ddp_status (*fetch)(struct compute *c, struct model_tensors *t, struct ddp_err *err);
    /* Copies floats to or from the device, and waits for the copy. */
    ddp_status (*copy)(struct compute *c, float *to, const float *from, size_t n, struct ddp_err *err);
    /* Computes the norm of n gradients, times `unscale`. Later calls of `update` clip the gradients to a norm of
     * `most`. */
    void (*norm)(struct compute *c, float *const grad[], const size_t count[], size_t n, double most,
                 double unscale);
    ddp_status (*norm_now)(struct compute *c, double *norm, struct ddp_err *err); /* waits for the norm */
    /* The functions `squares` and `join_squares` compute the norm in two steps. `squares` sets leaf[k] to the sum of
     * squares of leaf k of x. `join_squares` then computes the norm from all leaves. */
    void (*squares)(struct compute *c, double *leaf, const float *x, size_t n);
    void (*join_squares)(struct compute *c, const double *leaf, size_t leaves, double most, double unscale);
    /* Sets `to` to the sum of the rows. `many` is their number, at most COMPUTE_ROWS. `stride` is the distance
     * from row to row in elements. The rows are added as the tree ((0+1)+(2+3))+... */
    void (*sum_rows)(struct compute *c, float *to, const float *rows, size_t n, size_t stride, int many);
    /* Updates parameters; the caller must first call ddp_optim_begin. */
    void (*update)(struct compute *c, const ddp_optim *o, const struct compute_update *u);
    /* Returns the results of all work that was queued before the previous call of `report`. So the host need not wait
     * for the latest work. If `now` is true, waits for all work and returns all results. */
    ddp_status (*report)(struct compute *c, bool now, struct compute_report *out, struct ddp_err *err);
    void (*wait)(struct compute *c); /* waits until all queued work is done or has failed */
    void (*close)(struct compute *c);
};

/* Lists of the members of struct compute_ops. For each member M in COMPUTE_LAYERS, the folder layers/ has a function
 * cpu_M, and the folder cuda/ has a function cuda_M. For each member M in COMPUTE_OTHERS, the folder cuda/ has a
 * function cuda_M. For some of these members, compute_cpu.c has a function cpu_M. */
/* clang-format off */
#define COMPUTE_LAYERS(X) \
    X(embedding_forward) X(embedding_backward) X(layer_norm_forward) X(layer_norm_backward) X(linear_forward) \
    X(linear_backward_params) X(linear_backward_input) X(attention_forward) X(attention_backward) \
    X(gelu_forward) X(gelu_backward) X(activation_forward) X(activation_backward) X(conv_forward) \
    X(conv_backward_params) X(conv_backward_input) X(shortcut_forward) X(shortcut_backward) X(pool_forward) \
    X(pool_backward) X(cross_entropy) X(examine)
#define COMPUTE_OTHERS(X) \
    X(alloc) X(release) X(zero) X(begin) X(end) X(add) X(norm_measure) X(norm_learn) X(norm_apply) \
    X(norm_sums) X(norm_gradient) X(place) X(send) X(fetch) X(copy) X(norm) X(norm_now) X(squares) \
    X(join_squares) X(sum_rows) X(update) X(report) X(wait)
/* clang-format on */

#define COMPUTE_TYPE(member) __typeof__(*((struct compute_ops *)NULL)->member)
#define X(member)            COMPUTE_TYPE(member) cpu_##member;
COMPUTE_LAYERS(X)
#undef X

/* The layers on the CPU. */
extern struct compute compute_cpu;

static inline struct compute *compute_of(const struct model_spec *spec)
{
    return spec->compute != NULL ? spec->compute : &compute_cpu;
}

/* Return the number of elements that a parameter needs in memory: `elements` and the padding. */
static inline size_t compute_room(size_t elements)
{
    return (elements + COMPUTE_APART - 1) / COMPUTE_APART * COMPUTE_APART;
}

/* Return the number of doubles in a record of batch normalization. */
static inline size_t batch_norm_numbers(size_t channels)
{
    return 2 * channels + 1;
}

/* Return the number of values from the beginning of a row of n values to the next row. */
static inline size_t compute_stride(const struct compute *c, size_t n)
{
    return (n + c->pack - 1) / c->pack * c->pack;
}

/* --- the compute of a GPU (cuda/cuda.c), with the kernels of cuda/kernels.h and cuBLASLt ------------------ */

/* NVIDIA's libraries (libcudart, libcuda, libcublasLt) are loaded at run time. The kernels are in the file
 * train_kernels.TYPE.fatbin. If the variable DDP_TRAIN_KERNELS is set, it names the folder of this file. Otherwise the
 * file is in the program's folder, or in the folder ../../share/ddprun relative to the program's folder. */

/* Return DDP_OK if `train` can compute on a GPU, and set *count to the number of GPUs. The text of
 * DDP_ERR_UNSUPPORTED names the missing part. Opens no GPU. */
ddp_status cuda_available(int precision, int *count, struct ddp_err *err);

/* Open a GPU for this thread. `precision` is a value of enum precision (train_options.h). The caller frees *out with
 * ops->close. */
ddp_status cuda_open(int device, int precision, struct compute **out, struct ddp_err *err);

#endif
