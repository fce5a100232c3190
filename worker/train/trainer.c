/* trainer.c -- see trainer.h. All ranks must make the same decisions, because otherwise some ranks would wait in a
 * collective forever. So decisions depend only on numbers that are equal on all ranks, such as the loss and the limit
 * of steps. */
#include "train/trainer.h"

#include "base/clock.h"
#include "train/compute.h"
#include "train/files.h"
#include "train/library.h"
#include "train/models/llmc.h"

#include <cblas.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Approximate number of targets in a batch of a test. A test uses no padding, because padding would count some samples
 * twice. So the ranks may have different numbers of samples. */
enum { EVALUATE_TARGETS = 256 };

/* Return the number of samples that are tested at once. */
static size_t evaluate_rows(const struct dataset *set)
{
    return set->length < EVALUATE_TARGETS ? EVALUATE_TARGETS / set->length : 1;
}

/* Test the next batch and add the results to *to. If no batch is left, only set *more to false. */
static ddp_status count_batch(struct trainer *t, struct batch_source *source, bool *more, struct ddp_err *err)
{
    struct model_batch batch;
    double loss;
    ddp_status status = batch_source_next_test(source, &batch, err);
    *more = batch.rows > 0;
    if (status == DDP_OK && *more)
        status = model_forward(t->model, &batch, MODEL_TEST, &loss, err);
    if (status != DDP_OK || !*more)
        return status;
    t->accuracy.loss += loss;
    t->accuracy.correct += (int64_t)model_correct(t->model, &batch);
    t->accuracy.samples += (int64_t)(batch.rows * batch.length);
    return DDP_OK;
}

/* Sum the counts over all ranks. Also check the number of samples: if a sample was left out or tested twice, the
 * percentage would not show this error. */
static ddp_status add_up(struct trainer *t, struct ddp_err *err)
{
    ddp_group *world = ddp_world(t->ctx);
    int64_t counts[2] = { t->accuracy.correct, t->accuracy.samples };
    double loss = t->accuracy.loss;
    const size_t targets = t->test_set.n * t->test_set.length;
    ddp_status status = ddp_all_reduce(world, counts, counts, 2, DDP_I64, DDP_SUM, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_all_reduce(world, &loss, &loss, 1, DDP_F64, DDP_SUM, NULL, NULL);
    if (status != DDP_OK)
        return library(status, err);
    if (counts[1] != (int64_t)targets)
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "all ranks together made %" PRId64
                        " predictions, but the test set has %zu targets; use the same data "
                        "and the same version of this program on all hosts",
                        counts[1], targets);
    t->accuracy = (struct accuracy){ counts[0], counts[1], loss / (double)targets };
    return DDP_OK;
}

/* Test the model. First send rank 0's running means and variances, so that all ranks test the same model. */
static ddp_status test(struct trainer *t, struct ddp_err *err)
{
    const struct dataset *set = &t->test_set;
    struct batch_source source;
    bool more = true;
    t->accuracy = (struct accuracy){ 0 };
    ddp_status status =
        batch_source_init_test(&source, set, t->split.world_size, ddp_rank(t->ctx), evaluate_rows(set), err);
    if (status == DDP_OK)
        status = library(optimizer_share_buffers(t->model, t->ctx), err);
    while (status == DDP_OK && more)
        status = count_batch(t, &source, &more, err);
    if (status == DDP_OK)
        status = add_up(t, err);
    batch_source_free(&source);
    return status;
}

/* All ranks run one step together:
 *
 *     forward and backward on this rank's part of the batch   gradient.c, into memory of the reducer (or ZeRO-1)
 *     average of the gradients                                optimizer.c, already during the backward pass
 *     clip and update                                         optimizer.c, all parameters or (--zero1) a share */

/* --- what happens during the backward pass ------------------------------------------------------------- */

static ddp_status part_done(void *user, size_t i, float *grad, struct ddp_err *err)
{
    struct trainer *t = user;
    return optimizer_round(&t->optimizer, i, grad, err);
}

/* Report that a gradient is complete. If this gradient completes a bucket, and there is no communication thread, the
 * call waits for the other ranks. */
static ddp_status whole_done(void *user, size_t i, struct ddp_err *err)
{
    struct trainer *t = user;
    phases_begin(&t->phases, PHASE_EXPOSED, clock_us());
    ddp_status status = optimizer_ready(&t->optimizer, i, err);
    phases_end(&t->phases, clock_us());
    return status;
}

static void phase_begins(void *user, enum phase phase)
{
    struct trainer *t = user;
    uint64_t now_us = clock_us();
    if (t->phases.depth > 0)
        phases_end(&t->phases, now_us);
    if (phase < PHASES)
        phases_begin(&t->phases, phase, now_us);
}

/* --- files for comparisons of runs ----------------------------------------------------------------------- */

