/* llmc_file.h -- models of llm.c (llmc.h) as files. */
#ifndef TRAIN_LLMC_FILE_H
#define TRAIN_LLMC_FILE_H

#include "train/llmc.h"

/* Parameters from `path`; on an error they are as they were. The message begins with the path. */
ddp_status llmc_load(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     struct ddp_err *err);

/* `values` as llmc_write takes them. The file whole, or the one that was there before. */
ddp_status llmc_save(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     const float *values, struct ddp_err *err);

#endif
