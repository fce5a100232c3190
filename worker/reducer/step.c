/* step.c -- see step.h.
 *
 * Gradients may become ready in different orders on different ranks, but all ranks must call collectives in the
 * same order. So buckets are launched only in the plan's order: bucket 3 waits for bucket 2, even if bucket 3 is
 * ready. */
#include "reducer/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors of wrong calls ------------------------------------------------------------------------------- */

enum { LISTED = 8, LIST = 720 };

static ddp_status misuse_no_such_param(const struct reducer_step *step, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG, "reducer: parameter %zu: expected a number from 0 to %zu", i,
                    step->n - 1);
}

/* Report a parameter that is marked ready twice in one step. The second mark would make `pending` wrong. */
static ddp_status misuse_ready_twice(const struct reducer_step *step, size_t i, struct ddp_err *err)
{
    return ddp_fail(
        err, DDP_ERR_ARG,
        "reducer: parameter %zu \"%.100s\" (bucket %zu) was marked ready twice in one step; check "
        "that ddp_reducer_finish was called",
        i, step->params[i].name, step->plan->bucket_of[i]);
}

static ddp_status misuse_unexpected_unused(const struct reducer_step *step, size_t i, struct ddp_err *err)
{
    if (i >= step->n)
        return misuse_no_such_param(step, i, err);
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: parameter %zu \"%.100s\" (bucket %zu) was marked unused; set "
                    "ddp_reducer_options.find_unused on all ranks to allow unused parameters",
                    i, step->params[i].name, step->plan->bucket_of[i]);
}

static void list_param(const struct reducer_step *step, size_t i, char list[LIST])
{
    size_t used = strlen(list);
    snprintf(list + used, LIST - used, "%s#%zu \"%.40s\" (bucket %zu)", used > 0 ? ", " : "", i,
             step->params[i].name, step->plan->bucket_of[i]);
}

/* Write to `list` the parameters that are not ready, at most LISTED of them. Return the number of all parameters that
 * are not ready. */
static size_t list_unready(const struct reducer_step *step, char list[LIST])
{
    size_t missing = 0;
    list[0] = '\0';
    for (size_t i = 0; i < step->n; i++)
        if (!step->ready[i] && missing++ < LISTED)
            list_param(step, i, list);
    return missing;
}

/* Report that ddp_reducer_ready or ddp_reducer_unused was called before ddp_reducer_forward. This is an error only with
 * uneven inputs. Without uneven inputs, the first of these calls begins the step. */
static ddp_status misuse_no_forward(const struct reducer_step *step, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: parameter %zu \"%.100s\" was marked ready or unused, but no step has begun; "
                    "ddp_reducer_options.uneven is set, so call ddp_reducer_forward before the backward pass",
                    i, step->params[i].name);
}

/* Report that ddp_reducer_finish was called before all parameters were ready. The usual cause is that the loss does not
 * depend on the output of a layer. */
static ddp_status misuse_unready(const struct reducer_step *step, struct ddp_err *err)
{
    char list[LIST];
    size_t missing = list_unready(step, list);
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: finish: %zu of %zu parameters are not marked ready: %s%s; mark them, or set "
                    "ddp_reducer_options.find_unused on all ranks",
                    missing, step->n, list, missing > LISTED ? ", and others" : "");
}

/* Report that ddp_reducer_forward was called in an unfinished step. The other ranks wait for a bucket that this rank
 * has not launched. */
static ddp_status misuse_unfinished(const struct reducer_step *step, struct ddp_err *err)
{
    char list[LIST];
    size_t missing = step->sync ? list_unready(step, list) : 0;
    if (missing == 0)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "reducer: forward was called before the last step ended; call ddp_reducer_finish first");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "reducer: forward was called before the last step ended; call ddp_reducer_finish first (next "
        "bucket: %zu of %zu; %zu of %zu parameters are not marked ready: %s%s)",
        step->launched, step->plan->count, missing, step->n, list, missing > LISTED ? ", and others" : "");
}

/* Report that ddp_reducer_finish was called, although no step has begun. With find_unused, such a call would mark every
 * parameter as unused. */
static ddp_status misuse_nothing_begun(struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: finish: no step has begun; call ddp_reducer_forward before the backward pass");
}

/* --- a step ---------------------------------------------------------------------------------------------- */

