/* makers.c -- see makers.h. Each part of a set is created in memory and then written to its files, so that
 * ddp_file_replace writes each file whole or not at all. */
#include "train/data/makers.h"

#include "base/buf.h"
#include "ddp/ckpt.h"
#include "train/data/pictures.h"
#include "train/dataset.h"
#include "train/files.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static float between(ddp_random *luck, float low, float high)
{
    return low + (high - low) * ddp_random_uniform(luck);
}

/* --- glyphs ----------------------------------------------------------------------------------------------- */

/* A digit is drawn with a few straight strokes on a grid of 4 x 6 cells. Each sample has its own size, slant,
 * place, pen width, noise and scratch. Only operations that IEEE 754 defines to the last bit are used, so the pictures
 * are the same on every machine. */

enum { MAX_STROKES = 7 };

/* One stroke from (x0, y0) to (x1, y1). A stroke with two equal points marks the end of a digit's strokes. */
struct stroke {
    float x0, y0, x1, y1;
};

static const struct stroke digit[CLASSES][MAX_STROKES] = {
    { { 0, 1, 1, 0 },
      { 1, 0, 3, 0 },
      { 3, 0, 4, 1 },
      { 4, 1, 4, 5 },
      { 4, 5, 3, 6 },
      { 3, 6, 0, 5 },
      { 0, 5, 0, 1 } },
    { { 1, 1, 2, 0 }, { 2, 0, 2, 6 }, { 1, 6, 3, 6 } },
    { { 0, 1, 2, 0 }, { 2, 0, 4, 1 }, { 4, 1, 4, 2 }, { 4, 2, 0, 6 }, { 0, 6, 4, 6 } },
    { { 0, 0, 4, 0 }, { 4, 0, 2, 2.5f }, { 2, 2.5f, 4, 4 }, { 4, 4, 3, 6 }, { 3, 6, 0, 6 } },
    { { 3, 6, 3, 0 }, { 3, 0, 0, 4 }, { 0, 4, 4, 4 } },
    { { 4, 0, 0, 0 },
      { 0, 0, 0, 2.5f },
      { 0, 2.5f, 3, 2.5f },
      { 3, 2.5f, 4, 4 },
      { 4, 4, 3, 6 },
      { 3, 6, 0, 6 } },
    { { 3, 0, 0, 3 }, { 0, 3, 0, 5 }, { 0, 5, 2, 6 }, { 2, 6, 4, 5 }, { 4, 5, 4, 4 }, { 4, 4, 0, 3.5f } },
    { { 0, 0, 4, 0 }, { 4, 0, 1, 6 }, { 1, 3, 3.5f, 3 } },
    { { 0, 0, 4, 0 }, { 4, 0, 0, 6 }, { 0, 6, 4, 6 }, { 4, 6, 0, 0 } },
    { { 4, 2, 1, 3 }, { 1, 3, 0, 1 }, { 0, 1, 2, 0 }, { 2, 0, 4, 1 }, { 4, 1, 4, 4 }, { 4, 4, 2, 6 } },
};

/* Random parameters for drawing the digit of one sample. */
struct hand {
    float scale_x, scale_y; /* width and height of a grid cell, in pixels */
    float slant;            /* shift to the right for each pixel upwards, in pixels */
    float left, top;        /* position of the grid's upper left corner, in pixels */
    float pen;              /* half the width of a stroke in pixels */
    float ink;              /* darkness, 0..1 */
};

/* Return random parameters for one digit. The centre of the digit's grid is at most two pixels away from the picture's
 * centre, in each direction. */
static struct hand draw_hand(ddp_random *luck)
{
    struct hand h;
    h.scale_x = between(luck, 2.6f, 3.6f);
    h.scale_y = between(luck, 2.6f, 3.4f);
    h.slant = between(luck, -0.2f, 0.2f);
    h.left = 14 - 2 * h.scale_x + between(luck, -2, 2);
    h.top = 14 - 3 * h.scale_y + between(luck, -2, 2);
    h.pen = between(luck, 0.7f, 1.5f);
    h.ink = between(luck, 0.6f, 1.0f);
    return h;
}

