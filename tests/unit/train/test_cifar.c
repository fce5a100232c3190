/* Tests of CIFAR-10's binary files, and of the augmentation of their images. The tests write small files in the
 * format of CIFAR-10, so that they need no download. */
#include "run.h"
#include "train/data/pictures.c"
#include "train/dataset.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static struct ddp_err err;
static uint8_t records[3 * CIFAR_RECORD + 1];
static const struct dataset_request pictures = { .input = MODEL_PICTURES };

/* Make the directory. Records 0, 1 and 2 have the labels 9, 0 and 4, and pixel i of record r is i + r. */
static void make_dir(void)
{
    const uint8_t labels[] = { 9, 0, 4 };
    test_dir_open();
    for (int i = 0; i < 3 * CIFAR_RECORD; i++)
        records[i] = (uint8_t)(i % CIFAR_RECORD == 0 ? labels[i / CIFAR_RECORD]
                                                     : i % CIFAR_RECORD - 1 + i / CIFAR_RECORD);
}

TestSuite(cifar, .init = make_dir, .fini = test_dir_close);

/* Write a file, packed if the name ends in .gz. */
static void put(const char *name, const uint8_t *data, size_t len)
{
    bool packed = strstr(name, ".gz") != NULL;
    gzFile f = gzopen(test_path(name), packed ? "wb" : "wbT");
    cr_assert_eq(gzwrite(f, data, (unsigned)len), (int)len);
    gzclose(f);
}

static void expect_refused(enum dataset_part part, const char *says)
{
    struct dataset set;
    cr_expect_neq(dataset_load(&set, test_dir, part, &pictures, &err), DDP_OK, "%s", says);
    cr_expect(strstr(err.msg, says), "'%s' lacks '%s'", err.msg, says);
}

static void load(struct dataset *set, enum dataset_part part)
{
    cr_assert_eq(dataset_load(set, test_dir, part, &pictures, &err), DDP_OK, "%s", err.msg);
}

static uint8_t label_of(const struct dataset *set, size_t i)
{
    return cifar_record(&set->cifar, i)[0];
}

Test(cifar, training_files_are_read_one_behind_the_other)
{
    struct dataset set;
    put("data_batch_1.bin", records, CIFAR_RECORD);
    put("data_batch_2.bin.gz", records, 3 * CIFAR_RECORD);
    put("data_batch_3.bin", records + CIFAR_RECORD, 2 * CIFAR_RECORD);
    load(&set, DATASET_TRAIN);
    cr_expect_str_eq(dataset_format_name(&set), "cifar10");
    cr_expect(set.n == 6 && set.channels == 3 && set.height == 32 && set.width == 32 && set.classes == 10);
    const uint8_t labels[] = { 9, 9, 0, 4, 0, 4 };
    for (size_t i = 0; i < 6; i++)
        cr_expect_eq(label_of(&set, i), labels[i]);
    dataset_free(&set);
}

Test(cifar, the_published_archive_may_be_unpacked_there)
{
    struct dataset set;
    mkdir(test_path("cifar-10-batches-bin"), 0700);
    put("cifar-10-batches-bin/test_batch.bin", records, 3 * CIFAR_RECORD);
    load(&set, DATASET_TEST);
    cr_expect_eq(set.n, 3);
    dataset_free(&set);
    expect_refused(DATASET_TRAIN, "cifar-10-batches-bin/data_batch_1.bin: neither");
}

Test(cifar, pixels_are_scaled_to_mean_0_and_deviation_1)
{
    static float pixels[CIFAR_PIXELS];
    struct dataset set;
    int32_t label;
    put("test_batch.bin", records, 3 * CIFAR_RECORD);
    load(&set, DATASET_TEST);
    cr_assert_eq(dataset_row_bytes(&set), sizeof(pixels));
    cr_assert_eq(dataset_read(&set, 2, NULL, pixels, &label, &err), DDP_OK);
    cr_expect_eq(label, 4);
    cr_expect_float_eq(pixels[0], (2 / 255.0 - 0.4914) / 0.2470, 1e-6);
    cr_expect_float_eq(pixels[1024 + 5], (7 / 255.0 - 0.4822) / 0.2435, 1e-6);
    cr_expect_float_eq(pixels[2048 + 250], (252 / 255.0 - 0.4465) / 0.2616, 1e-6);
    dataset_free(&set);
}

