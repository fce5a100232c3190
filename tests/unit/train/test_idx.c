/* Complete data files are read. All others are rejected with an error that names the file and the offset. */
#include "run.h"
#include "train/dataset.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char path[64];
static struct ddp_err err;
static const struct dataset_request pictures = { .input = MODEL_PICTURES };

static void make_dir(void)
{
    test_dir_open();
    snprintf(path, sizeof(path), "%s/file", test_dir);
}

TestSuite(idx, .init = make_dir, .fini = test_dir_close);
TestSuite(dataset, .init = make_dir, .fini = test_dir_close);

static void write_to(const char *where, const void *data, size_t len)
{
    FILE *f = fopen(where, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(data, 1, len, f), len);
    fclose(f);
}

static void pack_to(const char *where, const void *data, size_t len)
{
    gzFile f = gzopen(where, "wb");
    cr_assert_eq(gzwrite(f, data, (unsigned)len), (int)len);
    gzclose(f);
}

static size_t read_from(const char *where, uint8_t *to, size_t room)
{
    FILE *f = fopen(where, "rb");
    size_t len = fread(to, 1, room, f);
    fclose(f);
    return len;
}

/* Two images of 3 x 2 pixels. */
static const uint8_t small[] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3,  0,  0,
                                 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };

static void expect_small(void)
{
    struct idx idx;
    cr_assert_eq(idx_load(&idx, path, 3, &err), DDP_OK, "%s", err.msg);
    cr_expect(idx.dim[0] == 2 && idx.dim[1] == 3 && idx.dim[2] == 2);
    cr_expect_eq(memcmp(idx.values, small + 16, 12), 0);
    idx_free(&idx);
}

/* Expect a rejection with `code`. The message names the file and contains `says`. */
static void expect_refused(ddp_status code, const char *says)
{
    struct idx idx;
    cr_expect_eq(idx_load(&idx, path, 3, &err), code, "%s", err.msg);
    cr_expect(strncmp(err.msg, path, strlen(path)) == 0 && has_parts(err.msg, says), "'%s' lacks '%s'",
              err.msg, says);
}

Test(idx, a_plain_file_is_read)
{
    write_to(path, small, sizeof(small));
    expect_small();
}

Test(idx, a_packed_file_is_read)
{
    pack_to(path, small, sizeof(small));
    expect_small();
}

Test(idx, cut_at_every_byte_it_is_refused_where_it_ends)
{
    for (size_t cut = 0; cut < sizeof(small); cut++) {
        char says[64];
        write_to(path, small, cut);
        snprintf(says, sizeof(says), "offset %zu: the", cut);
        expect_refused(DDP_ERR_CORRUPT, says);
    }
}

/* The remedy is at the end of the error, and the path is shortened. */
Test(idx, a_damaged_file_with_a_long_path_has_a_remedy)
{
    struct idx idx;
    char longer[3000] = "";
    write_to(path, small, sizeof(small) - 1);
    snprintf(longer, sizeof(longer), "%s", test_dir);
    while (strlen(longer) < 2900)
        strcat(longer, "/.");
    strcat(longer, "/file");
    cr_expect_eq(idx_load(&idx, longer, 3, &err), DDP_ERR_CORRUPT);
    cr_expect(has_parts(err.msg, "...|offset |; copy "), "%s", err.msg);
}

Test(idx, one_byte_too_many_is_refused)
{
    uint8_t longer[sizeof(small) + 1] = { 0 };
    memcpy(longer, small, sizeof(small));
    write_to(path, longer, sizeof(longer));
    expect_refused(DDP_ERR_CORRUPT, "offset 28: according");
}

Test(idx, a_packed_file_cut_at_any_byte_is_refused)
{
    uint8_t packed[256];
    pack_to(path, small, sizeof(small));
    size_t len = read_from(path, packed, sizeof(packed));
    for (size_t cut = 0; cut < len; cut++) {
        write_to(path, packed, cut);
        expect_refused(DDP_ERR_CORRUPT, ": offset ");
    }
}

/* The reader ignores some bits: time, system, extra flags and text flag of the gzip header, and the padding before the
 * checksum. The reader rejects a change of any other bit. */