/* Convert a stroke from grid cells to pixels. */
static struct stroke placed(const struct hand *h, struct stroke s)
{
    struct stroke p = { .y0 = h->top + s.y0 * h->scale_y, .y1 = h->top + s.y1 * h->scale_y };
    p.x0 = h->left + s.x0 * h->scale_x + h->slant * (14 - p.y0);
    p.x1 = h->left + s.x1 * h->scale_x + h->slant * (14 - p.y1);
    return p;
}

/* Return the distance from a pixel to the nearest point of a stroke. Project the pixel onto the stroke's line, then
 * limit the projection to the ends of the stroke. */
static float distance(float x, float y, const struct stroke *s)
{
    float dx = s->x1 - s->x0, dy = s->y1 - s->y0;
    float along = ((x - s->x0) * dx + (y - s->y0) * dy) / (dx * dx + dy * dy);
    along = along < 0 ? 0 : along > 1 ? 1 : along;
    float ex = x - (s->x0 + along * dx), ey = y - (s->y0 + along * dy);
    return sqrtf(ex * ex + ey * ey);
}

/* Darken each pixel by the share of the pixel that the pen covers. */
static void draw_stroke(float *paper, const struct stroke *s, float pen, float ink)
{
    for (int i = 0; i < PICTURE_PIXELS; i++) {
        float cover = pen + 0.5f - distance((float)(i % PICTURE_SIDE), (float)(i / PICTURE_SIDE), s);
        float dark = cover <= 0 ? 0 : cover >= 1 ? ink : cover * ink;
        if (dark > paper[i])
            paper[i] = dark;
    }
}

/* Draw a short stroke at a random place, so that no single dark pixel identifies a class. */
static void scratch(ddp_random *luck, float *paper)
{
    struct stroke s = { between(luck, 0, 27), between(luck, 0, 27), 0, 0 };
    s.x1 = s.x0 + between(luck, 1, 6);
    s.y1 = s.y0 + between(luck, -6, 6);
    draw_stroke(paper, &s, 0.6f, between(luck, 0.3f, 0.9f));
}

/* Return the noise of a pixel: strong noise in 2 % of the pixels. Weak noise in all pixels would raise the mean of the
 * picture, and one step of Adam with a learning rate of 0.01 would then saturate a sigmoid with 784 inputs. */
static float speck(ddp_random *luck)
{
    return ddp_random_uniform(luck) < 0.02f ? between(luck, -1, 1) : 0;
}

/* Draw one digit with random variations and a scratch. `paper` has PICTURE_PIXELS numbers: 0 is paper, 1 is ink. */
static void glyph_draw(ddp_random *luck, int label, float *paper)
{
    struct hand hand = draw_hand(luck);
    memset(paper, 0, PICTURE_PIXELS * sizeof(*paper));
    for (int i = 0; i < MAX_STROKES; i++) {
        struct stroke s = digit[label][i];
        if (s.x0 == s.x1 && s.y0 == s.y1)
            break;
        s = placed(&hand, s);
        draw_stroke(paper, &s, hand.pen, hand.ink);
    }
    scratch(luck, paper);
}

/* Draw one sample of class `label` (0..9) into PICTURE_PIXELS bytes: 0 is paper, 255 is ink. */
static void draw_digit(ddp_random *luck, int label, uint8_t *pixels)
{
    float paper[PICTURE_PIXELS];
    glyph_draw(luck, label, paper);
    for (int i = 0; i < PICTURE_PIXELS; i++) {
        float value = paper[i] + speck(luck);
        pixels[i] = (uint8_t)(255 * (value < 0 ? 0 : value > 1 ? 1 : value) + 0.5f);
    }
}

