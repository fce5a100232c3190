/* model.c -- see model.h: functions that are the same for all models. A kind of model implements only its layers
 * (struct model_ops), because this file calls compute_ops.begin and compute_ops.end and frees all memory. */
#include "train/models/model.h"

#include "base/buf.h"
#include "train/compute.h"
#include "train/models/models.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* normal_fill uses the method of Box and Muller: two uniform numbers give a length and an angle, which give two normal
 * numbers. As in torch, all uniform numbers are drawn first. Numbers k and k + 8 of each group of sixteen are a pair.
 * If fewer than sixteen numbers are left at the end, the last sixteen numbers are drawn again. */

enum { GROUP = 16, HALF = GROUP / 2 };

static void turn(float *group, float deviation)
{
    for (int k = 0; k < HALF; k++) {
        const float length = sqrtf(-2 * logf(1 - group[k])) * deviation;
        const float angle = 6.283185307179586f * group[k + HALF];
        group[k] = length * cosf(angle);
        group[k + HALF] = length * sinf(angle);
    }
}

static void model_draw(float *to, size_t n, ddp_random *random)
{
    for (size_t i = 0; i < n; i++)
        to[i] = ddp_random_uniform(random);
}

void normal_fill(float *to, size_t n, float deviation, ddp_random *random)
{
    model_draw(to, n, random);
    for (size_t i = 0; i + GROUP <= n; i += GROUP)
        turn(to + i, deviation);
    if (n % GROUP != 0 && n > GROUP) {
        model_draw(to + n - GROUP, GROUP, random);
        turn(to + n - GROUP, deviation);
    }
}

void uniform_fill(float *to, size_t n, size_t inputs, ddp_random *random)
{
    const float bound = 1.0f / sqrtf((float)inputs);
    for (size_t i = 0; i < n; i++)
        to[i] = ddp_random_uniform(random) * (bound - -bound) + -bound;
}

/* Allocate the buffers on the device as one array of floats, and copy their values. */
static ddp_status place_buffers(struct model *m, struct ddp_err *err)
{
    struct model_tensors *b = &m->buffers;
    if (!m->compute->remote || b->count == 0)
        return DDP_OK;
    float *at = m->compute->ops->alloc(m->compute, b->count * sizeof(float));
    if (at == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM,
                        "out of device memory for buffers of %zu numbers; use a smaller model, or a device "
                        "with more free memory",
                        b->count);
    for (size_t i = 0; i < b->n; at += b->each[i++].count)
        b->each[i].master = at;
    return model_send_buffers(m, err);
}

static bool buffers_are_remote(const struct model *m)
{
    return m->buffers.count > 0 && m->buffers.each[0].master != m->buffers.values;
}

ddp_status model_fetch_buffers(struct model *m, struct ddp_err *err)
{
    const struct model_tensors *b = &m->buffers;
    return buffers_are_remote(m)
               ? m->compute->ops->copy(m->compute, b->values, b->each[0].master, b->count, err)
               : DDP_OK;
}

ddp_status model_send_buffers(struct model *m, struct ddp_err *err)
{
    const struct model_tensors *b = &m->buffers;
    return buffers_are_remote(m)
               ? m->compute->ops->copy(m->compute, b->each[0].master, b->values, b->count, err)
               : DDP_OK;
}

/* Create a model. Errors begin with the name of the model. */
ddp_status model_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                        struct ddp_err *err)
{
    ddp_status status = kind->create(kind, spec, out, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "--model %s", kind->name);
    (*out)->pixels = spec->channels * spec->height * spec->width;
    status = place_buffers(*out, err);
    if (status == DDP_OK)
        return DDP_OK;
    model_free(*out);
    *out = NULL;
    return status;
}

static void tensors_free(struct model_tensors *t)
{
    free(t->each);
    free(t->values);
    *t = (struct model_tensors){ 0 };
}

void model_free(struct model *m)
{
    if (m == NULL)
        return;
    if (m->buffers.values != NULL && buffers_are_remote(m))
        m->compute->ops->release(m->compute, m->buffers.each[0].master);
    tensors_free(&m->params);
    tensors_free(&m->buffers);
    for (size_t i = 0; i < m->memories; i++)
        m->compute->ops->release(m->compute, m->memory[i]);
    free(m->memory);
    free(m);
}

