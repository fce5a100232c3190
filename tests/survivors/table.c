/* table.c -- see table.h. The output is Markdown, because the tables are pasted into docs/benchmarks.md. */
#include "table.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_AT_MOST = 6 };

#define X(id, name, words) name,
static const char *const kind_names[] = { KINDS(X) };
static const char *const fault_names[] = { FAULTS(X) };
static const char *const launcher_names[] = { LAUNCHERS(X) };
#undef X
#define X(id, name, words) words,
static const char *const kind_words[] = { KINDS(X) };
static const char *const fault_words[] = { FAULTS(X) };
static const char *const launcher_words[] = { LAUNCHERS(X) };
#undef X

struct cell {
    int trials, with_survivors, left_for_next, bad;
    double worst_ms;
};

static bool is_bad(const struct trial_result *r)
{
    return r->end != TRIAL_DONE || r->survivors > 0;
}

static void add(struct cell *c, const struct trial_result *r)
{
    c->trials++;
    c->with_survivors += r->survivors > 0;
    c->left_for_next += r->left_for_next > 0;
    c->bad += r->end != TRIAL_DONE;
    if (r->ms > c->worst_ms)
        c->worst_ms = r->ms;
}

/* Print "0 of 100, 312 ms": in 0 of 100 trials a process survived, and the longest time was 312 ms. */
static void print_cell(const struct cell *c)
{
    if (c->trials == 0) {
        printf(" - |");
        return;
    }
    printf(" %d of %d, %.0f ms", c->with_survivors, c->trials, c->worst_ms);
    if (c->left_for_next > 0)
        printf(" (%d by the next start)", c->left_for_next);
    if (c->bad > 0)
        printf(" (%d without a fault)", c->bad);
    printf(" |");
}

static void print_failure(const struct trial *t, const struct trial_result *r)
{
    printf("FAILED %s: %s, %s, fault %s: ", launcher_names[t->by], kind_words[t->kind], fault_words[t->fault],
           r->during_start ? "during the start" : "after the start");
    if (r->end == TRIAL_LOST)
        printf("the trial itself was killed\n");
    else if (r->survivors > 0)
        printf("%d left after %.0f ms%s:\n%s", r->survivors, r->ms,
               r->left_for_next > 0 ? " of the next start" : "", r->words);
    else
        printf("%s", r->words);
    printf("  again with --launchers=%s --kinds=%s --faults=%s --seed=%llu\n", launcher_names[t->by],
           kind_names[t->kind], fault_names[t->fault], (unsigned long long)t->seed);
}

static void print_rows(const struct trial *trials, const struct trial_result *results, size_t count)
{
    static struct cell cells[KIND_COUNT][FAULT_COUNT];
    memset(cells, 0, sizeof(cells));
    for (size_t i = 0; i < count; i++)
        add(&cells[trials[i].kind][trials[i].fault], &results[i]);
    printf("\n| %s |", launcher_words[trials[0].by]);
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        printf(" %s |", fault_words[fault]);
    printf("\n|---|---|---|---|---|---|---|\n");
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        printf("| %s |", kind_words[kind]);
        for (int fault = 0; fault < FAULT_COUNT; fault++)
            print_cell(&cells[kind][fault]);
        printf("\n");
    }
}

static void print_failures(const struct trial *trials, const struct trial_result *results, size_t count)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++)
        if (is_bad(&results[i]) && trials[i].by < BY_PEERS && bad++ < SHOWN_AT_MOST)
            print_failure(&trials[i], &results[i]);
    if (bad > SHOWN_AT_MOST)
        printf("  ... and %d more\n", bad - SHOWN_AT_MOST);
}

int table_print(const struct trial *trials, const struct trial_result *results, size_t count,
                const char *touched)
{
    int bad = 0, survivors = 0;
    if (count == 0)
        return 0;
    print_rows(trials, results, count);
    printf("\n");
    print_failures(trials, results, count);
    if (touched != NULL)
        printf("FAILED %s: the second job was touched: %s\n", launcher_names[trials[0].by], touched);
    for (size_t i = 0; i < count; i++) {
        survivors += results[i].survivors > 0;
        bad += is_bad(&results[i]);
    }
    printf("%s: %zu trials, %d with survivors, %d without a fault; the second job was %s\n",
           launcher_names[trials[0].by], count, survivors, bad - survivors,
           touched != NULL ? "TOUCHED" : "untouched in all of them");
    fflush(stdout);
    return bad + (touched != NULL);
}

/* Return the first line that names an error or a failure, or else the last line. Launchers print notes before the
 * reason and advice after the reason. */
static const char *telling_line(const char *text)
{
    const char *last = text;
    for (size_t len; *text != '\0'; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        if (memmem(text, len, "rror", 4) != NULL || memmem(text, len, "failed", 6) != NULL)
            return text;
        if (len > 0)
            last = text;
    }
    return last;
}

void table_skipped(enum launcher by, const char *why)
{
    const char *line = telling_line(why[0] != '\0' ? why : "it says nothing; is it installed?");
    printf("\n%s: skipped, because it does not start here: %.*s\n", launcher_words[by],
           (int)strcspn(line, "\n"), line);
    fflush(stdout);
}
