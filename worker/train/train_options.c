/* train_options.c -- see train_options.h.
 *
 * Add an option: a row here, a field there, and whoever uses it. Names are those of the torch world where it
 * has one. */
#include "train_options.h"

#include "models.h"

#define AT(field) offsetof(struct train_options, field)
enum { MOST = 1 << 30 }; /* of anything that is counted: products of two still fit in 64 bits */

static const struct arg_row rows[] = {
    { "data", "DIR", ARG_TEXT, AT(data), "data", 0, 0, NULL, "Fashion-MNIST's four files, plain or .gz" },
    { "model", "NAME", ARG_CHOICE, AT(model), "mlp", 0, 0, model_names,
      "784-200-200-10 as mlp (ReLU) or seqnet (sigmoid, log_softmax)" },
    { "batch", "N", ARG_COUNT, AT(batch), NULL, 1, MOST, NULL,
      "samples per worker and step (100 if nothing is said)" },
    { "global_batch", "N", ARG_COUNT, AT(global_batch), NULL, 1, MOST, NULL,
      "samples per step of all workers together, in place of --batch" },
    { "epochs", "N", ARG_COUNT, AT(epochs), "10", 1, MOST, NULL, "passes over the training set" },
    { "lr", "X", ARG_REAL, AT(lr), "0.01", 0, 0, NULL, "Adam's learning rate" },
    { "seed", "S", ARG_COUNT, AT(seed), "0", 0, UINT32_MAX, NULL,
      "of first parameters and of the shuffling" },
    { "threads", "N", ARG_COUNT, AT(threads), NULL, 1, 1024, NULL,
      "BLAS threads per worker (if nothing is said: $OPENBLAS_NUM_THREADS, $OMP_NUM_THREADS, or 1)" },
    { "checkpoint", "DIR", ARG_TEXT, AT(checkpoint), NULL, 0, 0, NULL,
      "save DIR/train.ckpt after each epoch" },
    { "resume", NULL, ARG_FLAG, AT(resume), NULL, 0, 0, NULL, "go on from that checkpoint, if there is one" },
    { "grow", NULL, ARG_FLAG, AT(grow), NULL, 0, 0, NULL,
      "agree after each epoch's checkpoint to go on with nodes that have come late" },
    { "metrics", "FILE", ARG_TEXT, AT(metrics), NULL, 0, 0, NULL,
      "write a JSON line for each step and epoch" },
    { "summary", "FILE", ARG_TEXT, AT(summary), NULL, 0, 0, NULL, "write one JSON object at the end" },
    { "limit_steps", "N", ARG_COUNT, AT(limit_steps), NULL, 1, MOST, NULL,
      "stop after N steps; an epoch that is cut short is not checkpointed" },
    { "dump_gradients", "FILE", ARG_TEXT, AT(dump_gradients), NULL, 0, 0, NULL,
      "write the averaged gradient of each step as raw float32" },
    { "quiet", NULL, ARG_FLAG, AT(quiet), NULL, 0, 0, NULL, "print errors only" },
    { "help", NULL, ARG_FLAG, AT(help), NULL, 0, 0, NULL, "print this" },
    { "version", NULL, ARG_FLAG, AT(version), NULL, 0, 0, NULL, "print the version" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* What one row cannot check: options that exclude or need each other. */
ddp_status train_options_parse(struct train_options *o, int argc, char *const argv[], struct ddp_err *err)
{
    *o = (struct train_options){ 0 };
    ddp_status status = args_parse(rows, ROWS, o, argc, argv, err);
    if (status != DDP_OK)
        return status;
    if (o->batch != 0 && o->global_batch != 0)
        return ddp_fail(err, DDP_ERR_ARG, "--batch and --global_batch: give one of them, not both");
    if (o->resume && o->checkpoint == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--resume needs --checkpoint DIR: where to go on from");
    if (o->grow && (!o->resume || o->global_batch == 0))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--grow needs --checkpoint DIR and --resume, to go on from, and --global_batch N: with "
            "--batch it would change with the number of workers");
    if (o->batch == 0 && o->global_batch == 0)
        o->batch = 100;
    return DDP_OK;
}

void train_options_help(FILE *to)
{
    fprintf(to, "usage: train [options]                            one worker\n"
                "       ddprun --nproc_per_node=4 train [options]  four\n"
                "Train a small classifier on 28x28 pictures, data-parallel over all workers.\n\n");
    args_help(to, rows, ROWS);
    fprintf(to, "\nExit: 0 done, 1 failed, 2 wrong option, 75 another worker failed.\n");
}
