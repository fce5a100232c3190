/* Tests of a step of the reducer as a trace, which lists the calls of the program and the buckets that are launched.
 * The trace is the same on every machine, because the module starts no thread. */
#include "reducer/step.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS = 5 };

/* The buckets are launched in the order [3 4] [1 2] [0]. */
static const ddp_param params[PARAMS] = {
    { .name = "embed", .count = 100, .dtype = DDP_F32 },
    { .name = "fc1.weight", .count = 60, .dtype = DDP_F32 },
    { .name = "fc1.bias", .count = 40, .dtype = DDP_F32 },
    { .name = "fc2.weight", .count = 60, .dtype = DDP_F32 },
    { .name = "fc2.bias", .count = 4, .dtype = DDP_F32 },
};
static struct bucket_plan plan;
static struct reducer_step step;
static struct ddp_err err;
static char trace[2048];

static void say(const char *fmt, ...)
{
    size_t used = strlen(trace);
    va_list args;
    va_start(args, fmt);
    vsnprintf(trace + used, sizeof(trace) - used, fmt, args);
    va_end(args);
}

static void begin(void)
{
    const struct bucket_rule rule = { 400, 400, NULL };
    trace[0] = '\0';
    cr_assert_eq(bucket_plan_make(&plan, params, PARAMS, &rule, &err), DDP_OK);
    cr_assert_eq(plan.count, 3);
    cr_assert_eq(step_open(&step, &plan, params, PARAMS, &err), DDP_OK);
}

static void end(void)
{
    step_close(&step);
    bucket_plan_free(&plan);
}

TestSuite(reducer_step, .init = begin, .fini = end);

static void outcome(ddp_status status)
{
    size_t b;
    if (status != DDP_OK)
        say(": %s", err.msg);
    while (step_launch(&step, &b))
        say(" -> bucket %zu", b);
    say("\n");
}

static void forward(void)
{
    struct step_effects effects;
    ddp_status status = step_forward(&step, &effects, &err);
    say("forward%s%s", status == DDP_OK && effects.rebuild ? ", rebuild" : "",
        status == DDP_OK && effects.send_buffers ? ", buffers" : "");
    outcome(status);
}

static void ready(size_t i)
{
    say("ready %zu", i);
    outcome(step_ready(&step, i, &err));
}

static void unused(size_t i)
{
    bool blank;
    ddp_status status = step_unused(&step, i, &blank, &err);
    say("unused %zu%s", i, blank ? ", blank" : "");
    outcome(status);
}

/* Finish the step as reducer.c does. */
static void finish(void)
{
    size_t i;
    ddp_status status = step_finish(&step, &err);
    say("finish");
    outcome(status);
    if (status != DDP_OK)
        return;
    while (step_missing(&step, &i))
        unused(i);
    step_end(&step);
}

static void whole_step(void)
{
    forward();
    for (size_t i = PARAMS; i-- > 0;)
        ready(i);
    finish();
}

static void expect(const char *story)
{
    cr_assert_str_eq(trace, story, "the story was:\n%s", trace);
    trace[0] = '\0';
}

Test(reducer_step, buckets_are_launched_as_they_fill_but_never_out_of_turn)
{
    forward();
    ready(0);
    ready(4);
    ready(2);
    ready(1);
    ready(3);
    finish();
    expect("forward, buffers\n"
           "ready 0\n"
           "ready 4\n"
           "ready 2\n"
           "ready 1\n"
           "ready 3 -> bucket 0 -> bucket 1 -> bucket 2\n"
           "finish\n");
    cr_assert_eq(step.order[1], 4);
}

Test(reducer_step, the_order_of_the_first_step_is_taken_over_once)
{
    whole_step();
    trace[0] = '\0';
    forward();
    expect("forward, rebuild, buffers\n");
    step_rebuilt(&step);
    for (size_t i = PARAMS; i-- > 0;)
        ready(i);
    finish();
    trace[0] = '\0';
    whole_step();
    cr_assert(strstr(trace, "rebuild") == NULL);
}

Test(reducer_step, a_rebuild_is_not_wished_where_the_order_may_change)
{
    step.find_unused = true;
    whole_step();
    whole_step();
    step.find_unused = false;
    step.keep_order = true;
    whole_step();
    cr_assert(strstr(trace, "rebuild") == NULL);
}