static ddp_status dump_gradient(struct trainer *t, struct ddp_err *err)
{
    bool failed = false;
    if (t->dump == NULL)
        return DDP_OK;
    for (size_t i = 0; i < t->model->params.n; i++) {
        size_t n = t->model->params.each[i].count;
        failed |= fwrite(t->optimizer.grad[i], sizeof(float), n, t->dump) != n;
    }
    return failed ? files_not_written("--dump_gradients", t->options->dump_gradients, err) : DDP_OK;
}

/* --- reports ----------------------------------------------------------------------------------------- */

/* Return the used share of the devices' peak rate, or 0 if the peak rate is unknown. */
static double mfu(const struct trainer *t, double samples_per_s)
{
    double peak = t->options->peak_tflops;
    if (peak <= 0 && t->device != NULL)
        peak = t->device->peak_tflops;
    return peak > 0 ? t->model->flops * samples_per_s / (double)t->split.world_size / (peak * 1e12) : 0;
}

/* Add 64 bits as text, because a JSON number has only 53 exact bits. */
static void add_hash(cJSON *json, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    cJSON_AddStringToObject(json, "param_hash", text);
}

/* Write the metrics of a step. `us` is its duration. */
static ddp_status write_metrics(struct trainer *t, const struct late *of, double loss, double norm,
                                uint64_t us, struct ddp_err *err)
{
    const double samples_per_s = of->samples * 1e6 / (double)(us + 1);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "step", (double)of->step);
    cJSON_AddNumberToObject(json, "epoch", (double)of->epoch);
    cJSON_AddNumberToObject(json, "loss", loss / (of->samples * (double)t->train_set.length));
    cJSON_AddNumberToObject(json, "lr", of->lr);
    cJSON_AddNumberToObject(json, "grad_norm", norm);
    cJSON_AddNumberToObject(json, "samples_s", samples_per_s);
    if (t->length > 0)
        cJSON_AddNumberToObject(json, "tokens_s", samples_per_s * (double)t->length);
    if (mfu(t, samples_per_s) > 0)
        cJSON_AddNumberToObject(json, "mfu", mfu(t, samples_per_s));
    if (t->options->hash_steps)
        add_hash(json, model_hash(t->model));
    cJSON *ms = cJSON_AddObjectToObject(json, "ms");
    for (int i = 0; i < PHASES; i++)
        cJSON_AddNumberToObject(ms, phase_key[i], (double)of->us[i] / 1e3);
    return journal_metrics(&t->journal, json, err);
}

/* Report a step. The mean loss of a step needs another all-reduce, so compute it only for metrics. */
static ddp_status report_step(struct trainer *t, const struct late *of, double loss, double norm, uint64_t us,
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

/* Report the step in t->late, with the loss and norm from the device. With `now`, wait until the device has finished
 * that step. The duration of a step is the time from t->late.begun_us to the report of the step. */
static ddp_status report_late(struct trainer *t, bool now, struct ddp_err *err)
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
    t->late.begun_us = clock_us();
    return report_step(t, &of, report.loss, report.norm, t->late.begun_us - of.begun_us, err);
}

/* Report the previous step if it is still unreported. Then keep this step (`of`) in t->late until the device has its
 * loss. With --hash_steps, wait for the device and report this step at once, because the hash must be the hash of the
 * parameters after this step.
 *
 * The device starts this step only after the previous step. So if this call reports the previous step, the duration of
 * this step begins with that report. If no step waited for its report, a test or a checkpoint may lie between the last
 * report and this step. In this case the duration begins at the start of this step. */
static ddp_status report_device_step(struct trainer *t, const struct late *of, struct ddp_err *err)
{
    const bool waited = t->late.waits;
    ddp_status status = report_late(t, false, err);
    const uint64_t begun_us = waited ? t->late.begun_us : of->begun_us;
    t->late = *of;
    t->late.waits = true;
    t->late.begun_us = begun_us;
    return status == DDP_OK && t->options->hash_steps ? report_late(t, true, err) : status;
}

static ddp_status note_step(struct trainer *t, uint64_t step, double loss, double lr, uint64_t start,
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
    return t->device != NULL ? report_device_step(t, &of, err)
                             : report_step(t, &of, loss, t->optimizer.norm, clock_us() - start, err);
}

/* --- the step -------------------------------------------------------------------------------------------- */

