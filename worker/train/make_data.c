/* make_data.c -- the program make-data: a learnable set in Fashion-MNIST's format and under its file names.
 *
 * Made in memory, then written file by file, each whole or not at all. Training set and test set come from
 * one generator in this order, so equal seeds and sizes give equal bytes. */
#include "args.h"
#include "ddp/ckpt.h"
#include "ddp/context.h"
#include "files.h"
#include "glyphs.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

struct make_options {
    const char *out; /* directory; borrowed from argv */
    uint64_t samples, test_samples, seed;
    bool gzip, help, version;
};

#define AT(field) offsetof(struct make_options, field)
enum { MOST = 1000000 }; /* samples; 784 MB, all of it in memory */

/* 30 000 samples are 75 steps an epoch for four workers with 100 each, enough for both models to learn in
 * two. */
static const struct arg_row rows[] = {
    { "out", "DIR", ARG_TEXT, AT(out), NULL, 0, 0, NULL, "directory to write to; made if it is not there" },
    { "samples", "N", ARG_COUNT, AT(samples), "30000", 1, MOST, NULL, "pictures for training" },
    { "test_samples", "N", ARG_COUNT, AT(test_samples), "2000", 1, MOST, NULL, "pictures for the test" },
    { "seed", "S", ARG_COUNT, AT(seed), "1", 0, UINT32_MAX, NULL, "equal seeds give equal files" },
    { "gzip", NULL, ARG_FLAG, AT(gzip), NULL, 0, 0, NULL, "write .gz files" },
    { "help", NULL, ARG_FLAG, AT(help), NULL, 0, 0, NULL, "print this" },
    { "version", NULL, ARG_FLAG, AT(version), NULL, 0, 0, NULL, "print the version" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* A file while it is made. */
struct bytes {
    uint8_t *data; /* ours */
    size_t len;
};

/* gzip in memory, without name and time, so that equal data gives equal files. out->data is yours. */
static ddp_status pack(const struct bytes *in, struct bytes *out, struct ddp_err *err)
{
    z_stream z = { 0 };
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory to compress with");
    size_t bound = deflateBound(&z, in->len);
    out->data = malloc(bound);
    z.next_in = in->data;
    z.avail_in = (unsigned)in->len;
    z.next_out = out->data;
    z.avail_out = (unsigned)bound;
    int code = out->data == NULL ? Z_MEM_ERROR : deflate(&z, Z_FINISH);
    out->len = bound - z.avail_out;
    deflateEnd(&z);
    return code == Z_STREAM_END ? DDP_OK : ddp_fail(err, DDP_ERR_NOMEM, "no memory to compress with");
}

/* One of the four files, packed or plain. */
static ddp_status write_file(const struct make_options *o, const char *name, const struct bytes *data,
                             struct ddp_err *err)
{
    char path[PATH_MAX], packed_name[64];
    struct bytes packed = { 0 };
    snprintf(packed_name, sizeof(packed_name), "%s.gz", name);
    ddp_status status = files_join(path, o->out, o->gzip ? packed_name : name, err);
    if (status == DDP_OK && o->gzip)
        status = pack(data, &packed, err);
    if (status == DDP_OK && o->gzip)
        data = &packed;
    if (status == DDP_OK)
        status = ddp_file_replace(path, data->data, data->len, err);
    free(packed.data);
    return status;
}

/* Header and room for the values, `value_bytes` of them; false when memory is short. file->data is yours. */
static bool begin_file(struct bytes *file, int dims, uint64_t n, size_t value_bytes)
{
    const uint32_t dim[IDX_MAX_DIMS] = { (uint32_t)n, PICTURE_SIDE, PICTURE_SIDE };
    file->len = idx_header_bytes(dims) + value_bytes;
    file->data = malloc(file->len);
    if (file->data != NULL)
        idx_make_header(file->data, dims, dim);
    return file->data != NULL;
}

/* Pictures and labels of one part, each file whole. Labels come last: who finds them finds the pictures,
 * too. */
static ddp_status make_part(const struct make_options *o, enum dataset_part part, uint64_t n,
                            ddp_random *luck, struct ddp_err *err)
{
    struct bytes images = { 0 }, labels = { 0 };
    ddp_status status = DDP_OK;
    if (!begin_file(&images, 3, n, n * PICTURE_PIXELS) || !begin_file(&labels, 1, n, n)) {
        status = ddp_fail(err, DDP_ERR_NOMEM, "no memory for %" PRIu64 " pictures", n);
    } else {
        glyph_fill(luck, n, images.data + idx_header_bytes(3), labels.data + idx_header_bytes(1));
        status = write_file(o, dataset_file_name(part, DATASET_IMAGES), &images, err);
    }
    if (status == DDP_OK)
        status = write_file(o, dataset_file_name(part, DATASET_LABELS), &labels, err);
    free(images.data);
    free(labels.data);
    return status;
}

/* One generator for both parts: the test set is new pictures by the same hand. */
static ddp_status make_all(const struct make_options *o, struct ddp_err *err)
{
    ddp_random luck;
    ddp_random_seed(&luck, o->seed);
    ddp_status status = files_make_dir(o->out, err);
    if (status == DDP_OK)
        status = make_part(o, DATASET_TRAIN, o->samples, &luck, err);
    if (status == DDP_OK)
        status = make_part(o, DATASET_TEST, o->test_samples, &luck, err);
    return status;
}

static void print_help(void)
{
    printf("usage: make-data --out DIR [options]\n"
           "Write a set of drawn digits, 28x28, 10 classes, as the four files of Fashion-MNIST.\n\n");
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
    if (status == DDP_OK && o.out == NULL)
        status = ddp_fail(&err, DDP_ERR_ARG, "--out DIR is needed: where to write; --help lists all options");
    if (status == DDP_OK)
        status = make_all(&o, &err);
    if (status != DDP_OK) {
        fprintf(stderr, "make-data: %s\n", err.msg);
        return status == DDP_ERR_ARG ? 2 : 1;
    }
    printf("%s: %" PRIu64 " samples for training, %" PRIu64 " for the test (seed %" PRIu64 ")\n", o.out,
           o.samples, o.test_samples, o.seed);
    return 0;
}
