/* train_options.c -- see train_options.h.
 *
 * An option is a row here and a field there. Names are those of the torch world where it has one. */
#include "train/train_options.h"

#include "train/models/llmc.h"
#include "train/models/models.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* The option and its field have the same name. */
#define ROW(field, kind) .name = #field, .type = OPTION_##kind, .at = offsetof(struct train_options, field)
enum { MOST = 1 << 30 }; /* of anything that is counted: products of two still fit in 64 bits */

#define RULE_NAME(name, word, states) word,
#define PRECISION_NAME(name, word)    word,
static const struct option_words model_words = { .list = model_names };
static const struct option_words schedule_words = { .list = schedule_name };
static const struct option_words rule_words = OPTION_WORDS(NULL, DDP_RULE_LIST(RULE_NAME) NULL);
static const struct option_words precision_words = OPTION_WORDS(NULL, PRECISION_LIST(PRECISION_NAME) NULL);
static const struct option_words determinism_words = OPTION_WORDS(NULL, "run", "world");
static const struct option_words device_words = OPTION_WORDS(NULL, "auto", "cpu", "cuda");

static const struct option_row rows[] = {
    { ROW(data, TEXT), .value = "DIR", .preset = "data",
      .help = "Fashion-MNIST's four files or CIFAR-10's binary ones, plain or .gz; llm.c's tokens, also as a "
              "pattern" },
    { ROW(loader_threads, COUNT), .value = "N", .preset = "0", .min = 0, .max = 64,
      .help = "threads that read batches ahead; 0 = each is read when it is needed" },
    { ROW(augment, FLAG), .help = "move and mirror CIFAR-10's training pictures, each time anew" },
    { ROW(length, COUNT), .value = "N", .min = 1, .max = 1 << 20,
      .help = "tokens of a sample (default: the model's)" },
    { ROW(model, WORD), .value = "NAME", .preset = "mlp", .words = &model_words,
      .help = "784-200-200-10 as mlp (ReLU) or seqnet (sigmoid, log_softmax); resnet20; GPT-2 as gpt2:SIZE, "
              "tiny or 10M (bytes as tokens), 124M, 355M, 774M, 1558M" },
    { ROW(init_from, TEXT), .value = "FILE",
      .help = "begin with the parameters of a model of llm.c, e.g. gpt2_124M.bin" },
    { .name = "export",
      .value = "FILE",
      .type = OPTION_TEXT,
      .at = offsetof(struct train_options, export_to),
      .help = "at the end write the parameters as a model of llm.c (float32)" },
    { ROW(batch, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "samples per worker and step (default: 100)" },
    { ROW(global_batch, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "samples per step of all workers together, in place of --batch" },
    { ROW(accumulate, COUNT), .value = "N", .preset = "1", .min = 1, .max = 1024,
      .help = "go through N batches one after the other before each update" },
    { ROW(epochs, COUNT), .value = "N", .preset = "10", .min = 1, .max = MOST,
      .help = "passes over the training set" },
    { ROW(optimizer, WORD), .value = "NAME", .preset = "adam", .words = &rule_words,
      .help = "sgd, adam or adamw, as torch's" },
    { ROW(lr, REAL), .value = "X", .preset = "0.01", .help = "learning rate" },
    { ROW(schedule, WORD), .value = "NAME", .preset = "constant", .words = &schedule_words,
      .help = "of the rate until the last epoch's end: constant, cosine or linear" },
    { ROW(warmup, COUNT), .value = "N", .preset = "0", .min = 0, .max = MOST,
      .help = "steps in which the rate grows up to --lr" },
    { ROW(final_lr, REAL_0), .value = "X", .preset = "0", .help = "where cosine and linear end" },
    { ROW(clip, REAL), .value = "X", .help = "shorten gradients whose norm is above X" },
    { ROW(weight_decay, REAL_0), .value = "X", .help = "(default: adamw 0.01, others 0)" },
    { ROW(momentum, REAL_0), .value = "X", .preset = "0", .help = "of sgd" },
    { ROW(nesterov, FLAG), .help = "Nesterov's momentum, of sgd" },
    { ROW(beta1, REAL_0), .value = "X", .preset = "0.9", .help = "of adam and adamw" },
    { ROW(beta2, REAL_0), .value = "X", .preset = "0.999", .help = "of adam and adamw" },
    { ROW(zero1, FLAG), .help = "each worker keeps its share of the optimiser's state only (ZeRO-1)" },
    { ROW(precision, WORD), .value = "NAME", .preset = "fp32", .words = &precision_words,
      .help = "fp32, bf16 or fp16, with parameters kept in fp32; fp16 scales the loss" },
    { ROW(determinism, WORD), .value = "NAME", .preset = "run", .words = &determinism_words,
      .help = "run: the same run gives the same bits; world: and so do 1, 2, 4 and 8 workers" },
    { ROW(sync_bn, FLAG), .help = "of resnet20: batch normalisation over the batches of all workers" },
    { ROW(device, WORD), .value = "NAME", .preset = "auto", .words = &device_words,
      .help = "cpu, cuda (one GPU for each worker; says what is missing), or auto: cuda where it is there" },
    { ROW(seed, COUNT), .value = "S", .preset = "0", .min = 0, .max = UINT32_MAX,
      .help = "of first parameters and of the shuffling" },
    { ROW(threads, COUNT), .value = "N", .min = 1, .max = 1024,
      .help = "BLAS threads per worker (default: $OPENBLAS_NUM_THREADS, $OMP_NUM_THREADS, or 1)" },
    { ROW(checkpoint, TEXT), .value = "DIR", .help = "save DIR/step-N after each epoch, and at the end" },
    { ROW(checkpoint_every, COUNT), .value = "N", .min = 1, .max = MOST, .help = "and after each N steps" },
    { ROW(keep_last, COUNT), .value = "N", .preset = "3", .min = 1, .max = MOST,
      .help = "remove all but the newest N checkpoints" },
    { ROW(keep_every, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "but not those of steps that are a multiple of N" },
    { ROW(resume, FLAG), .help = "continue from the newest checkpoint" },
    { ROW(grow, FLAG), .help = "after each epoch's checkpoint, restart with nodes that joined late" },
    { ROW(eval, FLAG), .help = "only test the newest checkpoint" },
    { ROW(eval_every, COUNT), .value = "N", .preset = "1", .min = 1, .max = MOST,
      .help = "test after each N epochs, and after the last one" },
    { ROW(check_every, COUNT), .value = "N", .min = 1, .max = MOST,
      .help =
          "compare the parameters of all workers after each N steps; at the end they are compared anyway" },
    { ROW(metrics, TEXT), .value = "FILE", .help = "write a JSON line for each step and epoch" },
    { ROW(hash_steps, FLAG), .help = "with the parameters' hash in the line of each step" },
    { ROW(peak_tflops, REAL), .value = "X",
      .help =
          "peak TFLOP/s of a worker's device, for the metric mfu (default: NVIDIA's figure for known GPUs)" },
    { ROW(profile, TEXT), .value = "FILE",
      .help = "write a trace of all workers for chrome://tracing or ui.perfetto.dev" },
    { ROW(summary, TEXT), .value = "FILE", .help = "write one JSON object at the end" },
    { ROW(limit_steps, COUNT), .value = "N", .min = 1, .max = MOST, .help = "stop after N steps" },
    { ROW(dump_gradients, TEXT), .value = "FILE",
      .help = "write the averaged gradient of each step as raw float32" },
    { ROW(quiet, FLAG), .help = "print errors only" },
    { ROW(help, FLAG), .letter = 'h', .help = "print this" },
    { ROW(version, FLAG), .help = "print the version" },
};
static const struct option_table table = OPTION_TABLE(rows, OPTIONS_EXPECTED);
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const char *train_options_word(const char *name, int64_t value)
{
    for (size_t row = 0; row < ROWS; row++)
        if (rows[row].type == OPTION_WORD && strcmp(rows[row].name, name) == 0)
            return value >= 0 && (size_t)value < options_word_count(rows[row].words)
                       ? rows[row].words->list[value]
                       : NULL;
    return NULL;
}

/* Options of one worker alone: they change no parameter, only rank 0 uses them, or another place compares
 * them. */
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

/* The value of the row, as a number that can be compared with another process's: of a text only whether there is one. */
static uint64_t option_fact(const struct option_row *row, const void *from)
{
    const void *field = (const char *)from + row->at;
    uint64_t fact = 0;
    switch (row->type) {
    case OPTION_FLAG:
        return *(const bool *)field;
    case OPTION_COUNT:
        return *(const uint64_t *)field;
    case OPTION_REAL:
    case OPTION_REAL_0:
        memcpy(&fact, field, sizeof(fact));
        return fact;
    case OPTION_TEXT:
        return *(const char *const *)field != NULL;
    case OPTION_WORD:
        return (uint64_t) * (const int *)field;
    case OPTION_SET:
    case OPTION_INT:
    case OPTION_NAME:
        break;
    }
    return 0;
}

static const char *choice_word(const struct option_row *row, uint64_t value)
{
    return value < options_word_count(row->words) && row->words->list[value] != NULL ? row->words->list[value]
                                                                                     : "unknown";
}

/* Such a number as text: "0.01", "adamw", "given". A number that the row rejects stands for an option that
 * was not given. */
static void print_fact(const struct option_row *row, uint64_t fact, char to[32])
{
    const bool is_given = (row->type == OPTION_FLAG || row->type == OPTION_TEXT) && fact != 0;
    double real;
    memcpy(&real, &fact, sizeof(real));
    if (row->type == OPTION_WORD)
        snprintf(to, 32, "%s", choice_word(row, fact));
    else if (row->type == OPTION_COUNT && fact >= row->min)
        snprintf(to, 32, "%" PRIu64, fact);
    else if (row->type == OPTION_REAL_0 ? real >= 0 : row->type == OPTION_REAL && real > 0)
        snprintf(to, 32, "%.9g", real);
    else
        snprintf(to, 32, "%s", is_given ? "given" : "not given");
}

void train_options_facts(const struct train_options *o, int64_t facts[TRAIN_FACTS])
{
    _Static_assert((int)ROWS <= (int)TRAIN_FACTS, "one for each option");
    memset(facts, 0, TRAIN_FACTS * sizeof(*facts));
    for (size_t row = 0; row < ROWS; row++) {
        if (!is_own(rows[row].name))
            facts[row] = (int64_t)option_fact(&rows[row], o);
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
    print_fact(&rows[row], (uint64_t)first[row], here);
    print_fact(&rows[row], (uint64_t)theirs[row], there);
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

/* Reject options that the model ignores. */
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

/* Return the option in use that only the CPU has, or NULL. */
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

/* Check the rules of several rows: options that exclude or need each other. */
ddp_status train_options_parse(struct train_options *o, int argc, char *const argv[], struct ddp_err *err)
{
    *o = (struct train_options){ .weight_decay = -1 };
    ddp_status status = options_parse(&table, argc, argv, o, NULL, err);
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
    struct buf help = { 0 };
    if (options_help(&table, &help))
        fwrite(help.data, 1, help.len, to);
    buf_free(&help);
    fprintf(to, "\nExit: 0 done, 1 failed, 2 wrong option or a loss that is no number, 75 another\n"
                "worker failed.\n");
}
