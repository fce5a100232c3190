/* device.c -- see device.h: opens libraries, reads kernels, starts kernels, allocates memory and sends batches. Most
 * functions of compute.h return no status, so the first error is kept, and cuda_end returns it. After this error,
 * cuda_launch starts no kernel. */
#include "train/cuda/device.h"

#include "cuda/gpu.h"
#include "train/train_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const driver_places[] = { "libcuda.so.1", NULL };
static const struct lib_kind driver_kind = { "the CUDA driver (libcuda)", "DDP_CUDA_DRIVER_LIBRARY",
                                             driver_places, "install NVIDIA's driver" };
static const struct lib_symbol driver_symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct driver, member) },
    DRIVER_FUNCTION_LIST(X)
#undef X
};

static const char *const lt_places[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                         "/usr/local/cuda/lib64/libcublasLt.so", NULL };
static const struct lib_kind lt_kind = {
    "cuBLASLt (libcublasLt)", "DDP_CUBLASLT_LIBRARY", lt_places,
    "install the CUDA toolkit, or `pip install nvidia-cublas`, which installs "
    "site-packages/nvidia/cu13/lib/libcublasLt.so.13"
};
static const struct lib_symbol lt_symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct cublaslt, member) },
    CUBLASLT_FUNCTION_LIST(X)
#undef X
};

static const char *given(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL ? value : "";
}

static ddp_status load_symbols(const struct lib_kind *kind, size_t place, const struct lib_symbol *symbols,
                               size_t n, void *table, struct ddp_err *err)
{
    void *handle;
    ddp_status status = lib_open(kind, given(kind->variable), &place, &handle, err);
    return status == DDP_OK ? lib_symbols(kind, handle, symbols, n, table, err) : status;
}

/* Return the index in lt_places of the cuBLASLt that belongs to the version of the CUDA runtime. */
static size_t place_of(const struct gpu *gpu)
{
    int version = 0;
    gpu->call.runtime_version(&version);
    return version >= 13000 ? 0 : version >= 12000 ? 1 : 2;
}

/* Open the libraries. Open the driver first, because its error is the clearest if the machine has no GPU. */
ddp_status libraries_open(struct cuda *c, int *count, struct ddp_err *err)
{
    ddp_status status = load_symbols(&driver_kind, 0, driver_symbols,
                                     sizeof(driver_symbols) / sizeof(driver_symbols[0]), &c->driver, err);
    if (status == DDP_OK)
        status = gpu_open(&c->gpu, given("DDP_CUDART_LIBRARY"), count, err);
    if (status != DDP_OK)
        return status;
    return load_symbols(&lt_kind, place_of(&c->gpu), lt_symbols, sizeof(lt_symbols) / sizeof(lt_symbols[0]),
                        &c->lt, err);
}

/* --- kernels ------------------------------------------------------------------------------------------ */

enum { PATH_ROOM = 4352, KERNELS_MOST = 1 << 28 };

static const char *const types[] = {
    [PRECISION_FP32] = "f32", [PRECISION_BF16] = "bf16", [PRECISION_FP16] = "f16"
};

/* Folders of the kernels, relative to the program's folder: the first is for build/, the second for an installed
 * program. */
static const char *const beside[] = { "", "../../share/ddprun/" };

static FILE *open_in(const char *directory, const char *below, const char *type, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%.4096s/%strain_kernels.%s.fatbin", directory, below, type);
    return fopen(path, "rbe");
}

static FILE *open_kernels(const char *type, char path[PATH_ROOM])
{
    char own[4096];
    FILE *file = NULL;
    if (given("DDP_TRAIN_KERNELS")[0] != '\0')
        return open_in(given("DDP_TRAIN_KERNELS"), "", type, path);
    const ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[n > 0 ? n : 0] = '\0';
    if (strrchr(own, '/') != NULL)
        *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && file == NULL; i++)
        file = open_in(own, beside[i], type, path);
    return file;
}

static ddp_status read_all(FILE *file, const char *path, char **image, struct ddp_err *err)
{
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot read: %s; build the file again with `make`", path,
                        strerror(errno));
    if (size == 0 || size > KERNELS_MOST)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "%s: a file of %ld bytes cannot contain kernels; build the file again with `make`",
                        path, size);
    *image = calloc((size_t)size + 1, 1);
    rewind(file);
    if (*image != NULL && fread(*image, 1, (size_t)size, file) == (size_t)size)
        return DDP_OK;
    free(*image);
    *image = NULL;
    return ddp_fail(err, DDP_ERR_IO, "%s: cannot read: %s; build the file again with `make`", path,
                    strerror(errno));
}

ddp_status libraries_kernels(int precision, char **image, struct ddp_err *err)
{
    char path[PATH_ROOM];
    FILE *file = open_kernels(types[precision], path);
    *image = NULL;
    if (file == NULL)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "%s: cannot open: %s; `make` builds this file if nvcc is installed (in PATH, or CUDA_HOME=DIR); "
            "set DDP_TRAIN_KERNELS=DIR if the file is in another folder",
            path, strerror(errno));
    ddp_status status = read_all(file, path, image, err);
    fclose(file);
    return status;
}

