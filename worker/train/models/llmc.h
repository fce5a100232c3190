/* llmc.h -- GPT-2's parameters as llm.c keeps them: gpt2_124M.bin and its like. Pure.
 *
 *     256 int32    magic 20240326, version (3: float32, 5: bfloat16), longest sequence, vocabulary, blocks, heads, width,
 *                  vocabulary with padding, zeros
 *     tensors      wte (padded vocabulary x width), wpe, then each tensor of the blocks for all of them: ln_1.weight of block 0,
 *                  of block 1 ..., in the order of GPT2_BLOCK_TENSORS, then ln_f.weight and ln_f.bias
 *
 * Little-endian. Rows of padding belong to no token: they are written as zeros and skipped when read. */
#ifndef WORKER_TRAIN_LLMC_H
#define WORKER_TRAIN_LLMC_H

#include "train/models/models.h"

enum { LLMC_MAGIC = 20240326, LLMC_FLOAT = 3, LLMC_BFLOAT = 5, LLMC_HEADER = 1024, LLMC_PADDING = 128 };

/* A header that fits the model. */
struct llmc {
    size_t padded;  /* vocabulary */
    size_t element; /* bytes: 4 or 2 */
    uint64_t bytes; /* of the file */
};

/* Is this a model that has such files? */
bool llmc_knows(const struct model_kind *kind);

/* `head` are the first LLMC_HEADER bytes of a file of `file_bytes`. DDP_ERR_CORRUPT, or DDP_ERR_MISMATCH for a model of another
 * size, names offset and value. */
ddp_status llmc_check(struct llmc *f, const struct model_kind *kind, const uint8_t *head, uint64_t file_bytes,
                      struct ddp_err *err);

/* Read everything after the header, f->bytes - LLMC_HEADER bytes, into the parameters. */
void llmc_read(const struct llmc *f, const struct model_kind *kind, const uint8_t *body,
               const struct model_tensors *params);

/* A file of float32. */
uint64_t llmc_bytes(const struct model_kind *kind);
/* `values` has the parameters' values, tensor after tensor, wherever it lies; `to` has room for llmc_bytes. */
void llmc_write(const struct model_kind *kind, const struct model_tensors *params, const float *values,
                uint8_t *to);

/* --- files ------------------------------------------------------------------------------------------------ */

/* Parameters from `path`; on an error they are as they were. The message begins with the path. */
ddp_status llmc_load(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     struct ddp_err *err);

/* `values` as llmc_write takes them. The file whole, or the one that was there before. */
ddp_status llmc_save(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     const float *values, struct ddp_err *err);

#endif
