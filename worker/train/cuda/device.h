/* device.h -- a GPU, for the files in worker/train/cuda/. All work is on one stream, in the order of the calls. The
 * host is at most one step ahead of the device. */
#ifndef WORKER_TRAIN_CUDA_DEVICE_H
#define WORKER_TRAIN_CUDA_DEVICE_H

#include "cuda/compute_abi.h"
#include "cuda/gpu.h"
#include "train/compute.h"
#include "train/cuda/kernels.h"

/* The functions of libcuda and libcublasLt. */
struct driver {
#define X(member, symbol, result, parameters) result(*member) parameters;
    DRIVER_FUNCTION_LIST(X)
#undef X
};
struct cublaslt {
#define X(member, symbol, result, parameters) result(*member) parameters;
    CUBLASLT_FUNCTION_LIST(X)
#undef X
};

/* A kind of matrix product. gemm.c chooses an algorithm once for each kind. */
struct gemm {
    uint64_t m, n, k;
    int64_t lda, ldb, ldd;
    uint64_t batch;                    /* number of products in a batch; 0 means one product */
    int64_t apart_a, apart_b, apart_d; /* elements between matrices; 0 means one matrix for all products */
    bool transpose_a, transpose_b;
    bool to_float; /* true if the result is float; false if it has the type for cuda.precision */
    bool bias;
};
struct plan {
    struct gemm gemm;
    lt_desc desc;
    lt_layout a, b, d;
    lt_algorithm algorithm;
};

/* Memory that grows when a call needs more. The struct that contains the room owns the memory. */
struct room {
    void *memory;
    size_t bytes;
};

enum {
    PLANS = 64,
    SLOTS = 2,
    TOTALS = 4 /* TOTALS: loss and correct predictions, in training and tests */
};

/* Results since the last report. The device writes these results to the host's memory. */
struct results {
    double total[TOTALS];
    float norm[2]; /* result of the kernel join_squares: the norm and the clip factor */
};

/* A GPU and its resources. cuda_close frees everything that the struct owns. `order` and `first` point into the memory
 * of `batch`. */
struct cuda {
    struct compute base; /* must be the first member */
    struct gpu gpu;
    struct driver driver;
    struct cublaslt lt;
    struct ddp_err failed; /* the first error, which compute_ops.end returns */
    int precision;         /* a value of enum precision */
    struct CUstream_st *stream;
    struct CUfunc_st *kernel[KERNELS];

    lt_handle handle;
    lt_request request;
    void *workspace;
    struct plan plan[PLANS];
    int plans;

    void *weights;                                               /* array of all parameters */
    struct room batch, pictures, columns, part, losses, squares; /* device memory */

    struct room slot[SLOTS];        /* pinned host memory for the batches that are being sent */
    struct CUevent_st *sent[SLOTS]; /* event i completes when the device has read slot[i] */
    unsigned batches;               /* number of batches so far */
    struct room sorted;             /* host memory to count tokens while sorting */
    const int *order, *first;
    size_t distinct; /* number of distinct tokens in the batch */

    double *total;                     /* in device memory, with the layout of struct results */
    struct results *results;           /* in memory of the host: SLOTS entries */
    struct CUevent_st *written[SLOTS]; /* event i completes when the device has written results[i] */
    unsigned reports;                  /* how often cuda_report was called */
    bool unread[SLOTS];                /* unread[i] is true until `report` returns results[i] */
};

/* Set `failed` if `failed` has no error yet. */
void cuda_failed(struct cuda *c, ddp_status status, const struct ddp_err *err);
bool cuda_check(struct cuda *c, cuda_error error, const char *doing);
ddp_status cuda_driver_check(struct cuda *c, driver_result result, const char *doing, const char *what,
                             struct ddp_err *err);

extern const char *const cuda_kernel_names[]; /* indexed by enum kernel */

/* Start a kernel with x times y blocks. If `x` or `y` is 0, do nothing. `args` is the struct of the kernel's
 * arguments. */
void cuda_launch(struct cuda *c, enum kernel kernel, size_t x, size_t y, void *args);

/* Return at least `bytes` bytes of memory, or NULL after a failure. `room` owns the memory. Its contents are
 * undefined. */
void *cuda_room(struct cuda *c, struct room *room, size_t bytes);

/* Set `to` to the sum of the rows of `part`; `parts` is the number of rows (layers.c). Each row has n numbers, and
 * `stride` is the distance from row to row. */
void cuda_join_sums(struct cuda *c, float *to, const float *part, size_t n, size_t parts, size_t stride);

/* Compute the matrix product d = a b, with column-major matrices as in BLAS (gemm.c). If `before` is not NULL, add
 * `before` to the product. If gemm->bias is true, also add `bias`. */
void cuda_gemm(struct cuda *c, const struct gemm *gemm, const void *a, const void *b, const void *before,
               const void *bias, void *d);
bool cuda_gemm_open(struct cuda *c);
void cuda_gemm_close(struct cuda *c);

/* The functions of compute_ops, in cuda.c, device.c, layers.c, pictures.c and parameters.c. */
#define X(member) COMPUTE_TYPE(member) cuda_##member;
COMPUTE_LAYERS(X)
COMPUTE_OTHERS(X)
#undef X

/* Load libcuda, libcudart and libcublasLt, and set *count to the number of GPUs. The libraries stay loaded. */
ddp_status libraries_open(struct cuda *c, int *count, struct ddp_err *err);

/* Read the file that has the kernels for `precision` into *image, and end *image with a zero byte. The caller
 * frees *image. */
ddp_status libraries_kernels(int precision, char **image, struct ddp_err *err);

static inline struct cuda *cuda_of(struct compute *base)
{
    return (struct cuda *)base;
}

static inline size_t cuda_blocks(size_t n, size_t each)
{
    return (n + each - 1) / each;
}

/* Threads per block. In a kernel, each thread handles one pack or one element, or each warp handles one row. */
enum { CUDA_THREADS = 256 };

static inline size_t cuda_by_packs(const struct cuda *c, size_t n)
{
    return cuda_blocks(n, CUDA_THREADS * (16 / c->base.value_bytes));
}

static inline size_t cuda_by_elements(size_t n)
{
    return cuda_blocks(n, CUDA_THREADS);
}

static inline size_t cuda_by_rows(size_t rows)
{
    return cuda_blocks(rows, KERNEL_WARPS);
}

#endif
