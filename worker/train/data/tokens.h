/* tokens.h -- llm.c's files of tokens, one or several (shards).
 *
 *     offset 0     int32 20240520     magic number, little-endian like all numbers here
 *            4     int32 1            version
 *            8     int32 n            number of tokens
 *            12    253 int32          not used
 *            1024  n uint16           up to the end of the file
 *
 * A sample is `length` tokens and the successor of each. So it needs length + 1 tokens of a shard, and shares the
 * last of these tokens with the next sample. A sample never spans two shards. Tokens at the end of a shard that fill
 * no sample are not used.
 *
 * Headers and sizes are checked when a file is opened. Tokens are checked each time they are read, because shards are
 * large and a run may need only a small part. */
#ifndef TRAIN_DATA_TOKENS_H
#define TRAIN_DATA_TOKENS_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKENS_MAGIC = 20240520, TOKENS_VERSION = 1, TOKENS_HEADER = 1024, TOKENS_MAX_SHARDS = 65536 };

struct tokens {
    struct tokens_shard {
        char *path; /* owned, like the descriptor */
        int fd;
        uint64_t count, first; /* number of tokens; number of samples in all earlier shards */
    } * shard;
    size_t shards, room;
    size_t length, vocabulary;
    uint64_t n; /* number of samples */
};

/* Initialize without files. Every token must be below `vocabulary` (at most 65,536). */
void tokens_init(struct tokens *t, size_t length, size_t vocabulary);

/* Open one more shard. Errors begin with the path; DDP_ERR_CORRUPT names offset and value. tokens_free frees
 * everything, also after an error. */
ddp_status tokens_add(struct tokens *t, const char *path, struct ddp_err *err);

/* Open all files for training or for the test, in the order of their names. `where` is a directory, whose files end
 * in .bin, or a pattern for glob(7). Files for training have "train" in their names, files for the test "val" or
 * "test". */
ddp_status tokens_load(struct tokens *t, const char *where, bool training, struct ddp_err *err);
void tokens_free(struct tokens *t);

/* Read `length` tokens of sample `index` (< n), and the successor of each. Several threads may read at the same time.
 * DDP_ERR_CORRUPT names file, offset and value. */
ddp_status tokens_read(const struct tokens *t, uint64_t index, int32_t *token, int32_t *target,
                       struct ddp_err *err);

/* Write a header of TOKENS_HEADER bytes, or one token. Programs that make files use these functions. */
void tokens_make_header(uint8_t *head, uint32_t count);
void tokens_put(uint8_t *to, uint16_t token);

#endif
