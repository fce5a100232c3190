/* checkpoint.c -- see checkpoint.h. libddp reads and writes the files (ddp/ckpt.h), detects damage and finds the newest
 * checkpoint. This module only decides whether a checkpoint belongs to this run, because libddp does not know the
 * options of train. */
#include "train/checkpoint.h"

#include "train/library.h"
#include "train/models/models.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    bool must_match;
} facts[FACTS] = {
#define X(name, text, must_match) [FACT_##name] = { text, must_match },
    CHECKPOINT_FACTS(X)
#undef X
};

enum { BLOCKS = 5 + OPTIMIZER_SLOTS, LOSSES = 2 };

/* The losses and the state of the scaler as doubles, for a checkpoint. */
struct small {
    double loss[LOSSES];
    double scaler[DDP_SCALER_STATE];
};

/* Fill `block` with the blocks of a checkpoint, in the order of the file. Return the number of blocks. A block has
 * the address of its data, which a save reads and a load writes. */
static size_t blocks_of(struct checkpoint *c, struct small *small, ddp_ckpt_block block[BLOCKS])
{
    static const char *const names[OPTIMIZER_SLOTS] = { "params", "optimizer.0", "optimizer.1" };
    const struct optimizer *o = c->optimizer;
    size_t n = 0;
    block[n++] = (ddp_ckpt_block){ "facts", c->fact, sizeof(c->fact) };
    block[n++] = (ddp_ckpt_block){ "loss", small->loss, sizeof(small->loss) };
    block[n++] = (ddp_ckpt_block){ "scaler", small->scaler, sizeof(small->scaler) };
    for (int slot = 0; slot < o->slots; slot++)
        block[n++] = (ddp_ckpt_block){ names[slot], o->slot[slot], o->model->params.count * sizeof(float) };
    if (o->model->buffers.count > 0)
        block[n++] =
            (ddp_ckpt_block){ "buffers", o->model->buffers.values, o->model->buffers.count * sizeof(float) };
    return n;
}

/* --- saving ------------------------------------------------------------------------------------------ */

/* Save a checkpoint. A failure ends the run. */
ddp_status checkpoint_save(ddp_ckpts *ckpts, const struct checkpoint *c, int world, struct ddp_err *err)
{
    struct checkpoint copy = *c;
    struct small small = { .loss = { c->loss, c->epoch_loss } };
    ddp_ckpt_block block[BLOCKS];
    const ddp_ckpt_point point = { .step = (uint64_t)c->fact[FACT_STEPS],
                                   .epoch = (uint64_t)c->fact[FACT_EPOCHS],
                                   .samples = c->samples,
                                   .world_size = (uint64_t)world };
    ddp_status status = model_fetch_buffers(c->optimizer->model, err);
    if (status != DDP_OK)
        return status;
    ddp_scaler_save(&c->optimizer->scaler, small.scaler);
    return ddp_ckpts_save(ckpts, &point, block, blocks_of(&copy, &small, block), err);
}

/* --- the newest checkpoint ---------------------------------------------------------------------------- */

/* Return true if the step in `name` is later than that in `than`. Steps have at least eight digits. */
static bool is_later(const char *name, const char *than)
{
    size_t len = strlen(name), than_len = strlen(than);
    return len != than_len ? len > than_len : strcmp(name, than) > 0;
}

/* Return true if `name` is a name that libddp gives to a checkpoint (step_of in worker/checkpoint/directory.c). A
 * directory that the user has renamed does not count, because libddp does not load it. */
static bool is_checkpoint(const char *name)
{
    char expected[64];
    uint64_t step;
    if (sscanf(name, "step-%20" SCNu64, &step) != 1)
        return false;
    snprintf(expected, sizeof(expected), "step-%08" PRIu64, step);
    return strcmp(expected, name) == 0;
}

static void find_newest(DIR *d, char newest[64])
{
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_checkpoint(e->d_name) && is_later(e->d_name, newest))
            strcpy(newest, e->d_name);
    }
}

int checkpoint_exists(const char *dir, char newest[64])
{
    newest[0] = '\0';
    DIR *d = opendir(dir);
    if (d != NULL) {
        find_newest(d, newest);
        closedir(d);
    }
    return newest[0] != '\0';
}

