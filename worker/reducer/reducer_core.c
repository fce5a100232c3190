/* reducer_core.c -- see reducer_core.h.
 *
 * Buckets are launched in the plan's order and in no other: bucket 3 waits for bucket 2 even when it is full already,
 * because gradients may become ready in different orders on different ranks, and collectives must not. So one number,
 * how many are launched, says it all. */
#include "reducer/reducer_core.h"

#include "reducer/reducer_words.h"

#include <stdlib.h>
#include <string.h>

ddp_status core_open(struct reducer_core *core, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err)
{
    *core = (struct reducer_core){
        .plan = plan, .params = params, .n = n, .sync = true, .next_sync = true, .buffers_due = true
    };
    core->ready = calloc(n, sizeof(*core->ready));
    core->used = calloc(n, sizeof(*core->used));
    core->pending = calloc(n, sizeof(*core->pending)); /* no plan has more buckets than parameters */
    core->order = calloc(n, sizeof(*core->order));
    if (core->ready == NULL || core->used == NULL || core->pending == NULL || core->order == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: no memory for %zu parameters", n);
    return DDP_OK;
}

void core_close(struct reducer_core *core)
{
    free(core->ready);
    free(core->used);
    free(core->pending);
    free(core->order);
}

/* Nothing is ready, nothing is launched. The flag counts from here on: changing it in the middle of a step would let a
 * bucket be reduced on some ranks and not on others. */
static void begin(struct reducer_core *core, enum core_phase phase)
{
    memset(core->ready, 0, core->n * sizeof(*core->ready));
    for (size_t b = 0; b < core->plan->count; b++)
        core->pending[b] = core->plan->buckets[b].params;
    core->launched = 0;
    core->sync = core->next_sync;
    core->phase = phase;
}

/* Evaluation has forwards without a backward. With uneven inputs there is none: ranks without a batch count steps by
 * forwards. */
static bool may_forward(const struct reducer_core *core)
{
    return core->phase == CORE_IDLE || (core->phase == CORE_FORWARD && !core->uneven);
}

/* `buffers_due` looks back one step: behind a step without sync the ranks' buffers are meant to differ (PyTorch, too). */
ddp_status core_forward(struct reducer_core *core, struct core_wish *wish, struct ddp_err *err)
{
    if (!may_forward(core))
        return words_unfinished(core, err);
    wish->rebuild = core->recorded && !core->rebuilt && !core->keep_order && !core->find_unused;
    wish->send_buffers = core->buffers_due;
    begin(core, CORE_FORWARD);
    core->buffers_were_due = core->buffers_due;
    core->buffers_due = core->sync;
    return DDP_OK;
}

/* Once: later steps may have other orders, and a plan that followed them would move gradients again and again. */
static void record(struct reducer_core *core, size_t i)
{
    if (!core->recorded)
        core->order[core->ordered++] = i;
}

/* Both marks. A step without sync may run several backward passes, so there a mark is no news. With uneven inputs others
 * wait for this rank's answer, which forward gives, before they reduce anything. */
static ddp_status mark(struct reducer_core *core, size_t i, struct ddp_err *err)
{
    if (i >= core->n)
        return words_no_such(core, i, err);
    if (core->phase == CORE_IDLE && core->uneven)
        return words_no_forward(core, i, err);
    if (core->phase == CORE_IDLE)
        begin(core, CORE_IDLE);
    if (core->sync && core->ready[i])
        return words_twice(core, i, err);
    core->phase = CORE_BACKWARD;
    if (core->sync) {
        core->ready[i] = true;
        core->pending[core->plan->bucket_of[i]]--;
        record(core, i);
    }
    return DDP_OK;
}

ddp_status core_ready(struct reducer_core *core, size_t i, struct ddp_err *err)
{
    ddp_status status = mark(core, i, err);
    if (status == DDP_OK)
        core->used[i] = true;
    return status;
}

ddp_status core_unused(struct reducer_core *core, size_t i, bool *blank, struct ddp_err *err)
{
    *blank = false;
    if (!core->find_unused)
        return words_not_expected(core, i, err);
    ddp_status status = mark(core, i, err);
    *blank = status == DDP_OK && core->sync && !core->used[i];
    return status;
}

/* Ready in the order of the list: it is recorded, too, but another rank's order counts then. */
void core_shadow(struct reducer_core *core, bool sync)
{
    core->sync = core->buffers_due = sync;
    memset(core->used, 0, core->n * sizeof(*core->used));
    for (size_t i = 0; i < core->n && sync; i++) {
        core->ready[i] = true;
        record(core, i);
    }
    memset(core->pending, 0, core->n * sizeof(*core->pending));
    core->phase = CORE_BACKWARD;
}

/* Nothing is launched between steps: buckets of zero pending are not only those that have just filled. */
bool core_launch(struct reducer_core *core, size_t *bucket)
{
    bool some_left = core->phase == CORE_BACKWARD && core->sync && core->launched < core->plan->count;
    if (!some_left || core->pending[core->launched] > 0)
        return false;
    *bucket = core->launched++;
    return true;
}

bool core_missing(const struct reducer_core *core, size_t *i)
{
    for (*i = 0; *i < core->n; (*i)++)
        if (!core->ready[*i])
            return core->sync;
    return false;
}

/* Between steps finish is misuse in any case; with find_unused it would launch a whole step of zeros that nobody meant. */
ddp_status core_finish(const struct reducer_core *core, struct ddp_err *err)
{
    size_t i;
    if (core->phase == CORE_IDLE && core->find_unused)
        return words_nothing_begun(err);
    if (core->phase == CORE_IDLE || (!core->find_unused && core_missing(core, &i)))
        return words_unready(core, err);
    return DDP_OK;
}

void core_cancel(struct reducer_core *core)
{
    core->phase = CORE_IDLE;
    core->buffers_due = core->buffers_were_due;
}

/* What was used counts until a step with sync has made something of it. */
void core_end(struct reducer_core *core)
{
    core->phase = CORE_IDLE;
    memset(core->ready, 0, core->n * sizeof(*core->ready));
    if (!core->sync)
        return;
    core->recorded = true;
    memset(core->used, 0, core->n * sizeof(*core->used));
}

void core_rebuilt(struct reducer_core *core)
{
    core->rebuilt = true;
    begin(core, core->phase);
}

bool core_is_order(const int64_t *order, size_t n, bool *seen)
{
    memset(seen, 0, n * sizeof(*seen));
    for (size_t k = 0; k < n; k++) {
        if (order[k] < 0 || (uint64_t)order[k] >= n || seen[order[k]])
            return false;
        seen[order[k]] = true;
    }
    return true;
}