static ddp_status compute(struct trainer *t, uint64_t step, double *loss, struct ddp_err *err)
{
    const struct gradient_watch watch = { part_done, whole_done, phase_begins, t };
    phase_begins(t, PHASE_EXPOSED);
    ddp_status status = optimizer_begin(&t->optimizer, err);
    phase_begins(t, PHASES);
    t->source.sum = optimizer_weight(&t->optimizer);
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

/* Update the parameters. Request the norm of the gradient only if metrics are written. */
static ddp_status update(struct trainer *t, double lr, struct ddp_err *err)
{
    phase_begins(t, PHASE_OPTIMIZER);
    ddp_status status = optimizer_update(&t->optimizer, lr, t->options->metrics != NULL, err);
    phase_begins(t, PHASES);
    return status;
}

/* Run step `step` of the epoch; collective. Add this rank's losses to t->loss_here. */
static ddp_status trainer_step(struct trainer *t, uint64_t step, struct ddp_err *err)
{
    double loss, lr = schedule_lr(&t->schedule, t->steps_done);
    uint64_t start = clock_us();
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
    ddp_progress(t->ctx, t->steps_done); /* ignore errors: the store must not stop the training */
    status = note_step(t, step, loss, lr, start, err);
    return status == DDP_OK ? profile_step(&t->profile, &t->phases, t->steps_done, err) : status;
}

/* Increase t->epoch_loss by the losses of all ranks since the last call of this function; collective. Losses are summed
 * over all samples and divided only at the end. Ranks may have different numbers of samples, so an average of averages
 * would depend on the number of ranks. */
static ddp_status trainer_sum_loss(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = t->device != NULL ? report_late(t, true, err) : DDP_OK;
    double sum = t->loss_here;
    t->loss_here = 0;
    if (status == DDP_OK)
        status = library(ddp_all_reduce(ddp_world(t->ctx), &sum, &sum, 1, DDP_F64, DDP_SUM, NULL, NULL), err);
    t->epoch_loss += sum;
    return status;
}

/* --- checkpoints ------------------------------------------------------------------------------------------ */

/* Return this run as a checkpoint: its facts, losses and progress. */
static struct checkpoint describe(struct trainer *t)
{
    const struct train_options *o = t->options;
    return (struct checkpoint){
        .fact = { [FACT_EPOCHS] = (int64_t)t->epochs_done,
                  [FACT_STEPS] = (int64_t)t->steps_done,
                  [FACT_MODEL] = models_mark(model_names[o->model]),
                  [FACT_SEED] = (int64_t)o->seed,
                  [FACT_GLOBAL_BATCH] = (int64_t)t->split.global_batch,
                  [FACT_SAMPLES] = (int64_t)t->split.samples,
                  [FACT_OPTIMIZER] = o->optimizer,
                  [FACT_PRECISION] = o->precision,
                  [FACT_DETERMINISM] = o->determinism,
                  [FACT_ACCUMULATE] = (int64_t)o->accumulate,
                  [FACT_UPDATES] = optimizer_rule(&t->optimizer)->step },
        .loss = t->loss,
        .epoch_loss = t->epoch_loss,
        .samples = trainer_epoch_samples(t),
        .optimizer = &t->optimizer,
    };
}

/* Fail if a loss is not finite. All ranks have the same loss, so all ranks fail. */
static ddp_status check_loss(const struct trainer *t, double loss, struct ddp_err *err)
{
    if (isfinite(loss))
        return DDP_OK;
    const char *remedy =
        t->options->checkpoint != NULL ? "; if a resumed run fails again, remove the newest checkpoint" : "";
    return ddp_fail(err, DDP_ERR_ARG, "epoch %" PRIu64 ": the loss is %f; use a smaller --lr than %g%s",
                    t->epochs_done + 1, fabs(loss), t->options->lr, remedy);
}

/* Save a checkpoint; collective. Do nothing without --checkpoint, or if this step is already saved. Only rank 0 saves.
 * The other ranks continue and wait for rank 0 in the next collective. Fail if the loss is not finite. */
static ddp_status trainer_save(struct trainer *t, struct ddp_err *err)
{
    if (t->options->checkpoint == NULL || t->saved_step == t->steps_done)
        return DDP_OK;
    t->saved_step = t->steps_done;
    ddp_status status = trainer_sum_loss(t, err);
    /* Useless parameters must not replace a good checkpoint. */
    if (status == DDP_OK)
        status = check_loss(t, t->epoch_loss, err);
    if (status == DDP_OK)
        status = optimizer_gather(&t->optimizer, err);
    if (status != DDP_OK || !trainer_is_first(t))
        return status;
    struct checkpoint c = describe(t);
    return checkpoint_save(t->ckpts, &c, t->split.world_size, err);
}

static void print_resumed(struct trainer *t)
{
    const char *what = t->options->eval ? "eval: testing the checkpoint" : "resume: continuing";
    if (t->epoch_step == 0)
        journal_line(&t->journal, "%s after epoch %" PRIu64 " of %s", what, t->epochs_done,
                     t->options->checkpoint);
    else
        journal_line(&t->journal, "%s in epoch %" PRIu64 " after %" PRIu64 " of %" PRIu64 " steps, from %s",
                     what, t->epochs_done + 1, t->epoch_step, t->split.steps, t->options->checkpoint);
}

static void adopt_checkpoint(struct trainer *t, const struct checkpoint *c)
{
    t->epochs_done = t->resumed_epochs = (uint64_t)c->fact[FACT_EPOCHS];
    t->steps_done = t->saved_step = (uint64_t)c->fact[FACT_STEPS];
    t->epoch_step = c->samples / t->split.global_batch;
    t->loss = c->loss;
    t->epoch_loss = c->epoch_loss;
}

/* Load a checkpoint on rank 0 and send it to all ranks. So all ranks continue from the same step, and only one rank
 * reads a shared disk. */
static ddp_status trainer_load(struct trainer *t, struct ddp_err *err)
{
    struct checkpoint c = describe(t);
    int found = 0;
    ddp_status status = checkpoint_resume(t->ckpts, t->options->checkpoint, &c, &found, err);
    if (status == DDP_OK && !found && t->options->eval)
        return ddp_fail(err, DDP_ERR_ARG, "--eval: there is no checkpoint in %s; check --checkpoint",
                        t->options->checkpoint);
    if (status == DDP_OK && !found)
        journal_line(&t->journal, "resume: no checkpoint in %s; starting from the beginning",
                     t->options->checkpoint);
    if (status != DDP_OK || !found)
        return status;
    adopt_checkpoint(t, &c);
    print_resumed(t);
    return DDP_OK;
}

/* Continue from the newest checkpoint, if the directory has a checkpoint; collective. */
static ddp_status trainer_resume(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    ddp_status status = DDP_OK;
    if (trainer_is_first(t))
        status = checkpoint_open(o, &t->ckpts, err);
    return status == DDP_OK && (o->resume || o->eval) ? trainer_load(t, err) : status;
}

/* --- what a run needs ------------------------------------------------------------------------------------- */

/* trainer_open first opens the files that the user has named, and the data, because these operations fail most often
 * and need no other rank. Collective operations follow, such as creating the reducer and loading the checkpoint. */

/* Set the number of BLAS threads, by default one, because usually every core has a worker. */
static void set_threads(uint64_t wanted)
{
    if (wanted > 0)
        openblas_set_num_threads((int)wanted);
    else if (getenv("OPENBLAS_NUM_THREADS") == NULL && getenv("OMP_NUM_THREADS") == NULL)
        openblas_set_num_threads(1);
}

/* Fail if `dir` has a checkpoint of an early version. Otherwise --resume would find no checkpoint and start from the
 * beginning. */
static ddp_status refuse_early_version(const char *dir, struct ddp_err *err)
{
    char path[PATH_MAX];
    ddp_status status = files_join(path, dir, "train.ckpt", "", err);
    if (status != DDP_OK || access(path, F_OK) != 0)
        return status;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "%s: an early version of train wrote this checkpoint, and this version cannot read it; use another "
        "--checkpoint directory",
        path);
}

