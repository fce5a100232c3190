/* journal.h -- what rank 0 tells: lines and a bar for people, JSON lines and a summary for programs.
 *
 * Other ranks hold a journal that is silent, so callers need not ask who they are. */
#ifndef WORKER_TRAIN_JOURNAL_H
#define WORKER_TRAIN_JOURNAL_H

#include "ddp/error.h"
#include "train/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The peak arithmetic rate of known GPUs, for the metric mfu. Pure. */

/* TFLOP/s of dense products of a GPU that the driver calls `name`: of 16-bit values with sums in float32, or of float32 without TF32.
 * 0 = it is not in the table, or is only a part of one (MIG). */
double peaks_tflops(const char *name, bool is_float);

struct journal {
    bool lines;    /* print */
    FILE *bar;     /* where a progress bar is drawn; NULL = nowhere */
    int bar_shown; /* per mille drawn last, -1 = none on the screen */
    FILE *metrics; /* ours; NULL = none */
    const char *metrics_path;
};

struct journal_step {
    uint64_t step, epoch; /* of the whole run; from 1 */
    double loss;          /* mean over the global batch */
    double lr, grad_norm, samples_per_s;
    double tokens_per_s;        /* 0 = none */
    double mfu;                 /* 0 = not known */
    const uint64_t *us;         /* PHASES of them */
    const uint64_t *param_hash; /* NULL = not wanted */
};

struct journal_epoch {
    uint64_t epoch, epochs; /* from 1 */
    uint64_t step;
    double loss;             /* mean over all samples and ranks */
    int64_t correct, tested; /* 0: not tested after this epoch */
    double test_loss;
    double samples_per_s;
};

struct journal_summary {
    const char *model;
    int world_size;
    uint64_t epochs, steps, global_batch, seed;
    double lr;
    double final_loss;
    int64_t correct, tested;
    double test_loss;
    double samples_per_s, train_s;
    uint64_t resumed_epochs; /* done by earlier runs */
    uint64_t param_hash;
};

/* `metrics` may be NULL; borrowed. */
ddp_status journal_open(struct journal *r, bool speak, bool quiet, const char *metrics, struct ddp_err *err);

/* Flush and close. DDP_ERR_IO when the metrics could not be written. Safe on a zeroed journal. */
ddp_status journal_close(struct journal *r, struct ddp_err *err);

/* One line for people. */
void journal_line(struct journal *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Step `done` of `total` of an epoch: the bar. */
void journal_progress(struct journal *r, uint64_t epoch, uint64_t epochs, uint64_t done, uint64_t total);

ddp_status journal_step(struct journal *r, const struct journal_step *s, struct ddp_err *err);
ddp_status journal_epoch(struct journal *r, const struct journal_epoch *e, struct ddp_err *err);

/* One JSON object, the file whole or not at all. */
ddp_status journal_summary(const char *path, const struct journal_summary *s, struct ddp_err *err);

#endif
