/* dataset.c -- see dataset.h.
 *
 * Both files are checked here once and completely (sizes, that they belong together, every label), so that nothing
 * later needs to: a label of 10 would otherwise be an index behind the end of an array in every step. Every rank
 * reads the whole set. At 47 MB that is cheaper than handing parts around, and any rank may need any sample. */
#include "dataset.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* From the rows of DATASET_FILES. */
const char *dataset_file_name(enum dataset_part part, enum dataset_kind kind)
{
    static const char *const name[2][2] = {
#define X(part, kind, name) [DATASET_##part][DATASET_##kind] = name,
        DATASET_FILES(X)
#undef X
    };
    return name[part][kind];
}

/* The plain file, else the packed one: that is how the set is published and how people unpack it. `path` has
 * room for PATH_MAX bytes. */
static ddp_status find(char *path, const char *dir, const char *name, struct ddp_err *err)
{
    static const char *const ending[] = { "", ".gz" };
    for (int i = 0; i < 2; i++) {
        int len = snprintf(path, PATH_MAX, "%s/%s%s", dir, name, ending[i]);
        if (len < 0 || len >= PATH_MAX)
            return ddp_fail(err, DDP_ERR_ARG, "--data %.100s...: the path is too long", dir);
        if (access(path, F_OK) == 0)
            return DDP_OK;
    }
    return ddp_fail(err, DDP_ERR_IO,
                    "%s/%s: not found, nor %s.gz; name the directory of the data with --data, or make a set: "
                    "build/make-data --out %s",
                    dir, name, name, dir);
}

/* Leaves the name of the file in `path`, for the messages of the checks that follow. */
static ddp_status load(struct idx *idx, const char *dir, enum dataset_part part, enum dataset_kind kind,
                       char *path, struct ddp_err *err)
{
    ddp_status status = find(path, dir, dataset_file_name(part, kind), err);
    return status == DDP_OK ? idx_load(idx, path, kind == DATASET_IMAGES ? 3 : 1, err) : status;
}

/* The number of pictures is what it is; their size is part of the model. */
static ddp_status check_images(const struct idx *images, const char *path, struct ddp_err *err)
{
    if (images->dim[1] == PICTURE_SIDE && images->dim[2] == PICTURE_SIDE)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_CORRUPT, "%s: offset 8: pictures of %" PRIu32 "x%" PRIu32 ", expected %dx%d",
                    path, images->dim[1], images->dim[2], PICTURE_SIDE, PICTURE_SIDE);
}

/* A label outside the classes would be an index outside an array, one step later. */
static ddp_status check_labels(const struct idx *labels, uint32_t pictures, const char *path,
                               struct ddp_err *err)
{
    if (labels->dim[0] != pictures)
        return ddp_fail(err, DDP_ERR_CORRUPT, "%s: offset 4: %" PRIu32 " labels for %" PRIu32 " pictures",
                        path, labels->dim[0], pictures);
    for (uint32_t i = 0; i < pictures; i++) {
        if (labels->values[i] >= CLASSES)
            return ddp_fail(err, DDP_ERR_CORRUPT, "%s: offset %zu: label %d, expected 0 to %d", path,
                            idx_header_bytes(1) + i, labels->values[i], CLASSES - 1);
    }
    return DDP_OK;
}

/* Images first: they are what a user most likely has, or has not. */
ddp_status dataset_load(struct dataset *set, const char *dir, enum dataset_part part, struct ddp_err *err)
{
    char path[PATH_MAX];
    *set = (struct dataset){ 0 };
    ddp_status status = load(&set->images, dir, part, DATASET_IMAGES, path, err);
    if (status == DDP_OK)
        status = check_images(&set->images, path, err);
    if (status == DDP_OK)
        status = load(&set->labels, dir, part, DATASET_LABELS, path, err);
    if (status == DDP_OK)
        status = check_labels(&set->labels, set->images.dim[0], path, err);
    if (status == DDP_OK)
        set->n = set->images.dim[0];
    else
        dataset_free(set);
    return status;
}

void dataset_free(struct dataset *set)
{
    idx_free(&set->images);
    idx_free(&set->labels);
    set->n = 0;
}

/* Scaled as torchvision's ToTensor does it, by a division and not by a product with 1/255: other bits. */
uint8_t dataset_sample(const struct dataset *set, size_t index, float *pixels)
{
    const uint8_t *from = set->images.values + index * PICTURE_PIXELS;
    for (int i = 0; i < PICTURE_PIXELS; i++)
        pixels[i] = (float)from[i] / 255.0f;
    return set->labels.values[index];
}
