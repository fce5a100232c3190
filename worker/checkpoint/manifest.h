/* manifest.h -- the table of contents of a checkpoint directory, as JSON with a checksum, in a pure module. The
 * checksum covers the whole text, because every flipped bit must be detected. */
#ifndef WORKER_CHECKPOINT_MANIFEST_H
#define WORKER_CHECKPOINT_MANIFEST_H

#include "ddp/ckpt.h"

enum { MANIFEST_NAME = 64, MANIFEST_BLOCKS = 4096, MANIFEST_BYTES = 4 << 20 };

#define MANIFEST_FILE "tensors.bin"

/* The largest number in a manifest. cJSON prints only 15 digits, so larger numbers could change. */
#define MANIFEST_LARGEST UINT64_C(1000000000000000)

struct manifest_block {
    char name[MANIFEST_NAME];
    uint64_t at, bytes; /* offset in MANIFEST_FILE and size, in bytes */
    uint32_t crc;       /* CRC-32C of the data */
};

/* The contents of a manifest, for example:
 *
 *     {"crc32c":"5d0f1e9a","format":"ddprun checkpoint","version":1,"byte_order":"little","step":1200,"epoch":3,
 *      "samples":6400,"world_size":4,"file":"tensors.bin","bytes":1592,
 *      "blocks":[{"name":"weights","bytes":1568,"crc32c":"02cc9d33"}, ...]}
 *
 * The first checksum covers the whole text, with eight zeros in place of this checksum. Blocks follow each other in the
 * file without gaps, in the order of the list. A job with any number of ranks can read the checkpoint; world_size is
 * only information. */
struct manifest {
    ddp_ckpt_point point;
    uint64_t bytes;                /* size of MANIFEST_FILE */
    struct manifest_block *blocks; /* owned, freed by manifest_free */
    size_t n;
};

/* Return the manifest's text, which ends with a NUL and which the caller frees. Return NULL if memory is short. */
char *manifest_write(const struct manifest *m);

/* Parse `len` bytes, at most MANIFEST_BYTES. `name` is the file's name for errors. Return DDP_ERR_CORRUPT for a
 * damaged manifest, and DDP_ERR_UNSUPPORTED for an unknown version. After DDP_OK the caller calls manifest_free. */
ddp_status manifest_read(struct manifest *m, const char *name, const char *text, size_t len,
                         struct ddp_err *err);
void manifest_free(struct manifest *m);

/* Find the caller's n blocks by name: set number[i] to the position of want[i] in the manifest. `name` is the file's
 * name for errors. The text of DDP_ERR_MISMATCH names the block and both sizes. */
ddp_status manifest_match(const struct manifest *m, const char *name, const ddp_ckpt_block *want, size_t n,
                          size_t *number, struct ddp_err *err);

#endif
