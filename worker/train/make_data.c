/* make_data.c -- the program make-data: creates a set of digits or of tokens that train can learn, under the usual file
 * names. Equal options give equal data on every machine, so hosts without a shared disk can create the same set. */
#include "base/options.h"
#include "train/data/makers.h"
#include "ddp/context.h"
#include "train/files.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct make_options {
    struct maker_order order; /* `out` is borrowed from argv */
    int format;
    uint64_t seed;
    bool help, version;
};

#define ROW(option, field, kind) \
    .name = #option, .type = OPTION_##kind, .at = offsetof(struct make_options, field)
enum { MOST = 1 << 30, MOST_FILES = 10000 };

static const struct option_words formats = { .list = maker_names };

static const struct option_row rows[] = {
    { ROW(out, order.out, TEXT), .min = 1, .value = "DIR",
      .help = "directory for the files; created if it does not exist" },
    { ROW(format, format, WORD), .value = "NAME", .preset = "idx", .words = &formats,
      .help = "idx: digits of 28x28 pixels in Fashion-MNIST's format; "
              "tokens: text of an invented language in llm.c's format" },
    { ROW(samples, order.samples, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "number of samples for training (default: 30000 pictures or 1000000 tokens)" },
    { ROW(test_samples, order.test_samples, COUNT), .value = "N", .min = 1, .max = MOST,
      .help = "number of samples for the test (default: 2000 pictures or 50000 tokens)" },
    { ROW(files, order.files, COUNT), .value = "N", .preset = "1", .min = 1, .max = MOST_FILES,
      .help = "number of training files (only with --format tokens)" },
    { ROW(seed, seed, COUNT), .value = "S", .preset = "1", .min = 0, .max = UINT32_MAX,
      .help = "seed of the random numbers; equal seeds give equal files" },
    { ROW(gzip, order.gzip, FLAG), .help = "write compressed files, .gz (only with --format idx)" },
    { ROW(help, help, FLAG), .letter = 'h', .help = "print this list" },
    { ROW(version, version, FLAG), .help = "print the version" },
};
static const struct option_table table = OPTION_TABLE(rows, OPTIONS_PLAIN);

static ddp_status make(struct make_options *o, struct ddp_err *err)
{
    const struct maker *maker = &makers[o->format];
    ddp_random luck;
    if (o->order.out == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--out: missing; add --out DIR, the directory for the files");
    ddp_random_seed(&luck, o->seed);
    if (o->order.samples == 0)
        o->order.samples = maker->samples;
    if (o->order.test_samples == 0)
        o->order.test_samples = maker->test_samples;
    if (o->order.samples > maker->most || o->order.test_samples > maker->most)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--%s=%" PRIu64 ": expected at most %" PRIu64 " %s with --format %s",
                        o->order.samples > maker->most ? "samples" : "test_samples",
                        o->order.samples > maker->most ? o->order.samples : o->order.test_samples,
                        maker->most, maker->unit, maker->name);
    ddp_status status = files_make_dir("--out", o->order.out, err);
    if (status == DDP_OK)
        status = maker->make(&o->order, &luck, err);
    if (status == DDP_OK)
        printf("%s: %" PRIu64 " %s for training, %" PRIu64 " for the test (seed %" PRIu64 ")\n", o->order.out,
               o->order.samples, maker->unit, o->order.test_samples, o->seed);
    return status;
}

static void print_help(void)
{
    printf("Usage: make-data --out DIR [options]\n"
           "Create a synthetic data set for train.\n\n");
    struct buf help = { 0 };
    if (options_help(&table, &help))
        fwrite(help.data, 1, help.len, stdout);
    buf_free(&help);
}

/* Exit with 0 after success, 1 if writing failed, or 2 for a wrong option. */
int main(int argc, char **argv)
{
    struct make_options o = { 0 };
    struct ddp_err err;
    ddp_status status = options_parse(&table, argc, argv, &o, NULL, &err);
    if (status == DDP_OK && o.help)
        print_help();
    else if (status == DDP_OK && o.version)
        printf("make-data %s\n", ddp_version());
    else if (status == DDP_OK)
        status = make(&o, &err);
    if (status == DDP_OK)
        status = files_flush_stdout(&err);
    if (status == DDP_OK)
        return 0;
    fprintf(stderr, "make-data: error: %s\n", err.msg);
    return status == DDP_ERR_ARG ? 2 : 1;
}