/* Fill in the labels in random order. The sizes of any two classes differ by at most one sample. */
static void glyph_labels(ddp_random *luck, size_t n, uint8_t *labels)
{
    for (size_t i = 0; i < n; i++)
        labels[i] = (uint8_t)(i % CLASSES);
    for (size_t i = n; i > 1; i--) { /* shuffle (Fisher and Yates) */
        const size_t other = ddp_random_next(luck) % i;
        const uint8_t held = labels[i - 1];
        labels[i - 1] = labels[other];
        labels[other] = held;
    }
}

/* Fill in `n` pictures and their labels. Make all labels first, so that they do not depend on the random numbers that
 * the pictures use. */
static void glyph_fill(ddp_random *luck, size_t n, uint8_t *pixels, uint8_t *labels)
{
    glyph_labels(luck, n, labels);
    for (size_t i = 0; i < n; i++)
        draw_digit(luck, labels[i], pixels + i * PICTURE_PIXELS);
}

/* --- speech ----------------------------------------------------------------------------------------------- */

/* The synthetic language: invented words, each followed by one of four words. A perfect model has a loss of about 0.2
 * nats per letter; 256 equally likely letters would give 5.5. */

enum { SPEECH_WORDS = 96, SPEECH_LETTERS = 10, SPEECH_NEXT = 4, MOST_SYLLABLES = 4 };

struct speech {
    char word[SPEECH_WORDS][SPEECH_LETTERS]; /* text, with its NUL */
    uint8_t next[SPEECH_WORDS][SPEECH_NEXT]; /* words that may follow each word, the most frequent first */
};

/* Make a word of one to four syllables; each syllable has two letters. */
static void invent_word(ddp_random *luck, char *word)
{
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    int syllables = 1 + (int)(ddp_random_next(luck) % MOST_SYLLABLES);
    for (int i = 0; i < syllables; i++) {
        *word++ = consonants[ddp_random_next(luck) % (sizeof(consonants) - 1)];
        *word++ = vowels[ddp_random_next(luck) % (sizeof(vowels) - 1)];
    }
    *word = '\0';
}

static void speech_invent(ddp_random *luck, struct speech *speech)
{
    for (int i = 0; i < SPEECH_WORDS; i++) {
        invent_word(luck, speech->word[i]);
        for (int k = 0; k < SPEECH_NEXT; k++)
            speech->next[i][k] = (uint8_t)(ddp_random_next(luck) % SPEECH_WORDS);
    }
}

/* Draw the next word; the four candidates have the weights 8 : 4 : 2 : 2. */
static int follow(ddp_random *luck, const struct speech *speech, int word)
{
    unsigned chance = ddp_random_next(luck) % 16;
    return speech->next[word][chance < 8 ? 0 : chance < 12 ? 1 : chance < 14 ? 2 : 3];
}

/* Write `n` letters (ASCII) of text. The last sentence may be cut. Each sentence begins with word 0 of `speech`,
 * and has eight words on average. */
static void speech_write(ddp_random *luck, const struct speech *speech, uint8_t *text, size_t n)
{
    int word = 0;
    for (size_t at = 0; at < n;) {
        char piece[SPEECH_LETTERS + 2];
        int last = ddp_random_next(luck) % 8 == 0;
        strcpy(piece, speech->word[word]);
        strcat(piece, last ? ".\n" : " ");
        size_t len = strlen(piece) < n - at ? strlen(piece) : n - at;
        memcpy(text + at, piece, len);
        at += len;
        word = last ? 0 : follow(luck, speech, word);
    }
}

/* The contents of a file. */
struct bytes {
    uint8_t *data; /* owned */
    size_t len;
};

/* Compress with gzip. Store neither name nor time, so that equal data gives equal files. The caller frees
 * out->data. */
