/* sharded_update.c -- see sharded_update.h. A collective runs on libddp's stream, after the work that is already on the
 * device's stream. The device's stream waits for the collective before its result is read, so the host itself need not
 * wait. */
#include "train/sharded_update.h"

#include "base/buf.h"
#include "train/compute.h"
#include "train/library.h"

#include <stdlib.h>

size_t sharded_multiple(size_t world)
{
    return world * COMPUTE_LEAF;
}

struct sharded_plan {
    size_t n;               /* number of parameters */
    const size_t *elements; /* borrowed: the number of elements of each parameter */
    size_t *at;             /* owned: the offset of each parameter in the flat array */
    size_t count;           /* number of elements of the flat array, padding included */
    size_t bucket, buckets; /* elements of a bucket (the last bucket may have fewer); number of buckets */
    size_t world, rank;
};

/* The part of a parameter that is in a given range of the flat array. */
struct sharded_piece {
    size_t first; /* index of the piece's first element in the parameter */
    size_t at;    /* index of the piece's first element in the flat array */
    size_t n;     /* number of elements; 0 if no part of the parameter is in the range */
};

/* Make a plan with buckets of about `most` elements. For a small model, make about eight smaller buckets. Return
 * false if memory is short. */
static bool sharded_plan_make(struct sharded_plan *p, const size_t elements[], size_t n, size_t world,
                              size_t rank, size_t most)
{
    enum { FEW = 8 };
    const size_t multiple = sharded_multiple(world);
    *p = (struct sharded_plan){ .n = n, .elements = elements, .world = world, .rank = rank };
    p->at = calloc(n + 1, sizeof(*p->at));
    if (p->at == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        p->at[i] = p->count;
        p->count += compute_room(elements[i]);
    }
    p->count = round_up(p->count > 0 ? p->count : 1, multiple);
    p->bucket = round_up(p->count / FEW < most ? p->count / FEW : most, multiple);
    p->bucket = p->bucket > 0 ? p->bucket : multiple;
    p->buckets = (p->count + p->bucket - 1) / p->bucket;
    return true;
}

static void sharded_plan_free(struct sharded_plan *p)
{
    free(p->at);
    *p = (struct sharded_plan){ 0 };
}

static size_t sharded_begin(const struct sharded_plan *p, size_t b)
{
    return b * p->bucket;
}

/* Return the number of elements in bucket `b`. */
static size_t sharded_of_bucket(const struct sharded_plan *p, size_t b)
{
    const size_t left = p->count - sharded_begin(p, b);
    return left < p->bucket ? left : p->bucket;
}

/* Return the number of elements in one rank's share of bucket `b`. */
static size_t sharded_of_rank(const struct sharded_plan *p, size_t b)
{
    return sharded_of_bucket(p, b) / p->world;
}

/* Return the offset of this rank's share of bucket `b` in the flat array. */
static size_t sharded_mine(const struct sharded_plan *p, size_t b)
{
    return sharded_begin(p, b) + p->rank * sharded_of_rank(p, b);
}

/* Return the place of an element in this rank's shard. The element has offset `at` in the flat array, and is in
 * this rank's share of bucket `b`. Only the last bucket may be smaller, so all shares before this share have the
 * full size. */
static size_t sharded_in_shard(const struct sharded_plan *p, size_t b, size_t at)
{
    return b * (p->bucket / p->world) + at - sharded_mine(p, b);
}

/* Return the part of parameter i that is between offsets `from` and `from + many` of the flat array. */
static struct sharded_piece sharded_piece(const struct sharded_plan *p, size_t i, size_t from, size_t many)
{
    const size_t begin = p->at[i] > from ? p->at[i] : from;
    const size_t end_here = p->at[i] + p->elements[i], end_there = from + many;
    const size_t end = end_here < end_there ? end_here : end_there;
    if (begin >= end)
        return (struct sharded_piece){ 0, 0, 0 };
    return (struct sharded_piece){ begin - p->at[i], begin, end - begin };
}

/* BUCKET: elements of a bucket, 25 MiB of floats as in PyTorch. BUCKET_OF_ROWS: elements of a bucket if each rank
 * receives the gradients of all ranks. ROWS: number of such buckets that are in memory at the same time. */
enum { BUCKET = 25 << 18, BUCKET_OF_ROWS = 1 << 20, ROWS = 2 };

/* A bucket whose collective is in progress. */
struct flight {
    ddp_work *work; /* NULL if no collective is in progress */
    size_t bucket;
    float *rows; /* on the device: this bucket's gradients of all ranks */
};

