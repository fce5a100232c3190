/* Tests of the loader. The batches must be the same for any number of threads, and errors must reach the caller. A run
 * may stop in the middle of an epoch. */
#include "ddp/context.h"
#include "ddp/loader.h"
#include "ddp/sampler.h"
#include "ranks.h"
#include "run.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(loader, .timeout = 60);

enum { SAMPLES = 103, BATCH = 8, NEVER = 1 << 30 };

/* The state that all threads share. This state selects samples that fail or wait, and counts the calls of fill(). */
static struct world {
    uint64_t bad;   /* index of a sample that cannot be read, or NEVER */
    uint64_t stuck; /* index of a sample for which fill() waits for `release`, or NEVER */
    atomic_bool reached, release;
    atomic_int filled;
} world;

/* The first array of a batch has these random words of each sample. The second array has the index of each sample. */
struct words {
    uint32_t word[4];
};

static ddp_status fill(void *user, ddp_loader_row *row, struct ddp_err *err)
{
    struct world *w = user;
    struct words *words = row->to[0];
    atomic_fetch_add(&w->filled, 1);
    if (row->index == w->bad)
        return ddp_fail(err, DDP_ERR_CORRUPT, "file x: offset %d: it is damaged", 17);
    if (row->index == w->stuck) {
        atomic_store(&w->reached, true);
        while (!atomic_load(&w->release))
            sched_yield();
    }
    for (int i = 0; i < 4; i++)
        words->word[i] = ddp_philox_next(&row->luck);
    memcpy(row->to[1], &row->index, sizeof(row->index));
    return DDP_OK;
}

static void reset(void)
{
    world.bad = world.stuck = NEVER;
    atomic_store(&world.reached, false);
    atomic_store(&world.release, false);
    atomic_store(&world.filled, 0);
}

static ddp_loader_options options(int threads)
{
    ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
    reset();
    o.samples = SAMPLES;
    o.batch = BATCH;
    o.seed = 11;
    o.sampler_flags = DDP_SAMPLER_SHUFFLE;
    o.arrays = 2;
    o.row_bytes[0] = sizeof(struct words);
    o.row_bytes[1] = sizeof(uint64_t);
    o.fill = fill;
    o.user = &world;
    o.threads = threads;
    return o;
}

static ddp_loader *open_loader(const ddp_loader_options *o)
{
    ddp_loader *loader;
    cr_assert_eq(ddp_loader_create(o, &loader), DDP_OK, "%s", ddp_last_error());
    return loader;
}

static const ddp_batch *next(ddp_loader *loader)
{
    const ddp_batch *batch;
    cr_assert_eq(ddp_loader_next(loader, &batch), DDP_OK, "%s", ddp_last_error());
    return batch;
}

/* Return a digest of all batches that an epoch returns, beginning with sample `done`. The digest is FNV-1a over the
 * numbers, streams, rows and contents of the batches. */
static uint64_t digest(ddp_loader *loader, uint64_t epoch, uint64_t done)
{
    uint64_t hash = 14695981039346656037u, batches = 0;
    cr_assert_eq(ddp_loader_start(loader, epoch, done), DDP_OK, "%s", ddp_last_error());
    for (const ddp_batch *b; (b = next(loader)) != NULL; batches++) {
        cr_assert_eq(b->number, batches);
        for (size_t row = 0; row < b->rows; row++) {
            const struct words *words = (const struct words *)b->array[0] + row;
            cr_assert_eq(((const uint64_t *)b->array[1])[row], b->index[row]);
            const uint64_t all[] = { (uint64_t)b->stream, b->rows,        b->index[row],  b->is_pad[row],
                                     words->word[0],      words->word[1], words->word[2], words->word[3] };
            for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                hash = (hash ^ all[i]) * 1099511628211u;
        }
    }
    cr_assert_eq(batches, ddp_loader_batches(loader));
    cr_assert_null(next(loader), "the end is the end");
    return hash;
}

