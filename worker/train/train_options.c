/* train_options.c -- see train_options.h.
 *
 * Add an option: a row here, a field there, and whoever uses it. Names are those of the torch world where it
 * has one. */
#include "train_options.h"

#include "llmc.h"
#include "models.h"

#include <string.h>

#define AT(field) offsetof(struct train_options, field)
enum { MOST = 1 << 30 }; /* of anything that is counted: products of two still fit in 64 bits */

static const char *const rule_names[] = {
#define X(name, word, states) word,
    DDP_RULE_LIST(X)
#undef X
        NULL
};
static const char *const precision_names[] = {
#define X(name, word) word,
    PRECISION_LIST(X)
#undef X
        NULL
};
static const char *const determinism_names[] = { "run", "world", NULL };
static const char *const device_names[] = { "auto", "cpu", "cuda", NULL };

static const struct arg_row rows[] = {
    { "data", "DIR", ARG_TEXT, AT(data), "data", 0, 0, NULL,
      "Fashion-MNIST's four files or CIFAR-10's binary ones, plain or .gz; llm.c's tokens, also as a "
      "pattern" },
    { "loader_threads", "N", ARG_COUNT, AT(loader_threads), "0", 0, 64, NULL,
      "threads that read batches ahead; 0 = each is read when it is needed" },
    { "augment", NULL, ARG_FLAG, AT(augment), NULL, 0, 0, NULL,
      "move and mirror CIFAR-10's training pictures, each time anew" },
    { "length", "N", ARG_COUNT, AT(length), NULL, 1, 1 << 20, NULL,
      "tokens of a sample (if nothing is said: the model's)" },
    { "model", "NAME", ARG_CHOICE, AT(model), "mlp", 0, 0, model_names,
      "784-200-200-10 as mlp (ReLU) or seqnet (sigmoid, log_softmax); resnet20; GPT-2 as gpt2:SIZE, tiny or "
      "10M (bytes "
      "as tokens), 124M, 355M, 774M, 1558M" },
    { "init_from", "FILE", ARG_TEXT, AT(init_from), NULL, 0, 0, NULL,
      "begin with the parameters of a model of llm.c, e.g. gpt2_124M.bin" },
    { "export", "FILE", ARG_TEXT, AT(export_to), NULL, 0, 0, NULL,
      "at the end write the parameters as a model of llm.c (float32)" },
    { "batch", "N", ARG_COUNT, AT(batch), NULL, 1, MOST, NULL,
      "samples per worker and step (100 if nothing is said)" },
    { "global_batch", "N", ARG_COUNT, AT(global_batch), NULL, 1, MOST, NULL,
      "samples per step of all workers together, in place of --batch" },
    { "accumulate", "N", ARG_COUNT, AT(accumulate), "1", 1, 1024, NULL,
      "go through N batches one after the other before each update" },
    { "epochs", "N", ARG_COUNT, AT(epochs), "10", 1, MOST, NULL, "passes over the training set" },
    { "optimizer", "NAME", ARG_CHOICE, AT(optimizer), "adam", 0, 0, rule_names,
      "sgd, adam or adamw, as torch's" },
    { "lr", "X", ARG_REAL, AT(lr), "0.01", 0, 0, NULL, "learning rate" },
    { "schedule", "NAME", ARG_CHOICE, AT(schedule), "constant", 0, 0, schedule_name,
      "of the rate until the last epoch's end: constant, cosine or linear" },
    { "warmup", "N", ARG_COUNT, AT(warmup), "0", 0, MOST, NULL, "steps in which the rate grows up to --lr" },
    { "final_lr", "X", ARG_FROM_0, AT(final_lr), "0", 0, 0, NULL, "where cosine and linear end" },
    { "clip", "X", ARG_REAL, AT(clip), NULL, 0, 0, NULL, "shorten gradients whose norm is above X" },
    { "weight_decay", "X", ARG_FROM_0, AT(weight_decay), NULL, 0, 0, NULL,
      "(if nothing is said: adamw 0.01, others 0)" },
    { "momentum", "X", ARG_FROM_0, AT(momentum), "0", 0, 0, NULL, "of sgd" },
    { "nesterov", NULL, ARG_FLAG, AT(nesterov), NULL, 0, 0, NULL, "Nesterov's momentum, of sgd" },
    { "beta1", "X", ARG_FROM_0, AT(beta1), "0.9", 0, 0, NULL, "of adam and adamw" },
    { "beta2", "X", ARG_FROM_0, AT(beta2), "0.999", 0, 0, NULL, "of adam and adamw" },
    { "zero1", NULL, ARG_FLAG, AT(zero1), NULL, 0, 0, NULL,
      "each worker keeps its share of the optimiser's state only (ZeRO-1)" },
    { "precision", "NAME", ARG_CHOICE, AT(precision), "fp32", 0, 0, precision_names,
      "fp32, bf16 or fp16, with parameters kept in fp32; fp16 scales the loss" },
    { "determinism", "NAME", ARG_CHOICE, AT(determinism), "run", 0, 0, determinism_names,
      "run: the same run gives the same bits; world: and so do 1, 2, 4 and 8 workers" },
    { "sync_bn", NULL, ARG_FLAG, AT(sync_bn), NULL, 0, 0, NULL,
      "of resnet20: batch normalisation over the batches of all workers" },
    { "device", "NAME", ARG_CHOICE, AT(device), "auto", 0, 0, device_names,
      "cpu, cuda (one GPU for each worker; says what is missing), or auto: cuda where it is there" },
    { "seed", "S", ARG_COUNT, AT(seed), "0", 0, UINT32_MAX, NULL,
      "of first parameters and of the shuffling" },
    { "threads", "N", ARG_COUNT, AT(threads), NULL, 1, 1024, NULL,
      "BLAS threads per worker (if nothing is said: $OPENBLAS_NUM_THREADS, $OMP_NUM_THREADS, or 1)" },
    { "checkpoint", "DIR", ARG_TEXT, AT(checkpoint), NULL, 0, 0, NULL,
      "save DIR/step-N after each epoch, and at the end" },
    { "checkpoint_every", "N", ARG_COUNT, AT(checkpoint_every), NULL, 1, MOST, NULL,
      "and after each N steps" },
    { "keep_last", "N", ARG_COUNT, AT(keep_last), "3", 1, MOST, NULL,
      "remove all but the newest N checkpoints" },
    { "keep_every", "N", ARG_COUNT, AT(keep_every), NULL, 1, MOST, NULL,
      "but not those of steps that are a multiple of N" },
    { "resume", NULL, ARG_FLAG, AT(resume), NULL, 0, 0, NULL, "go on from that checkpoint, if there is one" },
    { "grow", NULL, ARG_FLAG, AT(grow), NULL, 0, 0, NULL,
      "agree after each epoch's checkpoint to go on with nodes that have come late" },
    { "eval", NULL, ARG_FLAG, AT(eval), NULL, 0, 0, NULL, "only test the newest checkpoint" },
    { "eval_every", "N", ARG_COUNT, AT(eval_every), "1", 1, MOST, NULL,
      "test after each N epochs, and after the last one" },
    { "check_every", "N", ARG_COUNT, AT(check_every), NULL, 1, MOST, NULL,
      "compare the parameters of all workers after each N steps; at the end they are compared anyway" },
    { "metrics", "FILE", ARG_TEXT, AT(metrics), NULL, 0, 0, NULL,
      "write a JSON line for each step and epoch" },
    { "hash_steps", NULL, ARG_FLAG, AT(hash_steps), NULL, 0, 0, NULL,
      "with the parameters' hash in the line of each step" },
    { "peak_tflops", "X", ARG_REAL, AT(peak_tflops), NULL, 0, 0, NULL,
      "what a worker's device can do at most, for the metrics' mfu (if nothing is said: what NVIDIA says of "
      "this GPU, where it is known)" },
    { "profile", "FILE", ARG_TEXT, AT(profile), NULL, 0, 0, NULL,
      "write a trace of all workers for chrome://tracing or ui.perfetto.dev" },
    { "summary", "FILE", ARG_TEXT, AT(summary), NULL, 0, 0, NULL, "write one JSON object at the end" },
    { "limit_steps", "N", ARG_COUNT, AT(limit_steps), NULL, 1, MOST, NULL, "stop after N steps" },
    { "dump_gradients", "FILE", ARG_TEXT, AT(dump_gradients), NULL, 0, 0, NULL,
      "write the averaged gradient of each step as raw float32" },
    { "quiet", NULL, ARG_FLAG, AT(quiet), NULL, 0, 0, NULL, "print errors only" },
    { "help", NULL, ARG_FLAG, AT(help), NULL, 0, 0, NULL, "print this" },
    { "version", NULL, ARG_FLAG, AT(version), NULL, 0, 0, NULL, "print the version" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const char *train_options_word(const char *name, int64_t value)
{
    for (size_t row = 0; row < ROWS; row++) {
        if (rows[row].kind != ARG_CHOICE || strcmp(rows[row].name, name) != 0)
            continue;
        for (int64_t i = 0; rows[row].choices[i] != NULL; i++) {
            if (i == value)
                return rows[row].choices[i];
        }
    }
    return NULL;
}

/* What is a worker's own: it changes no parameter, or only rank 0 looks at it, or it is compared elsewhere. */
static bool is_own(const char *name)
{
    static const char *const own[] = { "data",    "loader_threads", "init_from", "export",         "device",
                                       "threads", "peak_tflops",    "summary",   "dump_gradients", "quiet" };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcmp(name, own[i]) == 0)
            return true;
    }
    return false;
}

