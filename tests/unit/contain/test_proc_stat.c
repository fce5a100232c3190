/* A line of /proc/PID/stat. */
#include "contain/procfs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define REST " S 811 813 813 0 -1 4194560 233 0 0 0 3 4 5 6 20 0 1 0 1327111 2510848 512 18446744073709551615"

Test(proc_stat, state_parent_and_start)
{
    struct proc_stat s;
    cr_assert(proc_stat_parse("813 (train)" REST, &s));
    cr_expect_eq(s.state, 'S');
    cr_expect_eq(s.parent, 811);
    cr_expect_eq(s.group, 813);
    cr_expect_eq(s.foreground, -1);
    cr_expect_eq(s.start_ticks, 1327111);
    cr_expect_not(proc_stat_is_dead(&s));
}

/* A process chooses its own name. */
Test(proc_stat, a_name_that_looks_like_the_rest)
{
    struct proc_stat s;
    cr_assert(proc_stat_parse("813 (x) Z 1 (y) )" REST, &s));
    cr_expect_eq(s.state, 'S');
    cr_expect_eq(s.parent, 811);
}

Test(proc_stat, zombies_are_dead)
{
    struct proc_stat s;
    cr_assert(proc_stat_parse("9 (x) Z 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0", &s));
    cr_expect(proc_stat_is_dead(&s));
    cr_expect_eq(s.start_ticks, 77);
}

/* A killed process dies thread by thread, and the first thread may die before the others. */
Test(proc_stat, a_zombie_whose_other_threads_run_is_not_dead)
{
    struct proc_stat s;
    cr_assert(proc_stat_parse("9 (x) Z 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 77 0 0", &s));
    cr_expect_eq(s.threads, 2);
    cr_expect_not(proc_stat_is_dead(&s));
}

static bool is_dying(char state, unsigned flags)
{
    char line[160];
    struct proc_stat s;
    snprintf(line, sizeof(line), "9 (x) %c 1 9 9 0 -1 %u 0 0 0 0 0 0 0 0 20 0 2 0 77 0 0", state, flags);
    cr_assert(proc_stat_parse(line, &s));
    return proc_stat_is_dying(&s);
}

Test(proc_stat, who_has_met_a_fatal_signal_or_begun_to_exit_is_dying)
{
    cr_expect_not(is_dying('S', 0x400000));
    cr_expect(is_dying('D', 0x400600), "writes its core file");
    cr_expect(is_dying('R', 0x400004), "gives back its memory");
    cr_expect(is_dying('Z', 0x400404), "killed; its last thread has the memory");
    cr_expect_not(is_dying('Z', 0x400004), "main() has called pthread_exit");
}

Test(proc_stat, a_line_that_ends_too_early_is_none)
{
    struct proc_stat s;
    const char *line = "813 (train)" REST;
    size_t needed = (size_t)(strstr(line, "1327111") - line);
    for (size_t i = 0; i < needed; i++) {
        char cut[256];
        snprintf(cut, sizeof(cut), "%.*s", (int)i, line);
        cr_expect_not(proc_stat_parse(cut, &s), "taken: %s", cut);
    }
    cr_expect_not(proc_stat_parse("no such line", &s));
}