/* Check the directory of --checkpoint. With --eval, the directory must have a checkpoint. A training run creates a
 * missing directory, and fails if the directory has checkpoints but --resume is missing. Otherwise the run would mix
 * its checkpoints with those of another run, and could delete old checkpoints. */
static ddp_status open_checkpoints(const struct train_options *o, struct ddp_err *err)
{
    char newest[64];
    if (o->checkpoint == NULL)
        return DDP_OK;
    if (o->eval) /* --eval writes nothing */
        return checkpoint_exists(o->checkpoint, newest)
                   ? DDP_OK
                   : ddp_fail(err, DDP_ERR_ARG, "--eval: there is no checkpoint in %s; check --checkpoint",
                              o->checkpoint);
    if (files_make_dir("--checkpoint", o->checkpoint, err) != DDP_OK)
        return err->code;
    if (!checkpoint_exists(o->checkpoint, newest))
        return refuse_early_version(o->checkpoint, err);
    if (o->resume)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--checkpoint %s: the directory has %s of an earlier run; use --resume to continue that "
                    "run, or another directory to start from the beginning",
                    o->checkpoint, newest);
}

/* Check at the start that the output files can be written. Otherwise the run would fail only after the last epoch. */
static ddp_status check_outputs(const struct train_options *o, struct ddp_err *err)
{
    ddp_status status = o->export_to != NULL ? files_may_write("--export", o->export_to, err) : DDP_OK;
    return status == DDP_OK && o->summary != NULL ? files_may_write("--summary", o->summary, err) : status;
}

/* Open the output files, only on rank 0. The other ranks wait for rank 0 in the first collective. Check the paths
 * first, so that a run with a wrong --checkpoint, --summary or --export does not empty the files of an earlier run. */
