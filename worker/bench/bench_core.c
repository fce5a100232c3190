/* bench_core.c -- see bench_core.h. */
#include "bench/bench_core.h"

#include "core/one_value.h"

#include <math.h>

const struct bench_rule bench_rules[BENCH_KINDS] = {
#define X(kind, name, factor, in, out, reduces, rooted) \
    [BENCH_##kind] = { name, factor, in, out, reduces, rooted },
    BENCH_LIST(X)
#undef X
};

/* --- sizes and rates ---------------------------------------------------------------------------------------------- */

static bool has_parts(enum bench_kind kind)
{
    return bench_rules[kind].in_parts || bench_rules[kind].out_parts;
}

size_t bench_count(enum bench_kind kind, ddp_dtype dtype, int world, size_t bytes)
{
    return bytes / ddp_dtype_size(dtype) / (has_parts(kind) ? (size_t)world : 1);
}

size_t bench_bytes(const struct bench_case *c)
{
    return c->count * ddp_dtype_size(c->dtype) * (has_parts(c->kind) ? (size_t)c->world : 1);
}

size_t bench_in_count(const struct bench_case *c)
{
    return c->count * (bench_rules[c->kind].in_parts ? (size_t)c->world : 1);
}

size_t bench_out_count(const struct bench_case *c)
{
    return c->count * (bench_rules[c->kind].out_parts ? (size_t)c->world : 1);
}

double bench_algbw(size_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1e3 : 0;
}

double bench_busbw(enum bench_kind kind, int world, double algbw)
{
    double others = (double)(world - 1) / world;
    switch (bench_rules[kind].factor) {
    case FACTOR_TWICE:
        return algbw * 2 * others;
    case FACTOR_OTHERS:
        return algbw * others;
    default:
        return algbw;
    }
}

/* One that does not fit would come out small, and the sizes would never end. */
size_t bench_next(size_t bytes, size_t step, size_t factor)
{
    size_t next;
    bool too_large =
        step > 0 ? __builtin_add_overflow(bytes, step, &next) : __builtin_mul_overflow(bytes, factor, &next);
    return too_large ? SIZE_MAX : next;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* 1, 2 or 3; of a product all but one rank's are 1, so that it stays small. */
static double value_of(const struct bench_case *c, int rank, size_t i)
{
    if (bench_rules[c->kind].reduces && c->op == DDP_PROD && (size_t)rank != i % (size_t)c->world)
        return 1;
    return 1 + (double)((i + (size_t)rank * 5) % 3);
}

static double combined(const struct bench_case *c, size_t i)
{
    double result = value_of(c, 0, i);
    for (int r = 1; r < c->world; r++) {
        double x = value_of(c, r, i);
        if (c->op == DDP_MIN)
            result = x < result ? x : result;
        else if (c->op == DDP_MAX)
            result = x > result ? x : result;
        else if (c->op == DDP_PROD)
            result *= x;
        else
            result += x;
    }
    return c->op == DDP_AVG ? result / c->world : result;
}

static double expected(const struct bench_case *c, int rank, size_t i)
{
    const struct bench_rule *rule = &bench_rules[c->kind];
    size_t place = rule->in_parts ? (size_t)rank * c->count + i : i;
    if (rule->reduces)
        return combined(c, place);
    if (rule->out_parts)
        return value_of(c, (int)(i / c->count), i % c->count);
    return value_of(c, c->root, place);
}

void bench_fill(const struct bench_case *c, int rank, void *in)
{
    for (size_t i = 0; i < bench_in_count(c); i++)
        one_value_put(in, i, c->dtype, value_of(c, rank, i));
}

/* Digits of the type behind the first; 0 of integers, which are exact. */
static int digits(ddp_dtype dtype)
{
    return dtype == DDP_F64 ? 52 : dtype == DDP_F32 ? 23 : dtype == DDP_F16 ? 10 : dtype == DDP_BF16 ? 7 : 0;
}

static bool is_right(const struct bench_case *c, double got, double want)
{
    double rounded[1] = { 0 }; /* one value of any type */
    one_value_put(rounded, 0, c->dtype, want);
    double exact = one_value_get(rounded, 0, c->dtype);
    if (got == exact)
        return true;
    bool average = bench_rules[c->kind].reduces && c->op == DDP_AVG && digits(c->dtype) > 0;
    return average && fabs(got - exact) <= ldexp(fabs(exact), 1 - digits(c->dtype));
}

uint64_t bench_wrong(const struct bench_case *c, int rank, const void *out)
{
    uint64_t wrong = 0;
    bool only_root = c->kind == BENCH_REDUCE || c->kind == BENCH_GATHER;
    if (only_root && rank != c->root)
        return 0;
    for (size_t i = 0; i < bench_out_count(c); i++)
        wrong += !is_right(c, one_value_get(out, i, c->dtype), expected(c, rank, i));
    return wrong;
}
