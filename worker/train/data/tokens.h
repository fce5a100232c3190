/* tokens.h -- reads llm.c's files of tokens. Headers and sizes are checked when a file is opened. Tokens are checked
 * each time they are read, because a run may need only a small part of a large shard. */
#ifndef TRAIN_DATA_TOKENS_H
#define TRAIN_DATA_TOKENS_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format of a file (shard). A set has one or several files.
 *
 *     offset 0     int32 20240520     magic number, little-endian like all numbers here
 *            4     int32 1            version
 *            8     int32 n            number of tokens
 *            12    253 int32          not used
 *            1024  n uint16           up to the end of the file */
enum { TOKENS_MAGIC = 20240520, TOKENS_VERSION = 1, TOKENS_HEADER = 1024, TOKENS_MAX_SHARDS = 65536 };

/* A set of files. A sample has `length` tokens. The target of a token is the token after it in the shard. So a sample
 * needs length + 1 tokens of a shard. The last of these tokens is also the first token of the next sample. A sample
 * never spans two shards. Tokens at the end of a shard that fill no sample are not used. */
struct tokens {
    struct tokens_shard {
        char *path; /* owned, like `fd` */
        int fd;
        uint64_t count, first; /* number of tokens; number of samples in all earlier shards */
    } * shard;
    size_t shards;
    size_t length, vocabulary;
    uint64_t n; /* number of samples */
};

/* Initialize a set without files. Every token must be below `vocabulary`, which is at most 65,536. */
void tokens_init(struct tokens *t, size_t length, size_t vocabulary);

/* Open all training files or all test files, in the order of their names. `where` is a directory with files ending
 * in .bin, or a pattern for glob(7). Training files have "train" in their names; test files have "val" or "test". */
ddp_status tokens_load(struct tokens *t, const char *where, bool training, struct ddp_err *err);
void tokens_free(struct tokens *t);

/* Read sample `index` (< n): `length` tokens and their targets. Several threads may read at the same time.
 * DDP_ERR_CORRUPT names file, offset and value. */
ddp_status tokens_read(const struct tokens *t, uint64_t index, int32_t *token, int32_t *target,
                       struct ddp_err *err);

/* Write the header of a file with `count` tokens to `head`, which has TOKENS_HEADER bytes. */
void tokens_make_header(uint8_t *head, uint32_t count);

#endif