static ddp_status open_outputs(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    char newest[64];
    ddp_status status = trainer_is_first(t) ? open_checkpoints(o, err) : DDP_OK;
    if (status == DDP_OK && trainer_is_first(t))
        status = check_outputs(o, err);
    if (status == DDP_OK)
        status = profile_open(&t->profile, o->profile, t->ctx, err);
    /* Keep the metrics of an earlier run that this run continues or tests. */
    const bool append =
        trainer_is_first(t) && o->checkpoint != NULL && checkpoint_exists(o->checkpoint, newest);
    if (status == DDP_OK)
        status = journal_open(&t->journal, trainer_is_first(t), o->quiet, o->metrics, append, err);
    if (status != DDP_OK || !trainer_is_first(t) || o->dump_gradients == NULL)
        return status;
    t->dump = files_open("--dump_gradients", o->dump_gradients, "wbe", err);
    return t->dump != NULL ? DDP_OK : err->code;
}

/* Open the data. Every rank opens all data, because each epoch distributes the samples anew. */
static ddp_status open_data(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    const struct model_kind *kind = &models[o->model];
    const struct batch_source_options how = { o->seed, (int)o->loader_threads, o->augment };
    const struct dataset_request what = { kind->input, o->length != 0 ? o->length : kind->length,
                                          kind->vocabulary };
    ddp_status status = dataset_load(&t->train_set, o->data, DATASET_TRAIN, &what, err);
    if (status == DDP_OK)
        status = dataset_load(&t->test_set, o->data, DATASET_TEST, &what, err);
    if (status != DDP_OK)
        return files_wrap_option("--data", err);
    const struct split_request request = { .samples = t->train_set.n,
                                           .batch = o->batch,
                                           .global_batch = o->global_batch,
                                           .accumulate = o->accumulate,
                                           .any_world = o->determinism == DETERMINISM_WORLD,
                                           .together = o->sync_bn || ddp_device(t->ctx) >= 0 };
    status = split_make(&t->split, &request, ddp_world_size(t->ctx), ddp_rank(t->ctx), err);
    return status == DDP_OK ? batch_source_init(&t->source, &t->train_set, &t->split, &how, err) : status;
}

/* --- comparison of the ranks' runs ------------------------------------------------------------------- */

/* The values that the ranks compare. */
struct run_facts {
    int64_t options[TRAIN_FACTS], samples[2];
};
enum { RUN_FACTS = sizeof(struct run_facts) / sizeof(int64_t) };

static ddp_status compare_samples(const int64_t first[2], const int64_t theirs[2], int rank,
                                  struct ddp_err *err)
{
    if (memcmp(first, theirs, 2 * sizeof(*first)) == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--data differs: rank 0 has %" PRId64 " samples for training and %" PRId64
                    " for the test, rank %d has %" PRId64 " and %" PRId64
                    "; use the same data on all workers",
                    first[0], first[1], rank, theirs[0], theirs[1]);
}

/* Compare every rank with rank 0. All ranks do this, so that all ranks print the same text. */
static ddp_status compare_runs(const struct run_facts *all, int world, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int rank = 1; rank < world && status == DDP_OK; rank++) {
        status = train_options_same(all->options, all[rank].options, rank, err);
        if (status == DDP_OK)
            status = compare_samples(all->samples, all[rank].samples, rank, err);
    }
    return status;
}

/* Compare the options before any other collective, because ranks with different options would call different
 * collectives or train different models. */
static ddp_status compare_options(const struct trainer *t, struct ddp_err *err)
{
    const int world = ddp_world_size(t->ctx);
    struct run_facts mine = { .samples = { (int64_t)t->train_set.n, (int64_t)t->test_set.n } };
    struct run_facts *all = calloc((size_t)world, sizeof(*all));
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the options of %d ranks", world);
    train_options_facts(t->options, mine.options);
    ddp_status status =
        library(ddp_all_gather(ddp_world(t->ctx), &mine, all, RUN_FACTS, DDP_I64, NULL, NULL), err);
    if (status == DDP_OK)
        status = compare_runs(all, world, err);
    free(all);
    return status;
}

/* --- model ------------------------------------------------------------------------------------------- */

/* Load the initial parameters on rank 0. optimizer_open sends them. */
static ddp_status init_model(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    if (o->init_from == NULL || !trainer_is_first(t))
        return DDP_OK;
    ddp_status status = llmc_load(o->init_from, &models[o->model], &t->model->params, err);
    if (status != DDP_OK)
        return files_wrap_option("--init_from", err);
    journal_line(&t->journal, "initial parameters from %s", o->init_from);
    return DDP_OK;
}

/* Create the model. All ranks use the same seed, so they begin with the same parameters. optimizer_open sends rank
 * 0's parameters anyway. */
