/* loader.c -- see ddp/loader.h. A thread draws the samples of a batch under the mutex, in the order of batches,
 * and reads them without the mutex. So the contents of a batch do not depend on the threads. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/timed_call.h"
#include "core/flush_subnormals.h"
#include "core/error.h"
#include "ddp/loader.h"
#include "ddp/sampler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ALIGN: alignment of an array in bytes, for vector loads. TIMEOUT_MS: the default timeout. AHEAD_PER_THREAD: number
 * of batches that each thread makes before the program requests them. So one batch is ready while the thread reads
 * the next batch. */
enum { ALIGN = 256, TIMEOUT_MS = 300000, AHEAD_PER_THREAD = 2 };
/* The limit in bytes for all slots together. The limit is so low that no sum of sizes can overflow. */
static const size_t MOST_BYTES = SIZE_MAX / 4;

/* The options and the progress of an epoch. From these values, the functions of the queue decide which batch comes
 * next. The queue uses no threads. The loader's mutex protects this struct.
 *
 * Batch k is in slot k % slots. Up to `ahead` batches are made before the program requests them. The last `held`
 * batches that the program received stay unchanged. So there are ahead + held slots, and batch k may begin after the
 * program has returned batch k - slots:
 *
 *     returned   | held by the program | made ahead, or being made | not begun
 *                ^ released            ^ given                     ^ taken             ^ total */
struct queue {
    ddp_loader_options options;         /* the caller's options, with defaults in place of zeros */
    ddp_sampler **sampler;              /* owned: one sampler for each stream */
    size_t slots, slot_bytes;           /* number of slots; size of one slot in bytes */
    size_t array_at[DDP_LOADER_ARRAYS]; /* offset of each array in a slot, in bytes */
    uint64_t epoch;
    /* Counts of batches in this epoch; see the picture above. */
    uint64_t total;    /* all batches */
    uint64_t end;      /* batches that may be started: `total`, or fewer after an error */
    uint64_t released; /* batches that the program has returned, so their slots are free */
    uint64_t given;    /* batches that the program has received; includes `released` */
    uint64_t taken;    /* batches that the threads have begun; includes `given` */
};

/* --- the queue: options ------------------------------------------------------------------------------------ */

/* Check the numbers that have limits. The table has one row for each number. */
static ddp_status check_numbers(const ddp_loader_options *o, struct ddp_err *err)
{
    const struct {
        const char *name;
        uint64_t value, least, most;
    } rows[] = {
        { "batch", o->batch, 1, INT32_MAX },
        { "arrays", o->arrays, 1, DDP_LOADER_ARRAYS },
        { "streams", (uint64_t)o->streams, 0, DDP_LOADER_STREAMS },
        { "threads", (uint64_t)o->threads, 0, DDP_LOADER_THREADS },
        { "ahead", o->ahead, 0, DDP_LOADER_BATCHES },
        { "held", o->held, 0, DDP_LOADER_BATCHES },
        { "timeout_ms", (uint64_t)o->timeout_ms, 0, INT32_MAX },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return ddp_fail(err, DDP_ERR_ARG,
                            "loader: %s=%" PRId64 ": expected a number from %" PRIu64 " to %" PRIu64,
                            rows[i].name, (int64_t)rows[i].value, rows[i].least, rows[i].most);
    }
    return DDP_OK;
}

/* Check the options that the sampler does not check. */
static ddp_status check_options(const ddp_loader_options *o, struct ddp_err *err)
{
    if (o->size != sizeof(*o))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_loader_options.size=%zu: initialize the struct with DDP_LOADER_OPTIONS_INIT",
                        o->size);
    if (o->fill == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "loader: `fill` is NULL; set the function that reads a sample");
    if ((o->alloc == NULL) != (o->release == NULL))
        return ddp_fail(err, DDP_ERR_ARG, "loader: set both `alloc` and `release`, or neither");
    return check_numbers(o, err);
}

