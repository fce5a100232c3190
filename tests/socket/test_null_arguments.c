/* If a handle or the address of a result is NULL, a call must return an error with a text. The world size in these
 * tests is 1, and there is no store. */
#include "ddp/ddp.h"
#include "run.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_words(ddp_status status, const char *text, const char *words)
{
    cr_expect_eq(status, DDP_ERR_ARG, "%s: %s", words, ddp_status_name(status));
    cr_expect(has_parts(text, words), "'%s' is not in: %s", words, text);
}

/* Expect that `status` is DDP_ERR_ARG, and that `words` are in the last error of the thread. */
static void kept(ddp_status status, const char *words)
{
    expect_words(status, ddp_last_error(), words);
}

static struct ddp_err err;

/* Expect that `status` is DDP_ERR_ARG, and that `words` are both in `err` and in the last error of the thread. */
static void told(ddp_status status, const char *words)
{
    expect_words(status, err.msg, words);
    expect_words(status, ddp_last_error(), words);
    err = (struct ddp_err){ .code = DDP_OK };
}

static ddp_ctx *alone(void)
{
    static const char *const names[] = { "RANK",        "WORLD_SIZE",  "LOCAL_RANK",   "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR", "MASTER_PORT", "DDPRUN_STORE", "DDPRUN_DEBUG" };
    ddp_ctx *ctx = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
    cr_assert_eq(ddp_init_from_env(NULL, &ctx), DDP_OK, "%s", ddp_last_error());
    return ctx;
}

Test(null_arguments, a_program_that_overlooks_the_error_of_init_is_told_so)
{
    float x = 0;
    kept(ddp_init_from_env(NULL, NULL), "ddp_init_from_env: `out` is NULL");
    kept(ddp_all_reduce(ddp_world(NULL), &x, &x, 1, DDP_F32, DDP_SUM, NULL, NULL),
         "all_reduce: `group` is NULL");
    kept(ddp_barrier_named(NULL, "x", 0), "`ctx` is NULL");
    kept(ddp_progress(NULL, 1), "`ctx` is NULL");
    kept(ddp_grow_agree(NULL), "`ctx` is NULL");
    cr_expect_eq(ddp_rank(NULL), -1);
    cr_expect_eq(ddp_world_size(NULL), -1);
    cr_expect_null(ddp_context_store(NULL));
    cr_expect_eq(ddp_finalize(NULL), DDP_OK);
    ddp_abort(NULL, 1, "no reader");
}

Test(null_arguments, of_groups)
{
    float x = 0;
    void *block;
    ddp_group *none = NULL;
    kept(ddp_reduce(none, &x, &x, 1, DDP_F32, DDP_SUM, 0, NULL, NULL), "reduce: `group` is NULL");
    kept(ddp_broadcast(none, &x, 1, DDP_F32, 0, NULL, NULL), "broadcast: `group` is NULL");
    kept(ddp_all_gather(none, &x, &x, 1, DDP_F32, NULL, NULL), "all_gather: `group` is NULL");
    kept(ddp_gather(none, &x, &x, 1, DDP_F32, 0, NULL, NULL), "gather: `group` is NULL");
    kept(ddp_scatter(none, &x, &x, 1, DDP_F32, 0, NULL, NULL), "scatter: `group` is NULL");
    kept(ddp_reduce_scatter(none, &x, &x, 1, DDP_F32, DDP_SUM, NULL, NULL),
         "reduce_scatter: `group` is NULL");
    kept(ddp_barrier(none, 0), "ddp_barrier: `group` is NULL");
    kept(ddp_shared_alloc(none, 1, &block), "`group` is NULL");
    kept(ddp_shared_free(none, NULL), "`group` is NULL");
    kept(ddp_copy(none, &x, &x, 1, NULL), "`group` is NULL");
    kept(ddp_work_wait(NULL), "`work` is NULL");
    kept(ddp_work_sync(NULL, 0), "`work` is NULL");
}

Test(null_arguments, of_a_good_group)
{
    float x = 0;
    uint32_t nodes;
    ddp_ctx *ctx = alone();
    ddp_group *world = ddp_world(ctx);
    kept(ddp_shared_alloc(world, 1, NULL), "`out` is NULL");
    kept(ddp_copy(world, NULL, &x, sizeof(x), NULL), "`to` is NULL");
    kept(ddp_copy(world, &x, NULL, sizeof(x), NULL), "`from` is NULL");
    kept(ddp_grow_waiting(ctx, NULL), "`nodes` is NULL");
    kept(ddp_grow_waiting(NULL, &nodes), "`ctx` is NULL");
    kept(ddp_reducer_create(world, NULL, 1, NULL, NULL), "`out` is NULL");
    kept(ddp_zero1_create(world, NULL, 1, NULL, NULL), "`out` is NULL");
    kept(ddp_ckpts_resume(NULL, world, NULL, 0, NULL, NULL), "`point` is NULL");
    cr_expect_eq(ddp_copy(world, NULL, NULL, 0, NULL), DDP_OK);
    cr_expect_eq(ddp_finalize(ctx), DDP_OK);
}

