/* train_options.h -- the options of `train`. At the start, trainer.c compares the options that must be equal on all
 * ranks, because ranks with different options would call different collectives or train different models. */
#ifndef TRAIN_TRAIN_OPTIONS_H
#define TRAIN_TRAIN_OPTIONS_H

#include "base/options.h"

#include "ddp/optim.h"
#include "train/schedule.h"

#include <stdbool.h>
#include <stdio.h>

/* The types to which weights are rounded before layers read them. Columns: name, word on the command line. */
#define PRECISION_LIST(X) \
    X(FP32, "fp32")       \
    X(BF16, "bf16")       \
    X(FP16, "fp16")

enum precision {
#define X(name, word) PRECISION_##name,
    PRECISION_LIST(X)
#undef X
};

enum determinism { DETERMINISM_RUN, DETERMINISM_WORLD };
enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

/* The options. Strings are borrowed from argv. */
struct train_options {
    int model; /* index of a row in `models` */
    const char *data;
    uint64_t batch, global_batch; /* one of the two is 0 */
    uint64_t accumulate;
    uint64_t epochs;
    uint64_t seed;
    /* Values of ddp_rule, and of the enums schedule_kind, precision, determinism and device. */
    int optimizer, schedule, precision, determinism, device;
    double lr, final_lr, clip;                   /* `clip` is 0 if off */
    double momentum, weight_decay, beta1, beta2; /* `weight_decay` is -1 if not given */
    uint64_t warmup;
    bool nesterov, zero1, sync_bn;
    uint64_t checkpoint_every, keep_every, check_every; /* each is 0 if off */
    uint64_t keep_last, eval_every;
    double peak_tflops; /* 0 if not given */
    bool eval, hash_steps;
    const char *profile;               /* NULL if off */
    const char *init_from, *export_to; /* each is NULL if off */
    uint64_t threads;                  /* 0 if not given */
    uint64_t loader_threads, length;   /* `length` is 0 if not given */
    bool augment;
    uint64_t limit_steps;                                        /* 0 if there is no limit */
    const char *metrics, *summary, *checkpoint, *dump_gradients; /* each is NULL if off */
    bool resume, grow, quiet, help, version;
};

/* Parse the options. Strings are borrowed from argv. The text of DDP_ERR_ARG names the wrong argument. */
ddp_status train_options_parse(struct train_options *o, int argc, char *const argv[], struct ddp_err *err);

/* Return the text of choice `value` of option `name`, or NULL. The text is constant. */
const char *train_options_word(const char *name, int64_t value);

/* A fact is an option that must be equal on all workers, as a number that ranks can compare. TRAIN_FACTS is the
 * maximum number of facts. */
enum { TRAIN_FACTS = 64 }; /* unused elements of an array of facts are 0 */
void train_options_facts(const struct train_options *o, int64_t facts[TRAIN_FACTS]);

/* Compare the facts of `rank` with those of rank 0. DDP_ERR_ARG names the first option that differs, and both
 * values. */
ddp_status train_options_same(const int64_t first[TRAIN_FACTS], const int64_t theirs[TRAIN_FACTS], int rank,
                              struct ddp_err *err);

/* Return the optimizer that the options describe. The returned optimizer has made no step. */
ddp_optim train_options_optim(const struct train_options *o);

/* Return true if a GPU may be used and all given options work on a GPU. */
bool train_options_may_use_gpu(const struct train_options *o);

void train_options_help(FILE *to);

#endif
