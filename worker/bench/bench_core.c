/* bench_core.c -- see bench_core.h. This file has the options of ddp-bench, the table of the collectives, and expected
 * values for every type. The inputs are small whole numbers, so that the expected value of an element can be computed
 * without a collective. */
#include "bench/bench_core.h"

#include "core/half.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

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

/* Return the next size. Check for overflow, because the loop over sizes would otherwise never end. */
size_t bench_next(size_t bytes, size_t step, size_t factor)
{
    size_t next;
    bool too_large =
        step > 0 ? __builtin_add_overflow(bytes, step, &next) : __builtin_mul_overflow(bytes, factor, &next);
    return too_large ? SIZE_MAX : next;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Return element i of the input of `rank`: 1, 2 or 3. In a product all ranks except one pass 1. */
static double value_of(const struct bench_case *c, int rank, size_t i)
{
    if (bench_rules[c->kind].reduces && c->op == DDP_PROD && (size_t)rank != i % (size_t)c->world)
        return 1;
    return 1 + (double)((i + (size_t)rank * 5) % 3);
}

/* Return the expected result of a reduction for element i. */
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
        one_value_store(in, i, c->dtype, value_of(c, rank, i));
}

/* Return the number of stored bits of the type's significand. Return 0 for integers, which are exact. */
static int digits(ddp_dtype dtype)
{
    return dtype == DDP_F64 ? 52 : dtype == DDP_F32 ? 23 : dtype == DDP_F16 ? 10 : dtype == DDP_BF16 ? 7 : 0;
}

/* Return true if `got` is the expected value `want`, rounded to the type. An average may differ by two units in the
 * last place (see bench_wrong). */