Test(cifar, a_label_above_nine_is_refused_at_its_offset)
{
    records[2 * CIFAR_RECORD] = 10;
    put("test_batch.bin", records, 3 * CIFAR_RECORD);
    expect_refused(DATASET_TEST, "/test_batch.bin: offset 6146: label 10: ");
    put("test_batch.bin", (const uint8_t *)"<html>404 Not Found</html>", 26);
    expect_refused(DATASET_TEST, "/test_batch.bin: offset 0: label 60");
}

Test(cifar, a_file_that_ends_inside_a_record_is_refused)
{
    const size_t cuts[] = { 1, CIFAR_RECORD - 1, CIFAR_RECORD + 1, 3 * CIFAR_RECORD - 1,
                            3 * CIFAR_RECORD + 1 };
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        char says[64];
        put("data_batch_1.bin", records, cuts[i]);
        snprintf(says, sizeof(says), "offset %zu: ", cuts[i]);
        expect_refused(DATASET_TRAIN, says);
    }
    put("data_batch_1.bin", records, 0);
    expect_refused(DATASET_TRAIN, "data_batch_1.bin: offset 0: ");
}

Test(cifar, a_cut_gzip_stream_is_refused)
{
    put("data_batch_1.bin.gz", records, 3 * CIFAR_RECORD);
    cr_assert_eq(truncate(test_path("data_batch_1.bin.gz"), 100), 0);
    expect_refused(DATASET_TRAIN, "gzip stream");
}

Test(cifar, a_gap_between_the_files_is_named)
{
    put("data_batch_1.bin", records, CIFAR_RECORD);
    put("data_batch_4.bin", records, CIFAR_RECORD);
    expect_refused(DATASET_TRAIN, "data_batch_4.bin: ");
    expect_refused(DATASET_TRAIN, "/data_batch_2.bin: neither");
}

/* --- augmentation ------------------------------------------------------------------------------------------ */

Test(augment, moves_and_mirrors_every_plane)
{
    enum { SIDE = 6 };
    uint8_t from[2 * SIDE * SIDE], to[2 * SIDE * SIDE];
    for (int i = 0; i < 2 * SIDE * SIDE; i++)
        from[i] = (uint8_t)(i + 1);
    const struct augment as[] = { { 0, 0, 0 }, { 2, -1, 0 }, { -4, 4, 1 }, { 1, 0, 1 } };
    for (int k = 0; k < 4; k++) {
        augment_apply(&as[k], from, to, 2, SIDE);
        for (int i = 0; i < 2 * SIDE * SIDE; i++) {
            int plane = i / (SIDE * SIDE), y = i / SIDE % SIDE + as[k].down, x = i % SIDE;
            x = (as[k].mirrored ? SIDE - 1 - x : x) + as[k].right;
            bool inside = x >= 0 && y >= 0 && x < SIDE && y < SIDE;
            cr_assert_eq(to[i], inside ? from[(plane * SIDE + y) * SIDE + x] : 0, "%d, pixel %d", k, i);
        }
    }
}

Test(augment, every_place_and_both_sides_come_up)
{
    int seen[9][9][2] = { 0 };
    for (uint64_t i = 0; i < 5000; i++) {
        ddp_philox luck;
        ddp_philox_seed(&luck, 1, 0, i);
        struct augment a = augment_draw(&luck);
        cr_assert(a.down >= -4 && a.down <= 4 && a.right >= -4 && a.right <= 4 && (a.mirrored | 1) == 1);
        seen[a.down + 4][a.right + 4][a.mirrored]++;
    }
    for (int i = 0; i < 162; i++)
        cr_expect_gt(seen[i / 18][i / 2 % 9][i % 2], 0);
}

Test(cifar, a_sample_with_luck_is_moved_and_without_it_is_not)
{
    static float plain[CIFAR_PIXELS], moved[CIFAR_PIXELS], again[CIFAR_PIXELS];
    struct dataset set;
    ddp_philox luck;
    int32_t label;
    put("data_batch_1.bin", records, CIFAR_RECORD);
    load(&set, DATASET_TRAIN);
    dataset_read(&set, 0, NULL, plain, &label, &err);
    ddp_philox_seed(&luck, 3, 1, 0);
    dataset_read(&set, 0, &luck, moved, &label, &err);
    ddp_philox_seed(&luck, 3, 1, 0);
    dataset_read(&set, 0, &luck, again, &label, &err);
    cr_expect_neq(memcmp(plain, moved, sizeof(plain)), 0);
    cr_expect_eq(memcmp(again, moved, sizeof(plain)), 0);
    dataset_free(&set);
}