static ddp_status open_model(struct trainer *t, struct ddp_err *err)
{
    size_t rows = split_rows(&t->split, 0);
    const struct dataset *set = &t->train_set;
    const struct model_spec spec = {
        .compute = t->device,
        .rows = rows > evaluate_rows(set) ? rows : evaluate_rows(set),
        .train_rows = rows,
        .length = models[t->options->model].input == MODEL_TOKENS ? set->length : 0,
        .channels = set->channels,
        .height = set->height,
        .width = set->width,
        .classes = set->classes,
        .seed = t->options->seed,
        .ctx = t->options->sync_bn ? t->ctx : NULL,
    };
    ddp_status status = model_create(&models[t->options->model], &spec, &t->model, err);
    if (status != DDP_OK)
        return status;
    t->length = spec.length;
    if (!gradient_init(&t->gradient, t->model, &t->source))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for gradients of %zu parameters",
                        t->model->params.count);
    status = init_model(t, err);
    return status == DDP_OK ? optimizer_open(&t->optimizer, t->options, t->model, t->ctx, err) : status;
}

ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err)
{
    *t = (struct trainer){ .options = options, .ctx = ctx, .loss = NAN };
    set_threads(options->threads);
    ddp_status status = open_outputs(t, err);
    if (status == DDP_OK)
        status = open_data(t, err);
    if (status == DDP_OK)
        status = compare_options(t, err);
    if (status == DDP_OK && ddp_device(ctx) >= 0) /* main.c has chosen a device for the context */
        status = cuda_open(ddp_device(ctx), options->precision, &t->device, err);
    if (status == DDP_OK)
        status = open_model(t, err);
    t->schedule = (struct schedule){ .kind = (enum schedule_kind)options->schedule,
                                     .lr = options->lr,
                                     .final_lr = options->final_lr,
                                     .warmup = options->warmup,
                                     .steps = options->epochs * t->split.steps };
    if (status == DDP_OK && options->checkpoint != NULL)
        status = trainer_resume(t, err);
    char few[64] = "";
    if (status == DDP_OK && t->split.global_batch > t->train_set.n)
        snprintf(few, sizeof(few), " (more than the %zu samples)", t->train_set.n);
    if (status == DDP_OK)
        journal_line(
            &t->journal,
            "%s: %zu samples for training, %zu for the test, from %s; %d worker%s, global batch %" PRIu64
            "%s, %" PRIu64 " step%s an epoch%s",
            model_names[options->model], t->train_set.n, t->test_set.n, options->data, t->split.world_size,
            t->split.world_size == 1 ? "" : "s", t->split.global_batch, few, t->split.steps,
            t->split.steps == 1 ? "" : "s", t->device != NULL ? ", on GPUs" : "");
    return status;
}

/* Close the dump. fclose reports a full disk for bytes that were still in a buffer. */
static ddp_status close_dump(struct trainer *t, struct ddp_err *err)
{
    if (t->dump == NULL || fclose(t->dump) == 0)
        return DDP_OK;
    return files_not_written("--dump_gradients", t->options->dump_gradients, err);
}

/* Close everything, even after a failure, and return the first error. Wait for the device first, because the device may
 * still use memory that is freed here. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err)
{
    enum { CLOSED = 5 };
    if (t->device != NULL)
        t->device->ops->wait(t->device);
    struct ddp_err each[CLOSED];
    ddp_status status[CLOSED] = { ddp_ckpts_close(t->ckpts, &each[0]), journal_close(&t->journal, &each[1]),
                                  close_dump(t, &each[2]), profile_close(&t->profile, &each[3]),
                                  optimizer_close(&t->optimizer, &each[4]) };
    gradient_free(&t->gradient);
    model_free(t->model);
    if (t->device != NULL)
        t->device->ops->close(t->device);
    if (batch_source_free(&t->source))
        dataset_free(&t->train_set);
    dataset_free(&t->test_set);
    for (int i = 0; i < CLOSED; i++) {
        if (status[i] != DDP_OK)
            return ddp_fail(err, status[i], "%s", each[i].msg);
    }
    return DDP_OK;
}

/* --- comparison of the parameters -------------------------------------------------------------------- */

/* Compare the hashes of the parameters of all ranks. The hashes differ after a memory error or a race, or if the ranks
 * run on different kinds of machines. */
static ddp_status compare(const struct trainer *t, const int64_t *hash, struct ddp_err *err)
{
    for (int rank = 1; rank < t->split.world_size; rank++) {
        if (hash[rank] != hash[0])
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "after step %" PRIu64
                            " the parameters of rank %d differ from those of rank 0: hashes %016" PRIx64
                            " and %016" PRIx64
                            "; check the memory of both hosts, and use hosts with the same hardware",
                            t->steps_done, rank, (uint64_t)hash[rank], (uint64_t)hash[0]);
    }
    return DDP_OK;
}

static ddp_status compare_ranks(struct trainer *t, uint64_t *hash, struct ddp_err *err)
{
    ddp_status status = trainer_fetch(t, err);
    if (status != DDP_OK)
        return status;
    int64_t mine = (int64_t)(*hash = model_hash(t->model));
    int64_t *all = calloc((size_t)t->split.world_size, sizeof(*all));
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the hashes of %d ranks", t->split.world_size);
    status = library(ddp_all_gather(ddp_world(t->ctx), &mine, all, 1, DDP_I64, NULL, NULL), err);
    if (status == DDP_OK)
        status = compare(t, all, err);
    free(all);
    return status;
}