void train_options_facts(const struct train_options *o, int64_t facts[TRAIN_FACTS])
{
    _Static_assert((int)ROWS <= (int)TRAIN_FACTS, "one for each option");
    memset(facts, 0, TRAIN_FACTS * sizeof(*facts));
    for (size_t row = 0; row < ROWS; row++) {
        if (!is_own(rows[row].name))
            facts[row] = (int64_t)args_fact(&rows[row], o);
    }
}

ddp_status train_options_same(const int64_t first[TRAIN_FACTS], const int64_t theirs[TRAIN_FACTS], int rank,
                              struct ddp_err *err)
{
    char here[32], there[32];
    size_t row = 0;
    while (row < ROWS && first[row] == theirs[row])
        row++;
    if (row == ROWS)
        return DDP_OK;
    args_fact_text(&rows[row], (uint64_t)first[row], here);
    args_fact_text(&rows[row], (uint64_t)theirs[row], there);
    return ddp_fail(err, DDP_ERR_ARG,
                    "--%s differs: on rank 0 it is %s, on rank %d it is %s; all workers need the same",
                    rows[row].name, here, rank, there);
}

ddp_optim train_options_optim(const struct train_options *o)
{
    static const ddp_optim defaults[] = {
        [DDP_SGD] = DDP_SGD_INIT, [DDP_ADAM] = DDP_ADAM_INIT, [DDP_ADAMW] = DDP_ADAMW_INIT
    };
    ddp_optim optim = defaults[o->optimizer];
    optim.lr = o->lr;
    optim.momentum = o->momentum;
    optim.nesterov = o->nesterov;
    optim.beta1 = o->beta1;
    optim.beta2 = o->beta2;
    if (o->weight_decay >= 0)
        optim.weight_decay = o->weight_decay;
    return optim;
}

