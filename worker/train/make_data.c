/* make_data.c -- the program make-data: a learnable set in each format that train reads, under the names that are usual. */
#include "args.h"
#include "data/makers.h"
#include "ddp/context.h"
#include "files.h"

#include <inttypes.h>
#include <stdio.h>

struct make_options {
    struct maker_order order; /* `out` is borrowed from argv */
    int format;
    uint64_t seed;
    bool help, version;
};

#define AT(field) offsetof(struct make_options, field)
enum { MOST = 1 << 30, MOST_FILES = 10000 };

static const struct arg_row rows[] = {
    { "out", "DIR", ARG_TEXT, AT(order.out), NULL, 0, 0, NULL,
      "directory to write to; made if it is not there" },
    { "format", "NAME", ARG_CHOICE, AT(format), "idx", 0, 0, maker_names,
      "idx: digits, 28x28, Fashion-MNIST's four files; cifar10: digits in colour, 32x32, its binary files; "
      "tokens: letters of a made-up language, llm.c's files" },
    { "samples", "N", ARG_COUNT, AT(order.samples), NULL, 1, MOST, NULL,
      "pictures or tokens for training (if nothing is said: 30000, 5000, 1000000)" },
    { "test_samples", "N", ARG_COUNT, AT(order.test_samples), NULL, 1, MOST, NULL,
      "pictures or tokens for the test (if nothing is said: 2000, 1000, 50000)" },
    { "files", "N", ARG_COUNT, AT(order.files), "1", 1, MOST_FILES, NULL, "of tokens for training" },
    { "seed", "S", ARG_COUNT, AT(seed), "1", 0, UINT32_MAX, NULL, "equal seeds give equal files" },
    { "gzip", NULL, ARG_FLAG, AT(order.gzip), NULL, 0, 0, NULL, "write .gz files (pictures)" },
    { "help", NULL, ARG_FLAG, AT(help), NULL, 0, 0, NULL, "print this" },
    { "version", NULL, ARG_FLAG, AT(version), NULL, 0, 0, NULL, "print the version" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static ddp_status make(struct make_options *o, struct ddp_err *err)
{
    const struct maker *maker = &makers[o->format];
    ddp_random luck;
    ddp_random_seed(&luck, o->seed);
    if (o->order.samples == 0)
        o->order.samples = maker->samples;
    if (o->order.test_samples == 0)
        o->order.test_samples = maker->test_samples;
    if (o->order.samples > maker->most || o->order.test_samples > maker->most)
        return ddp_fail(err, DDP_ERR_ARG, "--samples, --test_samples: %s has %" PRIu64 " %s at most",
                        maker->name, maker->most, maker->unit);
    ddp_status status = files_make_dir(o->order.out, err);
    return status == DDP_OK ? maker->make(&o->order, &luck, err) : status;
}

static void print_help(void)
{
    printf("usage: make-data --out DIR [options]\n"
           "Write a made-up set for train to learn.\n\n");
    args_help(stdout, rows, ROWS);
}

/* Exit: 0 done, 1 could not write, 2 wrong option. */
int main(int argc, char **argv)
{
    struct make_options o = { 0 };
    struct ddp_err err;
    ddp_status status = args_parse(rows, ROWS, &o, argc, argv, &err);
    if (status == DDP_OK && o.help) {
        print_help();
        return 0;
    }
    if (status == DDP_OK && o.version) {
        printf("make-data %s\n", ddp_version());
        return 0;
    }
    if (status == DDP_OK && o.order.out == NULL)
        status = ddp_fail(&err, DDP_ERR_ARG, "--out DIR is needed: where to write; --help lists all options");
    if (status == DDP_OK)
        status = make(&o, &err);
    if (status != DDP_OK) {
        fprintf(stderr, "make-data: %s\n", err.msg);
        return status == DDP_ERR_ARG ? 2 : 1;
    }
    printf("%s: %" PRIu64 " %s for training, %" PRIu64 " for the test (seed %" PRIu64 ")\n", o.order.out,
           o.order.samples, makers[o.format].unit, o.order.test_samples, o.seed);
    return 0;
}