/* --- epochs ------------------------------------------------------------------------------------------ */

/* Return true if this run has made --limit_steps steps. Steps that an earlier run has made before a resume do not
 * count. */
static bool limit_reached(const struct trainer *t)
{
    return t->options->limit_steps != 0 && t->steps_here >= t->options->limit_steps;
}

static bool is_due(const struct trainer *t, uint64_t every)
{
    return every != 0 && t->steps_done % every == 0;
}

/* Compare the parameters, and save a checkpoint, each only if it is due after this step. Compare first, so that wrong
 * parameters are never saved. */
static ddp_status after_step(struct trainer *t, struct ddp_err *err)
{
    uint64_t hash;
    ddp_status status = is_due(t, t->options->check_every) ? compare_ranks(t, &hash, err) : DDP_OK;
    if (status == DDP_OK && is_due(t, t->options->checkpoint_every) && t->epoch_step < t->split.steps)
        status = trainer_save(t, err);
    return status;
}

/* Run the remaining steps of the epoch, up to --limit_steps, and set t->loss. */
static ddp_status train_steps(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = batch_source_start_epoch(&t->source, t->epochs_done, t->epoch_step, err);
    while (t->epoch_step < t->split.steps && !limit_reached(t) && status == DDP_OK) {
        status = trainer_step(t, t->epoch_step, err);
        t->epoch_step++;
        if (status == DDP_OK)
            status = after_step(t, err);
        journal_progress(&t->journal, t->epochs_done + 1, t->options->epochs, t->epoch_step, t->split.steps);
    }
    if (status == DDP_OK)
        status = trainer_sum_loss(t, err);
    t->loss = t->epoch_loss / (double)(trainer_epoch_samples(t) * t->train_set.length);
    return status;
}

static double share_of_correct(const struct trainer *t)
{
    return (double)t->accuracy.correct / (double)t->accuracy.samples;
}

/* Add the results of the last test, if there was one. */
static void add_test(cJSON *json, const struct trainer *t)
{
    if (t->accuracy.samples == 0)
        return;
    cJSON_AddNumberToObject(json, "test_accuracy", share_of_correct(t));
    cJSON_AddNumberToObject(json, "test_loss", t->accuracy.loss);
}

/* Report an epoch. Stop if the loss is not finite. Only the metrics of epochs have the member "epoch_loss". */
static ddp_status report_epoch(struct trainer *t, uint64_t samples, uint64_t us, struct ddp_err *err)
{
    const double samples_per_s = (double)samples * 1e6 / (double)(us + 1);
    char test[64] = "";
    if (check_loss(t, t->loss, err) != DDP_OK)
        return err->code;
    if (t->accuracy.samples > 0)
        snprintf(test, sizeof(test), "test accuracy %.4f (%" PRId64 " of %" PRId64 "), ", share_of_correct(t),
                 t->accuracy.correct, t->accuracy.samples);
    journal_line(&t->journal, "epoch %" PRIu64 "/%" PRIu64 ": loss %.6f, %s%.0f samples/s",
                 t->epochs_done + 1, t->options->epochs, t->loss, test, samples_per_s);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "epoch", (double)(t->epochs_done + 1));
    cJSON_AddNumberToObject(json, "step", (double)t->steps_done);
    cJSON_AddNumberToObject(json, "epoch_loss", t->loss);
    add_test(json, t);
    cJSON_AddNumberToObject(json, "samples_s", samples_per_s);
    return journal_metrics(&t->journal, json, err);
}

/* Let waiting nodes join after rank 0 has written a checkpoint. All ranks must agree, so rank 0 asks the store for the
 * number of waiting nodes and sends it to the other ranks. Training continues until the launcher restarts the job. */
