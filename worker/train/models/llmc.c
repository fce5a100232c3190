/* llmc.c -- see llmc.h. One function, copy_all, defines the order of the tensors for loading and saving. A load
 * reads the whole file first, so an error leaves the model unchanged. */
#include "train/models/llmc.h"

#include "base/buf.h"
#include "ddp/amp.h"
#include "ddp/ckpt.h"
#include "train/files.h"
#include "train/models/gpt2.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_VERSION = 4, AT_PADDED = 28, MOST_PADDING = 65536 };

bool llmc_knows(const struct model_kind *kind)
{
    return kind->create == gpt2_create;
}

static const struct gpt2_config *config_of(const struct model_kind *kind)
{
    return kind->config;
}

/* --- header ------------------------------------------------------------------------------------------ */

enum { SIZES = 5 };

struct size {
    const char *words;
    size_t value;
};

/* Fill `size` with the model's sizes, in the order in which the header of the file stores them. */
static void sizes_of(const struct model_kind *kind, struct size size[SIZES])
{
    const struct gpt2_config *c = config_of(kind);
    size[0] = (struct size){ "longest sequence", kind->length };
    size[1] = (struct size){ "vocabulary", kind->vocabulary };
    size[2] = (struct size){ "number of blocks", c->blocks };
    size[3] = (struct size){ "number of heads", c->heads };
    size[4] = (struct size){ "width", c->width };
}

static ddp_status check_sizes(const struct model_kind *kind, const uint8_t *head, struct ddp_err *err)
{
    struct size size[SIZES];
    sizes_of(kind, size);
    for (size_t i = 0; i < SIZES; i++) {
        const size_t at = 8 + 4 * i;
        if (get_u32(head + at) != size[i].value)
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "offset %zu: %s is %" PRIu32
                            ": expected %zu for --model %s; choose the model of this file",
                            at, size[i].words, get_u32(head + at), size[i].value, kind->name);
    }
    return DDP_OK;
}

static ddp_status check_version(const uint8_t *head, struct ddp_err *err)
{
    const uint32_t magic = get_u32(head), version = get_u32(head + AT_VERSION);
    if (magic != LLMC_MAGIC)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset 0: magic number %" PRIu32 ": expected %d (a model of llm.c)", magic,
                        LLMC_MAGIC);
    if (version != LLMC_FLOAT && version != LLMC_BFLOAT)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset %d: version %" PRIu32 ": expected %d (float32) or %d (bfloat16)", AT_VERSION,
                        version, LLMC_FLOAT, LLMC_BFLOAT);
    return DDP_OK;
}

/* Return the number of parameters in a file whose vocabulary is padded to `padded`. */
static uint64_t count_of(const struct model_kind *kind, size_t padded)
{
    static const struct {
        size_t out, in;
    } block[GPT2_BLOCK] = {
#define X(id, name, out, in, first) { out, in },
        GPT2_BLOCK_TENSORS(X)
#undef X
    };
    const uint64_t width = config_of(kind)->width;
    uint64_t in_block = 0;
    for (int i = 0; i < GPT2_BLOCK; i++)
        in_block += block[i].out * width * (block[i].in != 0 ? block[i].in * width : 1);
    return (padded + kind->length) * width + config_of(kind)->blocks * in_block + 2 * width;
}

/* The contents of a checked header. */
struct llmc {
    size_t padded;  /* size of the vocabulary, padding included */
    size_t element; /* bytes of a number: 4 or 2 */
    uint64_t bytes; /* bytes of the file */
};

/* Check `head`, the first LLMC_HEADER bytes of a file of `file_bytes`. Return DDP_ERR_MISMATCH if the file has a model
 * of another size, and DDP_ERR_CORRUPT for any other fault. The error names offset and value. */
static ddp_status llmc_check(struct llmc *f, const struct model_kind *kind, const uint8_t *head,
                             uint64_t file_bytes, struct ddp_err *err)
{
    *f = (struct llmc){ .padded = get_u32(head + AT_PADDED),
                        .element = get_u32(head + AT_VERSION) == LLMC_FLOAT ? 4 : 2 };
    ddp_status status = check_version(head, err);
    if (status == DDP_OK)
        status = check_sizes(kind, head, err);
    if (status != DDP_OK)
        return status;
    if (f->padded < kind->vocabulary || f->padded > kind->vocabulary + MOST_PADDING)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset %d: vocabulary of %zu tokens with padding: expected a number from %zu to %zu",
                        AT_PADDED, f->padded, kind->vocabulary, kind->vocabulary + MOST_PADDING);
    f->bytes = LLMC_HEADER + count_of(kind, f->padded) * f->element;
    return files_check_length(file_bytes, f->bytes, "according to the header, the parameters end here", err);
}

/* --- tensors ----------------------------------------------------------------------------------------- */

/* A copy between a file and the parameters, both little-endian. */
struct transfer {
    const struct model_tensors *params;
    float *values; /* values of all parameters, tensor after tensor */
    uint8_t *at;   /* the next byte of the file's contents */
    size_t element, padding;
    bool writes;
};

