/* loader.h -- batches that threads make before the program needs them. The content of a batch does not depend on the
 * threads.
 *
 *     ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
 *     o.samples = 50000;  o.world_size = world;  o.rank = rank;  o.batch = 32;  o.seed = 7;
 *     o.arrays = 2;  o.row_bytes[0] = 3072 * sizeof(float);  o.row_bytes[1] = 1;        a picture and its label
 *     o.fill = my_fill;  o.user = my_data;  o.threads = 2;
 *     ddp_loader_create(&o, &loader)
 *     each epoch:  ddp_loader_start(loader, epoch, 0)
 *                  while (ddp_loader_next(loader, &batch) == DDP_OK && batch != NULL)
 *                      step(batch->array[0], batch->array[1], batch->rows);
 *     ddp_loader_free(loader)
 *
 * ddp/sampler.h decides which samples a batch has, as in torch. Each sample has its own generator for random choices (a
 * crop, a flip), seeded with the seed, the epoch and the number of the sample. So in one epoch a sample has the same
 * values for any number of ranks and threads, and in any batch.
 *
 * The library creates the threads, with all signals blocked. With threads = 0, ddp_loader_next makes the batch
 * itself, with the same bytes. Only one thread at a time may use a loader. ddp_last_error() returns the text of an
 * error. */
#ifndef DDP_LOADER_H
#define DDP_LOADER_H

#include "ddp/error.h"
#include "ddp/random.h"
#include "ddp/sampler.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_loader ddp_loader;

/* Largest values of ddp_loader_options. DDP_LOADER_BATCHES is the largest value of `ahead`, and also of `held`. */
enum {
    DDP_LOADER_ARRAYS = 4,
    DDP_LOADER_THREADS = 256,
    DDP_LOADER_BATCHES = 1024,
    DDP_LOADER_STREAMS = 1024
};

/* A sample that `fill` must write. */
typedef struct ddp_loader_row {
    uint64_t index, epoch;
    int is_pad;                  /* 1 if this is padding (a sample that the sampler has repeated), else 0 */
    ddp_philox luck;             /* random number generator of this sample in this epoch */
    void *to[DDP_LOADER_ARRAYS]; /* to[a] has row_bytes[a] bytes, undefined before the call of `fill` */
} ddp_loader_row;

/* Write the sample row->index to row->to[]. Several threads call `fill` at the same time for different rows, in any
 * order, with subnormals flushed (context.h). A result other than DDP_OK ends the epoch: ddp_loader_next returns the
 * result and the text of *err when the program reaches the batch of this sample. `fill` must return, because its
 * thread cannot be stopped. */
typedef ddp_status (*ddp_loader_fill)(void *user, ddp_loader_row *row, struct ddp_err *err);

/* Allocate the memory of all batches, for example as pinned memory. Return `bytes` bytes at a multiple of 256, or
 * NULL. ddp_loader_create calls this function once; ddp_loader_free calls `release` once. */
typedef void *(*ddp_loader_alloc)(void *user, size_t bytes);
typedef void (*ddp_loader_release)(void *user, void *memory, size_t bytes);

typedef struct ddp_loader_options {
    size_t size;            /* sizeof(ddp_loader_options), set by the INIT macro */
    uint64_t samples;       /* number of samples, as in ddp_sampler_create */
    int world_size, rank;   /* samples are divided among world_size ranks; `rank` is this rank's number */
    uint64_t seed;          /* seed of the order and of the generators */
    unsigned sampler_flags; /* sum of DDP_SAMPLER_* values; 0 means samples in order, with padding */
    int streams;            /* number of ranks for which this loader makes batches in turn: the ranks from
                             * `rank` to `rank` + `streams` - 1; 0 means one rank */
    size_t batch;           /* number of rows of a batch; the last batch may have fewer rows, or none */
    size_t arrays;          /* number of arrays of a batch; at most DDP_LOADER_ARRAYS */
    size_t row_bytes[DDP_LOADER_ARRAYS]; /* for each array, the bytes of one row */
    ddp_loader_fill fill;
    void *user;         /* argument of `fill`, used by all threads */
    int threads;        /* number of threads; if 0, ddp_loader_next makes the batches */
    size_t ahead;       /* number of batches that are made in advance; 0 means 2 for each thread */
    size_t held;        /* number of returned batches that stay valid; 0 means one batch */
    int64_t timeout_ms; /* longest wait for a batch; 0 means 300 000 ms */
    ddp_loader_alloc alloc;
    ddp_loader_release release; /* set both `alloc` and `release`, or neither */
    void *memory_user;          /* argument of `alloc` and `release` */
} ddp_loader_options;

#define DDP_LOADER_OPTIONS_INIT                                                                             \
    {                                                                                                       \
        sizeof(ddp_loader_options), 0, 1, 0, 0, 0, 0, 0, 0, { 0 }, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL \
    }

/* A batch, which is valid until `held` more batches are returned, or until the loader is started again or freed. */
typedef struct ddp_batch {
    uint64_t number;                /* number of this batch in the epoch; the first batch is 0 */
    int stream;                     /* `number` modulo `streams` of the options; the batch is for rank `rank`
                                     * + `stream` */
    size_t rows;                    /* number of rows; 0 if the rank of this batch has no samples left */
    void *array[DDP_LOADER_ARRAYS]; /* rows * row_bytes[a] bytes, 256-byte aligned */
    const uint64_t *index;          /* for each row, the number of its sample */
    const unsigned char *is_pad;    /* for each row, 1 if it is padding, else 0 */
} ddp_batch;

/* Create a loader: allocate memory and start the threads, which read nothing yet. DDP_ERR_ARG names an invalid option.
 * DDP_ERR_LIMIT means that the system allows no more threads. */
DDP_API ddp_status ddp_loader_create(const ddp_loader_options *options, ddp_loader **out);

/* Begin epoch `epoch` after its first `done` samples, counted over all ranks (see ddp_sampler_resume). The threads
 * begin to read. The call is allowed in the middle of an epoch and after an error. DDP_ERR_TIMEOUT means that a
 * thread is still in `fill` for the previous epoch. */
DDP_API ddp_status ddp_loader_start(ddp_loader *loader, uint64_t epoch, uint64_t done);

/* Wait for the next batch, and return it in *out. The order of batches is fixed. At the end of the epoch *out is
 * NULL. DDP_ERR_TIMEOUT names the missing sample. An error of `fill` is returned with the number of the sample and
 * the text of `fill`. After an error, all calls return the same error until ddp_loader_start. */
DDP_API ddp_status ddp_loader_next(ddp_loader *loader, const ddp_batch **out);

/* Return the number of batches from the last ddp_loader_start to the end of the epoch, as the sum over all streams. */
DDP_API uint64_t ddp_loader_batches(const ddp_loader *loader);

/* Free the loader, even in the middle of an epoch. Wait only until no thread is in `fill`. DDP_ERR_TIMEOUT means that a
 * thread is still in `fill` and that nothing was freed: call again, or never free the loader and `user`. NULL is
 * allowed. */
DDP_API ddp_status ddp_loader_free(ddp_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