Test(null_arguments, of_what_trains)
{
    ddp_ctx *ctx = alone();
    ddp_reducer *reducer = (ddp_reducer *)&err;
    ddp_zero1 *zero = (ddp_zero1 *)&err;
    kept(ddp_reducer_create(NULL, NULL, 0, NULL, &reducer), "`group` is NULL");
    kept(ddp_reducer_create(ddp_world(ctx), NULL, 1, NULL, &reducer), "parameters is NULL");
    cr_expect_null(reducer);
    kept(ddp_reducer_forward(NULL), "`reducer` is NULL");
    kept(ddp_reducer_ready(NULL, 0), "`reducer` is NULL");
    kept(ddp_reducer_unused(NULL, 0), "`reducer` is NULL");
    kept(ddp_reducer_finish(NULL), "`reducer` is NULL");
    kept(ddp_reducer_join(NULL), "`reducer` is NULL");
    kept(ddp_zero1_create(NULL, NULL, 0, NULL, &zero), "`group` is NULL");
    kept(ddp_zero1_create(ddp_world(ctx), NULL, 1, NULL, &zero), "no parameters");
    cr_expect_null(zero);
    kept(ddp_zero1_reduce(NULL), "`zero` is NULL");
    kept(ddp_zero1_unscale(NULL, NULL), "`zero` is NULL");
    kept(ddp_zero1_clip(NULL, 1, NULL), "`zero` is NULL");
    kept(ddp_zero1_step(NULL), "`zero` is NULL");
    kept(ddp_zero1_export(NULL, 0, NULL), "`zero` is NULL");
    kept(ddp_zero1_import(NULL, 0, NULL), "`zero` is NULL");
    kept(ddp_syncbn_forward(NULL, NULL, NULL, 0, NULL), "`bn` is NULL");
    kept(ddp_syncbn_backward(NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL), "`bn` is NULL");
    kept(ddp_syncbn_infer(NULL, NULL, 0, NULL), "`bn` is NULL");
    cr_expect_eq(ddp_finalize(ctx), DDP_OK);
}

Test(null_arguments, of_numbers_and_data)
{
    double state[DDP_SCALER_STATE] = { 0 };
    ddp_loader *loader;
    const ddp_batch *batch;
    ddp_scaler scaler = DDP_SCALER_INIT;
    told(ddp_optim_check(NULL, &err), "`optim` is NULL");
    told(ddp_scaler_unscaled(NULL, 0, &err), "`scaler` is NULL");
    told(ddp_scaler_step(&scaler, NULL, &err), "`go` is NULL");
    told(ddp_scaler_update(NULL, &err), "`scaler` is NULL");
    told(ddp_scaler_load(NULL, state, &err), "`scaler` is NULL");
    told(ddp_sampler_create(1, 1, 0, 0, 0, NULL, &err), "`out` is NULL");
    kept(ddp_loader_create(NULL, &loader), "`options` is NULL");
    kept(ddp_loader_start(NULL, 0, 0), "`loader` is NULL");
    kept(ddp_loader_next(NULL, &batch), "`loader` is NULL");
}

Test(null_arguments, of_checkpoints)
{
    int found;
    ddp_ckpt_point point = { 0 };
    ddp_ckpt_block block = { .name = NULL };
    told(ddp_ckpts_open(NULL, NULL, &err), "`out` is NULL");
    told(ddp_ckpts_save(NULL, &point, &block, 1, &err), "`ckpts` is NULL");
    told(ddp_ckpts_wait(NULL, &err), "`ckpts` is NULL");
    told(ddp_ckpts_load(NULL, &block, 1, &point, &found, &err), "`ckpts` is NULL");
    told(ddp_ckpt_save(NULL, &block, 1, &err), "`path` is NULL");
    told(ddp_ckpt_save("/nowhere/x", &block, 1, &err), "block 0 |no name");
    told(ddp_ckpt_load("/nowhere/x", NULL, 1, &err), "`blocks` is NULL");
    told(ddp_file_replace(NULL, "", 0, &err), "`path` is NULL");
}

Test(null_arguments, of_stores)
{
    int64_t n;
    void *value;
    size_t len;
    char address[64], *reply;
    told(ddp_store_connect("localhost", 1, NULL, NULL, &err), "`out` is NULL");
    told(ddp_store_set(NULL, "k", "", 0, &err), "`store` is NULL");
    told(ddp_store_get(NULL, "k", 0, &value, &len, &err), "`store` is NULL");
    told(ddp_store_add(NULL, "k", 1, NULL, &err), "`store` is NULL");
    told(ddp_store_compare_set(NULL, "k", "", 0, "", 0, NULL, NULL, &err), "`store` is NULL");
    told(ddp_store_wait(NULL, NULL, 0, 0, &err), "`store` is NULL");
    told(ddp_store_check(NULL, NULL, 0, NULL, &err), "`store` is NULL");
    told(ddp_store_delete(NULL, "k", NULL, &err), "`store` is NULL");
    told(ddp_store_num_keys(NULL, &n, &err), "`store` is NULL");
    told(ddp_store_barrier(NULL, "b", NULL, 0, 0, &err), "`store` is NULL");
    told(ddp_store_control(NULL, "{}", 0, &reply, &err), "`store` is NULL");
    told(ddp_store_local_address(NULL, address, sizeof(address), &err), "`store` is NULL");
}

Test(null_arguments, without_err_the_words_are_kept)
{
    ddp_sampler *sampler;
    ddp_scaler scaler = DDP_SCALER_INIT;
    const ddp_ckpt_block block = { "a", &scaler, sizeof(scaler) };
    kept(ddp_sampler_create(0, 1, 0, 0, 0, &sampler, NULL), "sampler: 0 samples");
    kept(ddp_scaler_step(&scaler, NULL, NULL), "ddp_scaler_step: `go` is NULL");
    kept(ddp_ckpt_save(NULL, &block, 1, NULL), "ddp_ckpt_save: `path` is NULL");
    kept(ddp_store_set(NULL, "a", "b", 1, NULL), "ddp_store_set: `store` is NULL");
    cr_expect_eq(ddp_ckpt_load("/nowhere/at/all", &block, 1, NULL), DDP_ERR_IO);
    cr_expect(strstr(ddp_last_error(), "/nowhere/at/all: cannot open") != NULL, "%s", ddp_last_error());
}