static void copy_tensor(struct transfer *c, size_t i)
{
    const struct model_tensor *t = &c->params->each[i];
    float *values = c->values + (t->value - c->params->values);
    if (c->writes)
        memcpy(c->at, values, t->count * sizeof(*values));
    else
        ddp_widen_f32(c->at, c->element == sizeof(float) ? DDP_F32 : DDP_BF16, values, t->count, NULL);
    c->at += t->count * c->element;
}

/* Copy all parameters in the order of the file. Skip the padding of wte. */
static void copy_all(const struct model_kind *kind, struct transfer *c)
{
    const size_t blocks = config_of(kind)->blocks, ends = gpt2_tensor(blocks, 0);
    copy_tensor(c, GPT2_TOKENS);
    c->at += c->padding * config_of(kind)->width * c->element;
    copy_tensor(c, GPT2_PLACES);
    for (int which = 0; which < GPT2_BLOCK; which++) {
        for (size_t block = 0; block < blocks; block++)
            copy_tensor(c, gpt2_tensor(block, (enum gpt2_block_tensor)which));
    }
    for (size_t i = 0; i < GPT2_ENDS; i++)
        copy_tensor(c, ends + i);
}

/* Copy the parameters from `body`, which has the f->bytes - LLMC_HEADER bytes after the header. */
static void llmc_read(const struct llmc *f, const struct model_kind *kind, uint8_t *body,
                      const struct model_tensors *params)
{
    struct transfer c = { .params = params,
                          .values = params->values,
                          .at = body,
                          .element = f->element,
                          .padding = f->padded - kind->vocabulary };
    copy_all(kind, &c);
}

static size_t padded_for_writing(const struct model_kind *kind)
{
    return round_up(kind->vocabulary, LLMC_PADDING);
}

/* Return the size in bytes of a float32 file. */
static uint64_t llmc_bytes(const struct model_kind *kind)
{
    return LLMC_HEADER + 4 * count_of(kind, padded_for_writing(kind));
}

static void write_header(const struct model_kind *kind, uint8_t *head)
{
    struct size size[SIZES];
    sizes_of(kind, size);
    write_le(head, LLMC_MAGIC, 4);
    write_le(head + AT_VERSION, LLMC_FLOAT, 4);
    for (size_t i = 0; i < SIZES; i++)
        write_le(head + 8 + 4 * i, (uint32_t)size[i].value, 4);
    write_le(head + AT_PADDED, (uint32_t)padded_for_writing(kind), 4);
}

/* Write a whole file to `to`, which has llmc_bytes() zero bytes. */
static void llmc_write(const struct model_kind *kind, const struct model_tensors *params, float *values,
                       uint8_t *to)
{
    struct transfer c = { .params = params,
                          .values = values,
                          .at = to + LLMC_HEADER,
                          .element = sizeof(float),
                          .padding = padded_for_writing(kind) - kind->vocabulary,
                          .writes = true };
    write_header(kind, to);
    copy_all(kind, &c);
}

/* --- llmc file -------------------------------------------------------------------------------------------- */

/* Read exactly `len` bytes at `offset`, or fail. */
static ddp_status read_all(int fd, uint8_t *to, uint64_t len, uint64_t offset, struct ddp_err *err)
{
    size_t got;
    ddp_status status = files_read(fd, to, len, offset, &got, err);
    return status != DDP_OK || got == len
               ? status
               : ddp_fail(err, DDP_ERR_CORRUPT, "offset %" PRIu64 ": the file ends here", offset + got);
}

static ddp_status load_body(int fd, const struct llmc *f, const struct model_kind *kind,
                            const struct model_tensors *params, struct ddp_err *err)
{
    const uint64_t len = f->bytes - LLMC_HEADER;
    uint8_t *body = malloc(len);
    if (body == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %" PRIu64 " bytes of parameters", len);
    ddp_status status = read_all(fd, body, len, LLMC_HEADER, err);
    if (status == DDP_OK)
        llmc_read(f, kind, body, params);
    free(body);
    return status;
}

static ddp_status load(int fd, const struct model_kind *kind, const struct model_tensors *params,
                       struct ddp_err *err)
{
    uint8_t head[LLMC_HEADER];
    struct llmc f;
    uint64_t bytes = 0;
    ddp_status status = files_size(fd, &bytes, err);
    if (status == DDP_OK)
        status = read_all(fd, head, sizeof(head), 0, err);
    if (status == DDP_OK)
        status = llmc_check(&f, kind, head, bytes, err);
    return status == DDP_OK ? load_body(fd, &f, kind, params, err) : status;
}

ddp_status llmc_load(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     struct ddp_err *err)
{
    const int fd = files_open_input(path, err);
    if (fd < 0)
        return DDP_ERR_IO;
    ddp_status status = load(fd, kind, params, err);
    close(fd);
    return status == DDP_OK ? DDP_OK : files_wrap(path, err);
}

ddp_status llmc_save(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     float *values, struct ddp_err *err)
{
    const uint64_t bytes = llmc_bytes(kind);
    uint8_t *file = calloc(bytes, 1);
    if (file == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for %" PRIu64 " bytes", path, bytes);
    llmc_write(kind, params, values, file);
    ddp_status status = ddp_file_replace(path, file, bytes, err);
    free(file);
    return status;
}