Test(loader, batches_are_the_same_for_any_number_of_threads)
{
    uint64_t expected[3] = { 0 };
    const struct {
        int threads, streams;
        size_t ahead, held;
    } rows[] = { { 0, 3, 0, 0 }, { 1, 3, 1, 1 }, { 2, 3, 1, 2 },
                 { 4, 3, 9, 1 }, { 9, 3, 0, 5 }, { 0, 3, 5, 3 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ddp_loader_options o = options(rows[i].threads);
        o.world_size = 4;
        o.rank = 1;
        o.streams = rows[i].streams;
        o.ahead = rows[i].ahead;
        o.held = rows[i].held;
        ddp_loader *loader = open_loader(&o);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t got = digest(loader, epoch, 0);
            if (i == 0)
                expected[epoch] = got;
            cr_expect_eq(got, expected[epoch], "row %zu, epoch %d", i, (int)epoch);
        }
        cr_expect_neq(expected[0], expected[1]);
        cr_expect_eq(ddp_loader_free(loader), DDP_OK);
    }
}

Test(loader, order_and_padding_are_the_samplers)
{
    ddp_loader_options o = options(3);
    ddp_sampler *sampler;
    uint64_t index;
    int is_pad, pads = 0;
    o.world_size = 10;
    o.rank = 7;
    ddp_loader *loader = open_loader(&o);
    cr_assert_eq(ddp_sampler_create(SAMPLES, 10, 7, 11, DDP_SAMPLER_SHUFFLE, &sampler, NULL), DDP_OK);
    ddp_sampler_set_epoch(sampler, 5);
    cr_assert_eq(ddp_loader_start(loader, 5, 0), DDP_OK);
    for (const ddp_batch *b; (b = next(loader)) != NULL;) {
        for (size_t row = 0; row < b->rows; row++) {
            cr_assert(ddp_sampler_next(sampler, &index, &is_pad));
            cr_assert_eq(b->index[row], index);
            cr_assert_eq(b->is_pad[row], is_pad);
            pads += is_pad;
        }
    }
    cr_expect_not(ddp_sampler_next(sampler, &index, &is_pad));
    cr_expect_eq(pads, 1, "110 places, 103 samples: the last 7 ranks have one each");
    ddp_sampler_free(sampler);
    ddp_loader_free(loader);
}

/* The random numbers of a sample depend on the sample, not on its place. Other ranks, batches and threads must give
 * the same numbers. */
Test(loader, a_samples_luck_depends_on_seed_epoch_and_sample_alone)
{
    struct words alone[SAMPLES];
    ddp_loader_options o = options(0);
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 2, 0);
    for (const ddp_batch *b; (b = next(loader)) != NULL;) {
        for (size_t row = 0; row < b->rows; row++)
            alone[b->index[row]] = ((struct words *)b->array[0])[row];
    }
    ddp_loader_free(loader);
    for (int rank = 0; rank < 3; rank++) {
        o = options(2);
        o.world_size = 3;
        o.rank = rank;
        o.batch = 5;
        loader = open_loader(&o);
        ddp_loader_start(loader, 2, 0);
        for (const ddp_batch *b; (b = next(loader)) != NULL;) {
            for (size_t row = 0; row < b->rows; row++)
                cr_expect_eq(
                    memcmp((struct words *)b->array[0] + row, &alone[b->index[row]], sizeof(alone[0])), 0);
        }
        ddp_loader_free(loader);
    }
}

Test(loader, the_rest_of_an_epoch_is_what_was_left_of_it)
{
    ddp_loader_options o = options(2);
    uint64_t rest[SAMPLES];
    size_t n = 0, at = 0;
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 1, 0);
    for (const ddp_batch *b; (b = next(loader)) != NULL;) {
        for (size_t row = 0; row < b->rows && b->number >= 5; row++)
            rest[n++] = b->index[row];
    }
    ddp_loader_start(loader, 1, (uint64_t)5 * BATCH);
    cr_expect_eq(ddp_loader_batches(loader), 13 - 5);
    for (const ddp_batch *b; (b = next(loader)) != NULL;) {
        for (size_t row = 0; row < b->rows; row++, at++)
            cr_expect_eq(b->index[row], rest[at]);
    }
    cr_expect_eq(at, n);
    ddp_loader_start(loader, 1, SAMPLES);
    cr_expect_null(next(loader), "nothing is left");
    ddp_loader_free(loader);
}

