/* The table of findings: names, words, and the pages that are printed from it. */
#include "diagnosis/findings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(findings, every_code_has_a_name_and_is_found_by_it)
{
    for (int i = FINDING_NONE + 1; i < FINDING_CODES; i++)
        cr_assert_eq(finding_by_name(finding_code_name((enum finding_code)i)), i);
    cr_assert_eq(finding_by_name("NO_SUCH"), FINDING_NONE);
}

Test(findings, a_word_that_nobody_gives_is_seen)
{
    struct finding f;
    finding_make(&f, FINDING_LIMIT_NOFILE, "n1", "have", "1024", NULL);
    cr_assert_str_eq(f.sentence, "n1 allows 1024 open files, and this job needs about ${need} there");
}

Test(findings, long_words_are_cut)
{
    static char name[2000];
    memset(name, 'x', sizeof(name) - 1);
    struct finding f;
    finding_make(&f, FINDING_VERSION_DIFFERS, "n1", "time", "1 s", "words", name, NULL);
    cr_assert_eq(strlen(f.sentence), FINDING_TEXT_MAX - 1);
    cr_assert_str_eq(f.sentence + FINDING_TEXT_MAX - 4, "...");
}

Test(findings, the_page_is_what_the_table_says)
{
    static char page[1 << 17];
    struct buf table = { 0 };
    FILE *in = fopen("rendezvous/FINDINGS.md", "r");
    if (in == NULL)
        cr_skip_test("skipped, because it is not run from the top folder");
    page[fread(page, 1, sizeof(page) - 1, in)] = '\0';
    fclose(in);
    cr_assert(findings_print_markdown(&table) && buf_append(&table, "", 1));
    cr_assert_not_null(strstr(page, (char *)table.data), "rendezvous/FINDINGS.md: run `make protocol`");
    buf_free(&table);
}

Test(findings, the_manual_has_every_code)
{
    struct buf man = { 0 };
    cr_assert(findings_print_man(&man) && buf_append(&man, "", 1));
    cr_assert_null(strstr((char *)man.data, "${"));
#define X(code, ...) cr_assert_not_null(strstr((char *)man.data, "\n.B " #code "\n"));
    FINDINGS(X)
#undef X
    buf_free(&man);
}
