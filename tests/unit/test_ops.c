/* The table of requests: numbers as PyTorch has them, no row forgotten, and the page that is printed from it. */
#include "store/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(ops, every_code_leads_back_to_its_row)
{
    for (int i = 0; i < OPS; i++)
        for (int d = 0; d < DIALECTS; d++)
            if (op_table[i].code[d] >= 0)
                cr_assert_eq(op_by_code(d, (uint8_t)op_table[i].code[d]), &op_table[i]);
    cr_assert_null(op_by_code(DIALECT_C, 0x13));
    cr_assert_null(op_by_code(DIALECT_A, 12));
    cr_assert_null(op_by_code(DIALECT_B, 12));
}

Test(ops, our_own_requests_begin_at_0x80_and_are_not_in_the_old_dialects)
{
    for (int i = OP_IDENTIFY; i < OPS; i++) {
        cr_assert_geq(op_table[i].code[DIALECT_C], 0x80);
        cr_assert_lt(op_table[i].code[DIALECT_A], 0);
        cr_assert_lt(op_table[i].code[DIALECT_B], 0);
    }
}

Test(ops, the_protocol_page_is_what_the_table_says)
{
    struct buf page = { 0 }, table = { 0 };
    FILE *in = fopen("rendezvous/README.md", "r");
    if (in == NULL)
        cr_skip_test("skipped, because it is not run from the top folder");
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), in)) > 0;)
        cr_assert(buf_append(&page, chunk, n));
    fclose(in);
    cr_assert(buf_append(&page, "", 1) && ops_print_markdown(&table) && buf_append(&table, "", 1));
    cr_assert_not_null(strstr((char *)page.data, (char *)table.data),
                       "rendezvous/README.md: run `make protocol`");
    buf_free(&page);
    buf_free(&table);
}
