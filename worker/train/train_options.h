/* train_options.h -- what `train` can be told. */
#ifndef TRAIN_TRAIN_OPTIONS_H
#define TRAIN_TRAIN_OPTIONS_H

#include "args.h"

#include <stdbool.h>

struct train_options {
    int model; /* row of models.h */
    const char *data;
    uint64_t batch, global_batch; /* one of them is 0 */
    uint64_t epochs;
    uint64_t seed;
    double lr;
    uint64_t threads;                                            /* 0 = not said */
    uint64_t limit_steps;                                        /* 0 = no limit */
    const char *metrics, *summary, *checkpoint, *dump_gradients; /* NULL = no */
    bool resume, grow, quiet, help, version;
};

/* Texts are borrowed from argv. DDP_ERR_ARG says which word is wrong. */
ddp_status train_options_parse(struct train_options *o, int argc, char *const argv[], struct ddp_err *err);

void train_options_help(FILE *to);

#endif