static ddp_status agree_to_grow(struct trainer *t, struct ddp_err *err)
{
    int32_t nodes = 0;
    uint32_t waiting = 0;
    if (!t->options->grow || t->epochs_done == t->options->epochs)
        return DDP_OK;
    ddp_status status = t->ckpts != NULL ? ddp_ckpts_wait(t->ckpts, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    if (trainer_is_first(t) && ddp_grow_waiting(t->ctx, &waiting) == DDP_OK)
        nodes = (int32_t)waiting;
    status = library(ddp_broadcast(ddp_world(t->ctx), &nodes, 1, DDP_I32, 0, NULL, NULL), err);
    if (status != DDP_OK || nodes == 0)
        return status;
    journal_line(&t->journal, "%d node%s can join; restarting with more nodes after epoch %" PRIu64,
                 (int)nodes, nodes == 1 ? "" : "s", t->epochs_done);
    ddp_grow_agree(t->ctx); /* ignore errors: without this rank's agreement, the job keeps its size */
    return DDP_OK;
}

/* Return true if a test is due: every N epochs, after the last epoch, and at --limit_steps. */
static bool is_test_due(const struct trainer *t)
{
    return (t->epochs_done + 1) % t->options->eval_every == 0 || t->epochs_done + 1 == t->options->epochs ||
           limit_reached(t);
}

static ddp_status end_epoch(struct trainer *t, struct ddp_err *err)
{
    t->epochs_done++;
    t->epoch_step = 0;
    t->epoch_loss = 0;
    ddp_status status = trainer_save(t, err);
    return status == DDP_OK ? agree_to_grow(t, err) : status;
}

static ddp_status train_epoch(struct trainer *t, struct ddp_err *err)
{
    uint64_t start = clock_us(), before = trainer_epoch_samples(t);
    ddp_status status = train_steps(t, err);
    uint64_t us = clock_us() - start, samples = trainer_epoch_samples(t) - before;
    t->accuracy = (struct accuracy){ 0 };
    if (status == DDP_OK && is_test_due(t))
        status = test(t, err);
    if (status == DDP_OK)
        status = report_epoch(t, samples, us, err);
    t->samples_here += samples;
    t->train_us += us;
    if (status != DDP_OK)
        return status;
    return t->epoch_step < t->split.steps ? trainer_save(t, err) : end_epoch(t, err);
}

/* --- the end ----------------------------------------------------------------------------------------- */

static ddp_status summarize(struct trainer *t, uint64_t hash, struct ddp_err *err)
{
    const double seconds = (double)t->train_us / 1e6;
    journal_line(&t->journal,
                 "hash of the parameters %016" PRIx64 " after %" PRIu64 " step%s, %.1f s of training", hash,
                 t->steps_done, t->steps_done == 1 ? "" : "s", seconds);
    if (!trainer_is_first(t) || t->options->summary == NULL)
        return DDP_OK;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "model", model_names[t->options->model]);
    cJSON_AddNumberToObject(json, "world_size", t->split.world_size);
    cJSON_AddNumberToObject(json, "global_batch", (double)t->split.global_batch);
    cJSON_AddNumberToObject(json, "epochs", (double)t->epochs_done);
    cJSON_AddNumberToObject(json, "resumed_epochs", (double)t->resumed_epochs);
    cJSON_AddNumberToObject(json, "steps", (double)t->steps_done);
    cJSON_AddNumberToObject(json, "seed", (double)t->options->seed);
    cJSON_AddNumberToObject(json, "lr", t->options->lr);
    cJSON_AddNumberToObject(json, "final_loss", t->loss);
    add_test(json, t);
    cJSON_AddNumberToObject(json, "test_correct", (double)t->accuracy.correct);
    cJSON_AddNumberToObject(json, "test_samples", (double)t->accuracy.samples);
    cJSON_AddNumberToObject(json, "samples_per_s", seconds > 0 ? (double)t->samples_here / seconds : 0);
    cJSON_AddNumberToObject(json, "train_s", seconds);
    add_hash(json, hash);
    return journal_summary(t->options->summary, json, err);
}

/* Test without training, for --eval or for a resumed run that is already complete. */
static ddp_status only_test(struct trainer *t, struct ddp_err *err)
{
    if (!t->options->eval)
        journal_line(&t->journal, "--epochs %" PRIu64 ": all epochs are already done", t->options->epochs);
    ddp_status status = test(t, err);
    if (status == DDP_OK && t->options->eval)
        journal_line(&t->journal, "test accuracy %.4f (%" PRId64 " of %" PRId64 "), test loss %.6f",
                     share_of_correct(t), t->accuracy.correct, t->accuracy.samples, t->accuracy.loss);
    return status;
}

/* Export the parameters in float32. With 16-bit precision, export the optimizer's float32 copies of the parameters. */
static ddp_status export_model(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    if (o->export_to == NULL)
        return DDP_OK;
    ddp_status status = optimizer_gather(&t->optimizer, err);
    if (status != DDP_OK || !trainer_is_first(t))
        return status;
    status = llmc_save(o->export_to, &models[o->model], &t->model->params, t->optimizer.slot[0], err);
    if (status != DDP_OK)
        return files_wrap_option("--export", err);
    journal_line(&t->journal, "exported to %s", o->export_to);
    return DDP_OK;
}

ddp_status trainer_run(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (!t->options->eval && t->epochs_done < t->options->epochs && !limit_reached(t) && status == DDP_OK)
        status = train_epoch(t, err);
    if (status == DDP_OK && t->steps_here == 0)
        status = only_test(t, err);
    if (status != DDP_OK)
        return status;
    uint64_t hash;
    status = compare_ranks(t, &hash, err);
    if (status == DDP_OK)
        status = export_model(t, err);
    return status == DDP_OK ? summarize(t, hash, err) : status;
}
