/* checkpoint.c -- see checkpoint.h.
 *
 * The file format is libddp's (ddp/ckpt.h): it knows whether a file is whole, this module whether it belongs
 * to this run. There is one file, always under the same name; the rename inside ddp_ckpt_save is what makes
 * that safe, and a disk that is too small for two fails while the old one is still there. */
#include "checkpoint.h"

#include "ddp/ckpt.h"
#include "files.h"
#include "models.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "train.ckpt";

/* The rows of CHECKPOINT_FACTS. */
static const struct {
    const char *text;
    bool must_match;
} facts[FACTS] = {
#define X(name, text, must_match) [FACT_##name] = { text, must_match },
    CHECKPOINT_FACTS(X)
#undef X
};

enum { BLOCKS = 5 };

/* The blocks of the file, in its order. Loading writes to where these point, so `c` must be memory that may
 * change. */
static void blocks_of(struct checkpoint *c, ddp_ckpt_block block[BLOCKS])
{
    const size_t bytes = c->count * sizeof(float);
    block[0] = (ddp_ckpt_block){ "facts", c->fact, sizeof(c->fact) };
    block[1] = (ddp_ckpt_block){ "loss", &c->loss, sizeof(c->loss) };
    block[2] = (ddp_ckpt_block){ "params", c->params, bytes };
    block[3] = (ddp_ckpt_block){ "adam.m", c->m, bytes };
    block[4] = (ddp_ckpt_block){ "adam.v", c->v, bytes };
}

/* A failure here ends the run: whoever asks for checkpoints counts on them. */
ddp_status checkpoint_save(const char *dir, const struct checkpoint *c, struct ddp_err *err)
{
    char path[PATH_MAX];
    struct checkpoint copy = *c;
    ddp_ckpt_block block[BLOCKS];
    ddp_status status = files_join(path, dir, file_name, err);
    if (status != DDP_OK)
        return status;
    blocks_of(&copy, block);
    status = ddp_ckpt_save(path, block, BLOCKS, err);
    return status == DDP_OK ? DDP_OK
                            : ddp_wrap(err, "checkpoint not written, the one before it is untouched");
}

/* As the user would write it. The value may come from a file and be any number. */
static const char *fact_words(int fact, int64_t value, char number[24])
{
    for (int64_t i = 0; fact == FACT_MODEL && model_names[i] != NULL; i++) {
        if (i == value)
            return model_names[i];
    }
    snprintf(number, 24, "%" PRId64, value);
    return number;
}

/* A run that goes on with another seed, batch or data set would not be the run it claims to be. */
static ddp_status compare(const char *path, const int64_t *theirs, const int64_t *ours, struct ddp_err *err)
{
    char was[24], is[24];
    for (int i = 0; i < FACTS; i++) {
        if (facts[i].must_match && theirs[i] != ours[i])
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "%s: %s was %s, now it is %s; give the same, or another --checkpoint directory "
                            "for a new run",
                            path, facts[i].text, fact_words(i, theirs[i], was), fact_words(i, ours[i], is));
    }
    return DDP_OK;
}

/* The facts first and alone would be cheaper, but a file is either good as a whole or not at all; so read all
 * of it into memory of our own, and hand it over when the facts fit. */
static ddp_status load_and_compare(const char *path, struct checkpoint *c, float *memory, struct ddp_err *err)
{
    ddp_ckpt_block block[BLOCKS];
    const size_t n = c->count;
    struct checkpoint own = { .count = n, .params = memory, .m = memory + n, .v = memory + 2 * n };
    blocks_of(&own, block);
    ddp_status status = ddp_ckpt_load(path, block, BLOCKS, err);
    if (status == DDP_OK)
        status = compare(path, own.fact, c->fact, err);
    if (status != DDP_OK)
        return status;
    memcpy(c->fact, own.fact, sizeof(own.fact));
    c->loss = own.loss;
    memcpy(c->params, own.params, n * sizeof(float));
    memcpy(c->m, own.m, n * sizeof(float));
    memcpy(c->v, own.v, n * sizeof(float));
    return DDP_OK;
}

/* `errno` tells a file that is not there from one that cannot be looked at, which is no reason to start
 * anew. */
int checkpoint_exists(const char *dir)
{
    char path[PATH_MAX];
    struct ddp_err err;
    return files_join(path, dir, file_name, &err) == DDP_OK && (access(path, F_OK) == 0 || errno != ENOENT);
}

ddp_status checkpoint_load(const char *dir, struct checkpoint *c, int *found, struct ddp_err *err)
{
    char path[PATH_MAX];
    *found = checkpoint_exists(dir);
    if (!*found)
        return DDP_OK;
    ddp_status status = files_join(path, dir, file_name, err);
    if (status != DDP_OK)
        return status;
    float *memory = malloc(3 * c->count * sizeof(float));
    if (memory == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory to read it", path);
    status = load_and_compare(path, c, memory, err);
    free(memory);
    if (status == DDP_ERR_CORRUPT)
        snprintf(err->msg + strlen(err->msg), sizeof(err->msg) - strlen(err->msg),
                 "; delete it to start anew, or put back a copy");
    return status;
}
