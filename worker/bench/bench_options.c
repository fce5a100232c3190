/* bench_options.c -- see bench_options.h. A letter is a row of its own without help. */
#include "bench/bench_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "8", "64K", "1M", "8G". */
static ddp_status read_size(const char *value, size_t least, size_t *out, struct ddp_err *err)
{
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    unsigned long long n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    if (end == NULL || end[unit != NULL] != '\0' || errno != 0 || n < least || n > (1ull << 40) >> shift)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'%.40s' is not a size from %zu to 1024G (a number, or one with K, M or G)", value,
                        least);
    *out = (size_t)n << shift;
    return DDP_OK;
}

static ddp_status read_number(const char *value, int least, int *out, struct ddp_err *err)
{
    char *end = NULL;
    errno = 0;
    long n = value[0] >= '0' && value[0] <= '9' ? strtol(value, &end, 10) : -1;
    if (end == NULL || *end != '\0' || errno != 0 || n < least || n > 1000000)
        return ddp_fail(err, DDP_ERR_ARG, "'%.40s' is not a number from %d to 1000000", value, least);
    *out = (int)n;
    return DDP_OK;
}

#define SETTER(name) static ddp_status name(void *into, const char *value, struct ddp_err *err)
#define OPTIONS      ((struct bench_options *)into)

SETTER(set_least)
{
    return read_size(value, 1, &OPTIONS->least, err);
}
SETTER(set_most)
{
    return read_size(value, 1, &OPTIONS->most, err);
}
SETTER(set_step)
{
    return read_size(value, 0, &OPTIONS->step, err);
}
SETTER(set_factor)
{
    OPTIONS->step = 0;
    return read_size(value, 2, &OPTIONS->factor, err);
}
SETTER(set_iters)
{
    return read_number(value, 1, &OPTIONS->iters, err);
}
SETTER(set_warmup)
{
    return read_number(value, 0, &OPTIONS->warmup, err);
}
SETTER(set_root)
{
    return read_number(value, 0, &OPTIONS->root, err);
}
SETTER(set_check)
{
    int n = 0;
    ddp_status status = read_number(value, 0, &n, err);
    OPTIONS->check = n > 0;
    return status;
}

/* Ours, and nccl-tests' own name of each type. */
SETTER(set_dtype)
{
    static const char *const theirs[] = { "float", "double", "half", "bfloat16", "int32", "int64", "uint8" };
    for (int t = DDP_F32; t <= DDP_U8; t++)
        if (strcmp(value, ddp_dtype_name((ddp_dtype)t)) == 0 || strcmp(value, theirs[t]) == 0) {
            OPTIONS->dtype = (ddp_dtype)t;
            return DDP_OK;
        }
    return ddp_fail(err, DDP_ERR_ARG,
                    "'%.40s' is no type: f32, f64, f16, bf16, i32, i64 or u8 (float, double, half ...)",
                    value);
}

SETTER(set_op)
{
    for (int o = DDP_SUM; o <= DDP_PROD; o++)
        if (strcmp(value, ddp_op_name((ddp_op)o)) == 0) {
            OPTIONS->op = (ddp_op)o;
            return DDP_OK;
        }
    return ddp_fail(err, DDP_ERR_ARG, "'%.40s' is no operation: sum, avg, min, max or prod", value);
}

SETTER(set_kind)
{
    OPTIONS->all_kinds = strcmp(value, "all") == 0;
    for (int k = 0; k < BENCH_KINDS; k++)
        if (strcmp(value, bench_rules[k].name) == 0) {
            OPTIONS->kind = (enum bench_kind)k;
            return DDP_OK;
        }
    return OPTIONS->all_kinds
               ? DDP_OK
               : ddp_fail(err, DDP_ERR_ARG,
                          "'%.40s' is no collective: all_reduce, all_gather, broadcast, reduce, "
                          "reduce_scatter, gather, scatter, or all of them: all",
                          value);
}