Test(reducer_step, a_program_may_leave_forward_out)
{
    for (size_t i = PARAMS; i-- > 0;)
        ready(i);
    finish();
    ready(4);
    expect("ready 4\n"
           "ready 3 -> bucket 0\n"
           "ready 2\n"
           "ready 1 -> bucket 1\n"
           "ready 0 -> bucket 2\n"
           "finish\n"
           "ready 4\n");
}

/* If the inputs are uneven, ddp_reducer_forward exchanges one answer of each rank: whether the rank has a batch. The
 * other ranks wait for this answer, so no rank may leave out forward. */
Test(reducer_step, with_uneven_inputs_forward_may_not_be_left_out)
{
    step.uneven = true;
    ready(4);
    expect("ready 4: reducer: parameter 4 \"fc2.bias\" was marked ready or unused, but no step has begun; "
           "ddp_reducer_options.uneven is set, so call ddp_reducer_forward before the backward pass\n");
    whole_step();
    expect("forward, buffers\n"
           "ready 4\n"
           "ready 3 -> bucket 0\n"
           "ready 2\n"
           "ready 1 -> bucket 1\n"
           "ready 0 -> bucket 2\n"
           "finish\n");
}

/* In a step without sync, a parameter may be ready twice. The call of forward after such a step sends no buffers. */
Test(reducer_step, steps_without_sync_launch_nothing)
{
    whole_step();
    step.rebuilt = true;
    step.next_sync = false;
    trace[0] = '\0';
    forward();
    ready(3);
    ready(3);
    finish();
    step.next_sync = true;
    forward();
    expect("forward, buffers\n"
           "ready 3\n"
           "ready 3\n"
           "finish\n"
           "forward\n");
}

Test(reducer_step, asking_for_no_sync_in_the_middle_of_a_step_is_for_the_next_one)
{
    forward();
    ready(4);
    step.next_sync = false;
    ready(3);
    expect("forward, buffers\n"
           "ready 4\n"
           "ready 3 -> bucket 0\n");
}

Test(reducer_step, what_is_not_marked_is_unused_and_counts_as_zero)
{
    step.find_unused = true;
    forward();
    unused(4);
    ready(3);
    ready(0);
    finish();
    expect("forward, buffers\n"
           "unused 4, blank\n"
           "ready 3 -> bucket 0\n"
           "ready 0\n"
           "finish\n"
           "unused 1, blank\n"
           "unused 2, blank -> bucket 1 -> bucket 2\n");
}

/* The second step does not use parameter 4. The gradient of parameter 4 still has the values of the first step, so this
 * gradient is not replaced by zeros ("blank"). */
Test(reducer_step, what_was_used_in_a_step_without_sync_is_not_blank_in_the_next)
{
    step.find_unused = true;
    step.next_sync = false;
    forward();
    ready(4);
    finish();
    step.next_sync = true;
    forward();
    unused(4);
    unused(3);
    expect("forward, buffers\n"
           "ready 4\n"
           "finish\n"
           "forward\n"
           "unused 4\n"
           "unused 3, blank -> bucket 0\n");
}

Test(reducer_step, who_has_no_batch_launches_everything_at_once)
{
    step.uneven = true;
    forward();
    step_shadow(&step, true);
    finish();
    forward();
    step_shadow(&step, false);
    finish();
    expect("forward, buffers\n"
           "finish -> bucket 0 -> bucket 1 -> bucket 2\n"
           "forward, rebuild, buffers\n"
           "finish\n");
}

Test(reducer_step, misuse_is_named)
{
    ready(5);
    finish();
    ready(4);
    ready(4);
    forward();
    unused(0);
    finish();
    expect(
        "ready 5: reducer: parameter 5: expected a number from 0 to 4\n"
        "finish: reducer: finish: 5 of 5 parameters are not marked ready: #0 \"embed\" (bucket 2), #1 "
        "\"fc1.weight\" (bucket 1), #2 \"fc1.bias\" (bucket 1), #3 \"fc2.weight\" (bucket 0), #4 "
        "\"fc2.bias\" (bucket "
        "0); mark them, or set ddp_reducer_options.find_unused on all ranks\n"
        "ready 4\n"
        "ready 4: reducer: parameter 4 \"fc2.bias\" (bucket 0) was marked ready twice in one step; check "
        "that ddp_reducer_finish was called\n"
        "forward: reducer: forward was called before the last step ended; call ddp_reducer_finish first "
        "(next bucket: 0 of 3; 4 of 5 parameters are not marked ready: #0 \"embed\" (bucket 2), #1 "
        "\"fc1.weight\" (bucket 1), "
        "#2 \"fc1.bias\" "
        "(bucket 1), #3 "
        "\"fc2.weight\" (bucket 0))\n"
        "unused 0: reducer: parameter 0 \"embed\" (bucket 2) was marked unused; set "
        "ddp_reducer_options.find_unused on all ranks to allow unused parameters\n"
        "finish: reducer: finish: 4 of 5 parameters are not marked ready: #0 \"embed\" (bucket 2), #1 "
        "\"fc1.weight\" (bucket 1), #2 \"fc1.bias\" (bucket 1), #3 \"fc2.weight\" (bucket 0); mark them, or "
        "set ddp_reducer_options.find_unused on all ranks\n");
}

