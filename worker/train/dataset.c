/* dataset.c -- see dataset.h: the file formats. Every rank opens the whole set, because a rank may need any
 * sample. Pictures are read into memory (CIFAR-10: 180 MB), and tokens stay in their files. */
#include "train/dataset.h"

#include "train/data/pictures.h"
#include "train/files.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct dataset_format {
    const char *name;
    bool varies;
    ddp_status (*load)(struct dataset *set, const char *where, enum dataset_part part,
                       const struct dataset_request *request, struct ddp_err *err);
    ddp_status (*read)(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                       int32_t *target, struct ddp_err *err);
};

/* --- IDX --------------------------------------------------------------------------------------------------- */

const char *dataset_file_name(enum dataset_part part, enum dataset_kind kind)
{
    static const char *const name[2][2] = {
        [DATASET_TRAIN] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
        [DATASET_TEST] = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
    };
    return name[part][kind];
}

/* Write the path of make-data to `path`. Prefer the folder of this program, because PATH usually does not contain this
 * folder. If the folder has no make-data, write only the name "make-data". */
static void find_make_data(char path[static 512])
{
    const ssize_t n = readlink("/proc/self/exe", path, 512 - sizeof("make-data"));
    char *slash;
    path[n > 0 ? n : 0] = '\0';
    if ((slash = strrchr(path, '/')) != NULL)
        memcpy(slash + 1, "make-data", sizeof("make-data"));
    if (slash == NULL || access(path, X_OK) != 0)
        memcpy(path, "make-data", sizeof("make-data"));
}

/* Load a file. Write its path to `path`, for errors of later checks. */
static ddp_status load_file(struct idx *idx, const char *dir, enum dataset_part part, enum dataset_kind kind,
                            char *path, struct ddp_err *err)
{
    ddp_status status = whole_file_find(path, dir, dataset_file_name(part, kind), err);
    if (status == DDP_ERR_IO && errno == ENOENT) {
        char make_data[512];
        find_make_data(make_data);
        return ddp_fail(
            err, status,
            "%s/%s: neither this file nor its .gz exists; set the directory of the data with --data, or "
            "create a set with `%s --out %s`",
            dir, dataset_file_name(part, kind), make_data, dir);
    }
    return status == DDP_OK ? idx_load(idx, path, kind == DATASET_IMAGES ? 3 : 1, err) : status;
}

/* Check the size of the pictures, which must match the model. */
static ddp_status check_images(const struct idx *images, const char *path, struct ddp_err *err)
{
    if (images->dim[1] == PICTURE_SIDE && images->dim[2] == PICTURE_SIDE)
        return DDP_OK;
    ddp_fail(err, DDP_ERR_CORRUPT, "offset 8: pictures of %" PRIu32 "x%" PRIu32 ": expected %dx%d",
             images->dim[1], images->dim[2], PICTURE_SIDE, PICTURE_SIDE);
    return files_wrap(path, err);
}

/* Check the labels, because a label is later used as an array index. */
static ddp_status check_labels(const struct idx *labels, uint32_t pictures, const char *path,
                               struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (labels->dim[0] != pictures)
        status = ddp_fail(err, DDP_ERR_CORRUPT, "offset 4: %" PRIu32 " labels for %" PRIu32 " pictures",
                          labels->dim[0], pictures);
    for (uint32_t i = 0; i < pictures && status == DDP_OK; i++) {
        if (labels->values[i] >= CLASSES)
            status = ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: label %d: expected a number from 0 to %d",
                              idx_header_bytes(1) + i, labels->values[i], CLASSES - 1);
    }
    return status == DDP_OK ? DDP_OK : files_wrap(path, err);
}

static ddp_status idx_set_load(struct dataset *set, const char *dir, enum dataset_part part,
                               const struct dataset_request *request, struct ddp_err *err)
{
    char path[PATH_MAX];
    struct idx *images = &set->images, *labels = &set->labels;
    (void)request;
    ddp_status status = load_file(images, dir, part, DATASET_IMAGES, path, err);
    if (status == DDP_OK)
        status = check_images(images, path, err);
    if (status == DDP_OK)
        status = load_file(labels, dir, part, DATASET_LABELS, path, err);
    if (status == DDP_OK)
        status = check_labels(labels, images->dim[0], path, err);
    set->n = images->dim[0];
    set->length = set->channels = 1;
    set->height = set->width = PICTURE_SIDE;
    set->classes = CLASSES;
    return status;
}

