/* Compare the bucket plan with lists that were computed by hand from PyTorch's rule, and with plans that PyTorch
 * made. */
#include "reducer/buckets.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

static struct bucket_plan plan;
static struct ddp_err err;

static void make_plan(const ddp_param *params, size_t n, size_t first, size_t limit)
{
    const struct bucket_rule rule = { first, limit, NULL };
    cr_assert_eq(bucket_plan_make(&plan, params, n, &rule, &err), DDP_OK, "%s", err.msg);
}

/* Return "[3 4] [1 2] [0]": the parameters of each bucket in the order of reduction. */
static const char *story_in(const size_t *order, size_t n)
{
    static char text[1024];
    size_t used = 0;
    text[0] = '\0';
    for (size_t b = 0; b < plan.count; b++) {
        const char *sign = b > 0 ? " [" : "[";
        for (size_t k = 0; k < n; k++) {
            size_t i = order != NULL ? order[k] : k;
            if (plan.bucket_of[i] != b)
                continue;
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%zu", sign, i);
            sign = " ";
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "]");
    }
    return text;
}

static const char *story(size_t n)
{
    return story_in(NULL, n);
}

#define F32(elements)                                    \
    {                                                    \
        .name = "p", .count = elements, .dtype = DDP_F32 \
    }
#define F64(elements)                                    \
    {                                                    \
        .name = "p", .count = elements, .dtype = DDP_F64 \
    }

Test(buckets, everything_small_is_one_bucket)
{
    const ddp_param params[] = { F32(156800), F32(200), F32(40000), F32(200), F32(2000), F32(10) };
    make_plan(params, 6, MIB, 25 * MIB);
    cr_assert_str_eq(story(6), "[0 1 2 3 4 5]");
    bucket_plan_free(&plan);
}

Test(buckets, the_first_limit_is_one_mebibyte_the_next_are_larger)
{
    /* The limit is 1 MiB (262144 floats) for the first bucket, and 25 MiB for later buckets. Parameters 0 and 1 fill
     * the first bucket exactly, and the rest is in the second. */
    const ddp_param params[] = { F32(131072), F32(131072), F32(1000), F32(2000), F32(3000) };
    make_plan(params, 5, MIB, 25 * MIB);
    cr_assert_str_eq(story(5), "[2 3 4] [0 1]");
    cr_assert_eq(plan.buckets[1].bytes, MIB);
    bucket_plan_free(&plan);
}

Test(buckets, a_bucket_may_exceed_its_limit_by_one_parameter)
{
    const ddp_param params[] = { F32(100), F32(400), F32(10), F32(20), F32(30), F32(2) };
    make_plan(params, 6, 1000, 200);
    /* Parameters 0 and 1 exceed 1000 B together. Parameters 2, 3 and 4 exceed 200 B together. Parameter 5 is left
     * over. */
    cr_assert_str_eq(story(6), "[5] [2 3 4] [0 1]");
    cr_assert_eq(plan.buckets[2].bytes, 2000);
    cr_assert_eq(plan.buckets[1].bytes, 240);
    bucket_plan_free(&plan);
}

/* Types do not share buckets, and each type begins with the first limit again. PyTorch's own test of the rule has this
 * case. */
Test(buckets, types_are_kept_apart)
{
    const ddp_param params[] = { F32(50), F64(25), F32(50), F64(25), F32(50), F64(25) };
    make_plan(params, 6, 400, 400);
    cr_assert_str_eq(story(6), "[5] [4] [1 3] [0 2]");
    cr_assert_eq(plan.buckets[0].dtype, DDP_F64);
    cr_assert_eq(plan.buckets[1].dtype, DDP_F32);
    bucket_plan_free(&plan);
    make_plan(params, 6, 200, 400);
    cr_assert_str_eq(story(6), "[3 5] [2 4] [1] [0]");
    bucket_plan_free(&plan);
}

Test(buckets, gradients_are_aligned_and_lie_bucket_after_bucket)
{
    const ddp_param params[] = { F32(65), F32(1), F32(64), F32(0) };
    make_plan(params, 4, 260, 1000);
    cr_assert_str_eq(story(4), "[1 2 3] [0]");
    cr_assert_eq(plan.at[1], 0);
    cr_assert_eq(plan.at[2], 256);
    cr_assert_eq(plan.at[3], 512);
    cr_assert_eq(plan.buckets[0].span, 512);
    cr_assert_eq(plan.at[0], 512);
    cr_assert_eq(plan.arena_bytes, 1024);
    bucket_plan_free(&plan);
}

Test(buckets, impossible_parameters_are_refused)
{
    const struct bucket_rule rule = { MIB, MIB, NULL };
    const ddp_param huge[] = { F32(10), F32(SIZE_MAX / 4) };
    cr_assert_eq(bucket_plan_make(&plan, huge, 2, &rule, &err), DDP_ERR_ARG);
    cr_assert(strstr(err.msg, "parameter 1: 46") != NULL, "%s", err.msg);
    const ddp_param foreign[] = { { .name = "p", .count = 1, .dtype = (ddp_dtype)99 } };
    cr_assert_eq(bucket_plan_make(&plan, foreign, 1, &rule, &err), DDP_ERR_ARG);
}

/* --- plans that PyTorch made -------------------------------------------------------------------------------------- */

struct torch_case {
    const char *name, *sizes;
    size_t first_limit, limit;
    const char *order, *buckets;
};

#include "torch_buckets.h"

enum { MOST = 64 };

static size_t read_sizes(const char *text, ddp_param params[MOST])
{
    size_t n = 0;
    for (char *rest; *text != '\0' && n < MOST; text = rest, n++) {
        params[n] = (ddp_param){ .name = "p", .count = strtoul(text, &rest, 10), .dtype = DDP_F32 };
        if (*rest == 'd') {
            params[n].dtype = DDP_F64;
            rest++;
        }
    }
    return n;
}

static size_t read_order(const char *text, size_t order[MOST])
{
    size_t n = 0;
    for (char *rest; *text != '\0' && n < MOST; text = rest)
        order[n++] = strtoul(text, &rest, 10);
    return n;
}

Test(buckets, are_those_of_pytorch)
{
    for (size_t c = 0; c < sizeof(torch_cases) / sizeof(torch_cases[0]); c++) {
        const struct torch_case *t = &torch_cases[c];
        ddp_param params[MOST];
        size_t order[MOST], n = read_sizes(t->sizes, params), ordered = read_order(t->order, order);
        const struct bucket_rule rule = { t->first_limit, t->limit, ordered > 0 ? order : NULL };
        cr_assert_eq(bucket_plan_make(&plan, params, n, &rule, &err), DDP_OK, "%s", err.msg);
        cr_expect_str_eq(story_in(rule.order, n), t->buckets, "%s: %s, PyTorch has %s", t->name,
                         story_in(rule.order, n), t->buckets);
        bucket_plan_free(&plan);
    }
}
