/* llmc.h -- GPT-2's parameters in llm.c's file format (gpt2_124M.bin), so that --init_from loads a model of llm.c, and
 * --export writes one. The caller keeps all arrays and tensors. No function keeps a pointer to them. */

/* The format, in little-endian byte order:
 *
 *     256 int32    magic number 20240326, version (3: float32, 5: bfloat16), longest sequence, vocabulary, blocks,
 *                  heads, width, vocabulary with padding, zeros
 *     tensors      wte (padded vocabulary x width), wpe, then the tensors of GPT2_BLOCK_TENSORS in order, each for
 *                  all blocks (ln_1.weight of block 0, of block 1 ...), then ln_f.weight and ln_f.bias
 *
 * The padding of the vocabulary has no tokens: llmc_write writes zeros there, and llmc_read skips these rows. */

#ifndef WORKER_TRAIN_LLMC_H
#define WORKER_TRAIN_LLMC_H

#include "train/models/models.h"

enum { LLMC_MAGIC = 20240326, LLMC_FLOAT = 3, LLMC_BFLOAT = 5, LLMC_HEADER = 1024, LLMC_PADDING = 128 };

/* Return true if llm.c has files for models of this kind. */
bool llmc_knows(const struct model_kind *kind);

/* --- files ------------------------------------------------------------------------------------------------ */

/* Load the parameters from `path`. Errors begin with the path. After an error the parameters are unchanged. */
ddp_status llmc_load(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     struct ddp_err *err);

/* Save the parameters. `values` has the values of all parameters, tensor after tensor. If saving fails, the old file
 * remains. */
ddp_status llmc_save(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     float *values, struct ddp_err *err);

#endif