static const unsigned threads_of[] = {
#define X(name, threads, args) threads,
    KERNEL_LIST(X)
#undef X
};
const char *const cuda_kernel_names[] = {
#define X(name, threads, args) #name,
    KERNEL_LIST(X)
#undef X
};

/* --- errors ------------------------------------------------------------------------------------------- */

void cuda_failed(struct cuda *c, ddp_status status, const struct ddp_err *err)
{
    if (status != DDP_OK && c->failed.code == DDP_OK)
        c->failed = *err;
}

bool cuda_check(struct cuda *c, cuda_error error, const char *doing)
{
    struct ddp_err err = { 0 };
    cuda_failed(c, gpu_check(&c->gpu, error, doing, &err), &err);
    return error == CUDA_SUCCESS_;
}

ddp_status cuda_driver_check(struct cuda *c, driver_result result, const char *doing, const char *what,
                             struct ddp_err *err)
{
    const char *words = NULL;
    if (result == 0)
        return DDP_OK;
    if (c->driver.error_string(result, &words) != 0 || words == NULL)
        words = "unknown error";
    return ddp_fail(err, DDP_ERR_CUDA, "%s %s: error %u (%.200s)", doing, what, result, words);
}

ddp_status cuda_end(struct compute *base, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    if (c->failed.code == DDP_OK)
        return DDP_OK;
    *err = c->failed;
    return err->code;
}

/* --- calls and memory --------------------------------------------------------------------------------- */

void cuda_launch(struct cuda *c, enum kernel kernel, size_t x, size_t y, void *args)
{
    struct ddp_err err = { 0 };
    void *parameters[] = { args };
    if (x == 0 || y == 0 || c->failed.code != DDP_OK)
        return;
    if (x > INT32_MAX || y > UINT16_MAX) {
        ddp_fail(&err, DDP_ERR_ARG, "kernel %s: a GPU cannot run %zu x %zu blocks; use a smaller --batch",
                 cuda_kernel_names[kernel], x, y);
        cuda_failed(c, err.code, &err);
        return;
    }
    driver_result result = c->driver.launch(c->kernel[kernel], (unsigned)x, (unsigned)y, 1,
                                            threads_of[kernel], 1, 1, 0, c->stream, parameters, NULL);
    cuda_failed(c, cuda_driver_check(c, result, "cannot start kernel", cuda_kernel_names[kernel], &err),
                &err);
}

void *cuda_alloc(struct compute *base, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    struct ddp_err err = { 0 };
    void *memory = NULL;
    if (gpu_alloc(&c->gpu, bytes > 0 ? bytes : 1, &memory, &err) != DDP_OK)
        return NULL;
    return memory;
}

/* Free memory. First wait for all work, because queued kernels may still use the memory. */
void cuda_release(struct compute *base, void *memory)
{
    struct cuda *c = cuda_of(base);
    if (memory == NULL)
        return;
    cuda_check(c, c->gpu.call.stream_sync(c->stream), "cannot wait for the GPU before cudaFree");
    cuda_check(c, c->gpu.call.free(memory), "cudaFree");
}

void cuda_zero(struct compute *base, void *at, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    cuda_check(c, c->gpu.call.set_async(at, 0, bytes, c->stream), "cudaMemsetAsync");
}

void *cuda_room(struct cuda *c, struct room *room, size_t bytes)
{
    struct ddp_err err = { 0 };
    if (room->bytes >= bytes && room->memory != NULL)
        return room->memory;
    cuda_release(&c->base, room->memory);
    *room = (struct room){ cuda_alloc(&c->base, bytes), bytes };
    if (room->memory == NULL)
        cuda_failed(c,
                    ddp_fail(&err, DDP_ERR_NOMEM,
                             "cannot allocate %zu bytes of device memory; use a smaller --batch", bytes),
                    &err);
    return room->memory;
}

/* --- batches ----------------------------------------------------------------------------------------------- */

/* The host copies a batch into one of two slots of pinned memory. Meanwhile the device reads the other slot. */

/* Offset of each array in the slot, in bytes; `end` is the size of the slot. */
struct layout {
    size_t input, target, weight, order, first, end;
};

static size_t after(size_t at, size_t count, size_t each)
{
    return (at + count * each + 255) / 256 * 256;
}

static struct layout layout_of(const struct model_batch *b, size_t pixels)
{
    const size_t n = b->rows * b->length;
    struct layout l = { .input = 0 };
    l.target = after(l.input, pixels > 0 ? b->rows * pixels : n, sizeof(float));
    l.weight = after(l.target, n, sizeof(int32_t));
    l.order = after(l.weight, b->rows, sizeof(float));
    l.first = after(l.order, n, sizeof(int32_t));
    l.end = after(l.first, n + 1, sizeof(int32_t));
    return l;
}