/* Without padding, one stream may have one sample more than another stream. The shorter streams end with an empty
 * batch. */
Test(loader, streams_without_padding_give_each_sample_once)
{
    int seen[17] = { 0 }, empty = 0;
    ddp_loader_options o = options(2);
    o.samples = 17;
    o.world_size = o.streams = 4;
    o.batch = 4;
    o.sampler_flags = DDP_SAMPLER_NO_PAD;
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 0, 0);
    for (const ddp_batch *b; (b = next(loader)) != NULL;) {
        cr_expect_eq(b->stream, (int)(b->number % 4));
        empty += b->rows == 0;
        for (size_t row = 0; row < b->rows; row++)
            seen[b->index[row]]++;
    }
    cr_expect_eq(empty, 3);
    for (int i = 0; i < 17; i++)
        cr_expect_eq(seen[i], 1);
    ddp_loader_free(loader);
}

Test(loader, batches_that_are_held_stay_as_they_are)
{
    enum { HELD = 3 };
    const ddp_batch *last[HELD];
    uint64_t first[HELD];
    ddp_loader_options o = options(2);
    o.held = HELD;
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 0, 0);
    for (uint64_t k = 0; k < 12; k++) {
        last[k % HELD] = next(loader);
        first[k % HELD] = last[k % HELD]->index[0];
        for (uint64_t i = 0; i < HELD && i <= k; i++) {
            const ddp_batch *b = last[(k - i) % HELD];
            cr_assert_eq(b->number, k - i);
            cr_assert_eq(((const uint64_t *)b->array[1])[0], first[(k - i) % HELD]);
        }
        for (int a = 0; a < 2; a++)
            cr_assert_eq((uintptr_t)last[k % HELD]->array[a] % 256, 0);
    }
    ddp_loader_free(loader);
}

static size_t given_bytes;

static void *give(void *user, size_t bytes)
{
    given_bytes = bytes;
    (void)user;
    return aligned_alloc(256, bytes);
}

static void take_back(void *user, void *memory, size_t bytes)
{
    (void)user;
    cr_assert_eq(bytes, given_bytes);
    given_bytes = 0;
    free(memory);
}

static void *give_none(void *user, size_t bytes)
{
    (void)user;
    (void)bytes;
    return NULL;
}

Test(loader, memory_may_be_the_programs)
{
    ddp_loader_options o = options(1);
    o.alloc = give;
    o.release = take_back;
    ddp_loader *loader = open_loader(&o);
    cr_expect_geq(given_bytes, 3 * BATCH * (sizeof(struct words) + sizeof(uint64_t)));
    digest(loader, 0, 0);
    ddp_loader_free(loader);
    cr_expect_eq(given_bytes, 0);
    o.alloc = give_none;
    cr_expect_eq(ddp_loader_create(&o, &loader), DDP_ERR_NOMEM);
    cr_expect_null(loader);
}

/* Threads may have read far ahead. For any number of threads, the batches before the error and the text of the error
 * must be the same. */
Test(loader, an_error_is_told_when_its_batch_is_asked_for)
{
    for (int threads = 0; threads <= 4; threads += 2) {
        const ddp_batch *batch;
        ddp_status status;
        int batches = 0;
        ddp_loader_options o = options(threads);
        o.sampler_flags = 0;
        world.bad = 43;
        ddp_loader *loader = open_loader(&o);
        cr_assert_eq(ddp_loader_start(loader, 0, 0), DDP_OK);
        const uint64_t planned = ddp_loader_batches(loader);
        while ((status = ddp_loader_next(loader, &batch)) == DDP_OK && batch != NULL)
            batches++;
        cr_expect_eq(batches, 43 / BATCH, "%d batches with %d threads", batches, threads);
        for (int i = 0; i < 2; i++) {
            cr_expect_eq(status, DDP_ERR_CORRUPT);
            cr_expect_null(batch);
            cr_expect_str_eq(ddp_last_error(), "loader: sample 43: file x: offset 17: it is damaged");
            status = ddp_loader_next(loader, &batch);
        }
        cr_expect_eq(ddp_loader_batches(loader), planned, "an error does not shorten the epoch");
        world.bad = NEVER;
        uint64_t whole = digest(loader, 0, 0);
        cr_expect_eq(whole, digest(loader, 0, 0));
        cr_expect_eq(ddp_loader_free(loader), DDP_OK);
    }
}

