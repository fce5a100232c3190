/* batch.c -- see device.h: sends a batch to the device. The host copies the batch into one of two slots of pinned
 * memory and continues, while the device reads the slot. There are two slots, so the host waits only if the device has
 * not yet read the batch that was in the same slot before. */
#include "train/cuda/device.h"

#include <stdlib.h>
#include <string.h>

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
        cuda_failed(c, ddp_fail(&err, DDP_ERR_NOMEM, "out of memory to sort tokens"), &err);
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