/* The arrays, the collectives on them, and the contents. `zero1` and `world` are the two cases of sharded_update.h:
 *
 *     gradients         flat, float32                    | bucket 0 | bucket 1 ...
 *       zero1: reduce_scatter in place                     my share of each bucket is the average
 *       world: all_gather into `rows`, sum_rows back       my share of each bucket is the sum
 *     slots             my shares, one after the other   masters (only with 16 bits), m, v
 *     weights           flat, what layers read           my shares updated, all_gather in place */
struct sharded_update {
    struct sharded_request request;
    struct sharded_plan plan;
    float *grads;               /* on the device, like `slot` and `leaves` */
    float *slot[SHARDED_SLOTS]; /* this rank's shard of the master weights and of each optimizer state */
    double *leaves;             /* for the norm: the sum of squares of each leaf (COMPUTE_LEAF elements) */
    float *room;                /* on the device: room for one bucket; allocated only for a checkpoint */
    size_t *waits;              /* for each bucket, the number of its parameters that are not ready */
    struct flight flight[ROWS];
    unsigned launched;
    ddp_work *last; /* latest collective outside `flight`; earlier collectives end before it (see keep) */
};

/* --- open and close ----------------------------------------------------------------------------------- */

static const struct compute_ops *ops(const struct sharded_update *s)
{
    return s->request.device->ops;
}

static void *stream(const struct sharded_update *s)
{
    return ops(s)->stream(s->request.device);
}

static bool alone(const struct sharded_update *s)
{
    return s->request.world == 1;
}

/* Return true if the masters are separate from the weights. If false, the layers use the masters as weights. */
static bool has_masters(const struct sharded_update *s)
{
    return s->request.device->value_bytes != sizeof(float);
}

static bool allocate_part(struct sharded_update *s, void **out, size_t elements, size_t bytes)
{
    *out = ops(s)->alloc(s->request.device, elements * bytes);
    return *out != NULL;
}

static bool sharded_allocate(struct sharded_update *s)
{
    const struct sharded_plan *p = &s->plan;
    const bool reduces = s->request.reduces;
    bool ok = !reduces || (allocate_part(s, (void **)&s->grads, p->count, sizeof(float)) &&
                           allocate_part(s, (void **)&s->leaves, p->count / COMPUTE_LEAF, sizeof(double)));
    for (int i = has_masters(s) ? 0 : 1; i < s->request.slots && ok; i++)
        ok = allocate_part(s, (void **)&s->slot[i], p->count / p->world, sizeof(float));
    for (int i = 0; s->request.any_world && !alone(s) && i < ROWS && ok; i++)
        ok = allocate_part(s, (void **)&s->flight[i].rows, p->world * p->bucket, sizeof(float));
    return ok && (s->waits = calloc(p->buckets, sizeof(*s->waits))) != NULL;
}

ddp_status sharded_open(struct sharded_update **out, const struct sharded_request *request,
                        struct ddp_err *err)
{
    struct sharded_update *s = *out = calloc(1, sizeof(*s));
    if (s == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for shares of %zu parameters",
                        request->params->count);
    s->request = *request;
    if (sharded_plan_make(&s->plan, request->count, request->params->n, (size_t)request->world,
                          (size_t)request->rank, request->any_world ? BUCKET_OF_ROWS : BUCKET) &&
        sharded_allocate(s))
        return DDP_OK;
    sharded_close(s);
    *out = NULL;
    return ddp_fail(err, DDP_ERR_NOMEM,
                    "out of device memory for gradients and state of %zu parameters; use a smaller model, or "
                    "a device with more free memory",
                    request->params->count);
}

/* Wait for a collective and free `work`. The caller can then free the buffers of the collective. Ignore an error: the
 * group is then broken and runs no collectives. */
static void end(ddp_work *work)
{
    if (work == NULL)
        return;
    ddp_work_sync(work, 0);
    ddp_work_free(work);
}

void sharded_close(struct sharded_update *s)
{
    if (s == NULL)
        return;
    void *memory[] = { s->grads,   s->leaves,  s->room,           s->slot[0],
                       s->slot[1], s->slot[2], s->flight[0].rows, s->flight[1].rows };
    end(s->last);
    for (int i = 0; i < ROWS; i++)
        end(s->flight[i].work);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        ops(s)->release(s->request.device, memory[i]);
    sharded_plan_free(&s->plan);
    free(s->waits);
    free(s);
}

float *sharded_grad(const struct sharded_update *s, size_t i)
{
    return s->grads + s->plan.at[i];
}

/* --- sums over the ranks ------------------------------------------------------------------------------ */

/* Store `work` as the last collective. A group executes collectives in order, so waiting for the last is enough. */
static void keep(struct sharded_update *s, ddp_work *work)
{
    if (s->last != NULL)
        ddp_work_free(s->last);
    s->last = work;
}

