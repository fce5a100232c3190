/* loader.c -- see ddp/loader.h: the threads and the memory of loader_core.h.
 *
 * One mutex, two conditions: "there may be something to begin", "a batch is ready, or a thread has stopped". A thread takes a
 * batch and draws its samples under the mutex, in the order of batches, and reads them without. So the order in which threads
 * finish changes nothing but when; and an error is told when its batch is asked for, not when it happens, which is the same
 * moment in every run.
 *
 * `stopping` is looked at between two samples: who wants to free a loader, or begin another epoch, waits for one sample of each
 * thread and not for a batch. */
#include "ddp/loader.h"

#include "base/clock.h"
#include "core/flush_subnormals.h"
#include "core/last_error.h"
#include "data/loader_core.h"
#include "core/quiet_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    ddp_batch batch;
    uint64_t *index;
    unsigned char *is_pad;
    bool ready;
    ddp_status status; /* when ready; err has the words */
    struct ddp_err err;
    _Atomic uint64_t reading; /* the sample, for who waits too long */
};

struct ddp_loader {
    struct loader_core core;
    void *memory; /* of all arrays of all slots */
    struct slot *slot;
    uint64_t *index;
    unsigned char *is_pad; /* of all slots */

    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t thread[DDP_LOADER_THREADS];
    int threads; /* that have been started */
    int busy;    /* of them are reading */
    bool started, closing;
    atomic_bool stopping;
    struct ddp_err failed; /* with the mutex; sticks until the next start; code DDP_OK = nothing has */
};

/* --- reading ----------------------------------------------------------------------------------------------- */

/* Samples one by one; the first that fails ends the batch, and the words say which it was. Subnormals are flushed with threads and
 * without, so both make the same bytes. */
