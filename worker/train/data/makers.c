/* makers.c -- see makers.h. A part is made in memory, then written. */
#include "train/data/makers.h"

#include "train/dataset.h"
#include "train/files.h"
#include "train/data/colours.h"
#include "ddp/ckpt.h"
#include "train/data/glyphs.h"
#include "train/data/speech.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

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

/* One file, packed or plain. */
static ddp_status write_file(const struct maker_order *o, const char *name, const struct bytes *data,
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

static ddp_status no_memory(uint64_t n, const char *what, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %" PRIu64 " %s", n, what);
}

/* --- idx --------------------------------------------------------------------------------------------------- */

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
static ddp_status make_idx_part(const struct maker_order *o, enum dataset_part part, uint64_t n,
                                ddp_random *luck, struct ddp_err *err)
{
    struct bytes images = { 0 }, labels = { 0 };
    ddp_status status = DDP_OK;
    if (!begin_file(&images, 3, n, n * PICTURE_PIXELS) || !begin_file(&labels, 1, n, n)) {
        status = no_memory(n, "pictures", err);
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
static ddp_status make_idx(const struct maker_order *o, ddp_random *luck, struct ddp_err *err)
{
    ddp_status status = make_idx_part(o, DATASET_TRAIN, o->samples, luck, err);
    return status == DDP_OK ? make_idx_part(o, DATASET_TEST, o->test_samples, luck, err) : status;
}

/* --- cifar10 ----------------------------------------------------------------------------------------------- */

enum { CIFAR_FILES = 5 }; /* for training, as published */

static ddp_status make_cifar_file(const struct maker_order *o, int number, uint64_t n, ddp_random *luck,
                                  struct ddp_err *err)
{
    char name[32];
    struct bytes file = { malloc(n * CIFAR_RECORD), n * CIFAR_RECORD };
    if (file.data == NULL)
        return no_memory(n, "pictures", err);
    cifar_file_name(name, number);
    colour_fill(luck, n, file.data);
    ddp_status status = write_file(o, name, &file, err);
    free(file.data);
    return status;
}

/* Of `n` things in `files` files, those of file `i`. */
static uint64_t share(uint64_t n, uint64_t files, uint64_t i)
{
    return n / files + (i < n % files);
}

static ddp_status make_cifar(const struct maker_order *o, ddp_random *luck, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (o->samples < CIFAR_FILES)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--samples %" PRIu64 ": cifar10 has %d files of one picture or more", o->samples,
                        CIFAR_FILES);
    for (int i = 0; i < CIFAR_FILES && status == DDP_OK; i++)
        status = make_cifar_file(o, i + 1, share(o->samples, CIFAR_FILES, (uint64_t)i), luck, err);
    return status == DDP_OK ? make_cifar_file(o, 0, o->test_samples, luck, err) : status;
}

/* --- tokens ------------------------------------------------------------------------------------------------ */

static void token_file_name(char name[40], bool training, uint64_t number)
{
    snprintf(name, 40, "text_%s_%06" PRIu64 ".bin", training ? "train" : "val", number);
}

static ddp_status write_tokens(const struct maker_order *o, const char *name, const uint8_t *text, uint64_t n,
                               struct ddp_err *err)
{
    struct bytes file = { malloc(TOKENS_HEADER + 2 * n), TOKENS_HEADER + 2 * n };
    if (file.data == NULL)
        return no_memory(n, "tokens", err);
    tokens_make_header(file.data, (uint32_t)n);
    for (uint64_t i = 0; i < n; i++)
        tokens_put(file.data + TOKENS_HEADER + 2 * i, text[i]);
    ddp_status status = write_file(o, name, &file, err);
    free(file.data);
    return status;
}

/* One text, cut into files wherever one is full; a letter is a token. */
static ddp_status make_tokens_part(const struct maker_order *o, const struct speech *speech, bool training,
                                   ddp_random *luck, struct ddp_err *err)
{
    const uint64_t n = training ? o->samples : o->test_samples, files = training ? o->files : 1;
    ddp_status status = DDP_OK;
    uint8_t *text = malloc(n), *at = text;
    if (text == NULL)
        return no_memory(n, "tokens", err);
    speech_write(luck, speech, text, n);
    for (uint64_t i = 0; i < files && status == DDP_OK; i++) {
        char name[40];
        token_file_name(name, training, i);
        status = write_tokens(o, name, at, share(n, files, i), err);
        at += share(n, files, i);
    }
    free(text);
    return status;
}

/* A file that would be read with ours, although it is of another set. */
static ddp_status check_leftover(const struct maker_order *o, struct ddp_err *err)
{
    char path[PATH_MAX], name[40];
    token_file_name(name, true, o->files);
    ddp_status status = files_join(path, o->out, name, err);
    if (status == DDP_OK && access(path, F_OK) == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s is left from a set of more files and would be read with this one; remove it",
                        path);
    return status;
}

static ddp_status make_tokens(const struct maker_order *o, ddp_random *luck, struct ddp_err *err)
{
    struct speech speech;
    if (o->gzip)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--gzip: tokens are read from where they lie, and cannot be packed");
    if (o->samples < o->files)
        return ddp_fail(err, DDP_ERR_ARG, "--files %" PRIu64 ": more than the %" PRIu64 " tokens", o->files,
                        o->samples);
    ddp_status status = check_leftover(o, err);
    speech_invent(luck, &speech);
    if (status == DDP_OK)
        status = make_tokens_part(o, &speech, true, luck, err);
    return status == DDP_OK ? make_tokens_part(o, &speech, false, luck, err) : status;
}

/* --- the table --------------------------------------------------------------------------------------------- */

/* 30 000 samples are 75 steps an epoch for four workers with 100 each, enough for mlp and seqnet to learn in
 * two. */
#define MAKER_LIST(X)                                       \
    X("idx", "samples", 30000, 2000, 1000000, make_idx)     \
    X("cifar10", "samples", 5000, 1000, 200000, make_cifar) \
    X("tokens", "tokens", 1000000, 50000, 100000000, make_tokens)

const struct maker makers[] = {
#define X(...) { __VA_ARGS__ },
    MAKER_LIST(X)
#undef X
};

const char *const maker_names[] = {
#define X(name, ...) name,
    MAKER_LIST(X)
#undef X
        NULL
};
