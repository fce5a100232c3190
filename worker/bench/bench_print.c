/* bench_print.c -- see bench_print.h. */
#include "bench/bench_print.h"

#include "ddp/context.h"

#include <inttypes.h>

static const char *memory_of(const struct bench_run *run)
{
    return run->device >= 0 ? "gpu" : run->options->private_memory ? "private" : "arena";
}

void bench_print_head(FILE *to, const struct bench_run *run, enum bench_kind kind)
{
    const struct bench_options *o = run->options;
    if (o->json)
        return;
    fprintf(to,
            "# ddp-bench %s: %s, backend %s, %s memory, %d rank%s, %d warmup %d iters, validation %d\n"
            "#\n"
            "# %58s  %s\n"
            "# %10s %12s %7s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s\n"
            "# %10s %12s %7s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s\n",
            DDP_VERSION, bench_rules[kind].name, run->backend, memory_of(run), run->world,
            run->world == 1 ? "" : "s", o->warmup, o->iters, o->check != 0, "out-of-place",
            "                        in-place", "size", "count", "type", "redop", "root", "time", "algbw",
            "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "(B)", "(elements)", "", "", "", "(us)",
            "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

/* What was not looked at is no zero. */
static void print_result(FILE *to, const struct bench_run *run, const struct bench_case *c,
                         const struct bench_result *r)
{
    double algbw = bench_algbw(bench_bytes(c), r->us);
    fprintf(to, " %9.2f %7.2f %7.2f", r->us, algbw, bench_busbw(c->kind, c->world, algbw));
    if (run->options->check)
        fprintf(to, " %6" PRIu64, r->wrong);
    else
        fprintf(to, " %6s", "N/A");
}

static void print_json(FILE *to, const struct bench_run *run, const struct bench_case *c,
                       const struct bench_result *r, bool in_place)
{
    double algbw = bench_algbw(bench_bytes(c), r->us);
    fprintf(to,
            "{\"bench\":\"%s\",\"backend\":\"%s\",\"memory\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,"
            "\"type\":\"%s\",\"redop\":",
            bench_rules[c->kind].name, run->backend, memory_of(run), c->world, bench_bytes(c), c->count,
            ddp_dtype_name(c->dtype));
    fprintf(to, bench_rules[c->kind].reduces ? "\"%s\"" : "null", ddp_op_name(c->op));
    fprintf(to, ",\"root\":%d,\"in_place\":%s,\"us\":%.3f,\"algbw\":%.4f,\"busbw\":%.4f,\"wrong\":",
            bench_rules[c->kind].rooted ? c->root : -1, in_place ? "true" : "false", r->us, algbw,
            bench_busbw(c->kind, c->world, algbw));
    if (run->options->check)
        fprintf(to, "%" PRIu64 "}\n", r->wrong);
    else
        fprintf(to, "null}\n");
}

void bench_print_row(FILE *to, const struct bench_run *run, const struct bench_case *c,
                     const struct bench_result results[2])
{
    if (run->options->json) {
        print_json(to, run, c, &results[0], false);
        print_json(to, run, c, &results[1], true);
        return;
    }
    fprintf(to, "  %10zu %12zu %7s %6s %6d", bench_bytes(c), c->count, ddp_dtype_name(c->dtype),
            bench_rules[c->kind].reduces ? ddp_op_name(c->op) : "none",
            bench_rules[c->kind].rooted ? c->root : -1);
    print_result(to, run, c, &results[0]);
    print_result(to, run, c, &results[1]);
    fputc('\n', to);
    fflush(to);
}

void bench_print_foot(FILE *to, const struct bench_run *run, uint64_t wrong, double busbw)
{
    if (run->options->json)
        return;
    fprintf(to, "# Out of bounds values : %" PRIu64 " %s\n# Avg bus bandwidth    : %.3f GB/s\n\n", wrong,
            !run->options->check ? "(not checked)"
            : wrong == 0         ? "OK"
                                 : "FAILED",
            busbw);
}
