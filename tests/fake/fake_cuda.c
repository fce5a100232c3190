/* fake_cuda.c -- the CUDA runtime of fake_gpu.h. There is one lock for everything, because this fake must be correct
 * and need not be fast. */
#include "fake_gpu.h"

#include "cuda/cudart_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define X(member, symbol, result, parameters) EXPORT result symbol parameters;
CUDART_FUNCTION_LIST(X)
#undef X

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local int current;
static _Thread_local cuda_error last;

int fake_number(const char *name, int missing)
{
    const char *value = getenv(name);
    return value != NULL ? atoi(value) : missing;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

cuda_error cudaRuntimeGetVersion(int *version)
{
    *version = 12000;
    return CUDA_SUCCESS_;
}

cuda_error cudaDriverGetVersion(int *version)
{
    *version = fake_number("FAKE_CUDA_DRIVER", 12000);
    return CUDA_SUCCESS_;
}

cuda_error cudaGetDeviceCount(int *count)
{
    *count = fake_number("FAKE_CUDA_DEVICES", 8);
    if (fake_number("FAKE_CUDA_DRIVER", 12000) < 12000)
        return CUDA_OLD_DRIVER;
    return *count > 0 ? CUDA_SUCCESS_ : CUDA_NO_DEVICE;
}

cuda_error cudaSetDevice(int device)
{
    current = device;
    return device < fake_number("FAKE_CUDA_DEVICES", 8) ? CUDA_SUCCESS_ : 101;
}

EXPORT unsigned fake_device(void)
{
    return (unsigned)current;
}

cuda_error cudaDeviceGetPCIBusId(char *id, int room, int device)
{
    snprintf(id, (size_t)room, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS_;
}

const char *cudaGetErrorName(cuda_error error)
{
    return error == CUDA_NO_DEVICE ? "cudaErrorNoDevice" : "cudaErrorOfTheFake";
}

const char *cudaGetErrorString(cuda_error error)
{
    return error == CUDA_NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the fake runtime";
}

/* Return and clear the last error. Only a query with the answer "not yet" leaves an error. */
cuda_error cudaGetLastError(void)
{
    cuda_error error = last;
    last = CUDA_SUCCESS_;
    return error;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    size_t bytes;
    char *memory;
};

static struct block *blocks;

cuda_error cudaMalloc(void **out, size_t bytes)
{
    struct block *block = malloc(sizeof(*block));
    if (block == NULL || bytes > (size_t)1 << 40 ||
        (*out = aligned_alloc(256, (bytes + 255) / 256 * 256)) == NULL) {
        free(block);
        return CUDA_NO_MEMORY;
    }
    memset(*out, 0xa5, bytes);
    pthread_mutex_lock(&lock);
    *block = (struct block){ blocks, bytes, *out };
    blocks = block;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS_;
}

cuda_error cudaFree(void *memory)
{
    pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    struct block *block = *at;
    if (block != NULL)
        *at = block->next;
    pthread_mutex_unlock(&lock);
    if (block == NULL)
        return 1;
    free(block->memory);
    free(block);
    return CUDA_SUCCESS_;
}

cuda_error cudaPointerGetAttributes(cuda_pointer *out, const void *at)
{
    const char *place = at;
    out->type = 0;
    pthread_mutex_lock(&lock);
    for (const struct block *b = blocks; b != NULL; b = b->next)
        if (place >= b->memory && place < b->memory + b->bytes)
            out->type = CUDA_MEMORY_DEVICE;
    pthread_mutex_unlock(&lock);
    return (cuda_error)fake_number("FAKE_CUDA_POINTER", CUDA_SUCCESS_);
}

/* Allocate host memory. cudaPointerGetAttributes reports such a block as unknown. */
cuda_error cudaMallocHost(void **out, size_t bytes)
{
    *out = malloc(bytes);
    return *out != NULL ? CUDA_SUCCESS_ : CUDA_NO_MEMORY;
}

cuda_error cudaFreeHost(void *block)
{
    free(block);
    return CUDA_SUCCESS_;
}

cuda_error cudaHostRegister(void *block, size_t bytes, unsigned int flags)
{
    (void)block, (void)bytes, (void)flags;
    return CUDA_SUCCESS_;
}

cuda_error cudaHostUnregister(void *block)
{
    (void)block;
    return CUDA_SUCCESS_;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

struct job {
    struct job *next;
    void (*run)(void *user);
    void *user;
};

struct CUstream_st {
    struct job *first, **last;
    bool running, closing;
    pthread_t thread;
};

static struct CUstream_st *default_stream;

static void *work(void *user)
{
    struct CUstream_st *s = user;
    pthread_mutex_lock(&lock);
    while (!s->closing || s->first != NULL) {
        struct job *job = s->first;
        if (job == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        s->first = job->next;
        if (s->first == NULL)
            s->last = &s->first;
        s->running = true;
        pthread_mutex_unlock(&lock);
        job->run(job->user);
        free(job);
        pthread_mutex_lock(&lock);
        s->running = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

cuda_error cudaStreamCreateWithFlags(struct CUstream_st **out, unsigned int flags)
{
    (void)flags;
    struct CUstream_st *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return CUDA_NO_MEMORY;
    s->last = &s->first;
    *out = s;
    return pthread_create(&s->thread, NULL, work, s) == 0 ? CUDA_SUCCESS_ : CUDA_NO_MEMORY;
}

/* Return `stream`, or the default stream for NULL. The caller does not hold the lock. */
static struct CUstream_st *stream_of(struct CUstream_st *stream)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    if (stream != NULL)
        return stream;
    pthread_mutex_lock(&once);
    if (default_stream == NULL)
        cudaStreamCreateWithFlags(&default_stream, 0);
    pthread_mutex_unlock(&once);
    return default_stream;
}

void fake_launch(struct CUstream_st *stream, void (*run)(void *user), void *user)
{
    struct CUstream_st *s = stream_of(stream);
    struct job *job = malloc(sizeof(*job));
    *job = (struct job){ NULL, run, user };
    pthread_mutex_lock(&lock);
    *s->last = job;
    s->last = &job->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

cuda_error cudaStreamQuery(struct CUstream_st *stream)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&lock);
    bool idle = s->first == NULL && !s->running;
    pthread_mutex_unlock(&lock);
    return idle ? CUDA_SUCCESS_ : CUDA_NOT_READY;
}

cuda_error cudaStreamSynchronize(struct CUstream_st *stream)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&lock);
    while (s->first != NULL || s->running)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS_;
}

cuda_error cudaStreamDestroy(struct CUstream_st *s)
{
    pthread_mutex_lock(&lock);
    s->closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return CUDA_SUCCESS_;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

struct CUevent_st {
    unsigned recorded, come;
    struct CUevent_st *next;
};

/* List of destroyed events, which are never freed, because a stream may still wait for a destroyed event. */
static struct CUevent_st *destroyed;

struct event_job {
    struct CUevent_st *event;
    unsigned number;
};

static struct event_job *event_job(struct CUevent_st *event, unsigned number)
{
    struct event_job *job = malloc(sizeof(*job));
    *job = (struct event_job){ event, number };
    return job;
}

cuda_error cudaEventCreateWithFlags(struct CUevent_st **out, unsigned int flags)
{
    (void)flags;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? CUDA_SUCCESS_ : CUDA_NO_MEMORY;
}

cuda_error cudaEventDestroy(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    event->next = destroyed;
    destroyed = event;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS_;
}

static void event_comes(void *user)
{
    struct event_job *job = user;
    pthread_mutex_lock(&lock);
    job->event->come = job->number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(job);
}

cuda_error cudaEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    pthread_mutex_lock(&lock);
    unsigned number = ++event->recorded;
    pthread_mutex_unlock(&lock);
    fake_launch(stream, event_comes, event_job(event, number));
    return CUDA_SUCCESS_;
}

cuda_error cudaEventQuery(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    bool come = event->come == event->recorded;
    pthread_mutex_unlock(&lock);
    if (!come)
        last = CUDA_NOT_READY;
    return come ? CUDA_SUCCESS_ : CUDA_NOT_READY;
}

cuda_error cudaEventSynchronize(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    const unsigned number = event->recorded;
    while (event->come < number)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS_;
}

static void wait_for_event(void *user)
{
    struct event_job *job = user;
    pthread_mutex_lock(&lock);
    while (job->event->come < job->number)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    free(job);
}

cuda_error cudaStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    unsigned number = event->recorded;
    pthread_mutex_unlock(&lock);
    fake_launch(stream, wait_for_event, event_job(event, number));
    return CUDA_SUCCESS_;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

struct copy {
    char *to;
    const char *from; /* NULL means zeros */
    size_t to_pitch, from_pitch, width, rows;
};

static void do_copy(void *user)
{
    struct copy *c = user;
    for (size_t r = 0; r < c->rows; r++) {
        if (c->from != NULL)
            memmove(c->to + r * c->to_pitch, c->from + r * c->from_pitch, c->width);
        else
            memset(c->to + r * c->to_pitch, 0, c->width);
    }
    free(c);
}

static cuda_error copy(struct copy c, struct CUstream_st *stream)
{
    struct copy *job = malloc(sizeof(*job));
    *job = c;
    fake_launch(stream, do_copy, job);
    return CUDA_SUCCESS_;
}

cuda_error cudaMemsetAsync(void *at, int value, size_t bytes, struct CUstream_st *stream)
{
    return value == 0 ? copy((struct copy){ at, NULL, 0, 0, bytes, 1 }, stream) : 1;
}

cuda_error cudaMemcpyAsync(void *to, const void *from, size_t bytes, cuda_copy_kind kind,
                           struct CUstream_st *stream)
{
    (void)kind;
    return copy((struct copy){ to, from, 0, 0, bytes, 1 }, stream);
}

cuda_error cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t rows, cuda_copy_kind kind, struct CUstream_st *stream)
{
    const size_t most = (size_t)fake_number("FAKE_CUDA_PITCH", INT32_MAX);
    (void)kind;
    if (to_pitch > most || from_pitch > most)
        return 12; /* cudaErrorInvalidPitchValue */
    return width <= to_pitch && width <= from_pitch
               ? copy((struct copy){ to, from, to_pitch, from_pitch, width, rows }, stream)
               : 1;
}