Test(reducer_step, an_evaluation_may_have_forwards_without_a_backward)
{
    forward();
    forward();
    step.uneven = true;
    forward();
    expect("forward, buffers\n"
           "forward, buffers\n"
           "forward: reducer: forward was called before the last step ended; call ddp_reducer_finish first "
           "(next bucket: 0 of 3; 5 of 5 parameters are not marked ready: #0 \"embed\" (bucket 2), #1 "
           "\"fc1.weight\" (bucket 1), "
           "#2 \"fc1.bias\" "
           "(bucket 1), #3 "
           "\"fc2.weight\" (bucket 0), #4 \"fc2.bias\" (bucket 0))\n");
}

Test(reducer_step, with_unused_parameters_a_step_has_to_be_begun)
{
    step.find_unused = true;
    finish();
    expect("finish: reducer: finish: no step has begun; call ddp_reducer_forward before the backward "
           "pass\n");
}

Test(reducer_step, an_order_from_another_rank_is_looked_at)
{
    bool seen[4];
    cr_assert(step_is_order((const int64_t[]){ 2, 0, 3, 1 }, 4, seen));
    cr_assert_not(step_is_order((const int64_t[]){ 2, 0, 3, 2 }, 4, seen));
    cr_assert_not(step_is_order((const int64_t[]){ 2, 0, 4, 1 }, 4, seen));
    cr_assert_not(step_is_order((const int64_t[]){ 2, 0, -1, 1 }, 4, seen));
}

/* If ranks have different numbers of batches, each rank answers whether it has a batch. These tests decode the
 * answers. */

static struct batch_ranks ranks;

static ddp_status read_four(int a, int b, int c, int d, ddp_uneven uneven)
{
    const int32_t answers[] = { a, b, c, d };
    return batch_ranks_decode(&ranks, answers, 4, uneven, &err);
}

Test(reducer_roll, counts_those_that_have_a_batch)
{
    cr_assert_eq(read_four(BATCH_NONE, BATCH_SYNC, BATCH_SYNC, BATCH_NONE, DDP_UNEVEN_WORLD), DDP_OK);
    cr_assert_eq(ranks.active, 2);
    cr_assert_eq(ranks.first, 1);
    cr_assert_eq(ranks.last, 2);
    cr_assert(ranks.sync);
    cr_assert_eq(read_four(BATCH_NONE, BATCH_NONE, BATCH_NONE, BATCH_LOCAL, DDP_UNEVEN_WORLD), DDP_OK);
    cr_assert_eq(ranks.first, 3);
    cr_assert_not(ranks.sync);
}

Test(reducer_roll, nobody_has_one_at_the_end)
{
    cr_assert_eq(read_four(BATCH_NONE, BATCH_NONE, BATCH_NONE, BATCH_NONE, DDP_UNEVEN_STOP), DDP_OK);
    cr_assert_eq(ranks.active, 0);
}

Test(reducer_roll, ranks_that_disagree_about_sync_are_named)
{
    cr_assert_eq(read_four(BATCH_NONE, BATCH_LOCAL, BATCH_LOCAL, BATCH_SYNC, DDP_UNEVEN_WORLD),
                 DDP_ERR_MISMATCH);
    cr_assert_str_eq(err.msg,
                     "reducer: forward: rank 3 reduces gradients in this step, but rank 1 only accumulates; "
                     "call ddp_reducer_set_sync with the same value on all ranks");
}

Test(reducer_roll, an_early_end_is_an_error_if_asked_for)
{
    cr_assert_eq(read_four(BATCH_SYNC, BATCH_SYNC, BATCH_NONE, BATCH_SYNC, DDP_UNEVEN_STOP), DDP_ERR_ARG);
    cr_assert_str_eq(err.msg, "reducer: rank 2 has no more batches, but 3 of 4 ranks have more batches; use "
                              "DDP_UNEVEN_WORLD to continue");
}