/* Read a sample. Divide values by 255 as torchvision's ToTensor does. Multiplying by 1/255 would give other bits. */
static ddp_status idx_set_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                               int32_t *target, struct ddp_err *err)
{
    const uint8_t *from = set->images.values + index * PICTURE_PIXELS;
    float *pixels = values;
    (void)luck;
    (void)err;
    for (int i = 0; i < PICTURE_PIXELS; i++)
        pixels[i] = (float)from[i] / 255.0f;
    *target = set->labels.values[index];
    return DDP_OK;
}

/* --- CIFAR-10 ---------------------------------------------------------------------------------------------- */

static ddp_status cifar_set_load(struct dataset *set, const char *dir, enum dataset_part part,
                                 const struct dataset_request *request, struct ddp_err *err)
{
    char found[PATH_MAX];
    (void)request;
    cifar_find(found, dir);
    ddp_status status = cifar_load(&set->cifar, found, part == DATASET_TRAIN, err);
    set->n = set->cifar.n;
    set->length = 1;
    set->channels = CIFAR_CHANNELS;
    set->height = set->width = CIFAR_SIDE;
    set->classes = CIFAR_CLASSES;
    return status;
}

/* Normalize with mean and deviation of each colour over the 50,000 training pictures. */
static void normalize(const uint8_t *from, float *to)
{
    static const float mean[] = { 0.4914f, 0.4822f, 0.4465f }, deviation[] = { 0.2470f, 0.2435f, 0.2616f };
    enum { PLANE = CIFAR_SIDE * CIFAR_SIDE };
    for (int c = 0; c < CIFAR_CHANNELS; c++) {
        for (int i = 0; i < PLANE; i++)
            to[c * PLANE + i] = ((float)from[c * PLANE + i] / 255.0f - mean[c]) / deviation[c];
    }
}

/* Read a sample. Move and mirror the picture before normalizing, as in torchvision, so that new pixels at the edge
 * are black. */
static ddp_status cifar_set_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                                 int32_t *target, struct ddp_err *err)
{
    const uint8_t *record = cifar_record(&set->cifar, index), *pixels = record + 1;
    uint8_t moved[CIFAR_PIXELS];
    (void)err;
    if (luck != NULL) {
        const struct augment a = augment_draw(luck);
        augment_apply(&a, pixels, moved, CIFAR_CHANNELS, CIFAR_SIDE);
        pixels = moved;
    }
    normalize(pixels, values);
    *target = record[0];
    return DDP_OK;
}

/* --- tokens ------------------------------------------------------------------------------------------------ */

static ddp_status tokens_set_load(struct dataset *set, const char *where, enum dataset_part part,
                                  const struct dataset_request *request, struct ddp_err *err)
{
    tokens_init(&set->tokens, request->length, request->vocabulary);
    ddp_status status = tokens_load(&set->tokens, where, part == DATASET_TRAIN, err);
    set->n = (size_t)set->tokens.n;
    set->length = request->length;
    set->classes = request->vocabulary;
    return status;
}

static ddp_status tokens_set_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                                  int32_t *target, struct ddp_err *err)
{
    (void)luck;
    return tokens_read(&set->tokens, index, values, target, err);
}

/* --- the formats ------------------------------------------------------------------------------------------- */

static const struct dataset_format idx_format = { "idx", false, idx_set_load, idx_set_read };
static const struct dataset_format cifar_format = { "cifar10", true, cifar_set_load, cifar_set_read };
static const struct dataset_format tokens_format = { "tokens", false, tokens_set_load, tokens_set_read };

static const struct dataset_format *format_of(const char *where, enum model_input input)
{
    char found[PATH_MAX];
    if (input == MODEL_TOKENS)
        return &tokens_format;
    return cifar_find(found, where) ? &cifar_format : &idx_format;
}

ddp_status dataset_load(struct dataset *set, const char *where, enum dataset_part part,
                        const struct dataset_request *request, struct ddp_err *err)
{
    *set = (struct dataset){ .format = format_of(where, request->input) };
    ddp_status status = set->format->load(set, where, part, request, err);
    if (status != DDP_OK)
        dataset_free(set);
    return status;
}

void dataset_free(struct dataset *set)
{
    idx_free(&set->images);
    idx_free(&set->labels);
    cifar_free(&set->cifar);
    tokens_free(&set->tokens);
    *set = (struct dataset){ 0 };
}

const char *dataset_format_name(const struct dataset *set)
{
    return set->format->name;
}

bool dataset_varies(const struct dataset *set)
{
    return set->format->varies;
}

size_t dataset_row_bytes(const struct dataset *set)
{
    return set->channels > 0 ? set->channels * set->height * set->width * sizeof(float)
                             : set->length * sizeof(int32_t);
}

ddp_status dataset_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                        int32_t *target, struct ddp_err *err)
{
    return set->format->read(set, index, luck, values, target, err);
}
