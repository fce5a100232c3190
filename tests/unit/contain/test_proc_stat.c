/* Tests of the parser for a line of /proc/PID/stat. A process may choose its name freely, so the parser must not be
 * misled by blanks and brackets in the name. */
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

/* A process may choose a name that looks like the other fields. */
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

/* A killed process dies thread by thread, and the first thread may die before the other threads. */
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

/* --- connections without an answer: lines of /proc/PID/net/tcp and tcp6 -------------------------------------- */

static void expect_unanswered(const char *line, const char *peer, uint64_t inode)
{
    struct unanswered u = { 0 };
    const bool found = proc_tcp_parse(line, &u);
    cr_expect_eq(found, peer != NULL, "%s", line);
    if (found)
        cr_expect(strcmp(u.peer, peer) == 0 && u.inode == inode, "%s %llu", u.peer,
                  (unsigned long long)u.inode);
}

#define TCP(peer, state, timer, times)                                                                      \
    "   3: 0100000A:8B2C " peer " " state " 00000400:00000000 " timer ":00000033 " times "     0        0 " \
    "4711 2 0000000000000000 800 4 30 1 7"

Test(unanswered, data_that_was_sent_four_times)
{
    expect_unanswered(TCP("0300000A:1267", "01", "01", "00000004"), "10.0.0.3:4711", 4711);
    expect_unanswered(TCP("0300000A:1267", "02", "01", "00000006"), "10.0.0.3:4711", 4711);
    expect_unanswered(TCP("0000000000000000FFFF00000300000A:1267", "01", "01", "00000005"), "10.0.0.3:4711",
                      4711);
    expect_unanswered(TCP("0000000000000000000000000100000A:1267", "01", "01", "00000005"),
                      "[::10.0.0.1]:4711", 4711);
}

Test(unanswered, other_connections)
{
    expect_unanswered(TCP("0300000A:1267", "01", "01", "00000003"), NULL, 0); /* too few retransmissions */
    expect_unanswered(TCP("0300000A:1267", "01", "04", "00000009"), NULL, 0); /* the peer does not read */
    expect_unanswered(TCP("0300000A:1267", "04", "01", "00000009"), NULL, 0); /* this side has closed the
                                                                               * connection */
    expect_unanswered("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt", NULL, 0);
    expect_unanswered("", NULL, 0);
}