SETTER(set_backend)
{
    OPTIONS->backend = value;
    if (strcmp(value, "cpu") == 0 || strcmp(value, "nccl") == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "'%.40s' is no backend: cpu or nccl", value);
}

SETTER(set_memory)
{
    OPTIONS->private_memory = strcmp(value, "private") == 0;
    OPTIONS->gpu = strcmp(value, "gpu") == 0;
    if (OPTIONS->private_memory || OPTIONS->gpu || strcmp(value, "arena") == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "'%.40s' is no memory: arena, private or gpu", value);
}

/* Options without a value differ only in what they set. */
#define SWITCH(name, field)    \
    SETTER(name)               \
    {                          \
        (void)value;           \
        (void)err;             \
        OPTIONS->field = true; \
        return DDP_OK;         \
    }
SWITCH(set_json, json)
SWITCH(set_help, help)
SWITCH(set_help_man, help_man)
SWITCH(set_version, version)

const struct option_row bench_option_rows[] = {
    { "collective", "NAME",
      "all_reduce (default), all_gather, broadcast, reduce, reduce_scatter, gather,\nscatter, or all",
      set_kind },
    { "backend", "NAME", "cpu or nccl; without it nccl where this machine has a GPU, else cpu", set_backend },
    { "memory", "KIND", "of the cpu backend: arena (ddp_shared_alloc, default), private, or gpu (staged)",
      set_memory },
    { "minbytes", "SIZE", "-b: smallest size, as 8, 64K, 1M, 2G (4)", set_least },
    { "b", "SIZE", NULL, set_least },
    { "maxbytes", "SIZE", "-e: largest size (64M)", set_most },
    { "e", "SIZE", NULL, set_most },
    { "stepbytes", "SIZE", "-i: from size to size so many bytes more", set_step },
    { "i", "SIZE", NULL, set_step },
    { "stepfactor", "N", "-f: from size to size so many times more (4)", set_factor },
    { "f", "N", NULL, set_factor },
    { "iters", "N", "-n: calls that are timed together (20)", set_iters },
    { "n", "N", NULL, set_iters },
    { "warmup_iters", "N", "-w: calls before that (5)", set_warmup },
    { "w", "N", NULL, set_warmup },
    { "check", "0|1", "-c: compare every element of one call with what it must be (1)", set_check },
    { "c", "0|1", NULL, set_check },
    { "datatype", "TYPE", "-d: f32 (default), f64, f16, bf16, i32, i64 or u8; nccl-tests' names, too",
      set_dtype },
    { "d", "TYPE", NULL, set_dtype },
    { "op", "OP", "-o: sum (default), avg, min, max or prod", set_op },
    { "o", "OP", NULL, set_op },
    { "root", "RANK", "-r: of broadcast, reduce, gather and scatter (0)", set_root },
    { "r", "RANK", NULL, set_root },
    { "json", NULL, "one JSON object a line in place of the table", set_json },
    { "help", NULL, "this list, also -h", set_help },
    { "h", NULL, NULL, set_help },
    { "h", NULL, NULL, set_help },
    { "help-man", NULL, NULL, set_help_man },
    { "version", NULL, "the version", set_version },
    { 0 },
};

ddp_status bench_options_parse(int argc, char *const argv[], struct bench_options *out, struct ddp_err *err)
{
    *out = (struct bench_options){
        .least = 4, .most = 64 << 20, .factor = 4, .iters = 20, .warmup = 5, .check = true
    };
    ddp_status status = options_parse(bench_option_rows, argc, argv, out, NULL, err);
    if (status == DDP_OK && out->most < out->least)
        status =
            ddp_fail(err, DDP_ERR_ARG, "--maxbytes %zu is less than --minbytes %zu", out->most, out->least);
    if (status == DDP_OK && out->gpu && out->backend == NULL)
        out->backend = "cpu";
    return status;
}