/* Replace each option that is 0 by its default, if the option has a default. */
static void complete_options(ddp_loader_options *o)
{
    o->streams = o->streams == 0 ? 1 : o->streams;
    o->held = o->held == 0 ? 1 : o->held;
    o->timeout_ms = o->timeout_ms == 0 ? TIMEOUT_MS : o->timeout_ms;
    if (o->threads == 0)
        o->ahead = 0; /* without a thread, a batch is made only when it is requested */
    else if (o->ahead == 0)
        o->ahead = (size_t)o->threads * AHEAD_PER_THREAD;
}

/* --- the queue: memory ------------------------------------------------------------------------------------- */

/* Compute where the arrays of a slot begin. Fail above MOST_BYTES. */
static ddp_status lay_out_arrays(struct queue *queue, struct ddp_err *err)
{
    const ddp_loader_options *o = &queue->options;
    queue->slots = o->ahead + o->held;
    const size_t most = MOST_BYTES / queue->slots;
    for (size_t a = 0; a < o->arrays; a++) {
        const size_t left = queue->slot_bytes < most ? most - queue->slot_bytes : 0;
        queue->array_at[a] = queue->slot_bytes;
        if (o->row_bytes[a] == 0)
            return ddp_fail(err, DDP_ERR_ARG,
                            "loader: array %zu has rows of 0 bytes: expected at least 1 byte", a);
        if (o->row_bytes[a] > left / o->batch)
            return ddp_fail(
                err, DDP_ERR_ARG,
                "loader: array %zu is too large for the address space: %zu batches of %zu rows of "
                "%zu bytes; use smaller or fewer batches",
                a, queue->slots, o->batch, o->row_bytes[a]);
        queue->slot_bytes += round_up(o->row_bytes[a] * o->batch, ALIGN);
    }
    return DDP_OK;
}

