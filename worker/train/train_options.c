/* train_options.c -- see train_options.h. Each option is a row in this file and a field of struct train_options. If
 * PyTorch programs have an option with the same meaning, both options have the same name, so that users need not learn
 * another name. */
#include "train/train_options.h"

#include "train/models/llmc.h"
#include "train/models/models.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* The option and its field have the same name. */
#define ROW(field, kind) .name = #field, .type = OPTION_##kind, .at = offsetof(struct train_options, field)
enum { MOST = 1 << 30 }; /* largest value of most options: the product of two such values fits in 64 bits */

#define RULE_NAME(name, word, states) word,
#define LIST_WORD(name, word)         word,
static const struct option_words model_words = { .list = model_names };
static const struct option_words schedule_words = OPTION_WORDS(NULL, SCHEDULE_LIST(LIST_WORD) NULL);
static const struct option_words rule_words = OPTION_WORDS(NULL, DDP_RULE_LIST(RULE_NAME) NULL);
static const struct option_words precision_words = OPTION_WORDS(NULL, PRECISION_LIST(LIST_WORD) NULL);
static const struct option_words determinism_words = OPTION_WORDS(NULL, "run", "world");
static const struct option_words device_words = OPTION_WORDS(NULL, "auto", "cpu", "cuda");

static const struct option_row rows[] = {
    { ROW(data, TEXT), .min = 1, .value = "DIR", .preset = "data",
      .help = "directory with Fashion-MNIST or CIFAR-10 (binary version), plain or as .gz; or token files of "
              "llm.c: a directory, or a pattern such as 'DIR/*.bin'" },
    { ROW(loader_threads, COUNT), .value = "N", .preset = "0", .min = 0, .max = 64,
      .help = "number of threads that read batches ahead; with 0, each step reads its own batch" },
    { ROW(augment, FLAG), .help = "move and mirror CIFAR-10's training pictures, differently in each epoch" },
    { ROW(length, COUNT), .value = "N", .min = 1, .max = 1 << 20,
      .help = "tokens per sample (default: the model's maximum)" },
    { ROW(model, WORD), .value = "NAME", .preset = "mlp", .words = &model_words,
      .help = "mlp (two hidden layers of 200, ReLU), seqnet (the same with sigmoid and log_softmax), "
              "resnet20, or gpt2:SIZE with SIZE 124M, 355M, 774M, 1558M, 10M or tiny (10M and tiny: "
              "tokens are bytes)" },
    { ROW(init_from, TEXT), .min = 1, .value = "FILE",
      .help = "begin with the parameters in a file of llm.c, such "
              "as gpt2_124M.bin" },
    { .name = "export",
      .value = "FILE",
      .type = OPTION_TEXT,
      .min = 1,
      .at = offsetof(struct train_options, export_to),
      .help = "at the end, write the parameters to a file in llm.c's format (float32)" },
    { ROW(batch, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "number of samples per worker and step (default: 100)" },
    { ROW(global_batch, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "samples per step of all workers, instead of --batch" },
    { ROW(accumulate, COUNT), .value = "N", .preset = "1", .min = 1, .max = 1024,
      .help = "compute N batches before each update" },
    { ROW(epochs, COUNT), .value = "N", .preset = "10", .min = 1, .max = MOST,
      .help = "number of passes over the training set" },
    { ROW(optimizer, WORD), .value = "NAME", .preset = "adam", .words = &rule_words,
      .help = "sgd, adam or adamw, as in PyTorch" },
    { ROW(lr, REAL), .value = "X", .preset = "0.01", .help = "learning rate" },
    { ROW(schedule, WORD), .value = "NAME", .preset = "constant", .words = &schedule_words,
      .help = "constant, cosine or linear learning rate" },
    { ROW(warmup, COUNT), .value = "N", .preset = "0", .min = 0, .max = MOST,
      .help = "number of first steps, in which the learning rate grows to --lr" },
    { ROW(final_lr, REAL_0), .value = "X", .preset = "0",
      .help = "learning rate at the end (cosine, linear)" },
    { ROW(clip, REAL), .value = "X", .help = "scale gradients down to norm X (default: no limit)" },
    { ROW(weight_decay, REAL_0), .value = "X",
      .help = "weight decay (default: 0.01 for adamw, otherwise 0)" },
    { ROW(momentum, REAL_0), .value = "X", .preset = "0", .help = "momentum of sgd" },
    { ROW(nesterov, FLAG), .help = "use Nesterov's momentum with sgd" },
    { ROW(beta1, REAL_0), .value = "X", .preset = "0.9", .help = "adam, adamw: decay of the first moment" },
    { ROW(beta2, REAL_0), .value = "X", .preset = "0.999",
      .help = "adam, adamw: decay of the second moment" },
    { ROW(zero1, FLAG), .help = "divide the optimizer's state among workers (ZeRO-1)" },
    { ROW(precision, WORD), .value = "NAME", .preset = "fp32", .words = &precision_words,
      .help = "compute in fp32, bf16 or fp16; parameters stay in fp32; with fp16, train scales the loss" },
    { ROW(determinism, WORD), .value = "NAME", .preset = "run", .words = &determinism_words,
      .help = "run: a repeated run gives the same bits; world: runs with 1, 2, 4 and 8 workers also give the "
              "same bits" },
    { ROW(sync_bn, FLAG), .help = "resnet20: normalize over all workers' batches" },
    { ROW(device, WORD), .value = "NAME", .preset = "auto", .words = &device_words,
      .help = "cpu, cuda (one GPU for each worker), or auto (cuda if a GPU can be used)" },
    { ROW(seed, COUNT), .value = "S", .preset = "0", .min = 0, .max = UINT32_MAX,
      .help = "seed of initial parameters and shuffling" },
    { ROW(threads, COUNT), .value = "N", .min = 1, .max = 1024,
      .help = "number of BLAS threads per worker (default: $OPENBLAS_NUM_THREADS, $OMP_NUM_THREADS, or 1)" },
    { ROW(checkpoint, TEXT), .min = 1, .value = "DIR",
      .help = "save a checkpoint DIR/step-N after each epoch and at the end (default: none)" },
    { ROW(checkpoint_every, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "also save a checkpoint every N steps (default: no)" },
    { ROW(keep_last, COUNT), .value = "N", .preset = "3", .min = 1, .max = MOST,
      .help = "remove all but the newest N checkpoints" },
    { ROW(keep_every, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "with --keep_last, also keep checkpoints whose step is a multiple of N" },
    { ROW(resume, FLAG), .help = "continue from the newest checkpoint" },
    { ROW(grow, FLAG), .help = "after the checkpoint of an epoch, restart the job if nodes wait to join" },
    { ROW(eval, FLAG), .help = "test the newest checkpoint and do not train" },
    { ROW(eval_every, COUNT), .value = "N", .preset = "1", .min = 1, .max = MOST,
      .help = "test every N epochs and after the last epoch" },
    { ROW(check_every, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "compare the parameters of all workers every N steps, not only at the end" },
    { ROW(metrics, TEXT), .min = 1, .value = "FILE",
      .help = "write JSON lines for steps and epochs; with --resume, append them" },
    { ROW(hash_steps, FLAG), .help = "with --metrics, add a parameter hash for each step" },
    { ROW(peak_tflops, REAL), .value = "X",
      .help =
          "peak TFLOP/s of a worker's device, for the metric mfu (default: NVIDIA's figure for known GPUs)" },
    { ROW(profile, TEXT), .min = 1, .value = "FILE",
      .help = "write a trace of all workers for chrome://tracing or ui.perfetto.dev" },
    { ROW(summary, TEXT), .min = 1, .value = "FILE",
      .help = "at the end, write the results as one JSON object" },
    { ROW(limit_steps, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "stop after N steps (default: no limit)" },
    { ROW(dump_gradients, TEXT), .min = 1, .value = "FILE",
      .help = "write each step's averaged gradients as raw float32" },
    { ROW(quiet, FLAG), .help = "print errors only" },
    { ROW(help, FLAG), .letter = 'h', .help = "print this list" },
    { ROW(version, FLAG), .help = "print the version" },
};
static const struct option_table table = OPTION_TABLE(rows, OPTIONS_PLAIN);
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

/* Return true if an option may differ between workers. Such an option changes no parameter, is used only on rank 0, or
 * is compared elsewhere. */
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

/* Return the value of an option as a number that ranks can compare. For a text, return 1 if the option was given. */
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

/* Print the result of option_fact as text: "0.01", "adamw", "given". A number outside the range of the option means
 * "not given". */
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
    _Static_assert((int)ROWS <= (int)TRAIN_FACTS, "TRAIN_FACTS is smaller than the number of options");
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
                    "--%s differs: %s on rank 0, but %s on rank %d; use the same value on all workers",
                    rows[row].name, here, there, rank);
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
    static const char object[] = "optimizer: ";
    const ddp_optim optim = train_options_optim(o);
    struct ddp_err why;
    if (o->optimizer != DDP_SGD && (o->momentum != 0 || o->nesterov))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--%s: --optimizer %s has no momentum; use --beta1, or --optimizer sgd",
                        o->nesterov ? "nesterov" : "momentum", ddp_rule_name(optim.rule));
    if (o->nesterov && o->momentum == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--nesterov: no momentum; add --momentum 0.9, or leave out --nesterov");
    /* The names of the options are the names of libddp's fields. The parser and the checks above have already rejected
     * wrong values of the other fields, so only beta1 and beta2 can be wrong. */
    const ddp_status status = ddp_optim_check(&optim, &why);
    return status == DDP_OK ? DDP_OK : ddp_fail(err, status, "--%s", why.msg + sizeof(object) - 1);
}

static ddp_status check_files(const struct train_options *o, struct ddp_err *err)
{
    if ((o->resume || o->eval) && o->checkpoint == NULL)
        return ddp_fail(
            err, DDP_ERR_ARG, "--%s: no --checkpoint; add --checkpoint DIR, %s", o->eval ? "eval" : "resume",
            o->eval ? "the directory of the checkpoint to test" : "the directory of the run to continue");
    if (o->checkpoint == NULL && (o->checkpoint_every != 0 || o->keep_every != 0))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--%s: no --checkpoint; add --checkpoint DIR, the directory to save to",
                        o->checkpoint_every != 0 ? "checkpoint_every" : "keep_every");
    if (o->sync_bn && o->determinism == DETERMINISM_WORLD)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--sync_bn: cannot be used with --determinism world: the results of --sync_bn depend on "
            "the number of workers; leave out one of the two options");
    if (o->dump_gradients != NULL && (o->zero1 || o->precision != PRECISION_FP32))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--dump_gradients: cannot be used with --%s%s; leave out one of the two options",
                        o->zero1 ? "zero1" : "precision ",
                        o->zero1 ? "" : precision_words.list[o->precision]);
    if ((o->init_from != NULL || o->export_to != NULL) && !llmc_knows(&models[o->model]))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--%s: llm.c has no file format for --model %s; use a GPT-2 model, such as --model gpt2:124M",
            o->init_from != NULL ? "init_from" : "export", models[o->model].name);
    if (o->hash_steps && o->metrics == NULL)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--hash_steps: no --metrics; add --metrics FILE, or leave out --hash_steps");
    return DDP_OK;
}