static ddp_status check_optimizer(const struct train_options *o, struct ddp_err *err)
{
    ddp_optim optim = train_options_optim(o);
    if (o->optimizer != DDP_SGD && (o->momentum != 0 || o->nesterov))
        return ddp_fail(err, DDP_ERR_ARG, "--momentum and --nesterov are for --optimizer sgd; %s has --beta1",
                        ddp_rule_name(optim.rule));
    ddp_status status = ddp_optim_check(&optim, err);
    return status == DDP_OK ? DDP_OK : ddp_wrap(err, "--optimizer %s", ddp_rule_name(optim.rule));
}

static ddp_status check_files(const struct train_options *o, struct ddp_err *err)
{
    if ((o->resume || o->eval) && o->checkpoint == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--%s needs --checkpoint DIR: %s", o->eval ? "eval" : "resume",
                        o->eval ? "what to test" : "where to go on from");
    if (o->checkpoint == NULL && (o->checkpoint_every != 0 || o->keep_every != 0))
        return ddp_fail(err, DDP_ERR_ARG, "--%s needs --checkpoint DIR: where to save",
                        o->checkpoint_every != 0 ? "checkpoint_every" : "keep_every");
    if (o->sync_bn && o->determinism == DETERMINISM_WORLD)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--sync_bn makes batches as large as the number of workers, which --determinism "
                        "world must not depend on; leave one of them out");
    if (o->dump_gradients != NULL && (o->zero1 || o->precision != PRECISION_FP32))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--dump_gradients writes what the reducer averages in fp32; leave out --zero1 and "
                        "--precision");
    if ((o->init_from != NULL || o->export_to != NULL) && !llmc_knows(&models[o->model]))
        return ddp_fail(err, DDP_ERR_ARG, "--%s: llm.c's models are GPT-2; --model %s is none",
                        o->init_from != NULL ? "init_from" : "export", models[o->model].name);
    if (o->hash_steps && o->metrics == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--hash_steps needs --metrics FILE: where to write them");
    return DDP_OK;
}