/* Create one sampler per stream. */
static ddp_status make_samplers(struct queue *queue, struct ddp_err *err)
{
    const ddp_loader_options *o = &queue->options;
    queue->sampler = calloc((size_t)o->streams, sizeof(*queue->sampler));
    if (queue->sampler == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: out of memory for %d streams", o->streams);
    ddp_status status = DDP_OK;
    for (int i = 0; i < o->streams && status == DDP_OK; i++)
        status = ddp_sampler_create(o->samples, o->world_size, o->rank + i, o->seed, o->sampler_flags,
                                    &queue->sampler[i], err);
    return status;
}

/* Free the samplers. A second call is allowed, and so is a call after any failure. */
static void queue_close(struct queue *queue)
{
    for (int i = 0; queue->sampler != NULL && i < queue->options.streams; i++)
        ddp_sampler_free(queue->sampler[i]);
    free(queue->sampler);
    queue->sampler = NULL;
}

/* Open the queue without beginning an epoch. After an error nothing needs to be freed. */
static ddp_status queue_open(struct queue *queue, const ddp_loader_options *options, struct ddp_err *err)
{
    *queue = (struct queue){ 0 };
    ddp_status status = check_options(options, err);
    if (status != DDP_OK)
        return status;
    queue->options = *options;
    complete_options(&queue->options);
    status = lay_out_arrays(queue, err);
    if (status == DDP_OK)
        status = make_samplers(queue, err);
    if (status != DDP_OK)
        queue_close(queue);
    return status;
}

/* --- the queue: an epoch ----------------------------------------------------------------------------------- */

/* Begin an epoch after its first `done` samples. The streams make batches in turn, so each stream gets the number of
 * batches that the longest stream needs. */
static void queue_start(struct queue *queue, uint64_t epoch, uint64_t done)
{
    const ddp_loader_options *o = &queue->options;
    for (int i = 0; i < o->streams; i++)
        ddp_sampler_resume(queue->sampler[i], epoch, done);
    /* Stream 0 has at least as many samples as each other stream. */
    const uint64_t longest = ddp_sampler_len(queue->sampler[0]);
    queue->epoch = epoch;
    queue->total = (longest / o->batch + (longest % o->batch != 0)) * (uint64_t)o->streams;
    queue->end = queue->total;
    queue->released = queue->given = queue->taken = 0;
}

/* Prevent the start of further batches of this epoch. */
static void queue_stop(struct queue *queue)
{
    queue->end = queue->taken;
}

/* Set *number to the next batch for the program. Return false at the end of the epoch. If the program holds the
 * maximum number of batches (options.held), release the oldest batch. *number stays the same until the caller
 * increases `given`. */
static bool queue_ask(struct queue *queue, uint64_t *number)
{
    if (queue->given + 1 > queue->options.held)
        queue->released = queue->given + 1 - queue->options.held;
    *number = queue->given;
    return queue->given < queue->end;
}

/* Set *number to the next batch that may begin. Return false if no batch may begin now. The caller must call
 * queue_draw at once, because batches must draw their samples in order. */
static bool queue_remove(struct queue *queue, uint64_t *number)
{
    if (queue->taken == queue->end || queue->taken >= queue->released + queue->slots)
        return false;
    *number = queue->taken++;
    return true;
}

/* Draw the samples of batch `number`. Each stream of batches has a sampler. */
static void queue_draw(struct queue *queue, uint64_t number, uint64_t *index, unsigned char *is_pad,
                       ddp_batch *batch)
{
    const int stream = (int)(number % (uint64_t)queue->options.streams);
    size_t rows = 0;
    int pad = 0;
    for (; rows < queue->options.batch && ddp_sampler_next(queue->sampler[stream], &index[rows], &pad);
         rows++)
        is_pad[rows] = (unsigned char)pad;
    batch->number = number;
    batch->stream = stream;
    batch->rows = rows;
}

/* Return the argument of `fill` for row `row`. The random numbers of a row depend only on seed, epoch and sample, not
 * on the thread. */
static ddp_loader_row queue_row(const struct queue *queue, const ddp_batch *batch, size_t row)
{
    ddp_loader_row r = { .index = batch->index[row], .epoch = queue->epoch, .is_pad = batch->is_pad[row] };
    ddp_philox_seed(&r.luck, queue->options.seed, queue->epoch, r.index);
    for (size_t a = 0; a < queue->options.arrays; a++)
        r.to[a] = (char *)batch->array[a] + row * queue->options.row_bytes[a];
    return r;
}

/* --- threads and memory ------------------------------------------------------------------------------------ */

/* One slot. While `ready` is false, the reading thread owns all members except `reading`; then the program owns
 * them. */
struct slot {
    ddp_batch batch;
    uint64_t *index;
    unsigned char *is_pad;
    bool ready;
    ddp_status status; /* result of the reading; `err` has the text of an error */
    struct ddp_err err;
    _Atomic uint64_t reading; /* index of the sample that is being read, for a timeout error */
};

struct ddp_loader {
    struct queue queue;
    void *memory; /* owned: all arrays of all slots */
    struct slot *slot;
    /* Owned: `index` and `is_pad` of all slots. */
    uint64_t *index;
    unsigned char *is_pad;

    pthread_mutex_t mutex;
    pthread_cond_t work, done; /* work: a batch may begin; done: a batch is ready, or a thread has stopped */
    pthread_t thread[DDP_LOADER_THREADS];
    int threads;           /* number of threads that have been started */
    int busy;              /* number of threads that read at the moment */
    bool started, closing; /* started: ddp_loader_start was called; closing: the threads must end */
    atomic_bool stopping;  /* true if threads must stop reading after the current sample */
    struct ddp_err failed; /* protected by the mutex; an error stays until the next ddp_loader_start */
};

/* --- reading ----------------------------------------------------------------------------------------------- */

/* Read samples one by one, up to the first failure. Flush subnormals, because every thread must give the same
 * bytes. */
static void fill_slot(ddp_loader *loader, struct slot *slot)
{
    FLUSH_SUBNORMALS(true);
    const ddp_loader_options *o = &loader->queue.options;
    slot->status = DDP_OK;
    for (size_t i = 0; i < slot->batch.rows && slot->status == DDP_OK; i++) {
        ddp_loader_row row = queue_row(&loader->queue, &slot->batch, i);
        atomic_store_explicit(&slot->reading, row.index, memory_order_relaxed);
        if (atomic_load_explicit(&loader->stopping, memory_order_relaxed))
            return;
        slot->err = (struct ddp_err){ .msg = "" };
        slot->status = o->fill(o->user, &row, &slot->err);
        if (slot->status != DDP_OK) {
            slot->err.code = slot->status;
            ddp_wrap(&slot->err, "loader: sample %" PRIu64, row.index);
        }
    }
}

/* Begin a batch and return its slot, or NULL if no batch may begin now. The caller holds the mutex. */
static struct slot *begin_batch(ddp_loader *loader)
{
    uint64_t number;
    if (!queue_remove(&loader->queue, &number))
        return NULL;
    struct slot *slot = &loader->slot[number % loader->queue.slots];
    slot->ready = false;
    queue_draw(&loader->queue, number, slot->index, slot->is_pad, &slot->batch);
    atomic_store_explicit(&slot->reading, slot->batch.rows > 0 ? slot->index[0] : 0, memory_order_relaxed);
    return slot;
}

/* Read one batch. The caller holds the mutex, which is released while samples are read. */
static void read_one(ddp_loader *loader, struct slot *slot)
{
    loader->busy++;
    pthread_mutex_unlock(&loader->mutex);
    fill_slot(loader, slot);
    pthread_mutex_lock(&loader->mutex);
    loader->busy--;
    slot->ready = true;
    pthread_cond_broadcast(&loader->done);
}

/* Read batches until `closing` is true. The wait has no timeout, because end_threads wakes the thread. */
static void *read_batches(void *user)
{
    ddp_loader *loader = user;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->closing) {
        struct slot *slot = begin_batch(loader);
        if (slot != NULL)
            read_one(loader, slot);
        else
            pthread_cond_wait(&loader->work, &loader->mutex);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* --- waiting ----------------------------------------------------------------------------------------------- */

static struct timespec deadline_of(const ddp_loader *loader)
{
    return clock_after_us((uint64_t)loader->queue.options.timeout_ms * 1000);
}

/* Report the first batch that is still being read, and its current sample. The caller holds the mutex. */
static ddp_status sample_late(const ddp_loader *loader, struct ddp_err *err)
{
    for (uint64_t k = loader->queue.released; k < loader->queue.taken; k++) {
        const struct slot *slot = &loader->slot[k % loader->queue.slots];
        if (!slot->ready)
            return ddp_fail(err, DDP_ERR_TIMEOUT,
                            "loader: sample %" PRIu64 " of batch %" PRIu64 " is still being read after %g s; "
                            "check the read function, or raise timeout_ms",
                            atomic_load_explicit(&slot->reading, memory_order_relaxed), slot->batch.number,
                            (double)loader->queue.options.timeout_ms / 1000);
    }
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "loader: no thread has begun batch %" PRIu64 " within %g s; raise threads or timeout_ms",
                    loader->queue.given, (double)loader->queue.options.timeout_ms / 1000);
}

/* Prevent the start of further batches, and wait until no thread reads. The caller holds the mutex. Threads read
 * `stopping` between two samples, so ddp_loader_free and ddp_loader_start wait for at most one sample of each
 * thread. */
static ddp_status stop_reading(ddp_loader *loader)
{
    const struct timespec deadline = deadline_of(loader);
    queue_stop(&loader->queue);
    atomic_store_explicit(&loader->stopping, true, memory_order_relaxed);
    while (loader->busy > 0) {
        /* After a timeout a batch is incomplete, so the error stays in the loader. */
        if (pthread_cond_timedwait(&loader->done, &loader->mutex, &deadline) == ETIMEDOUT && loader->busy > 0)
            return sample_late(loader, &loader->failed);
    }
    atomic_store_explicit(&loader->stopping, false, memory_order_relaxed);
    return DDP_OK;
}

/* Return true if the batch that the program requested is ready. If no thread has begun this batch, slot->ready still
 * describes an earlier batch. The caller holds the mutex. */
static bool is_batch_ready(const ddp_loader *loader, const struct slot *slot)
{
    return loader->queue.taken > loader->queue.given && slot->ready;
}

/* Wait for the batch in `slot`. The caller holds the mutex. */
static ddp_status wait_ready(ddp_loader *loader, const struct slot *slot, struct ddp_err *err)
{
    const struct timespec deadline = deadline_of(loader);
    pthread_cond_broadcast(&loader->work); /* queue_ask may have freed a slot for the threads */
    while (!is_batch_ready(loader, slot)) {
        if (pthread_cond_timedwait(&loader->done, &loader->mutex, &deadline) == ETIMEDOUT &&
            !is_batch_ready(loader, slot))
            return sample_late(loader, err);
    }
    return DDP_OK;
}

/* --- the program's calls ----------------------------------------------------------------------------------- */

/* Wait until a thread has made the batch of `slot`. If the loader has no threads, read the batch here. The caller holds
 * the mutex. */
static ddp_status obtain(ddp_loader *loader, struct slot *slot, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (loader->threads == 0)
        read_one(loader, begin_batch(loader));
    else
        status = wait_ready(loader, slot, err);
    if (status == DDP_OK && slot->status != DDP_OK) {
        *err = slot->err;
        status = slot->status;
    }
    return status;
}

/* Set *out to the next batch, or leave *out NULL at the end of the epoch. Report the error of a failed batch only when
 * the program requests this batch, so that every run reports the error at the same point. The caller holds the
 * mutex. */
static ddp_status next_batch(ddp_loader *loader, const ddp_batch **out)
{
    uint64_t number;
    if (!loader->started)
        return ddp_fail(&loader->failed, DDP_ERR_ARG, "loader: call ddp_loader_start before ddp_loader_next");
    if (loader->failed.code != DDP_OK)
        return loader->failed.code;
    if (!queue_ask(&loader->queue, &number))
        return DDP_OK;
    struct slot *slot = &loader->slot[number % loader->queue.slots];
    ddp_status status = obtain(loader, slot, &loader->failed);
    if (status == DDP_OK) {
        loader->queue.given++;
        *out = &slot->batch;
    }
    return status;
}

ddp_status ddp_loader_next(ddp_loader *loader, const ddp_batch **out)
{
    NOT_NULL(loader, NULL);
    NOT_NULL(out, NULL);
    *out = NULL;
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = next_batch(loader, out);
    if (status != DDP_OK) {
        queue_stop(&loader->queue);
        status = last_error_keep(&loader->failed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

ddp_status ddp_loader_start(ddp_loader *loader, uint64_t epoch, uint64_t done)
{
    NOT_NULL(loader, NULL);
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = stop_reading(loader);
    if (status == DDP_OK) {
        queue_start(&loader->queue, epoch, done);
        loader->failed = (struct ddp_err){ .code = DDP_OK };
        loader->started = true;
        pthread_cond_broadcast(&loader->work);
    } else {
        status = last_error_keep(&loader->failed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

uint64_t ddp_loader_batches(const ddp_loader *loader)
{
    return loader->queue.total;
}

/* --- create and free --------------------------------------------------------------------------------------- */

static size_t all_bytes(const ddp_loader *loader)
{
    return loader->queue.slots * loader->queue.slot_bytes;
}

/* Allocate the slots. Do not write to the memory here, because the kernel places each page near the core that writes
 * to the page first. */
static ddp_status allocate_slots(ddp_loader *loader, struct ddp_err *err)
{
    const ddp_loader_options *o = &loader->queue.options;
    const size_t slots = loader->queue.slots;
    loader->slot = calloc(slots, sizeof(*loader->slot));
    loader->index = calloc(slots, o->batch * sizeof(*loader->index));
    loader->is_pad = calloc(slots, o->batch);
    if (loader->slot == NULL || loader->index == NULL || loader->is_pad == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: out of memory for %zu batches of %zu rows", slots,
                        o->batch);
    loader->memory = o->alloc != NULL ? o->alloc(o->memory_user, all_bytes(loader))
                                      : aligned_alloc(256, all_bytes(loader));
    if (loader->memory == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: out of memory for %zu batches of %zu bytes", slots,
                        loader->queue.slot_bytes);
    if ((uintptr_t)loader->memory % 256 != 0)
        return ddp_fail(err, DDP_ERR_ARG, "loader: `alloc` returned %p: expected a multiple of 256",
                        loader->memory);
    return DDP_OK;
}

static void point_slots(ddp_loader *loader)
{
    const ddp_loader_options *o = &loader->queue.options;
    for (size_t i = 0; i < loader->queue.slots; i++) {
        struct slot *slot = &loader->slot[i];
        slot->batch.index = slot->index = loader->index + i * o->batch;
        slot->batch.is_pad = slot->is_pad = loader->is_pad + i * o->batch;
        for (size_t a = 0; a < o->arrays; a++)
            slot->batch.array[a] =
                (char *)loader->memory + i * loader->queue.slot_bytes + loader->queue.array_at[a];
    }
}

static ddp_status start_threads(ddp_loader *loader, struct ddp_err *err)
{
    for (; loader->threads < loader->queue.options.threads; loader->threads++) {
        char limit[RLIMIT_TEXT_MAX];
        int error = thread_start(&loader->thread[loader->threads], read_batches, loader);
        if (error != 0)
            return ddp_fail(
                err, DDP_ERR_LIMIT,
                "loader: cannot start thread %d of %d: %s; check `ulimit -u` (%s), or use threads = 0",
                loader->threads + 1, loader->queue.options.threads, strerror(error),
                rlimit_text(RLIMIT_NPROC, limit));
    }
    return DDP_OK;
}

/* Free the loader after all threads have ended. */
static void free_loader(ddp_loader *loader)
{
    const ddp_loader_options *o = &loader->queue.options;
    if (loader->memory != NULL && o->release != NULL)
        o->release(o->memory_user, loader->memory, all_bytes(loader));
    else
        free(loader->memory);
    queue_close(&loader->queue);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->done);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->slot);
    free(loader->index);
    free(loader->is_pad);
    free(loader);
}

/* Initialize the mutex and the conditions. Deadlines use the monotonic clock. */
static void init_locks(ddp_loader *loader)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, &attr);
    pthread_cond_init(&loader->done, &attr);
    pthread_condattr_destroy(&attr);
}

/* End the threads. Call this function only while no thread reads a batch. Each thread then only waits for work or for
 * the mutex, so it soon sees `closing` and ends. */
static void end_threads(ddp_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->closing = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->threads; i++)
        pthread_join(loader->thread[i], NULL);
}

/* Free the loader. If a thread hangs in `fill`, free nothing, because the thread may still write to the memory. */
ddp_status ddp_loader_free(ddp_loader *loader)
{
    if (loader == NULL)
        return DDP_OK;
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = stop_reading(loader);
    if (status != DDP_OK)
        status = last_error_keep(&loader->failed);
    pthread_mutex_unlock(&loader->mutex);
    if (status != DDP_OK)
        return status;
    end_threads(loader);
    free_loader(loader);
    return DDP_OK;
}

ddp_status ddp_loader_create(const ddp_loader_options *options, ddp_loader **out)
{
    NOT_NULL(options, NULL);
    NOT_NULL(out, NULL);
    struct ddp_err err;
    *out = NULL;
    ddp_loader *loader = calloc(1, sizeof(*loader));
    if (loader == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "loader: out of memory");
        return last_error_keep(&err);
    }
    init_locks(loader);
    ddp_status status = queue_open(&loader->queue, options, &err);
    if (status == DDP_OK)
        status = allocate_slots(loader, &err);
    if (status == DDP_OK) {
        point_slots(loader);
        status = start_threads(loader, &err);
    }
    if (status == DDP_OK) {
        *out = loader;
        return DDP_OK;
    }
    end_threads(loader);
    free_loader(loader);
    return last_error_keep(&err);
}