static bool is_right(const struct bench_case *c, double got, double want)
{
    double rounded[1] = { 0 }; /* room for a value of any type */
    one_value_store(rounded, 0, c->dtype, want);
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

/* --- bench options ---------------------------------------------------------------------------------------- */

/* Parse a size such as "8", "64K", "1M" or "8G", or a factor (--stepfactor) in the same form. Reject values below
 * `least`, which is 2 for a factor and 0 or 1 for a size. */
static ddp_status read_size(const char *value, size_t least, size_t *out, struct ddp_err *err)
{
    uint64_t bytes;
    const bool ok = options_size(value, (uint64_t)1 << 40, &bytes);
    if (!ok || bytes < least)
        return ddp_fail(err, DDP_ERR_ARG, "a %s from %zu to 1024G, such as 8, 64K, 1M or 2G",
                        least > 1 ? "factor" : "size", least);
    *out = (size_t)bytes;
    return DDP_OK;
}

static ddp_status parse_bytes(const char *value, void *to, struct ddp_err *err)
{
    return read_size(value, 1, to, err);
}

static ddp_status parse_step(const char *value, void *to, struct ddp_err *err)
{
    return read_size(value, 0, to, err);
}

static ddp_status parse_factor(const char *value, void *to, struct ddp_err *err)
{
    struct bench_options *o = to;
    o->step = 0;
    return read_size(value, 2, &o->factor, err);
}

/* Parse a type by libddp's name or by nccl-tests' name. */
static ddp_status parse_dtype(const char *value, void *to, struct ddp_err *err)
{
    struct bench_options *o = to;
    static const char *const theirs[] = { "float", "double", "half", "bfloat16", "int32", "int64", "uint8" };
    char list[300] = "";
    for (int t = DDP_F32; t <= DDP_U8; t++) {
        options_list_add(list, sizeof(list), false, "'%s'", ddp_dtype_name((ddp_dtype)t));
        options_list_add(list, sizeof(list), t == DDP_U8, "'%s'", theirs[t]);
        if (strcmp(value, ddp_dtype_name((ddp_dtype)t)) == 0 || strcmp(value, theirs[t]) == 0) {
            o->dtype = (ddp_dtype)t;
            return DDP_OK;
        }
    }
    return ddp_fail(err, DDP_ERR_ARG, "%s", list);
}

static ddp_status parse_op(const char *value, void *to, struct ddp_err *err)
{
    struct bench_options *o = to;
    char list[100] = "";
    for (int op = DDP_SUM; op <= DDP_PROD; op++) {
        options_list_add(list, sizeof(list), op == DDP_PROD, "'%s'", ddp_op_name((ddp_op)op));
        if (strcmp(value, ddp_op_name((ddp_op)op)) == 0) {
            o->op = (ddp_op)op;
            return DDP_OK;
        }
    }
    return ddp_fail(err, DDP_ERR_ARG, "%s", list);
}

static ddp_status parse_kind(const char *value, void *to, struct ddp_err *err)
{
    struct bench_options *o = to;
    char list[200] = "";
    o->all_kinds = strcmp(value, "all") == 0;
    for (int k = 0; k < BENCH_KINDS; k++) {
        options_list_add(list, sizeof(list), false, "'%s'", bench_rules[k].name);
        if (strcmp(value, bench_rules[k].name) == 0) {
            o->kind = (enum bench_kind)k;
            return DDP_OK;
        }
    }
    options_list_add(list, sizeof(list), true, "'all'");
    return o->all_kinds ? DDP_OK : ddp_fail(err, DDP_ERR_ARG, "%s", list);
}

static const struct option_words backends = OPTION_WORDS(NULL, "cpu", "nccl");
static const struct option_words memories = OPTION_WORDS(NULL, "arena", "private", "gpu");

#define AT(field) offsetof(struct bench_options, field)
enum { MOST = 1000000 };
static const struct option_row rows[] = {
    { .name = "collective",
      .value = "NAME",
      .parse = parse_kind,
      .help =
          "all_reduce (default), all_gather, broadcast, reduce, reduce_scatter, gather, scatter, or all" },
    { .name = "backend",
      .value = "NAME",
      .type = OPTION_NAME,
      .at = AT(backend),
      .words = &backends,
      .help = "cpu or nccl (default: nccl with a GPU and without --memory, otherwise cpu)" },
    { .name = "memory",
      .value = "KIND",
      .type = OPTION_NAME,
      .at = AT(memory),
      .words = &memories,
      .help = "memory of the cpu backend's buffers: arena (ddp_shared_alloc, default), private (malloc), or "
              "gpu (copied through host memory)" },
    { .name = "minbytes",
      .letter = 'b',
      .value = "SIZE",
      .parse = parse_bytes,
      .at = AT(least),
      .help = "smallest size in bytes, such as 64K or 2G (default: 4)" },
    { .name = "maxbytes",
      .letter = 'e',
      .value = "SIZE",
      .parse = parse_bytes,
      .at = AT(most),
      .help = "largest size in bytes (default: 64M)" },
    { .name = "stepbytes",
      .letter = 'i',
      .value = "SIZE",
      .parse = parse_step,
      .at = AT(step),
      .help = "bytes to add for the next size (default: 0, which uses --stepfactor)" },
    { .name = "stepfactor",
      .letter = 'f',
      .value = "N",
      .parse = parse_factor,
      .help = "factor for the next size, if --stepbytes is 0 (default: 4)" },
    { .name = "iters",
      .letter = 'n',
      .value = "N",
      .type = OPTION_INT,
      .at = AT(iters),
      .min = 1,
      .max = MOST,
      .help = "number of calls that are timed together (default: 20)" },
    { .name = "warmup_iters",
      .letter = 'w',
      .value = "N",
      .type = OPTION_INT,
      .at = AT(warmup),
      .max = MOST,
      .help = "number of untimed calls before the timed calls (default: 5)" },
    { .name = "check",
      .letter = 'c',
      .value = "N",
      .type = OPTION_INT,
      .at = AT(check),
      .max = 1,
      .help =
          "1: compare every element of one call with its expected value; 0: do not compare (default: 1)" },
    { .name = "datatype",
      .letter = 'd',
      .value = "TYPE",
      .parse = parse_dtype,
      .help = "f32 (default), f64, f16, bf16, i32, i64, u8, or the name in nccl-tests (float, double, half "
              "...)" },
    { .name = "op",
      .letter = 'o',
      .value = "OP",
      .parse = parse_op,
      .help = "sum (default), avg, min, max or prod" },
    { .name = "root",
      .letter = 'r',
      .value = "RANK",
      .type = OPTION_INT,
      .at = AT(root),
      .max = MOST,
      .help = "root of broadcast, reduce, gather and scatter (default: 0)" },
    { .name = "json",
      .type = OPTION_FLAG,
      .at = AT(json),
      .help = "print JSON, one object per line, instead of the table" },
    { .name = "help", .letter = 'h', .type = OPTION_FLAG, .at = AT(help), .help = "print this list" },
    { .name = "help-man", .type = OPTION_FLAG, .at = AT(help_man) },
    { .name = "version", .type = OPTION_FLAG, .at = AT(version), .help = "print the version" },
};
const struct option_table bench_option_table = OPTION_TABLE(rows, OPTIONS_PLAIN);

ddp_status bench_options_parse(int argc, char *const argv[], struct bench_options *out, struct ddp_err *err)
{
    *out = (struct bench_options){
        .least = 4, .most = 64 << 20, .factor = 4, .iters = 20, .warmup = 5, .check = true
    };
    ddp_status status = options_parse(&bench_option_table, argc, argv, out, NULL, err);
    if (status == DDP_OK && out->most < out->least)
        status = ddp_fail(err, DDP_ERR_ARG, "--maxbytes=%zu: expected at least --minbytes, which is %zu",
                          out->most, out->least);
    if (status != DDP_OK || out->memory == NULL)
        return status;
    out->private_memory = strcmp(out->memory, "private") == 0;
    out->gpu = strcmp(out->memory, "gpu") == 0;
    if (out->backend == NULL)
        out->backend = "cpu"; /* with nccl, ddp-bench would measure GPU memory, not the chosen memory */
    if (strcmp(out->backend, "nccl") == 0 && !out->gpu)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--memory=%s: --backend=nccl uses GPU memory; leave out --memory, or use --backend=cpu",
            out->memory);
    return DDP_OK;
}