/* Print a warning with one write, because another thread may print warnings too. */
static void warn(void *user, const char *words)
{
    (void)user;
    fprintf(stderr, "train: warning: rank 0: %s\n", words);
}

ddp_status checkpoint_open(const struct train_options *options, ddp_ckpts **out, struct ddp_err *err)
{
    ddp_ckpts_options o = DDP_CKPTS_OPTIONS_INIT;
    o.dir = options->checkpoint;
    o.keep_last = (unsigned)options->keep_last;
    o.keep_every = options->keep_every;
    o.warn = warn;
    return ddp_ckpts_open(&o, out, err);
}

/* --- resuming ---------------------------------------------------------------------------------------- */

/* Return the text of a fact's value: the word that the user writes on the command line, or the number if the value has
 * no such word. A value from a file may be invalid. */
static const char *fact_words(int fact, int64_t value, char number[24])
{
    const char *word = NULL;
    if (fact == FACT_MODEL)
        word = models_marked(value);
    else if (strncmp(facts[fact].text, "--", 2) == 0)
        word = train_options_word(facts[fact].text + 2, value);
    snprintf(number, 24, "%" PRId64, value);
    return word != NULL ? word : number;
}

/* Check that the saved run had the same seed, batch, data set and other facts. Otherwise the results would differ
 * from the results of a run without interruption. */
static ddp_status compare(const char *dir, const int64_t *theirs, const int64_t *ours, struct ddp_err *err)
{
    char was[24], is[24];
    for (int i = 0; i < FACTS; i++) {
        if (facts[i].must_match && theirs[i] != ours[i])
            return ddp_fail(
                err, DDP_ERR_MISMATCH,
                "%s: %s was %s, but now is %s; use the same value, or another --checkpoint directory "
                "for a new run",
                dir, facts[i].text, fact_words(i, theirs[i], was), fact_words(i, ours[i], is));
    }
    return DDP_OK;
}

/* Return the error for a file whose blocks differ from the blocks of this run. The saved run then had another model
 * size, optimizer or kind of momentum. */
static ddp_status other_blocks(struct ddp_err *err)
{
    return ddp_wrap(
        err, "--resume: the checkpoint was made with another --model, --data, --optimizer or --momentum");
}

static ddp_status adopt_found(struct checkpoint *c, const struct checkpoint *theirs,
                              const struct small *small, struct ddp_err *err)
{
    struct optimizer *o = c->optimizer;
    memcpy(c->fact, theirs->fact, sizeof(c->fact));
    c->loss = small->loss[0];
    c->epoch_loss = small->loss[1];
    ddp_status status = ddp_scaler_load(&o->scaler, small->scaler, err);
    if (status == DDP_OK)
        status = optimizer_restore(o, err);
    if (status == DDP_OK)
        status = model_send_buffers(o->model, err);
    optimizer_rule(o)->step = c->fact[FACT_UPDATES];
    return status;
}

ddp_status checkpoint_resume(ddp_ckpts *ckpts, const char *dir, struct checkpoint *c, int *found,
                             struct ddp_err *err)
{
    struct checkpoint theirs = { .optimizer = c->optimizer };
    struct small small = { .loss = { 0 } };
    ddp_ckpt_point point = { 0 };
    ddp_ckpt_block block[BLOCKS];
    ddp_status status = optimizer_room(c->optimizer, err);
    if (status != DDP_OK)
        return status;
    size_t n = blocks_of(&theirs, &small, block);
    status = library(ddp_ckpts_resume(ckpts, ddp_world(c->optimizer->ctx), block, n, &point, found), err);
    if (status == DDP_ERR_MISMATCH)
        return other_blocks(err);
    if (status == DDP_OK && !*found)
        optimizer_forget(c->optimizer);
    if (status != DDP_OK || !*found)
        return status;
    c->samples = point.samples;
    if (ckpts != NULL) /* true only on rank 0, so a difference from the saved run is reported once */
        status = compare(dir, theirs.fact, c->fact, err);
    return status == DDP_OK ? adopt_found(c, &theirs, &small, err) : status;
}