Test(idx, a_packed_file_with_any_bit_changed_is_refused_or_means_the_same)
{
    uint8_t packed[256];
    pack_to(path, small, sizeof(small));
    size_t len = read_from(path, packed, sizeof(packed));
    for (size_t i = 0; i < len * 8; i++) {
        struct idx idx;
        packed[i / 8] ^= (uint8_t)(1 << i % 8);
        write_to(path, packed, len);
        if (idx_load(&idx, path, 3, &err) == DDP_OK) {
            cr_expect_eq(memcmp(idx.file, small, sizeof(small)), 0, "bit %zu", i);
            idx_free(&idx);
        }
        packed[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

Test(idx, foreign_magic_is_refused_at_offset_0)
{
    for (int i = 0; i < 4; i++) {
        uint8_t foreign[sizeof(small)];
        memcpy(foreign, small, sizeof(small));
        foreign[i] ^= 1;
        write_to(path, foreign, sizeof(foreign));
        expect_refused(DDP_ERR_CORRUPT, "offset 0: magic |0x");
    }
    write_to(path, "<html>404 Not Found</html>", 26);
    expect_refused(DDP_ERR_CORRUPT, "offset 0: magic |0x3c68746d: |0x00000803");
}

Test(idx, sizes_that_lie_cost_no_memory_and_are_refused)
{
    uint8_t lie[sizeof(small)];
    memcpy(lie, small, sizeof(small));
    memset(lie + 4, 0xff, 12); /* 2^96 bytes */
    write_to(path, lie, sizeof(lie));
    expect_refused(DDP_ERR_LIMIT, "offset 4: dimension 1 |4294967295");
    memcpy(lie + 4, (uint8_t[]){ 0, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 1 }, 12); /* exactly the limit, 2^30 */
    write_to(path, lie, sizeof(lie));
    expect_refused(DDP_ERR_CORRUPT, "requires 1073741840 bytes");
    memset(lie + 8, 0, 4);
    write_to(path, lie, sizeof(lie));
    expect_refused(DDP_ERR_CORRUPT, "offset 8: dimension 2 |is 0");
}

Test(idx, a_directory_or_a_missing_file_is_an_io_error)
{
    struct idx idx;
    cr_expect_eq(idx_load(&idx, "/proc/nonexistent/x", 1, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "/proc/nonexistent/x: cannot open: No such file"), "%s", err.msg);
    cr_expect_neq(idx_load(&idx, test_dir, 1, &err), DDP_OK);
}

Test(idx, a_pipe_that_nobody_writes_to_is_refused_at_once)
{
    struct idx idx;
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(idx_load(&idx, path, 1, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "regular file"), "%s", err.msg);
}

/* --- data sets: three pictures and their labels ------------------------------------------------------ */

static uint8_t images[16 + 3 * PICTURE_PIXELS] = { 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28 };
static uint8_t labels[8 + 3] = { 0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4 };

static void put(enum dataset_kind kind, const void *data, size_t len, const char *ending)
{
    char where[128];
    snprintf(where, sizeof(where), "%s/%s%s", test_dir, dataset_file_name(DATASET_TRAIN, kind), ending);
    (ending[0] == '.' ? pack_to : write_to)(where, data, len);
}

static void expect_set_refused(const char *says)
{
    struct dataset set;
    cr_expect_neq(dataset_load(&set, test_dir, DATASET_TRAIN, &pictures, &err), DDP_OK);
    cr_expect(has_parts(err.msg, says), "'%s' lacks '%s'", err.msg, says);
}

Test(dataset, pictures_and_labels_belong_together)
{
    struct dataset set;
    float pixels[PICTURE_PIXELS];
    int32_t label;
    images[16 + 2 * PICTURE_PIXELS + 5] = 255;
    put(DATASET_IMAGES, images, sizeof(images), "");
    put(DATASET_LABELS, labels, sizeof(labels), ".gz");
    cr_assert_eq(dataset_load(&set, test_dir, DATASET_TRAIN, &pictures, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(set.n, 3);
    cr_expect(set.length == 1 && set.classes == CLASSES && dataset_row_bytes(&set) == sizeof(pixels));
    cr_expect(dataset_read(&set, 0, NULL, pixels, &label, &err) == DDP_OK && label == 9);
    cr_expect(dataset_read(&set, 2, NULL, pixels, &label, &err) == DDP_OK && label == 4);
    cr_expect(pixels[5] == 1.0f && pixels[6] == 0.0f);
    dataset_free(&set);
}

Test(dataset, a_missing_file_says_how_to_make_one)
{
    expect_set_refused("train-images-idx3-ubyte: neither");
    expect_set_refused("make-data --out");
    put(DATASET_IMAGES, images, sizeof(images), "");
    expect_set_refused("train-labels-idx1-ubyte: neither");
}

Test(dataset, a_label_above_nine_is_refused_at_its_offset)
{
    labels[9] = 10;
    put(DATASET_IMAGES, images, sizeof(images), "");
    put(DATASET_LABELS, labels, sizeof(labels), "");
    expect_set_refused("train-labels-idx1-ubyte: offset 9: label 10: ");
}

Test(dataset, other_numbers_of_labels_and_pictures_are_refused)
{
    labels[7] = 2;
    put(DATASET_IMAGES, images, sizeof(images), "");
    put(DATASET_LABELS, labels, sizeof(labels) - 1, "");
    expect_set_refused("offset 4: 2 labels|3 pictures");
}

Test(dataset, pictures_of_another_size_are_refused)
{
    images[11] = 14;
    images[15] = 56;
    put(DATASET_IMAGES, images, sizeof(images), "");
    expect_set_refused("offset 8: |14x56: |28x28");
}

Test(dataset, swapped_files_are_refused)
{
    put(DATASET_IMAGES, labels, sizeof(labels), "");
    put(DATASET_LABELS, images, sizeof(images), "");
    expect_set_refused("offset 0: magic |0x00000801: |0x00000803");
}