static ddp_status pack(const char *path, const struct bytes *in, struct bytes *out, struct ddp_err *err)
{
    z_stream z = { 0 };
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for compression", path);
    size_t bound = deflateBound(&z, in->len);
    out->data = malloc(bound);
    z.next_in = in->data;
    z.avail_in = (unsigned)in->len;
    z.next_out = out->data;
    z.avail_out = (unsigned)bound;
    int code = out->data == NULL ? Z_MEM_ERROR : deflate(&z, Z_FINISH);
    out->len = bound - z.avail_out;
    deflateEnd(&z);
    return code == Z_STREAM_END ? DDP_OK
                                : ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for compression", path);
}

static ddp_status write_file(const struct maker_order *o, const char *name, const struct bytes *data,
                             struct ddp_err *err)
{
    char path[PATH_MAX];
    struct bytes packed = { 0 };
    ddp_status status = files_join(path, o->out, name, o->gzip ? ".gz" : "", err);
    if (status == DDP_OK && o->gzip)
        status = pack(path, data, &packed, err);
    if (status == DDP_OK && o->gzip)
        data = &packed;
    if (status == DDP_OK)
        status = ddp_file_replace(path, data->data, data->len, err);
    free(packed.data);
    return status == DDP_OK ? DDP_OK : files_wrap_option("--out", err);
}

static ddp_status no_memory(uint64_t n, const char *what, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %" PRIu64 " %s", n, what);
}

/* Reject a directory that has the file `name` of an earlier set, because train would read this file as a part of the
 * new set. */
static ddp_status check_leftover(const struct maker_order *o, const char *name, struct ddp_err *err)
{
    char path[PATH_MAX];
    ddp_status status = files_join(path, o->out, name, "", err);
    if (status == DDP_OK && access(path, F_OK) == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s: this file is from an earlier set, but 'train' would read it with the new set; "
                        "remove the files of the earlier set",
                        path);
    return status;
}

/* --- idx --------------------------------------------------------------------------------------------------- */

/* Allocate the contents of a file with `value_bytes` bytes of values, and write its header. The caller frees
 * file->data. Return false if memory is short. */
static bool begin_file(struct bytes *file, int dims, uint64_t n, size_t value_bytes)
{
    const uint32_t dim[IDX_MAX_DIMS] = { (uint32_t)n, PICTURE_SIDE, PICTURE_SIDE };
    file->len = idx_header_bytes(dims) + value_bytes;
    file->data = malloc(file->len);
    if (file->data != NULL)
        idx_make_header(file->data, dims, dim);
    return file->data != NULL;
}

/* Write the pictures and then the labels of one part. So if the labels exist, the pictures exist too. */
static ddp_status make_idx_part(const struct maker_order *o, enum dataset_part part, uint64_t n,
                                ddp_random *luck, struct ddp_err *err)
{
    struct bytes images = { 0 }, labels = { 0 };
    ddp_status status = DDP_OK;
    if (!begin_file(&images, 3, n, n * PICTURE_PIXELS) || !begin_file(&labels, 1, n, n)) {
        status = no_memory(n, "pictures", err);
    } else {
        glyph_fill(luck, n, images.data + idx_header_bytes(3), labels.data + idx_header_bytes(1));
        status = write_file(o, dataset_file_name(part, DATASET_IMAGES), &images, err);
    }
    if (status == DDP_OK)
        status = write_file(o, dataset_file_name(part, DATASET_LABELS), &labels, err);
    free(images.data);
    free(labels.data);
    return status;
}

/* Write the training set and the test set. The test set continues the random sequence of the training set, so it has
 * different pictures of the same kind. Fail if the directory has files that train would read instead: the files of
 * CIFAR-10 and, with --gzip, the plain files of an earlier set. */
