/* Tests of one collective call: the size of its buffers, its rejections, and its text in an error. All backends use
 * these checks, so a wrong call fails in the same way with shared memory, TCP and NCCL. */
#include "core/call.h"

#include <criterion/criterion.h>
#include <string.h>

static float block[64];
static struct ddp_err err;

static struct call f32_call(enum call_kind kind, void *in, void *out, uint64_t n)
{
    return (struct call){ .kind = kind, .in = in, .out = out, .n = n, .dtype = DDP_F32 };
}

Test(call, the_table_knows_the_size_of_every_buffer)
{
    /* The call is on rank 1 of 3, first with root 1, then with root 0. The call has 10 elements of 4 bytes. */
    static const struct {
        enum call_kind kind;
        size_t in_at_root, out_at_root, in_elsewhere, out_elsewhere;
    } rows[] = {
        { CALL_ALL_REDUCE, 40, 40, 40, 40 },       { CALL_REDUCE, 40, 40, 40, 0 },
        { CALL_BROADCAST, 40, 40, 0, 40 },         { CALL_ALL_GATHER, 40, 120, 40, 120 },
        { CALL_GATHER, 40, 120, 40, 0 },           { CALL_SCATTER, 120, 40, 0, 40 },
        { CALL_REDUCE_SCATTER, 120, 40, 120, 40 }, { CALL_BARRIER, 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct call call = f32_call(rows[i].kind, NULL, NULL, 10);
        const char *word = call_rules[rows[i].kind].word;
        call.root = 1;
        cr_assert_eq(call_in_bytes(&call, 1, 3), rows[i].in_at_root, "%s", word);
        cr_assert_eq(call_out_bytes(&call, 1, 3), rows[i].out_at_root, "%s", word);
        call.root = 0;
        cr_assert_eq(call_in_bytes(&call, 1, 3), rows[i].in_elsewhere, "%s", word);
        cr_assert_eq(call_out_bytes(&call, 1, 3), rows[i].out_elsewhere, "%s", word);
    }
}

static void expect_refused(const struct call *call, int rank, const char *part)
{
    cr_assert_eq(call_check(call, rank, 2, &err), DDP_ERR_ARG);
    cr_assert(strstr(err.msg, part) != NULL, "\"%s\" is not in \"%s\"", part, err.msg);
}

Test(call, in_place_is_right_and_other_overlaps_are_not)
{
    struct call call = f32_call(CALL_ALL_REDUCE, block, block, 16);
    cr_assert_eq(call_check(&call, 0, 2, &err), DDP_OK);
    call.out = block + 16;
    cr_assert_eq(call_check(&call, 0, 2, &err), DDP_OK);
    call.out = block + 15;
    expect_refused(&call, 0, "all_reduce: `in` and `out` overlap");

    call = f32_call(CALL_ALL_GATHER, block + 8, block, 8);
    cr_assert_eq(call_check(&call, 1, 2, &err), DDP_OK);
    expect_refused(&call, 0, "all_gather: `in` and `out` overlap");
    call = f32_call(CALL_REDUCE_SCATTER, block, block + 8, 8);
    cr_assert_eq(call_check(&call, 1, 2, &err), DDP_OK);
    expect_refused(&call, 0, "reduce_scatter: `in` and `out` overlap");
}

Test(call, nothing_needs_no_buffer)
{
    const struct call call = f32_call(CALL_ALL_REDUCE, NULL, NULL, 0);
    cr_assert_eq(call_check(&call, 0, 2, &err), DDP_OK);
}

Test(call, sizes_that_cannot_be_are_refused_before_anything_is_added)
{
    struct call call = f32_call(CALL_ALL_REDUCE, block, block, UINT64_MAX);
    expect_refused(&call, 0, "18446744073709551615 elements of f32");
    call.n = SIZE_MAX / 8;
    expect_refused(&call, 0, "address space");
}

Test(call, reads_well_in_an_error)
{
    char text[CALL_TEXT];
    struct call call = f32_call(CALL_ALL_REDUCE, block, block, 1024);
    cr_assert_str_eq(call_text(text, &call, 17), "all_reduce #17 (f32 x 1024, sum)");
    call = (struct call){ .kind = CALL_REDUCE, .n = 5, .dtype = DDP_BF16, .op = DDP_MAX, .root = 3 };
    cr_assert_str_eq(call_text(text, &call, 2), "reduce #2 (bf16 x 5, max, root 3)");
    call.kind = CALL_BROADCAST;
    cr_assert_str_eq(call_text(text, &call, 2), "broadcast #2 (bf16 x 5, root 3)");
    call.kind = CALL_BARRIER;
    cr_assert_str_eq(call_text(text, &call, 9), "barrier #9");
    call.kind = CALL_SHARED_ALLOC;
    cr_assert_str_eq(call_text(text, &call, 4), "shared_alloc #4 (5 bytes)");
}

/* A rank may print the call from the mark of another rank (struct shm_mark in shared memory) while that rank still
 * writes the mark. So call_text must print a text whatever bytes the call contains, and the longest text must fit. */
Test(call, any_bytes_make_a_text)
{
    char text[CALL_TEXT];
    struct call call;
    memset(&call, 0xff, sizeof(call));
    cr_assert_not_null(strstr(call_text(text, &call, 1), "unknown"));
    for (int kind = 0; kind < CALL_KINDS; kind++) {
        call.kind = (enum call_kind)kind;
        call_text(text, &call, UINT64_MAX);
        cr_assert(strlen(text) < CALL_TEXT - 1, "%s", text);
    }
}

Test(call, names_of_types_and_operations)
{
    cr_assert_str_eq(ddp_dtype_name(DDP_BF16), "bf16");
    cr_assert_str_eq(ddp_dtype_name((ddp_dtype)77), "?");
    cr_assert_eq(ddp_dtype_size(DDP_F64), 8);
    cr_assert_eq(ddp_dtype_size((ddp_dtype)-1), 0);
    cr_assert_str_eq(ddp_op_name(DDP_PROD), "prod");
    cr_assert_str_eq(ddp_op_name((ddp_op)5), "?");
}
