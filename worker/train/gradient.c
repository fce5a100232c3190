/* gradient.c -- see gradient.h. The left part of a sum is computed in the buffer of the result, and the right part in
 * another buffer. So a tree of depth d needs d buffers besides the reducer's buckets, and the final sum is in the
 * reducer's buckets without a copy. */
#include "train/gradient.h"

#include "train/compute.h"

#include <stdlib.h>

/* Return the buffer of part `part` in a tree of `n` parts, and the number of merges after this part (see gradient.h).
 * The loop walks from the root to the part. Each step into a right half uses the next buffer. A merge adds a finished
 * right half to its left half, so each right half that ends with this part needs one merge. A step into a left half
 * sets the number of merges to 0. The right half beside this left half has later parts, so no right half that the loop
 * entered before ends with this part. */
static struct tree_part tree_part(int n, int part)
{
    struct tree_part p = { 0, 0 };
    while (n > 1) {
        int left = n / 2;
        if (part < left) {
            n = left;
            p.merges = 0;
        } else {
            part -= left;
            n -= left;
            p.buffer++;
            p.merges++;
        }
    }
    return p;
}

/* Return the number of buffers that a tree of `n` parts needs. Buffers are numbered from 0. The last part uses the
 * buffer with the highest number, because at every level the last part is in the right half, and the right half is
 * never smaller than the left half. */
static int tree_buffers(int n)
{
    return tree_part(n, n - 1).buffer + 1;
}

/* Return the number of elements that the gradients of one shard occupy. Each gradient begins at a multiple of 256
 * bytes, because matrix products on a GPU need aligned results. */
static size_t room_of_all(const struct model_tensors *t)
{
    size_t room = 0;
    for (size_t i = 0; i < t->n; i++)
        room += compute_room(t->each[i].count);
    return room;
}

bool gradient_init(struct gradient *g, struct model *model, struct batch_source *source)
{
    const struct model_tensors *params = &model->params;
    size_t spare = (size_t)tree_buffers(source->split->shards_here) - 1;
    *g = (struct gradient){ .model = model, .source = source };
    g->memory = model->compute->ops->alloc(model->compute, (spare * room_of_all(params) + 1) * sizeof(float));
    g->views = calloc(spare * params->n + 1, sizeof(float *));
    if (g->memory == NULL || g->views == NULL) {
        gradient_free(g);
        return false;
    }
    float *at = g->memory;
    for (size_t i = 0; i < spare * params->n; i++) {
        g->views[i] = at;
        at += compute_room(params->each[i % params->n].count);
    }
    for (size_t i = 0; i < spare; i++)
        g->sum[i + 1] = g->views + i * params->n;
    return true;
}

void gradient_free(struct gradient *g)
{
    if (g->memory != NULL)
        g->model->compute->ops->release(g->model->compute, g->memory);
    free(g->views);
    *g = (struct gradient){ 0 };
}

static void add(const struct gradient *g, size_t i, float *const left[], float *const right[])
{
    struct compute *on = g->model->compute;
    on->ops->add(on, left[i], right[i], g->model->params.each[i].count);
}

static bool is_last(const struct gradient *g)
{
    return g->shard == g->source->split->shards_here - 1;
}

/* Pass this shard's gradient of parameter i to `watch`, and do the merges that follow the shard (see gradient.h). After
 * the last shard, report the parameter as complete.
 *
 * During the backward pass of the last shard, each parameter is added as soon as its gradient is complete. So the
 * reducer can reduce this parameter while the gradients of other parameters are computed. */
static ddp_status param_done(void *user, size_t i, struct ddp_err *err)
{
    struct gradient *g = user;
    const struct gradient_watch *w = g->watch;
    ddp_status status = DDP_OK;
    if (w->part != NULL)
        status = w->part(w->user, i, g->sum[g->part.buffer][i], err);
    for (int b = g->part.buffer; b > g->part.buffer - g->part.merges; b--)
        add(g, i, g->sum[b - 1], g->sum[b]);
    if (status == DDP_OK && is_last(g) && w->whole != NULL)
        status = w->whole(w->user, i, err);
    return status;
}

static void begin(const struct gradient *g, enum phase phase)
{
    if (g->watch->phase != NULL)
        g->watch->phase(g->watch->user, phase);
}

static ddp_status one_shard(struct gradient *g, uint64_t step, struct ddp_err *err)
{
    const struct model_ready done = { param_done, g };
    double *loss = &g->loss[g->part.buffer];
    struct model_batch batch;
    begin(g, PHASE_DATA);
    ddp_status status = batch_source_next(g->source, step, &batch, err);
    begin(g, PHASE_FORWARD);
    if (status == DDP_OK)
        status = model_forward(g->model, &batch, MODEL_TRAIN, loss, err);
    begin(g, PHASE_BACKWARD);
    if (status == DDP_OK)
        status = model_backward(g->model, g->sum[g->part.buffer], &done, err);
    for (int i = 0; i < g->part.merges; i++)
        loss[-i - 1] += loss[-i];
    begin(g, PHASES);
    return status;
}

ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    g->sum[0] = into;
    g->watch = watch;
    for (g->shard = 0; g->shard < g->source->split->shards_here && status == DDP_OK; g->shard++) {
        g->part = tree_part(g->source->split->shards_here, g->shard);
        status = one_shard(g, step, err);
    }
    *loss = g->loss[0];
    return status;
}