static void expect_refused(const ddp_loader_options *o, const char *says)
{
    ddp_loader *loader;
    cr_expect_eq(ddp_loader_create(o, &loader), DDP_ERR_ARG, "%s", says);
    cr_expect_null(loader);
    cr_expect(has_parts(ddp_last_error(), says), "'%s' lacks '%s'", ddp_last_error(), says);
}

Test(loader, options_that_make_no_sense_are_refused)
{
    ddp_loader_options o = options(0);
    o.size = 8;
    expect_refused(&o, "DDP_LOADER_OPTIONS_INIT");
    o = options(0);
    o.fill = NULL;
    expect_refused(&o, "`fill` is NULL");
    o = options(0);
    o.alloc = give;
    expect_refused(&o, "or neither");
    o = options(-1);
    expect_refused(&o, "threads=-1: ");
    o = options(0);
    o.batch = 0;
    expect_refused(&o, "batch=0: ");
    o = options(0);
    o.arrays = 5;
    expect_refused(&o, "arrays=5: ");
    o = options(0);
    o.row_bytes[1] = SIZE_MAX / 16;
    expect_refused(&o, "array 1 |8 rows");
    o = options(0);
    o.row_bytes[0] = 0;
    expect_refused(&o, "array 0 |0 bytes");
    o = options(0);
    o.world_size = 4;
    o.rank = 2;
    o.streams = 3;
    expect_refused(&o, "rank 4|size 4: ");
    o = options(0);
    o.samples = 0;
    expect_refused(&o, "0 samples");
}

Test(loader, start_comes_first)
{
    const ddp_batch *batch;
    ddp_loader_options o = options(1);
    ddp_loader *loader = open_loader(&o);
    cr_expect_eq(ddp_loader_next(loader, &batch), DDP_ERR_ARG);
    cr_expect(strstr(ddp_last_error(), "call ddp_loader_start"));
    digest(loader, 0, 0);
    ddp_loader_free(loader);
    cr_expect_eq(ddp_loader_free(NULL), DDP_OK);
}

Test(loader, ends_or_begins_anew_wherever_it_is)
{
    ddp_loader_options o = options(4);
    ddp_loader *loader = open_loader(&o);
    uint64_t whole = digest(loader, 3, 0);
    for (int stop = 0; stop < 13; stop++) {
        ddp_loader_start(loader, (uint64_t)stop, 0);
        for (int i = 0; i < stop; i++)
            next(loader);
        cr_expect_eq(digest(loader, 3, 0), whole);
        ddp_loader_start(loader, 0, 0);
        for (int i = 0; i < stop; i++)
            next(loader);
        cr_expect_eq(ddp_loader_free(loader), DDP_OK);
        loader = open_loader(&o);
    }
    ddp_loader_free(loader);
}

/* Wait until a thread has called fill() for the sample `stuck`, where fill() waits for `release`. */
static void await_stuck(void)
{
    for (struct patience p = { 0 }; !atomic_load(&world.reached) && patience_left(&p);)
        continue;
    cr_assert(atomic_load(&world.reached));
}

/* ddp_loader_free waits only for the sample that the thread is reading; the thread then drops the rest of the batch. If
 * the sample takes too long, ddp_loader_free returns DDP_ERR_TIMEOUT and frees nothing. A call of ddp_loader_next must
 * then fail, too, and not return the incomplete batch. */
Test(loader, the_rest_of_a_batch_is_not_read_when_nobody_wants_it)
{
    const ddp_batch *batch;
    ddp_loader_options o = options(1);
    o.batch = SAMPLES;
    o.sampler_flags = 0;
    o.timeout_ms = 20;
    world.stuck = 3;
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 0, 0);
    await_stuck();
    cr_expect_eq(ddp_loader_free(loader), DDP_ERR_TIMEOUT);
    cr_expect_not_null(strstr(ddp_last_error(), "; "), "no remedy: %s", ddp_last_error());
    atomic_store(&world.release, true);
    cr_expect_eq(ddp_loader_next(loader, &batch), DDP_ERR_TIMEOUT);
    cr_expect_null(batch);
    while (ddp_loader_free(loader) == DDP_ERR_TIMEOUT) /* a busy machine may need several calls */
        continue;
    cr_expect_eq(atomic_load(&world.filled), 4);
}