static ddp_status check_model(const struct train_options *o, struct ddp_err *err)
{
    const struct model_kind *kind = &models[o->model];
    if (o->length != 0 && kind->input != MODEL_TOKENS)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--length: --model %s is for pictures; leave out --length, or use a GPT-2 model",
                        kind->name);
    if (o->sync_bn && !kind->normalizes)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--sync_bn: --model %s has no batch normalization; remove --sync_bn or use --model resnet20",
            kind->name);
    return DDP_OK;
}

bool train_options_may_use_gpu(const struct train_options *o)
{
    return o->device != DEVICE_CPU && o->dump_gradients == NULL;
}

static ddp_status check_device(const struct train_options *o, struct ddp_err *err)
{
    if (o->device != DEVICE_CUDA || train_options_may_use_gpu(o))
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--device cuda: --dump_gradients is not supported on a GPU; use --device cpu, or leave out "
        "one of the two options");
}

/* Parse the options. Check also which options exclude or need each other. */
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
        return ddp_fail(err, DDP_ERR_ARG,
                        "--batch: cannot be used with --global_batch; leave out one of the two options");
    if (o->grow && (!o->resume || o->global_batch == 0))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--grow: %s; add --resume with --checkpoint DIR, and --global_batch N",
                        o->resume ? "with --batch, the global batch would change with the number of workers"
                                  : "the restarted job would lose its progress");
    if (o->batch == 0 && o->global_batch == 0)
        o->batch = 100;
    return DDP_OK;
}

void train_options_help(FILE *to)
{
    fprintf(to, "Usage: train [options]                            one worker\n"
                "       ddprun --nproc_per_node=4 train [options]  four workers\n"
                "Train an image classifier or a GPT-2, data-parallel over all workers.\n\n");
    struct buf help = { 0 };
    if (options_help(&table, &help))
        fwrite(help.data, 1, help.len, to);
    buf_free(&help);
    fprintf(to, "\nExit codes: 0 (done), 1 (failed), 2 (wrong option, or the loss is not finite),\n"
                "75 (another worker failed).\n");
}
