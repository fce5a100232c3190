/* journal.h -- what rank 0 reports: lines and a progress bar for people, JSON lines and a summary for programs.
 *
 * Other ranks have a silent journal, so callers need not check their rank. */
#ifndef WORKER_TRAIN_JOURNAL_H
#define WORKER_TRAIN_JOURNAL_H

#include "ddp/error.h"
#include "train/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The peak arithmetic rate of known GPUs, for the metric mfu. Pure. */

/* Return the TFLOP/s of dense products of the GPU with the driver's name `name`: in 16 bits with sums in float32, or
 * in float32 without TF32. Return 0 if the GPU is not in the table, or is only a part of a GPU (MIG). */
double peaks_tflops(const char *name, bool is_float);

struct journal {
    bool lines;    /* lines are printed */
    FILE *bar;     /* stream of the progress bar; NULL = none */
    int bar_shown; /* per mille that was drawn last; -1 = no bar is visible */
    FILE *metrics; /* owned; NULL = none */
    const char *metrics_path;
};

struct journal_step {
    uint64_t step, epoch; /* numbers of the whole run, from 1 */
    double loss;          /* mean over the global batch */
    double lr, grad_norm, samples_per_s;
    double tokens_per_s;        /* 0 = unknown */
    double mfu;                 /* 0 = unknown */
    const uint64_t *us;         /* PHASES numbers */
    const uint64_t *param_hash; /* NULL = not requested */
};

struct journal_epoch {
    uint64_t epoch, epochs; /* from 1 */
    uint64_t step;
    double loss;             /* mean over all samples of all ranks */
    int64_t correct, tested; /* tested = 0: no test after this epoch */
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
    uint64_t resumed_epochs; /* epochs of earlier runs */
    uint64_t param_hash;
};

/* Open the journal. `metrics` may be NULL and is borrowed. */
ddp_status journal_open(struct journal *r, bool speak, bool quiet, const char *metrics, struct ddp_err *err);

/* Flush and close the journal. Return DDP_ERR_IO if the metrics could not be written. `r` may be a zeroed journal. */
ddp_status journal_close(struct journal *r, struct ddp_err *err);

/* Print one line. */
void journal_line(struct journal *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Draw the progress bar: `done` of `total` steps of an epoch. */
void journal_progress(struct journal *r, uint64_t epoch, uint64_t epochs, uint64_t done, uint64_t total);

ddp_status journal_step(struct journal *r, const struct journal_step *s, struct ddp_err *err);
ddp_status journal_epoch(struct journal *r, const struct journal_epoch *e, struct ddp_err *err);

/* Write one JSON object. The file is whole or not written at all. */
ddp_status journal_summary(const char *path, const struct journal_summary *s, struct ddp_err *err);

#endif
