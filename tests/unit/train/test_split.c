/* Tests of how a batch is divided. The result must not depend on the number of workers. */
#include "run.h"
#include "train/gradient.h"
#include "train/models/models.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ddp_err err;

static struct split split_for(uint64_t samples, uint64_t batch, uint64_t global_batch, int world, int rank)
{
    struct split s;
    const struct split_request request = {
        .samples = samples, .batch = batch, .global_batch = global_batch, .accumulate = 1
    };
    cr_assert_eq(split_make(&s, &request, world, rank, &err), DDP_OK, "%s", err.msg);
    return s;
}

Test(split, shards_depend_on_the_batch_and_not_on_the_workers)
{
    for (int world = 1; world <= 4; world *= 2) {
        struct split s = split_for(6000, 0, 100, world, world - 1);
        cr_expect(s.shards == 4 && split_rows(&s, 0) == 25 && s.steps == 60);
        cr_expect(s.shards_here == 4 / world && s.first_shard == 4 - s.shards_here);
    }
    cr_expect_eq(split_for(6000, 0, 102, 2, 0).shards, 2);
    cr_expect_eq(split_for(6000, 0, 99, 1, 0).shards, 1);
}

Test(split, other_numbers_of_workers_get_one_shard_each)
{
    struct split three = split_for(6000, 100, 0, 3, 2), eight = split_for(6000, 100, 0, 8, 0);
    cr_expect(three.shards == 3 && three.shards_here == 1 && three.first_shard == 2 &&
              three.global_batch == 300);
    cr_expect(eight.shards == 8 && eight.shards_here == 1);
}

