/* journal.h -- the reports of rank 0: lines and a progress bar for users, JSON lines and a summary for programs.
 *
 * On other ranks the journal prints nothing, so callers need not check their rank. */
#ifndef WORKER_TRAIN_JOURNAL_H
#define WORKER_TRAIN_JOURNAL_H

#include "ddp/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Return the peak rate in TFLOP/s of dense products, for the GPU that the driver calls `name`. If is_float is true, the
 * products are in float32 without TF32. Otherwise the products are in 16 bits with sums in float32. Return 0 if the GPU
 * is unknown, or if it is a part of a GPU (MIG). The metric mfu needs this rate. This function is pure. */
double peaks_tflops(const char *name, bool is_float);

struct journal {
    bool lines;    /* true if lines are printed */
    FILE *bar;     /* stream of the progress bar; NULL if no bar is drawn */
    int bar_shown; /* last drawn position of the bar, in per mille; -1 if no bar is visible */
    FILE *metrics; /* owned; NULL if no metrics are written */
    const char *metrics_path;
    struct ddp_err print_error; /* the first error of stdout; its code is DDP_OK if all lines were printed */
};

/* Open the journal. `speak` is true on rank 0. `metrics` is borrowed and may be NULL. If `append` is true, keep the
 * lines that the file of metrics already has. */
ddp_status journal_open(struct journal *r, bool speak, bool quiet, const char *metrics, bool append,
                        struct ddp_err *err);

/* Flush and close the journal. Return DDP_ERR_IO if the metrics or a line could not be written. `r` may be a zeroed
 * struct. */
ddp_status journal_close(struct journal *r, struct ddp_err *err);

/* Print one line. */
void journal_line(struct journal *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Draw the progress bar. `done` is the number of finished steps, and `total` is the number of steps in an epoch. */
void journal_progress(struct journal *r, uint64_t epoch, uint64_t epochs, uint64_t done, uint64_t total);

/* Write one JSON line to the metrics, if metrics are written, and free `json`. */
ddp_status journal_metrics(struct journal *r, cJSON *json, struct ddp_err *err);

/* Write one JSON object to `path`, and free `json`. The file is written whole or not at all. */
ddp_status journal_summary(const char *path, cJSON *json, struct ddp_err *err);

#endif