/* A missing sample is named, and no call waits forever: neither next nor start nor free. */
Test(loader, a_sample_that_does_not_come_is_named)
{
    const ddp_batch *batch;
    ddp_loader_options o = options(2);
    o.sampler_flags = 0;
    o.timeout_ms = 20;
    world.stuck = 5;
    ddp_loader *loader = open_loader(&o);
    ddp_loader_start(loader, 0, 0);
    await_stuck();
    cr_expect_eq(ddp_loader_next(loader, &batch), DDP_ERR_TIMEOUT);
    cr_expect(has_parts(ddp_last_error(), "sample 5 |batch 0 "), "%s", ddp_last_error());
    cr_expect_eq(ddp_loader_start(loader, 1, 0), DDP_ERR_TIMEOUT);
    cr_expect_eq(ddp_loader_next(loader, &batch), DDP_ERR_TIMEOUT);
    cr_expect_eq(ddp_loader_free(loader), DDP_ERR_TIMEOUT);
    atomic_store(&world.release, true);
    while (ddp_loader_free(loader) == DDP_ERR_TIMEOUT)
        continue;
}

/* A run stops in the middle of an epoch, and continues with another number of ranks. Each sample must still occur once,
 * and the final state must be the same. The "model" sums exact numbers over the samples, so its state does not depend
 * on which rank has which sample. */

enum {
    RESUME_SAMPLES = 60,
    EPOCHS = 2,
    RESUME_BATCH = 12
}; /* an epoch has 5 steps; 1, 2, 3 or 4 ranks can divide a batch of 12 evenly */

TestSuite(ckpts_resume, .init = test_dir_open, .fini = test_dir_close);

/* Everything that a step changes. `sums` depends on which samples were in which step. */
struct model {
    double sums[EPOCHS * RESUME_SAMPLES / RESUME_BATCH];
    int64_t seen[RESUME_SAMPLES];
};

struct run {
    struct rank *me;
    ddp_ctx *ctx;
    ddp_ckpts *ckpts; /* open only on rank 0; NULL on the other ranks */
    ddp_sampler *sampler;
    struct model model;
    ddp_ckpt_point point;
};