Test(split, a_batch_that_does_not_divide_is_refused_with_both_numbers)
{
    struct split s;
    struct split_request request = { .samples = 6000, .global_batch = 100, .accumulate = 1 };
    cr_expect_eq(split_make(&s, &request, 3, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--global_batch 100") && strstr(err.msg, "3 workers") &&
                  has_parts(err.msg, "of 3, |102"),
              "%s", err.msg);
    request.accumulate = 8;
    cr_expect_eq(split_make(&s, &request, 2, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "with --accumulate") && has_parts(err.msg, "of 16, |112"), "%s", err.msg);
}

Test(split, who_accumulates_goes_through_so_many_shards)
{
    struct split s;
    const struct split_request request = { .samples = 6000, .batch = 25, .accumulate = 3 };
    cr_assert_eq(split_make(&s, &request, 2, 1, &err), DDP_OK, "%s", err.msg);
    cr_expect(s.global_batch == 150 && s.shards == 6 && s.shards_here == 3 && s.first_shard == 3);
    cr_expect_eq(split_rows(&s, 0), 25);
}

Test(split, for_any_world_there_are_eight_shards_whoever_computes_them)
{
    struct split s;
    struct split_request request = {
        .samples = 6000, .global_batch = 96, .accumulate = 1, .any_world = true
    };
    for (int world = 1; world <= 8; world *= 2) {
        cr_assert_eq(split_make(&s, &request, world, world - 1, &err), DDP_OK, "%s", err.msg);
        cr_expect(s.shards == 8 && s.shards_here == 8 / world && s.first_shard == 8 - 8 / world);
    }
    request.accumulate = 2;
    cr_assert_eq(split_make(&s, &request, 4, 0, &err), DDP_OK, "%s", err.msg);
    cr_expect(s.shards == 16 && s.shards_here == 4 && split_rows(&s, 0) == 6);
    cr_expect_eq(split_make(&s, &request, 3, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "start 1, 2, 4 or 8"), "%s", err.msg);
    cr_expect_eq(split_make(&s, &request, 16, 0, &err), DDP_ERR_ARG);
    request.global_batch = 100;
    cr_expect_eq(split_make(&s, &request, 4, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "of 100 cannot") && strstr(err.msg, "of 112"), "%s", err.msg);
    request.global_batch = 1600; /* the loader has at most 1024 streams */
    request.accumulate = 200;
    cr_expect_eq(split_make(&s, &request, 2, 0, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(split_make(&s, &request, 1, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--accumulate 200") && strstr(err.msg, "most 128"), "%s", err.msg);
}

Test(split, the_last_step_takes_what_is_left)
{
    struct split s = split_for(250, 0, 100, 2, 0);
    cr_expect_eq(s.steps, 3);
    cr_expect(split_samples(&s, 1) == 100 && split_rows(&s, 1) == 25);
    cr_expect(split_samples(&s, 2) == 50 && split_rows(&s, 2) == 13); /* 4 x 13 rows, two of them padding */
}

Test(split, a_batch_larger_than_the_set_is_one_step_of_all)
{
    struct split s = split_for(10, 0, 1 << 30, 4, 0);
    cr_expect_eq(s.steps, 1);
    cr_expect(split_samples(&s, 0) == 10 && split_rows(&s, 0) == 3);
}

/* --- division of a data set -------------------------------------------------------------------------- */

enum { SAMPLES = 45, BATCH = 16, STEPS = 3 };

static struct dataset set;
static const struct batch_source_options options = { .seed = 3, .threads = 1 };
static uint8_t image_bytes[SAMPLES * PICTURE_PIXELS], label_bytes[SAMPLES];

static void write_file(const char *dir, enum dataset_kind kind, int dims, const uint8_t *values, size_t n)
{
    char path[128];
    uint8_t head[16];
    const uint32_t dim[] = { SAMPLES, PICTURE_SIDE, PICTURE_SIDE };
    snprintf(path, sizeof(path), "%s/%s", dir, dataset_file_name(DATASET_TRAIN, kind));
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    size_t len = idx_make_header(head, dims, dim);
    cr_assert(fwrite(head, 1, len, f) == len && fwrite(values, 1, n, f) == n);
    fclose(f);
}

/* Write the data set to files, then load the data set from these files. */
static void load_set(void)
{
    char dir[] = "/tmp/ddp-split-XXXXXX";
    const struct dataset_request request = { .input = MODEL_PICTURES };
    temp_dir_make(dir);
    write_file(dir, DATASET_IMAGES, 3, image_bytes, sizeof(image_bytes));
    write_file(dir, DATASET_LABELS, 1, label_bytes, sizeof(label_bytes));
    cr_assert_eq(dataset_load(&set, dir, DATASET_TRAIN, &request, &err), DDP_OK, "%s", err.msg);
    temp_dir_remove(dir);
}

static void free_set(void)
{
    dataset_free(&set);
}

static void make_set(void)
{
    srand(1);
    for (size_t i = 0; i < sizeof(image_bytes); i++)
        image_bytes[i] = (uint8_t)rand();
    for (int i = 0; i < SAMPLES; i++)
        label_bytes[i] = (uint8_t)(i % CLASSES);
    load_set();
}

/* Over all workers and shards of a step, the weights add up to the number of workers. Padding has the weight 0. */
Test(source, weights_make_a_mean_over_distinct_samples, .init = make_set, .fini = free_set)
{
    for (int world = 1; world <= 8; world++) {
        struct split split[8] = { 0 };
        struct batch_source source[8];
        uint64_t batch = (uint64_t)(world * 2);
        for (int r = 0; r < world; r++) {
            split[r] = split_for(SAMPLES, 0, batch, world, r);
            cr_assert_eq(batch_source_init(&source[r], &set, &split[r], &options, &err), DDP_OK);
            cr_assert_eq(batch_source_start_epoch(&source[r], 1, 0, &err), DDP_OK);
        }
        for (uint64_t step = 0; step < split[0].steps; step++) {
            double weights = 0;
            uint64_t real = 0;
            for (int r = 0; r < world; r++) {
                for (int shard = 0; shard < split[r].shards_here; shard++) {
                    struct model_batch rows;
                    cr_assert_eq(batch_source_next(&source[r], step, &rows, &err), DDP_OK);
                    cr_expect_eq(rows.rows, split_rows(&split[r], step));
                    for (size_t i = 0; i < rows.rows; i++) {
                        weights += rows.weight[i];
                        real += rows.weight[i] != 0;
                    }
                }
            }
            cr_expect_float_eq(weights, world, 1e-5);
            cr_expect_eq(real, split_samples(&split[0], step));
        }
        for (int r = 0; r < world; r++)
            batch_source_free(&source[r]);
    }
}

enum { PARAMS = 199210, TENSORS = 6 }; /* numbers of parameters and tensors in the mlp */

static ddp_status told_whole(void *user, size_t parameter, struct ddp_err *e)
{
    (void)parameter, (void)e;
    *(size_t *)user += 1;
    return DDP_OK;
}

/* Compute the gradients of one worker of `world` for all steps of an epoch, with fixed parameters. */
static double gradients_of(int world, int rank, float *out)
{
    struct split split = split_for(SAMPLES, 0, BATCH, world, rank);
    struct batch_source source;
    struct model *model;
    struct gradient gradient;
    double loss = 0;
    cr_assert_eq(batch_source_init(&source, &set, &split, &options, &err), DDP_OK);
    const struct model_spec spec = { .rows = split_rows(&split, 0),
                                     .channels = 1,
                                     .height = PICTURE_SIDE,
                                     .width = PICTURE_SIDE,
                                     .classes = CLASSES,
                                     .seed = 1 };
    cr_assert_eq(model_create(&models[0], &spec, &model, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(model->params.count, PARAMS);
    cr_assert(gradient_init(&gradient, model, &source));
    cr_assert_eq(batch_source_start_epoch(&source, 0, 0, &err), DDP_OK);
    cr_assert_eq(split.steps, STEPS);
    for (uint64_t step = 0; step < STEPS; step++) {
        float *views[TENSORS];
        double of_step;
        size_t told = 0;
        const struct gradient_watch watch = { .whole = told_whole, .user = &told };
        model_views(&model->params, out + step * PARAMS, views);
        cr_assert_eq(gradient_compute(&gradient, step, views, &watch, &of_step, &err), DDP_OK);
        cr_expect_eq(told, TENSORS);
        loss += of_step;
    }
    gradient_free(&gradient);
    model_free(model);
    batch_source_free(&source);
    return loss;
}

/* Compute ((r0+r1)+(r2+r3)) / world, as the reducer does. */
static void average(float (*rank)[STEPS * PARAMS], int world)
{
    for (int i = 0; i < STEPS * PARAMS; i++) {
        for (int stride = 1; stride < world; stride *= 2) {
            for (int r = 0; r < world; r += 2 * stride)
                rank[r][i] += rank[r + stride][i];
        }
        rank[0][i] /= (float)world;
    }
}

/* The test includes partial batches and padding (45 samples, batch 16). */
Test(gradient, one_two_and_four_workers_compute_the_same_bits, .init = make_set, .fini = free_set)
{
    static float one[STEPS * PARAMS];
    float(*many)[STEPS * PARAMS] = malloc(4 * sizeof(*many));
    double loss = gradients_of(1, 0, one);
    for (int world = 2; world <= 4; world *= 2) {
        double losses = 0;
        for (int rank = 0; rank < world; rank++)
            losses += gradients_of(world, rank, many[rank]);
        average(many, world);
        cr_expect_eq(memcmp(many[0], one, sizeof(one)), 0, "%d workers", world);
        cr_expect_float_eq(losses, loss, 1e-9);
    }
    free(many);
}