/* Return the number of rows without the padding at the end of the batch. */
static size_t rows_that_count(const struct model_batch *batch)
{
    size_t rows = batch->rows;
    while (rows > 0 && batch->weight[rows - 1] == 0)
        rows--;
    return rows;
}

ddp_status model_forward(struct model *m, const struct model_batch *batch, enum model_mode mode, double *loss,
                         struct ddp_err *err)
{
    const struct compute_ops *ops = m->compute->ops;
    ddp_status status = ops->begin(m->compute, batch, m->pixels, &m->batch, err);
    m->batch.counted = rows_that_count(batch);
    if (status == DDP_OK)
        status = m->ops->forward(m, &m->batch, mode, loss, err);
    return status == DDP_OK ? ops->end(m->compute, err) : status;
}

ddp_status model_backward(struct model *m, float *const grad[], const struct model_ready *ready,
                          struct ddp_err *err)
{
    ddp_status status = m->ops->backward(m, &m->batch, grad, ready, err);
    return status == DDP_OK ? m->compute->ops->end(m->compute, err) : status;
}

static size_t largest(const float *value, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = value[i] > value[best] ? i : best;
    return best;
}

size_t model_correct(const struct model *m, const struct model_batch *batch)
{
    size_t correct = 0;
    for (size_t i = 0; i < batch->rows * batch->length && m->logits != NULL; i++)
        correct += largest(m->logits + i * m->classes, m->classes) == (size_t)batch->target[i];
    return m->logits != NULL ? correct : m->correct;
}

uint64_t model_hash(const struct model *m)
{
    return hash_bytes(HASH_START, m->params.values, m->params.count * sizeof(float));
}

void model_views(const struct model_tensors *t, float *flat, float *view[])
{
    for (size_t i = 0; i < t->n; i++) {
        view[i] = flat;
        flat += t->each[i].count;
    }
}

/* --- for models -------------------------------------------------------------------------------------- */

void *model_alloc(struct model *m, size_t bytes)
{
    void **grown = realloc(m->memory, (m->memories + 1) * sizeof(*grown));
    m->memory = grown != NULL ? grown : m->memory;
    void *memory = grown != NULL ? m->compute->ops->alloc(m->compute, bytes) : NULL;
    if (memory != NULL)
        m->memory[m->memories++] = memory;
    else
        m->is_short = true;
    return memory;
}

void *model_rows(struct model *m, size_t rows, size_t n)
{
    const size_t row = compute_stride(m->compute, n) * m->compute->value_bytes;
    if (rows <= SIZE_MAX / row)
        return model_alloc(m, rows * row);
    m->is_short = true;
    return NULL;
}

void model_tensors_add(struct model_tensors *t, struct model_shape shape, const char *name, ...)
{
    va_list args;
    struct model_tensor tensor = { .count = 1 };
    struct model_tensor *each = realloc(t->each, (t->n + 1) * sizeof(*each));
    if (each == NULL) {
        t->is_short = true;
        return;
    }
    va_start(args, name);
    vsnprintf(tensor.name, sizeof(tensor.name), name, args);
    va_end(args);
    for (; tensor.dims < MODEL_DIMS && shape.size[tensor.dims] != 0; tensor.dims++) {
        tensor.shape[tensor.dims] = shape.size[tensor.dims];
        tensor.count *= shape.size[tensor.dims];
    }
    t->each = each;
    t->each[t->n++] = tensor;
    t->count += tensor.count;
}

bool model_tensors_place(struct model_tensors *t)
{
    if (t->is_short || (t->values = calloc(t->count + 1, sizeof(float))) == NULL)
        return false;
    float *at = t->values;
    for (size_t i = 0; i < t->n; i++) {
        t->each[i].value = t->each[i].master = at;
        t->each[i].at = at;
        at += t->each[i].count;
    }
    return true;
}

ddp_status model_report_ready(const struct model_ready *ready, size_t first, size_t last, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = last + 1; i > first && ready != NULL && status == DDP_OK; i--)
        status = ready->call(ready->user, i - 1, err);
    return status;
}