/* Wait until the next slot may be overwritten, and return the slot. */
static char *next_slot(struct cuda *c, size_t bytes)
{
    const unsigned i = c->batches % SLOTS;
    struct room *slot = &c->slot[i];
    if (c->batches >= SLOTS && !cuda_check(c, c->gpu.call.event_sync(c->sent[i]), "cannot wait for a batch"))
        return NULL;
    if (slot->bytes >= bytes)
        return slot->memory;
    if (slot->memory != NULL)
        c->gpu.call.host_free(slot->memory);
    *slot = (struct room){ NULL, 0 };
    if (!cuda_check(c, c->gpu.call.host_alloc(&slot->memory, bytes), "cudaMallocHost"))
        return NULL;
    slot->bytes = bytes;
    return slot->memory;
}

static int32_t largest(const int32_t *x, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static int32_t *counts(struct cuda *c, size_t n)
{
    struct ddp_err err = { 0 };
    if (c->sorted.bytes < n * sizeof(int32_t)) {
        free(c->sorted.memory);
        c->sorted = (struct room){ malloc(n * sizeof(int32_t)), n * sizeof(int32_t) };
    }
    if (c->sorted.memory == NULL) {
        c->sorted.bytes = 0;
        cuda_failed(c,
                    ddp_fail(&err, DDP_ERR_NOMEM,
                             "cannot sort the tokens of a batch: out of memory for %zu bytes on the host",
                             n * sizeof(int32_t)),
                    &err);
        return NULL;
    }
    return memset(c->sorted.memory, 0, n * sizeof(int32_t));
}

/* Sort the positions by token into `order`, so that embedding.cu adds each token's gradients in a fixed order.
 * Positions of the same token keep their order. Set first[k] to the index in `order` at which the k-th distinct token
 * begins. The last entry of `first` is n. */
static void sort(struct cuda *c, const int32_t *token, size_t n, int32_t *order, int32_t *first)
{
    const size_t tokens = (size_t)largest(token, n) + 1;
    int32_t *at = counts(c, tokens), sum = 0;
    if (at == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        at[token[i]]++;
    c->distinct = 0;
    for (size_t t = 0; t < tokens; t++) {
        const int32_t many = at[t];
        if (many > 0)
            first[c->distinct++] = sum;
        at[t] = sum;
        sum += many;
    }
    first[c->distinct] = sum;
    for (size_t i = 0; i < n; i++)
        order[at[token[i]]++] = (int32_t)i;
}

static void batch_fill(struct cuda *c, char *to, const struct layout *l, const struct model_batch *b,
                       size_t pixels)
{
    const size_t n = b->rows * b->length;
    memcpy(to + l->target, b->target, n * sizeof(int32_t));
    memcpy(to + l->weight, b->weight, b->rows * sizeof(float));
    if (pixels > 0) {
        memcpy(to + l->input, b->picture, b->rows * pixels * sizeof(float));
        return;
    }
    memcpy(to + l->input, b->token, n * sizeof(int32_t));
    sort(c, b->token, n, (int32_t *)(void *)(to + l->order), (int32_t *)(void *)(to + l->first));
}

static void send(struct cuda *c, const char *from, char *to, size_t bytes)
{
    const unsigned i = c->batches++ % SLOTS;
    cuda_error error = c->gpu.call.copy_async(to, from, bytes, CUDA_COPY_DEFAULT, c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.event_record(c->sent[i], c->stream);
    cuda_check(c, error, "cannot send a batch");
}

/* Return the pictures: unchanged with 32-bit precision, otherwise converted from float to the 16-bit type. */
static const void *pictures(struct cuda *c, const char *at, size_t n)
{
    if (c->base.value_bytes == sizeof(float))
        return at;
    struct narrow_args args = { cuda_room(c, &c->pictures, n * c->base.value_bytes),
                                (const float *)(const void *)at, n };
    cuda_launch(c, KERNEL_narrow, cuda_by_packs(c, n), 1, &args);
    return args.to;
}

ddp_status cuda_begin(struct compute *base, const struct model_batch *from, size_t pixels,
                      struct model_batch *on, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    const struct layout l = layout_of(from, pixels);
    char *slot = next_slot(c, l.end), *to = slot != NULL ? cuda_room(c, &c->batch, l.end) : NULL;
    if (slot == NULL || to == NULL)
        return cuda_end(base, err);
    batch_fill(c, slot, &l, from, pixels);
    send(c, slot, to, l.end);
    *on = *from;
    on->target = (const int32_t *)(const void *)(to + l.target);
    on->weight = (const float *)(const void *)(to + l.weight);
    on->token = (const int32_t *)(const void *)(to + l.input);
    on->picture = pixels > 0 ? pictures(c, to + l.input, from->rows * pixels) : NULL;
    c->order = (const int *)(const void *)(to + l.order);
    c->first = (const int *)(const void *)(to + l.first);
    return cuda_end(base, err);
}