static void start(struct run *run, struct rank *me)
{
    struct ddp_err err;
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    int found;
    options.dir = test_dir;
    memset(run, 0, sizeof(*run));
    run->me = me;
    run->ctx = rank_init(me, NULL);
    if (me->rank == 0)
        rank_expect(me, ddp_ckpts_open(&options, &run->ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect(me,
                ddp_sampler_create(RESUME_SAMPLES, me->world, me->rank, 3, DDP_SAMPLER_SHUFFLE, &run->sampler,
                                   &err) == DDP_OK,
                "%s", err.msg);
    const ddp_ckpt_block blocks[2] = { { "sums", run->model.sums, sizeof(run->model.sums) },
                                       { "seen", run->model.seen, sizeof(run->model.seen) } };
    rank_expect_ok(me, ddp_ckpts_resume(run->ckpts, ddp_world(run->ctx), blocks, 2, &run->point, &found));
    ddp_sampler_resume(run->sampler, run->point.epoch, run->point.samples);
}

static void train_step(struct run *run)
{
    struct model part = { .sums = { 0 } };
    uint64_t index;
    for (int i = 0; i < RESUME_BATCH / run->me->world; i++) {
        rank_expect(run->me, ddp_sampler_next(run->sampler, &index, NULL), "no sample is left");
        part.sums[run->point.step] += (double)(index * index);
        part.seen[index]++;
    }
    rank_expect_ok(run->me,
                   ddp_all_reduce(ddp_world(run->ctx), part.sums, part.sums,
                                  EPOCHS * RESUME_SAMPLES / RESUME_BATCH, DDP_F64, DDP_SUM, NULL, NULL));
    rank_expect_ok(run->me, ddp_all_reduce(ddp_world(run->ctx), part.seen, part.seen, RESUME_SAMPLES, DDP_I64,
                                           DDP_SUM, NULL, NULL));
    for (int i = 0; i < EPOCHS * RESUME_SAMPLES / RESUME_BATCH; i++)
        run->model.sums[i] += part.sums[i];
    for (int i = 0; i < RESUME_SAMPLES; i++)
        run->model.seen[i] += part.seen[i];
    run->point.step++;
    run->point.samples += RESUME_BATCH;
    if (run->point.samples == RESUME_SAMPLES) {
        run->point.samples = 0;
        ddp_sampler_set_epoch(run->sampler, ++run->point.epoch);
    }
}

static void save(struct run *run)
{
    struct ddp_err err;
    const ddp_ckpt_block blocks[2] = { { "sums", run->model.sums, sizeof(run->model.sums) },
                                       { "seen", run->model.seen, sizeof(run->model.seen) } };
    if (run->ckpts == NULL)
        return;
    run->point.world_size = (uint64_t)run->me->world;
    rank_expect(run->me, ddp_ckpts_save(run->ckpts, &run->point, blocks, 2, &err) == DDP_OK, "%s", err.msg);
}

/* Resume from the newest checkpoint, and make steps up to the limit in me->user. With the limit 10 the run is complete,
 * so every sample must have occurred once per epoch. */
static void some_steps(struct rank *me)
{
    struct run run;
    struct ddp_err err;
    uint64_t limit = *(const uint64_t *)me->user;
    start(&run, me);
    while (run.point.step < limit) {
        train_step(&run);
        save(&run);
    }
    for (size_t i = 0; i < sizeof(run.model); i++)
        me->value = me->value * 31 + ((const unsigned char *)&run.model)[i];
    for (int i = 0; i < RESUME_SAMPLES && limit == 10; i++)
        rank_expect(me, run.model.seen[i] == EPOCHS, "sample %d came %d times", i, (int)run.model.seen[i]);
    ddp_sampler_free(run.sampler);
    rank_expect(me, ddp_ckpts_close(run.ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect_ok(me, ddp_finalize(run.ctx));
}

static uint64_t run_until(int n_ranks, uint64_t step)
{
    struct ranks ranks = ranks_run(n_ranks, some_steps, RANKS_PLAIN_STORE, &step);
    ranks_expect_ok(&ranks);
    uint64_t value = ranks.rank[0].value;
    for (int r = 1; r < n_ranks; r++)
        cr_expect_eq(ranks.rank[r].value, value, "rank %d has another model", r);
    ranks_free(&ranks);
    return value;
}

Test(ckpts_resume, other_worlds_go_on_in_the_middle_of_an_epoch_with_the_same_bits)
{
    char command[64];
    uint64_t straight = run_until(2, 10);
    snprintf(command, sizeof(command), "rm -rf %s/step-*", test_dir);
    cr_assert_eq(system(command), 0);
    run_until(1, 3);
    run_until(3, 4);
    run_until(2, 7);
    cr_expect_eq(run_until(4, 10), straight);
}

static void refused(struct rank *me)
{
    char small[8];
    struct ddp_err err;
    ddp_ckpts *ckpts = NULL;
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    ddp_ckpt_point point;
    int found;
    const ddp_ckpt_block blocks[2] = { { "sums", small, sizeof(small) }, { "seen", small, sizeof(small) } };
    ddp_ctx *ctx = rank_init(me, NULL);
    options.dir = test_dir;
    if (me->rank == 0)
        rank_expect(me, ddp_ckpts_open(&options, &ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_keep(me, ddp_ckpts_resume(ckpts, ddp_world(ctx), blocks, 2, &point, &found));
    rank_expect(me, !found && ddp_ckpts_close(ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(ckpts_resume, what_rank_0_cannot_load_is_an_error_on_all)
{
    static const char *const parts[] = { "step-00000001/tensors.bin", "'sums' has 80 bytes", NULL };
    run_until(1, 1);
    struct ranks ranks = ranks_run(3, refused, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&ranks, r, DDP_ERR_MISMATCH, parts);
    ranks_free(&ranks);
}
