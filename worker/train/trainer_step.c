/* trainer_step.c -- see trainer_state.h: one step, on every rank at once.
 *
 *     forward and backward on my part of the batch     gradient.c, writes into memory of the reducer (or ZeRO-1)
 *     each gradient is ready, all are averaged          optimizer.c, the first while the last are still computed
 *     clip and update                                   every rank for itself, and all come to the same bits */
#include "train/trainer_state.h"

#include "train/library.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* The one look at a clock in this program; it goes into reports and decides nothing. */
uint64_t trainer_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* --- what happens during the backward pass ------------------------------------------------------------- */

static ddp_status part_done(void *user, size_t i, float *grad, struct ddp_err *err)
{
    struct trainer *t = user;
    return optimizer_round(&t->optimizer, i, grad, err);
}

/* Without a core for the thread that reduces, this waits for the other ranks whenever a bucket is full. */
static ddp_status whole_done(void *user, size_t i, struct ddp_err *err)
{
    struct trainer *t = user;
    phases_begin(&t->phases, PHASE_EXPOSED, trainer_now_us());
    ddp_status status = optimizer_ready(&t->optimizer, i, err);
    phases_end(&t->phases, trainer_now_us());
    return status;
}

static void phase_begins(void *user, enum phase phase)
{
    struct trainer *t = user;
    uint64_t now_us = trainer_now_us();
    if (t->phases.depth > 0)
        phases_end(&t->phases, now_us);
    if (phase < PHASES)
        phases_begin(&t->phases, phase, now_us);
}

/* --- for comparing runs with each other ------------------------------------------------------------------ */

/* Tensor after tensor, as in the model. */
static ddp_status dump_gradient(struct trainer *t, struct ddp_err *err)
{
    bool failed = false;
    if (t->dump == NULL)
        return DDP_OK;
    for (size_t i = 0; i < t->model->params.n; i++) {
        size_t n = t->model->params.each[i].count;
        failed |= fwrite(t->optimizer.grad[i], sizeof(float), n, t->dump) != n;
    }
    return failed ? ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: write: %s", t->options->dump_gradients,
                             strerror(errno))
                  : DDP_OK;
}

/* --- telling --------------------------------------------------------------------------------------------- */

/* Share of what the workers' devices could do; 0 when that or the work is not known. */
static double mfu(const struct trainer *t, double samples_per_s)
{
    double peak = t->options->peak_tflops;
    if (peak <= 0 && t->device != NULL)
        peak = t->device->peak_tflops;
    return peak > 0 ? t->model->flops * samples_per_s / (double)t->split.world_size / (peak * 1e12) : 0;
}

static ddp_status write_metrics(struct trainer *t, const struct late *of, double loss, double norm,
                                uint64_t us, struct ddp_err *err)
{
    uint64_t hash = t->options->hash_steps ? model_hash(t->model) : 0;
    struct journal_step line = {
        .step = of->step,
        .epoch = of->epoch,
        .loss = loss / (of->samples * (double)t->train_set.length),
        .lr = of->lr,
        .grad_norm = norm,
        .samples_per_s = of->samples * 1e6 / (double)(us + 1),
        .us = of->us,
        .param_hash = t->options->hash_steps ? &hash : NULL,
    };
    line.tokens_per_s = line.samples_per_s * (double)t->length;
    line.mfu = mfu(t, line.samples_per_s);
    return journal_step(&t->journal, &line, err);
}

/* The mean loss of a step costs an all-reduce of its own, so it is only made when somebody wants to read it. */
static ddp_status tell_step(struct trainer *t, const struct late *of, double loss, double norm, uint64_t us,
                            struct ddp_err *err)
{
    ddp_status status =
        library(ddp_all_reduce(ddp_world(t->ctx), &loss, &loss, 1, DDP_F64, DDP_SUM, NULL, NULL), err);
    if (status == DDP_OK && t->options->hash_steps)
        status = trainer_fetch(t, err);
    if (status != DDP_OK || !trainer_is_first(t))
        return status;
    return write_metrics(t, of, loss, norm, us, err);
}

/* What the device says now is of the step before, if that still waits; or of all (`now`), and then nothing waits. From one answer to
 * the next is a step's time. */
