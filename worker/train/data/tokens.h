/* tokens.h -- llm.c's files of tokens, one or several (shards).
 *
 *     offset 0     int32 20240520     magic, little endian as everything here
 *            4     int32 1            version
 *            8     int32 n            tokens
 *            12    253 int32          not used
 *            1024  n uint16           then the file ends
 *
 * A sample is `length` tokens and the successor of each, so it takes length + 1 tokens of a shard and shares
 * the last with the sample that follows. Samples do not reach from one shard into the next, and the rest of a
 * shard is not used.
 *
 * Headers and sizes are checked when the files are opened; tokens when they are read, each time: because
 * shards are large, and most of one may not be needed. */
#ifndef TRAIN_DATA_TOKENS_H
#define TRAIN_DATA_TOKENS_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKENS_MAGIC = 20240520, TOKENS_VERSION = 1, TOKENS_HEADER = 1024, TOKENS_MAX_SHARDS = 65536 };

struct tokens {
    struct tokens_shard {
        char *path; /* ours, as is the descriptor */
        int fd;
        uint64_t count, first; /* tokens; samples of the shards before this one */
    } * shard;
    size_t shards, room;
    size_t length, vocabulary;
    uint64_t n; /* samples */
};

/* No file yet. A token is below `vocabulary` (65,536 at most). */
void tokens_init(struct tokens *t, size_t length, size_t vocabulary);

/* One more shard. The message begins with the path; DDP_ERR_CORRUPT names offset and value. tokens_free frees
 * everything in any case. */
ddp_status tokens_add(struct tokens *t, const char *path, struct ddp_err *err);

/* All files for training, or for the test, in the order of their names: those of a directory that end in .bin, or those
 * that match a pattern for glob(7); with "train" in their name, or "val" or "test". */
ddp_status tokens_load(struct tokens *t, const char *where, bool training, struct ddp_err *err);
void tokens_free(struct tokens *t);

/* `length` tokens of sample `index` (< n), and what follows each. Several threads may read at once. DDP_ERR_CORRUPT names file,
 * offset and value. */
ddp_status tokens_read(const struct tokens *t, uint64_t index, int32_t *token, int32_t *target,
                       struct ddp_err *err);

/* For writers: the header, TOKENS_HEADER bytes, and one token. */
void tokens_make_header(uint8_t *head, uint32_t count);
void tokens_put(uint8_t *to, uint16_t token);

#endif
