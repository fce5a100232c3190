/* loader.h -- batches that threads make before the step that needs them. The content of a batch does not depend on
 * the threads.
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
 * ddp/sampler.h decides which samples a batch has, by torch's rule. Random choices (a crop, a flip) come from a
 * generator for each sample, seeded with (seed, epoch, sample) and never with the rank: in an epoch a sample looks
 * the same for any number of ranks and threads and in any batch.
 *
 * The threads belong to the library and receive no signals. Without threads (threads = 0) ddp_loader_next makes the
 * batch itself, with the same bytes. One thread at a time may use a loader. ddp_last_error() returns the text of an
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

enum {
    DDP_LOADER_ARRAYS = 4,
    DDP_LOADER_THREADS = 256,
    DDP_LOADER_BATCHES = 1024,
    DDP_LOADER_STREAMS = 1024
};

/* A sample to read. */
typedef struct ddp_loader_row {
    uint64_t index, epoch;
    int is_pad;                  /* the sampler repeats this sample to fill the last batch */
    ddp_philox luck;             /* random numbers of this sample in this epoch */
    void *to[DDP_LOADER_ARRAYS]; /* row_bytes[a] bytes each; they contain data of an earlier batch */
} ddp_loader_row;

/* Write sample row->index to row->to[]. Several threads call this at the same time, for different rows, in any order,
 * with subnormals flushed (context.h). A result other than DDP_OK ends the epoch: when the program reaches that
 * batch, ddp_loader_next returns the result with the text of *err. The function must return, because its thread
 * cannot be stopped. */
typedef ddp_status (*ddp_loader_fill)(void *user, ddp_loader_row *row, struct ddp_err *err);

/* Allocate the memory for batches, for example pinned memory: return `bytes` bytes at an address that is a multiple
 * of 256, or NULL. ddp_loader_create calls this once, and ddp_loader_free calls `release` once. */
typedef void *(*ddp_loader_alloc)(void *user, size_t bytes);
typedef void (*ddp_loader_release)(void *user, void *memory, size_t bytes);

typedef struct ddp_loader_options {
    size_t size;            /* sizeof, set by the INIT macro */
    uint64_t samples;       /* as for ddp_sampler_create, like the next four */
    int world_size, rank;   /* which samples this rank gets */
    uint64_t seed;          /* seed of the order, and of each sample's random numbers */
    unsigned sampler_flags; /* DDP_SAMPLER_SHUFFLE ...; 0 = in order, padded */
    int streams; /* ranks rank .. rank + streams - 1 get one batch each in turn; 0 = 1. For shards of a batch */
    size_t batch;                        /* rows; the last batch of a stream may have fewer, or none */
    size_t arrays;                       /* number of arrays of a batch, at most DDP_LOADER_ARRAYS */
    size_t row_bytes[DDP_LOADER_ARRAYS]; /* bytes of a row of each array */
    ddp_loader_fill fill;
    void *user;         /* argument of fill, on all threads */
    int threads;        /* 0 = none: ddp_loader_next makes the batches */
    size_t ahead;       /* batches made before they are requested; 0 = 2 for each thread */
    size_t held;        /* number of the latest batches that stay unchanged; 0 = 1 */
    int64_t timeout_ms; /* how long a batch may take; 0 = 300,000 */
    ddp_loader_alloc alloc;
    ddp_loader_release release; /* set both or neither */
    void *memory_user;          /* argument of `alloc` and `release` */
} ddp_loader_options;

#define DDP_LOADER_OPTIONS_INIT                                                                             \
    {                                                                                                       \
        sizeof(ddp_loader_options), 0, 1, 0, 0, 0, 0, 0, 0, { 0 }, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL \
    }

/* A batch. The program may read a batch until `held` further batches were returned, or the loader is started or
 * freed. */
typedef struct ddp_batch {
    uint64_t number; /* from 0 at the start of the epoch; its stream is number % streams */
    int stream;
    size_t rows;
    void *array[DDP_LOADER_ARRAYS]; /* rows * row_bytes[a] bytes, 256-byte aligned */
    const uint64_t *index;          /* for each row, its sample */
    const unsigned char *is_pad;
} ddp_batch;

/* Allocate memory and start threads; no sample is read yet. DDP_ERR_ARG names an invalid option. DDP_ERR_LIMIT means
 * that the system allows no more threads. */
DDP_API ddp_status ddp_loader_create(const ddp_loader_options *options, ddp_loader **out);

/* Begin epoch `epoch` after its first `done` samples (counted over all ranks, see ddp_sampler_resume). Allowed also
 * in the middle of an epoch, or after an error. Threads begin to read. DDP_ERR_TIMEOUT means that a thread is still
 * reading for the previous epoch. */
DDP_API ddp_status ddp_loader_start(ddp_loader *loader, uint64_t epoch, uint64_t done);

/* Wait for the next batch and return the batch in *out. Batches have a fixed order. *out is NULL at the end of the
 * epoch. DDP_ERR_TIMEOUT names the missing sample. An error of fill is returned with its text after the sample's
 * number. After an error all further calls return the same error, until ddp_loader_start. */
DDP_API ddp_status ddp_loader_next(ddp_loader *loader, const ddp_batch **out);

/* Return the number of batches of the whole epoch, including the batches that were already returned. */
DDP_API uint64_t ddp_loader_batches(const ddp_loader *loader);

/* Free the loader, even in the middle of an epoch. Waits only for samples that are being read. DDP_ERR_TIMEOUT means
 * that a thread is still in `fill` and that nothing has been freed; call again, or never free the loader and the data
 * of `user`. NULL is allowed. */
DDP_API ddp_status ddp_loader_free(ddp_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