/* What the model would not look at. */
static ddp_status check_model(const struct train_options *o, struct ddp_err *err)
{
    const struct model_kind *kind = &models[o->model];
    if (o->length != 0 && kind->input != MODEL_TOKENS)
        return ddp_fail(err, DDP_ERR_ARG, "--length is for models of tokens; --model %s is one of pictures",
                        kind->name);
    if (o->sync_bn && !kind->normalises)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--sync_bn: --model %s has no batch normalisation; leave it out, or --model resnet20",
                        kind->name);
    return DDP_OK;
}

/* What there is on the CPU alone; NULL: nothing of it is wanted. */
static const char *only_on_cpu(const struct train_options *o)
{
    return o->dump_gradients != NULL ? "--dump_gradients" : NULL;
}

bool train_options_may_use_gpu(const struct train_options *o)
{
    return o->device != DEVICE_CPU && only_on_cpu(o) == NULL;
}

static ddp_status check_device(const struct train_options *o, struct ddp_err *err)
{
    if (o->device != DEVICE_CUDA || train_options_may_use_gpu(o))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--device cuda: %s is not there on a GPU yet; --device cpu or auto computes on the CPU",
                    only_on_cpu(o));
}

/* What one row cannot check: options that exclude or need each other. */
ddp_status train_options_parse(struct train_options *o, int argc, char *const argv[], struct ddp_err *err)
{
    *o = (struct train_options){ .weight_decay = -1 };
    ddp_status status = args_parse(rows, ROWS, o, argc, argv, err);
    if (status == DDP_OK)
        status = check_optimizer(o, err);
    if (status == DDP_OK)
        status = check_files(o, err);
    if (status == DDP_OK)
        status = check_model(o, err);
    if (status == DDP_OK)
        status = check_device(o, err);
    if (status != DDP_OK)
        return status;
    if (o->batch != 0 && o->global_batch != 0)
        return ddp_fail(err, DDP_ERR_ARG, "--batch and --global_batch: give one of them, not both");
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
                "Train a classifier of pictures or a GPT-2, data-parallel over all workers.\n\n");
    args_help(to, rows, ROWS);
    fprintf(to, "\nExit: 0 done, 1 failed, 2 wrong option or a loss that is no number, 75 another\n"
                "worker failed.\n");
}
