/* cifar.c -- see cifar.h.
 *
 * The format has neither magic nor header: that a file is one of these shows in its length and in a label below ten at every
 * 3073rd byte, so both are checked once and completely. A foreign file fails at its first byte nine times out of ten. */
#include "train/data/cifar.h"

#include "train/files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Nine places each way: the remainder of 32 bits favours none by more than 2^-29. */
struct augment augment_draw(ddp_philox *luck)
{
    struct augment a;
    a.down = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.right = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.mirrored = (int)(ddp_philox_next(luck) >> 31);
    return a;
}

/* One row: cut first, then mirrored, so a column counts from the other end. */
static void row(const struct augment *a, const uint8_t *from, uint8_t *to, int side)
{
    for (int x = 0; x < side; x++) {
        int at = (a->mirrored ? side - 1 - x : x) + a->right;
        to[x] = at >= 0 && at < side ? from[at] : 0;
    }
}

void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side)
{
    for (int i = 0; i < channels * side; i++, to += side) {
        int at = i % side + a->down;
        if (at >= 0 && at < side)
            row(a, from + (i / side * side + at) * side, to, side);
        else
            for (int x = 0; x < side; x++)
                to[x] = 0;
    }
}

/* --- cifar ------------------------------------------------------------------------------------------------ */

void cifar_file_name(char *to, int number)
{
    if (number == 0)
        snprintf(to, 32, "test_batch.bin");
    else
        snprintf(to, 32, "data_batch_%d.bin", number);
}

/* Labels first: a page of HTML is better told by its '<' than by its length. */
static ddp_status check(const struct whole_file *f, struct ddp_err *err)
{
    if (f->len == 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset 0: the file is empty");
    for (size_t at = 0; at < f->len; at += CIFAR_RECORD) {
        if (f->bytes[at] >= CIFAR_CLASSES)
            return ddp_fail(err, DDP_ERR_CORRUPT,
                            "offset %zu: label %d, expected 0 to %d (CIFAR-10, binary version)", at,
                            f->bytes[at], CIFAR_CLASSES - 1);
    }
    if (f->len > CIFAR_MAX_BYTES)
        return ddp_fail(err, DDP_ERR_LIMIT, "offset %d: over the limit of as many bytes", CIFAR_MAX_BYTES);
    if (f->len % CIFAR_RECORD != 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends inside record %zu of %d bytes",
                        f->len, f->len / CIFAR_RECORD, CIFAR_RECORD);
    return DDP_OK;
}

ddp_status cifar_add(struct cifar *c, const char *path, struct ddp_err *err)
{
    struct whole_file f;
    ddp_status status = whole_file_open(&f, path, err);
    if (status != DDP_OK)
        return status;
    status = whole_file_fill(&f, (size_t)CIFAR_MAX_BYTES + 1, err);
    if (status == DDP_OK)
        status = check(&f, err);
    whole_file_close(&f);
    if (status == DDP_OK && c->files == CIFAR_MAX_FILES)
        status = ddp_fail(err, DDP_ERR_LIMIT, "more than %d files", CIFAR_MAX_FILES);
    if (status != DDP_OK) {
        free(f.bytes);
        return ddp_wrap(err, "%s", path);
    }
    c->file[c->files++] = (struct cifar_file){ f.bytes, f.len / CIFAR_RECORD };
    c->n += f.len / CIFAR_RECORD;
    return DDP_OK;
}

bool cifar_find(char *found, const char *dir)
{
    static const char *const folder[] = { "", "/cifar-10-batches-bin" };
    char path[PATH_MAX], name[32];
    for (int i = 0; i < 4; i++) {
        int len = snprintf(found, PATH_MAX, "%s%s", dir, folder[i % 2]);
        cifar_file_name(name, i / 2);
        if (len > 0 && len < PATH_MAX && whole_file_find(path, found, name, NULL) == DDP_OK)
            return true;
    }
    return false;
}

/* data_batch_1, _2 ... up to the first that is missing; one behind the gap shows that a download is not complete. */
static ddp_status load_training(struct cifar *c, const char *dir, struct ddp_err *err)
{
    char path[PATH_MAX], name[32];
    int missing = 0;
    ddp_status status = DDP_OK;
    for (int i = 1; i <= CIFAR_MAX_FILES && status == DDP_OK; i++) {
        cifar_file_name(name, i);
        bool there = whole_file_find(path, dir, name, missing == 0 ? err : NULL) == DDP_OK;
        if (!there && missing == 0)
            missing = i;
        if (there && missing != 0)
            return ddp_wrap(err, "%s is there, but", name);
        if (there)
            status = cifar_add(c, path, err);
    }
    return status == DDP_OK && c->files == 0 ? err->code : status;
}

static ddp_status load_test(struct cifar *c, const char *dir, struct ddp_err *err)
{
    char path[PATH_MAX], name[32];
    cifar_file_name(name, 0);
    ddp_status status = whole_file_find(path, dir, name, err);
    return status == DDP_OK ? cifar_add(c, path, err) : status;
}

ddp_status cifar_load(struct cifar *c, const char *dir, bool training, struct ddp_err *err)
{
    *c = (struct cifar){ 0 };
    ddp_status status = training ? load_training(c, dir, err) : load_test(c, dir, err);
    if (status != DDP_OK)
        cifar_free(c);
    return status;
}

void cifar_free(struct cifar *c)
{
    for (size_t i = 0; i < c->files; i++)
        free(c->file[i].bytes);
    *c = (struct cifar){ 0 };
}

/* A handful of files: walking along them costs less than the first pixel. */
const uint8_t *cifar_record(const struct cifar *c, size_t index)
{
    const struct cifar_file *f = c->file;
    for (; index >= f->n; f++)
        index -= f->n;
    return f->bytes + index * CIFAR_RECORD;
}