static void fill(ddp_loader *loader, struct slot *slot)
{
    FLUSH_SUBNORMALS(true);
    const ddp_loader_options *o = &loader->core.options;
    slot->status = DDP_OK;
    for (size_t i = 0; i < slot->batch.rows && slot->status == DDP_OK; i++) {
        ddp_loader_row row = loader_core_row(&loader->core, &slot->batch, i);
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

/* With the mutex. NULL: nothing may be begun now. */
static struct slot *take(ddp_loader *loader)
{
    uint64_t number;
    if (!loader_core_take(&loader->core, &number))
        return NULL;
    struct slot *slot = &loader->slot[number % loader->core.slots];
    slot->ready = false;
    loader_core_draw(&loader->core, number, slot->index, slot->is_pad, &slot->batch);
    atomic_store_explicit(&slot->reading, slot->batch.rows > 0 ? slot->index[0] : 0, memory_order_relaxed);
    return slot;
}

/* With the mutex, which is not held while samples are read. */
static void read_one(ddp_loader *loader, struct slot *slot)
{
    loader->busy++;
    pthread_mutex_unlock(&loader->mutex);
    fill(loader, slot);
    pthread_mutex_lock(&loader->mutex);
    loader->busy--;
    slot->ready = true;
    pthread_cond_broadcast(&loader->done);
}

/* No look at a clock: whoever closes the loader wakes it. */
static void *work(void *user)
{
    ddp_loader *loader = user;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->closing) {
        struct slot *slot = take(loader);
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
    return clock_after_us((uint64_t)loader->core.options.timeout_ms * 1000);
}

/* With the mutex. Which sample of which batch is not there: one that is being read, the lowest first. */
static ddp_status too_late(const ddp_loader *loader, struct ddp_err *err)
{
    for (uint64_t k = loader->core.released; k < loader->core.taken; k++) {
        const struct slot *slot = &loader->slot[k % loader->core.slots];
        if (!slot->ready)
            return ddp_fail(err, DDP_ERR_TIMEOUT,
                            "loader: sample %" PRIu64 " of batch %" PRIu64
                            " is still being read after %" PRId64 " ms",
                            atomic_load_explicit(&slot->reading, memory_order_relaxed), slot->batch.number,
                            loader->core.options.timeout_ms);
    }
    return ddp_fail(err, DDP_ERR_TIMEOUT, "loader: no thread has come to batch %" PRIu64 " in %" PRId64 " ms",
                    loader->core.given, loader->core.options.timeout_ms);
}

/* With the mutex: until no thread reads any more. Nothing new is begun; and where one does not end, nothing that was given up
 * half-read is handed out later. */
static ddp_status halt(ddp_loader *loader)
{
    const struct timespec deadline = deadline_of(loader);
    loader_core_stop(&loader->core);
    atomic_store_explicit(&loader->stopping, true, memory_order_relaxed);
    while (loader->busy > 0) {
        if (pthread_cond_timedwait(&loader->done, &loader->mutex, &deadline) == ETIMEDOUT && loader->busy > 0)
            return too_late(loader, &loader->failed);
    }
    atomic_store_explicit(&loader->stopping, false, memory_order_relaxed);
    return DDP_OK;
}

/* With the mutex. Until it is taken, the slot still is that of a former batch. */
static bool is_there(const ddp_loader *loader, const struct slot *slot)
{
    return loader->core.taken > loader->core.given && slot->ready;
}

/* With the mutex. */
static ddp_status await(ddp_loader *loader, const struct slot *slot, struct ddp_err *err)
{
    const struct timespec deadline = deadline_of(loader);
    pthread_cond_broadcast(&loader->work); /* a slot has been given back */
    while (!is_there(loader, slot)) {
        if (pthread_cond_timedwait(&loader->done, &loader->mutex, &deadline) == ETIMEDOUT &&
            !is_there(loader, slot))
            return too_late(loader, err);
    }
    return DDP_OK;
}

/* --- its owner --------------------------------------------------------------------------------------------- */

/* With the mutex. Batch `number` is there, or *err says why not. */
static ddp_status obtain(ddp_loader *loader, struct slot *slot, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (loader->threads == 0)
        read_one(loader, take(loader));
    else
        status = await(loader, slot, err);
    if (status == DDP_OK && slot->status != DDP_OK) {
        *err = slot->err;
        status = slot->status;
    }
    return status;
}

/* With the mutex. */
static ddp_status next(ddp_loader *loader, const ddp_batch **out)
{
    uint64_t number;
    if (!loader->started)
        return ddp_fail(&loader->failed, DDP_ERR_ARG,
                        "loader: ddp_loader_start comes before ddp_loader_next");
    if (loader->failed.code != DDP_OK)
        return loader->failed.code;
    if (!loader_core_ask(&loader->core, &number))
        return DDP_OK;
    struct slot *slot = &loader->slot[number % loader->core.slots];
    ddp_status status = obtain(loader, slot, &loader->failed);
    if (status == DDP_OK) {
        loader_core_give(&loader->core);
        *out = &slot->batch;
    }
    return status;
}

ddp_status ddp_loader_next(ddp_loader *loader, const ddp_batch **out)
{
    NOT_NULL_KEPT(loader);
    NOT_NULL_KEPT(out);
    *out = NULL;
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = next(loader, out);
    if (status != DDP_OK) {
        loader_core_stop(&loader->core);
        status = last_error_keep(&loader->failed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

ddp_status ddp_loader_start(ddp_loader *loader, uint64_t epoch, uint64_t done)
{
    NOT_NULL_KEPT(loader);
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = halt(loader);
    if (status == DDP_OK) {
        loader_core_start(&loader->core, epoch, done);
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
    return loader->core.total;
}

/* --- made and freed ---------------------------------------------------------------------------------------- */

static size_t all_bytes(const ddp_loader *loader)
{
    return loader->core.slots * loader->core.slot_bytes;
}

/* What is written for the first time by the thread that fills it lies near that thread's core, so nothing is zeroed here. */
static ddp_status allocate(ddp_loader *loader, struct ddp_err *err)
{
    const ddp_loader_options *o = &loader->core.options;
    const size_t slots = loader->core.slots;
    loader->slot = calloc(slots, sizeof(*loader->slot));
    loader->index = calloc(slots, o->batch * sizeof(*loader->index));
    loader->is_pad = calloc(slots, o->batch);
    if (loader->slot == NULL || loader->index == NULL || loader->is_pad == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: no memory for %zu batches of %zu rows", slots, o->batch);
    loader->memory = o->alloc != NULL ? o->alloc(o->memory_user, all_bytes(loader))
                                      : aligned_alloc(256, all_bytes(loader));
    if (loader->memory == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: no memory for %zu batches of %zu bytes", slots,
                        loader->core.slot_bytes);
    if ((uintptr_t)loader->memory % 256 != 0)
        return ddp_fail(err, DDP_ERR_ARG, "loader: `alloc` gave %p, expected a multiple of 256",
                        loader->memory);
    return DDP_OK;
}

static void point(ddp_loader *loader)
{
    const ddp_loader_options *o = &loader->core.options;
    for (size_t i = 0; i < loader->core.slots; i++) {
        struct slot *slot = &loader->slot[i];
        slot->batch.index = slot->index = loader->index + i * o->batch;
        slot->batch.is_pad = slot->is_pad = loader->is_pad + i * o->batch;
        for (size_t a = 0; a < o->arrays; a++)
            slot->batch.array[a] =
                (char *)loader->memory + i * loader->core.slot_bytes + loader->core.array_at[a];
    }
}

static ddp_status start_threads(ddp_loader *loader, struct ddp_err *err)
{
    for (; loader->threads < loader->core.options.threads; loader->threads++) {
        int error = quiet_thread(&loader->thread[loader->threads], work, loader);
        if (error != 0)
            return ddp_fail(
                err, DDP_ERR_LIMIT,
                "loader: no thread %d of %d: %s; `ulimit -u` shows the limit, threads = 0 needs none",
                loader->threads + 1, loader->core.options.threads, strerror(error));
    }
    return DDP_OK;
}

/* The one place that frees a loader; no thread is left. */
static void release(ddp_loader *loader)
{
    const ddp_loader_options *o = &loader->core.options;
    if (loader->memory != NULL && o->release != NULL)
        o->release(o->memory_user, loader->memory, all_bytes(loader));
    else
        free(loader->memory);
    loader_core_close(&loader->core);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->done);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->slot);
    free(loader->index);
    free(loader->is_pad);
    free(loader);
}

/* All deadlines are the monotonic clock's. */
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

/* Whoever has stopped reading sees `closing` at its next look, without a clock. */
static void end_threads(ddp_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->closing = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->threads; i++)
        pthread_join(loader->thread[i], NULL);
}

/* A thread that does not come back keeps what it may still write to. */
ddp_status ddp_loader_free(ddp_loader *loader)
{
    if (loader == NULL)
        return DDP_OK;
    pthread_mutex_lock(&loader->mutex);
    ddp_status status = halt(loader);
    if (status != DDP_OK)
        status = last_error_keep(&loader->failed);
    pthread_mutex_unlock(&loader->mutex);
    if (status != DDP_OK)
        return status;
    end_threads(loader);
    release(loader);
    return DDP_OK;
}

ddp_status ddp_loader_create(const ddp_loader_options *options, ddp_loader **out)
{
    NOT_NULL_KEPT(options);
    NOT_NULL_KEPT(out);
    struct ddp_err err;
    *out = NULL;
    ddp_loader *loader = calloc(1, sizeof(*loader));
    if (loader == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "loader: no memory");
        return last_error_keep(&err);
    }
    init_locks(loader);
    ddp_status status = loader_core_open(&loader->core, options, &err);
    if (status == DDP_OK)
        status = allocate(loader, &err);
    if (status == DDP_OK) {
        point(loader);
        status = start_threads(loader, &err);
    }
    if (status == DDP_OK) {
        *out = loader;
        return DDP_OK;
    }
    end_threads(loader);
    release(loader);
    return last_error_keep(&err);
}