/* Make the device's stream wait for a collective. The host does not wait. */
static ddp_status follow(ddp_work **work, struct ddp_err *err)
{
    ddp_status status = *work != NULL ? ddp_work_wait(*work) : DDP_OK;
    if (*work != NULL)
        ddp_work_free(*work);
    *work = NULL;
    return library(status, err);
}

/* Make the device's stream wait for the collective of `f`. Then overwrite this rank's share of the bucket with the
 * sum over all ranks. */
static ddp_status add_up(struct sharded_update *s, struct flight *f, struct ddp_err *err)
{
    const struct sharded_plan *p = &s->plan;
    if (f->work == NULL)
        return DDP_OK;
    ddp_status status = follow(&f->work, err);
    if (status != DDP_OK)
        return status;
    const size_t mine = sharded_mine(p, f->bucket);
    ops(s)->sum_rows(s->request.device, s->grads + mine, f->rows + (mine - sharded_begin(p, f->bucket)),
                     sharded_of_rank(p, f->bucket), sharded_of_bucket(p, f->bucket), s->request.world);
    return DDP_OK;
}

/* Gather bucket `b` from all ranks into the next of the ROWS buffers (struct flight). First add up the bucket that is
 * still in this buffer. */
static ddp_status send_rows(struct sharded_update *s, size_t b, struct ddp_err *err)
{
    struct flight *f = &s->flight[s->launched++ % ROWS];
    ddp_status status = add_up(s, f, err);
    if (status != DDP_OK)
        return status;
    f->bucket = b;
    return library(ddp_all_gather(s->request.group, s->grads + sharded_begin(&s->plan, b), f->rows,
                                  sharded_of_bucket(&s->plan, b), DDP_F32, stream(s), &f->work),
                   err);
}

static ddp_status send_shares(struct sharded_update *s, size_t b, struct ddp_err *err)
{
    const struct sharded_plan *p = &s->plan;
    ddp_work *work = NULL;
    ddp_status status =
        ddp_reduce_scatter(s->request.group, s->grads + sharded_begin(p, b), s->grads + sharded_mine(p, b),
                           sharded_of_rank(p, b), DDP_F32, DDP_AVG, stream(s), &work);
    if (status == DDP_OK)
        keep(s, work);
    return library(status, err);
}

static ddp_status launch(struct sharded_update *s, size_t b, struct ddp_err *err)
{
    if (alone(s))
        return DDP_OK;
    return s->request.any_world ? send_rows(s, b, err) : send_shares(s, b, err);
}

static bool touches(const struct sharded_update *s, size_t i, size_t b)
{
    return sharded_piece(&s->plan, i, sharded_begin(&s->plan, b), sharded_of_bucket(&s->plan, b)).n > 0;
}

void sharded_start(struct sharded_update *s)
{
    for (size_t b = 0; b < s->plan.buckets; b++) {
        s->waits[b] = 0;
        for (size_t i = 0; i < s->plan.n; i++)
            s->waits[b] += touches(s, i, b);
    }
}

/* Record that gradient i is ready. Launch the collective of each bucket whose gradients are now all ready. All ranks
 * launch buckets in the same order, because the backward pass has the same order on all ranks. */
ddp_status sharded_ready(struct sharded_update *s, size_t i, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t b = s->plan.buckets; b-- > 0 && status == DDP_OK;) {
        if (touches(s, i, b) && --s->waits[b] == 0)
            status = launch(s, b, err);
    }
    return status;
}

ddp_status sharded_average(struct sharded_update *s, struct ddp_err *err)
{
    ddp_status status = follow(&s->last, err);
    for (unsigned i = 0; i < ROWS && status == DDP_OK; i++)
        status = add_up(s, &s->flight[(s->launched + i) % ROWS], err);
    return status;
}

/* --- norm and update ---------------------------------------------------------------------------------- */

/* Compute the norm of all gradients. For each leaf, one rank computes the sum of squares, and all other ranks have 0.
 * So all_reduce adds only zeros to this sum. */
ddp_status sharded_norm(struct sharded_update *s, double most, double unscale, struct ddp_err *err)
{
    struct compute *on = s->request.device;
    const size_t leaves = s->plan.count / COMPUTE_LEAF;
    ddp_status status = DDP_OK;
    ops(s)->zero(on, s->leaves, leaves * sizeof(*s->leaves));
    for (size_t b = 0; b < s->plan.buckets; b++) {
        const size_t mine = sharded_mine(&s->plan, b);
        ops(s)->squares(on, s->leaves + mine / COMPUTE_LEAF, s->grads + mine, sharded_of_rank(&s->plan, b));
    }
    if (!alone(s))
        status =
            ddp_all_reduce(s->request.group, s->leaves, s->leaves, leaves, DDP_F64, DDP_SUM, stream(s), NULL);
    ops(s)->join_squares(on, s->leaves, leaves, most, unscale);
    return library(status, err);
}