ddp_status step_open(struct reducer_step *step, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err)
{
    *step = (struct reducer_step){
        .plan = plan, .params = params, .n = n, .sync = true, .next_sync = true, .buffers_due = true
    };
    step->ready = calloc(n, sizeof(*step->ready));
    step->used = calloc(n, sizeof(*step->used));
    step->pending = calloc(n, sizeof(*step->pending)); /* a plan has at most as many buckets as parameters */
    step->order = calloc(n, sizeof(*step->order));
    if (step->ready == NULL || step->used == NULL || step->pending == NULL || step->order == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: out of memory for %zu parameters", n);
    return DDP_OK;
}

void step_close(struct reducer_step *step)
{
    free(step->ready);
    free(step->used);
    free(step->pending);
    free(step->order);
}

/* Begin a step. At first no parameter is ready, and no bucket is launched. Copy next_sync here, because sync must not
 * change within a step. */
static void begin_step(struct reducer_step *step, enum step_phase phase)
{
    memset(step->ready, 0, step->n * sizeof(*step->ready));
    for (size_t b = 0; b < step->plan->count; b++)
        step->pending[b] = step->plan->buckets[b].params;
    step->launched = 0;
    step->sync = step->next_sync;
    step->phase = phase;
}

/* Return true if ddp_reducer_forward is allowed. Without uneven inputs the program may call forward again without a
 * backward pass in between, for example in evaluation. With uneven inputs each forward begins a step on all ranks, so
 * the program must finish this step before the next forward. */
static bool may_forward(const struct reducer_step *step)
{
    return step->phase == STEP_IDLE || (step->phase == STEP_FORWARD && !step->uneven);
}

/* Handle a call of ddp_reducer_forward: begin a step. Request a broadcast of the buffers only if the previous step
 * had sync, as in PyTorch. */
ddp_status step_forward(struct reducer_step *step, struct step_effects *effects, struct ddp_err *err)
{
    if (!may_forward(step))
        return misuse_unfinished(step, err);
    effects->rebuild = step->recorded && !step->rebuilt && !step->keep_order && !step->find_unused;
    effects->send_buffers = step->buffers_due;
    begin_step(step, STEP_FORWARD);
    step->buffers_were_due = step->buffers_due;
    step->buffers_due = step->sync;
    return DDP_OK;
}

/* Append parameter i to the order in which parameters become ready. Do this only in the first step with sync, because
 * each new order would move the gradients in memory again. */
static void record_order(struct reducer_step *step, size_t i)
{
    if (!step->recorded)
        step->order[step->ordered++] = i;
}

/* Mark parameter i as ready. A step without sync may have several backward passes, so the parameter may then be
 * marked several times. With uneven inputs, forward must have begun the step. The other ranks wait for an answer of
 * this rank, and only forward sends this answer. */
static ddp_status mark_param(struct reducer_step *step, size_t i, struct ddp_err *err)
{
    if (i >= step->n)
        return misuse_no_such_param(step, i, err);
    if (step->phase == STEP_IDLE && step->uneven)
        return misuse_no_forward(step, i, err);
    if (step->phase == STEP_IDLE)
        begin_step(step, STEP_IDLE);
    if (step->sync && step->ready[i])
        return misuse_ready_twice(step, i, err);
    step->phase = STEP_BACKWARD;
    if (step->sync) {
        step->ready[i] = true;
        step->pending[step->plan->bucket_of[i]]--;
        record_order(step, i);
    }
    return DDP_OK;
}

ddp_status step_ready(struct reducer_step *step, size_t i, struct ddp_err *err)
{
    ddp_status status = mark_param(step, i, err);
    if (status == DDP_OK)
        step->used[i] = true;
    return status;
}

ddp_status step_unused(struct reducer_step *step, size_t i, bool *blank, struct ddp_err *err)
{
    *blank = false;
    if (!step->find_unused)
        return misuse_unexpected_unused(step, i, err);
    ddp_status status = mark_param(step, i, err);
    *blank = status == DDP_OK && step->sync && !step->used[i];
    return status;
}

/* Mark all parameters as ready in the order of their indices, so that all buckets can be launched. Clear `used`,
 * because this rank has no gradients. No rank uses the order that is recorded here, because all ranks use the order of
 * the first rank with a batch. */
void step_shadow(struct reducer_step *step, bool sync)
{
    step->sync = step->buffers_due = sync;
    memset(step->used, 0, step->n * sizeof(*step->used));
    for (size_t i = 0; i < step->n && sync; i++) {
        step->ready[i] = true;
        record_order(step, i);
    }
    memset(step->pending, 0, step->n * sizeof(*step->pending));
    step->phase = STEP_BACKWARD;
}

/* Return true and set *bucket if the next bucket in the plan's order is ready. Return false between steps, because
 * `pending` then has the values of an earlier step. */
bool step_launch(struct reducer_step *step, size_t *bucket)
{
    bool some_left = step->phase == STEP_BACKWARD && step->sync && step->launched < step->plan->count;
    if (!some_left || step->pending[step->launched] > 0)
        return false;
    *bucket = step->launched++;
    return true;
}

bool step_missing(const struct reducer_step *step, size_t *i)
{
    for (*i = 0; *i < step->n; (*i)++)
        if (!step->ready[*i])
            return step->sync;
    return false;
}

/* Check that a step has begun and may end. With find_unused, a call of ddp_reducer_finish without a step would mark
 * all parameters as unused and launch all buckets. */
ddp_status step_finish(const struct reducer_step *step, struct ddp_err *err)
{
    size_t i;
    if (step->phase == STEP_IDLE && step->find_unused)
        return misuse_nothing_begun(err);
    if (step->phase == STEP_IDLE || (!step->find_unused && step_missing(step, &i)))
        return misuse_unready(step, err);
    return DDP_OK;
}

/* Undo step_forward. Restore buffers_due, so that the next forward requests the broadcast of the buffers again. */
void step_cancel(struct reducer_step *step)
{
    step->phase = STEP_IDLE;
    step->buffers_due = step->buffers_were_due;
}

/* End the step. After a step without sync keep `used`, because the gradients are not reduced yet. */
void step_end(struct reducer_step *step)
{
    step->phase = STEP_IDLE;
    memset(step->ready, 0, step->n * sizeof(*step->ready));
    if (!step->sync)
        return;
    step->recorded = true;
    memset(step->used, 0, step->n * sizeof(*step->used));
}

/* Record the new plan, and begin the step again, because `pending` counts the parameters of each bucket of the old
 * plan. */
void step_rebuilt(struct reducer_step *step)
{
    step->rebuilt = true;
    begin_step(step, step->phase);
}

bool step_is_order(const int64_t *order, size_t n, bool *seen)
{
    memset(seen, 0, n * sizeof(*seen));
    for (size_t k = 0; k < n; k++) {
        if (order[k] < 0 || (uint64_t)order[k] >= n || seen[order[k]])
            return false;
        seen[order[k]] = true;
    }
    return true;
}

/* --- uneven inputs --------------------------------------------------------------------------------------- */

/* Return the lowest rank above `first` that has a batch and whose answer differs from the answer of rank `first`.
 * Return -1 if there is no such rank. */
static int find_other_answer(const int32_t *answers, int world, int first)
{
    for (int r = first + 1; r < world; r++)
        if (answers[r] != BATCH_NONE && answers[r] != answers[first])
            return r;
    return -1;
}

static int first_without(const int32_t *answers, int world)
{
    int r = 0;
    while (r < world && answers[r] != BATCH_NONE)
        r++;
    return r;
}

static ddp_status sync_differs(const struct batch_ranks *ranks, int other, struct ddp_err *err)
{
    int syncs = ranks->sync ? ranks->first : other, does_not = ranks->sync ? other : ranks->first;
    return ddp_fail(err, DDP_ERR_MISMATCH,
                    "reducer: forward: rank %d reduces gradients in this step, but rank %d only accumulates; "
                    "call ddp_reducer_set_sync with the same value on all ranks",
                    syncs, does_not);
}

ddp_status batch_ranks_decode(struct batch_ranks *out, const int32_t *answers, int world, ddp_uneven uneven,
                              struct ddp_err *err)
{
    struct batch_ranks ranks = { 0, 0, 0, false };
    for (int r = 0; r < world; r++) {
        if (answers[r] == BATCH_NONE)
            continue;
        ranks.first = ranks.active++ == 0 ? r : ranks.first;
        ranks.last = r;
    }
    ranks.sync = ranks.active > 0 && answers[ranks.first] == BATCH_SYNC;
    int other = ranks.active > 0 ? find_other_answer(answers, world, ranks.first) : -1;
    if (other >= 0)
        return sync_differs(&ranks, other, err);
    if (uneven == DDP_UNEVEN_STOP && ranks.active > 0 && ranks.active < world)
        return ddp_fail(err, DDP_ERR_ARG,
                        "reducer: rank %d has no more batches, but %d of %d ranks have more batches; use "
                        "DDP_UNEVEN_WORLD to continue",
                        first_without(answers, world), ranks.active, world);
    *out = ranks;
    return DDP_OK;
}