static ddp_status make_idx(const struct maker_order *o, ddp_random *luck, struct ddp_err *err)
{
    char found[PATH_MAX];
    ddp_status status = DDP_OK;
    if (o->files > 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--files=%" PRIu64 ": only tokens can be divided into files; remove --files or use "
                        "--format tokens",
                        o->files);
    if (cifar_find(found, o->out))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "%s: 'train' would read the files of CIFAR-10 in this directory instead of the new set; use "
            "another --out directory",
            found);
    for (unsigned i = 0; i < 4 && status == DDP_OK && o->gzip; i++)
        status = check_leftover(o, dataset_file_name(i / 2, i % 2), err);
    if (status == DDP_OK)
        status = make_idx_part(o, DATASET_TRAIN, o->samples, luck, err);
    return status == DDP_OK ? make_idx_part(o, DATASET_TEST, o->test_samples, luck, err) : status;
}

/* --- tokens ------------------------------------------------------------------------------------------------ */

/* Return the number of tokens in file `i`, of `n` tokens in `files` files. */
static uint64_t records_of_file(uint64_t n, uint64_t files, uint64_t i)
{
    return n / files + (i < n % files);
}

static void token_file_name(char name[40], bool training, uint64_t number)
{
    snprintf(name, 40, "text_%s_%06" PRIu64 ".bin", training ? "train" : "val", number);
}

static ddp_status write_tokens(const struct maker_order *o, const char *name, const uint8_t *text, uint64_t n,
                               struct ddp_err *err)
{
    struct bytes file = { malloc(TOKENS_HEADER + 2 * n), TOKENS_HEADER + 2 * n };
    if (file.data == NULL)
        return no_memory(n, "tokens", err);
    tokens_make_header(file.data, (uint32_t)n);
    for (uint64_t i = 0; i < n; i++)
        write_le(file.data + TOKENS_HEADER + 2 * i, text[i], 2);
    ddp_status status = write_file(o, name, &file, err);
    free(file.data);
    return status;
}

/* Write the files for training if `training` is true, otherwise the one file for tests. Each letter of the text is
 * one token. The training files have nearly equal sizes. */
static ddp_status make_tokens_part(const struct maker_order *o, const struct speech *speech, bool training,
                                   ddp_random *luck, struct ddp_err *err)
{
    const uint64_t n = training ? o->samples : o->test_samples, files = training ? o->files : 1;
    ddp_status status = DDP_OK;
    uint8_t *text = malloc(n), *at = text;
    if (text == NULL)
        return no_memory(n, "tokens", err);
    speech_write(luck, speech, text, n);
    for (uint64_t i = 0; i < files && status == DDP_OK; i++) {
        char name[40];
        token_file_name(name, training, i);
        status = write_tokens(o, name, at, records_of_file(n, files, i), err);
        at += records_of_file(n, files, i);
    }
    free(text);
    return status;
}

static ddp_status make_tokens(const struct maker_order *o, ddp_random *luck, struct ddp_err *err)
{
    struct speech speech;
    char next[40];
    if (o->gzip)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--gzip: files of tokens cannot be compressed, because train reads single samples "
                        "from them; remove --gzip");
    if (o->samples < o->files)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--files=%" PRIu64 ": expected at most %" PRIu64 ", the number of tokens", o->files,
                        o->samples);
    token_file_name(next, true, o->files);
    ddp_status status = check_leftover(o, next, err);
    speech_invent(luck, &speech);
    if (status == DDP_OK)
        status = make_tokens_part(o, &speech, true, luck, err);
    return status == DDP_OK ? make_tokens_part(o, &speech, false, luck, err) : status;
}

/* --- the table --------------------------------------------------------------------------------------------- */

/* The default sizes. mlp and seqnet learn the task in two epochs of 75 steps with four workers. */
#define MAKER_LIST(X)                                   \
    X("idx", "samples", 30000, 2000, 1000000, make_idx) \
    X("tokens", "tokens", 1000000, 50000, 100000000, make_tokens)

const struct maker makers[] = {
#define X(...) { __VA_ARGS__ },
    MAKER_LIST(X)
#undef X
};

const char *const maker_names[] = {
#define X(name, ...) name,
    MAKER_LIST(X)
#undef X
        NULL
};