/* Return the address of element `at` in the flat array of weights. */
static char *weights(const struct sharded_update *s, size_t at)
{
    return (char *)(uintptr_t)s->request.params->each[0].at + at * s->request.device->value_bytes;
}

static float *of_slot(const struct sharded_update *s, int slot, size_t at)
{
    return s->slot[slot] != NULL ? s->slot[slot] + at : NULL;
}

void sharded_update(struct sharded_update *s, const ddp_optim *rule, size_t i, const float *grad)
{
    for (size_t b = 0; b < s->plan.buckets; b++) {
        const struct sharded_piece piece =
            sharded_piece(&s->plan, i, sharded_mine(&s->plan, b), sharded_of_rank(&s->plan, b));
        if (piece.n == 0)
            continue;
        const size_t at = sharded_in_shard(&s->plan, b, piece.at);
        float *master = of_slot(s, 0, at);
        void *read = weights(s, piece.at);
        const struct compute_update u = { .p = master != NULL ? master : read,
                                          .w = master != NULL ? read : NULL,
                                          .g = grad + piece.first,
                                          .m = of_slot(s, 1, at),
                                          .v = of_slot(s, 2, at),
                                          .n = piece.n };
        ops(s)->update(s->request.device, rule, &u);
    }
}

ddp_status sharded_send(struct sharded_update *s, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t b = 0; b < s->plan.buckets && status == DDP_OK && !alone(s); b++) {
        ddp_work *work = NULL;
        status = ddp_all_gather(s->request.group, weights(s, sharded_mine(&s->plan, b)),
                                weights(s, sharded_begin(&s->plan, b)), sharded_of_rank(&s->plan, b),
                                s->request.dtype, stream(s), &work);
        if (status == DDP_OK)
            keep(s, work);
    }
    return status == DDP_OK ? follow(&s->last, err) : library(status, err);
}

/* --- checkpoints -------------------------------------------------------------------------------------- */

/* Copy a bucket from the device to its place in the flat array on the host. */
static ddp_status copy_bucket(struct sharded_update *s, size_t b, const float *room, float *flat,
                              struct ddp_err *err)
{
    const size_t begin = sharded_begin(&s->plan, b);
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < s->plan.n && status == DDP_OK; flat += s->plan.elements[i++]) {
        const struct sharded_piece piece = sharded_piece(&s->plan, i, begin, sharded_of_bucket(&s->plan, b));
        if (piece.n > 0)
            status =
                ops(s)->copy(s->request.device, flat + piece.first, room + (piece.at - begin), piece.n, err);
    }
    return status;
}

/* Export one bucket. Exporting buckets one by one needs no device memory for a whole model. */
static ddp_status export_bucket(struct sharded_update *s, int slot, size_t b, float *flat,
                                struct ddp_err *err)
{
    const float *mine = s->slot[slot] + sharded_in_shard(&s->plan, b, sharded_mine(&s->plan, b));
    if (alone(s))
        return copy_bucket(s, b, mine, flat, err);
    ddp_status status = library(ddp_gather(s->request.group, mine, s->room, sharded_of_rank(&s->plan, b),
                                           DDP_F32, 0, stream(s), NULL),
                                err);
    return status == DDP_OK && flat != NULL ? copy_bucket(s, b, s->room, flat, err) : status;
}

ddp_status sharded_export(struct sharded_update *s, int slot, float *flat, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (flat != NULL && !alone(s) && s->room == NULL &&
        !allocate_part(s, (void **)&s->room, s->plan.bucket, sizeof(float)))
        return ddp_fail(
            err, DDP_ERR_NOMEM,
            "out of device memory for a checkpoint; use a smaller model, or a device with more free memory");
    for (size_t b = 0; b < s->plan.buckets && status == DDP_OK && s->slot[slot] != NULL; b++)
        status = export_bucket(s, slot, b, flat, err);
    ops(s)->release(s->request.device, s->room);
    s->room = NULL;
    return status;
}

ddp_status sharded_import(struct sharded_update *s, int slot, const float *flat, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < s->plan.n; flat += s->plan.elements[i++]) {
        for (size_t b = 0; b < s->plan.buckets && status == DDP_OK && s->slot[slot] != NULL; b++) {
            const struct sharded_piece piece =
                sharded_piece(&s->plan, i, sharded_mine(&s->plan, b), sharded_of_rank(&s->plan, b));
            if (piece.n > 0)
                status =
                    ops(s)->copy(s->request.device, s->slot[slot] + sharded_in_shard(&s->plan, b, piece.at),
                                 flat + piece.first, piece.n, err);
        }
    }
    return status;
}