static ddp_status tell_late(struct trainer *t, bool now, struct ddp_err *err)
{
    struct compute_report report;
    struct late of = t->late;
    ddp_status status = t->device->ops->report(t->device, now, &report, err);
    if (status != DDP_OK)
        return status;
    t->loss_here += report.loss;
    if (!of.waits)
        return DDP_OK;
    t->late.waits = false;
    t->late.begun_us = trainer_now_us();
    return tell_step(t, &of, report.loss, report.norm, t->late.begun_us - of.begun_us, err);
}

/* A hash is one of the parameters after this step, not after the next. */
static ddp_status tell_of_device(struct trainer *t, const struct late *of, struct ddp_err *err)
{
    const uint64_t begun_us = t->late.begun_us;
    ddp_status status = tell_late(t, false, err);
    t->late = (struct late){ true, of->step, of->epoch, of->samples, of->lr, t->late.begun_us, { 0 } };
    memcpy(t->late.us, of->us, sizeof(t->late.us));
    if (begun_us == 0)
        t->late.begun_us = of->begun_us;
    return status == DDP_OK && t->options->hash_steps ? tell_late(t, true, err) : status;
}

static ddp_status tell(struct trainer *t, uint64_t step, double loss, double lr, uint64_t start,
                       struct ddp_err *err)
{
    struct late of = { .step = t->steps_done,
                       .epoch = t->epochs_done + 1,
                       .samples = (double)split_samples(&t->split, step),
                       .lr = lr,
                       .begun_us = start };
    if (t->options->metrics == NULL)
        return DDP_OK;
    memcpy(of.us, t->phases.us, sizeof(of.us));
    return t->device != NULL ? tell_of_device(t, &of, err)
                             : tell_step(t, &of, loss, t->optimizer.norm, trainer_now_us() - start, err);
}

/* --- the step -------------------------------------------------------------------------------------------- */

static ddp_status compute(struct trainer *t, uint64_t step, double *loss, struct ddp_err *err)
{
    const struct gradient_watch watch = { part_done, whole_done, phase_begins, t };
    phase_begins(t, PHASE_EXPOSED);
    ddp_status status = optimizer_begin(&t->optimizer, err);
    phase_begins(t, PHASES);
    t->feed.sum = optimizer_weight(&t->optimizer);
    return status == DDP_OK ? gradient_compute(&t->gradient, step, t->optimizer.grad, &watch, loss, err)
                            : status;
}

static ddp_status average(struct trainer *t, struct ddp_err *err)
{
    phase_begins(t, PHASE_EXPOSED);
    ddp_status status = optimizer_average(&t->optimizer, err);
    phase_begins(t, PHASES);
    return status == DDP_OK ? dump_gradient(t, err) : status;
}

/* The norm is only computed when somebody wants to read it, or to clip. */
static ddp_status update(struct trainer *t, double lr, struct ddp_err *err)
{
    phase_begins(t, PHASE_OPTIMIZER);
    ddp_status status = optimizer_update(&t->optimizer, lr, t->options->metrics != NULL, err);
    phase_begins(t, PHASES);
    return status;
}

ddp_status trainer_step(struct trainer *t, uint64_t step, struct ddp_err *err)
{
    double loss, lr = schedule_lr(&t->schedule, t->steps_done);
    uint64_t start = trainer_now_us();
    phases_start(&t->phases);
    ddp_status status = compute(t, step, &loss, err);
    if (status == DDP_OK)
        status = average(t, err);
    if (status == DDP_OK)
        status = update(t, lr, err);
    if (status != DDP_OK)
        return status;
    t->loss_here += loss;
    t->steps_done++;
    t->steps_here++;
    ddp_progress(t->ctx, t->steps_done); /* a launcher that does not hear of it is no reason to stop */
    status = tell(t, step, loss, lr, start, err);
    return status == DDP_OK ? profile_step(&t->profile, &t->phases, t->steps_done, err) : status;
}

/* What this rank has added since then joins the sum of all. */
ddp_status trainer_sum_loss(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = t->device != NULL ? tell_late(t, true, err) : DDP_OK;
    double sum = t->loss_here;
    t->loss_here = 0;
    if (status == DDP_OK)
        status = library(ddp_all_reduce(ddp_world(t->ctx), &sum, &sum, 1, DDP_F64, DDP_SUM, NULL, NULL), err);
    t->epoch_loss += sum;
    return status;
}
