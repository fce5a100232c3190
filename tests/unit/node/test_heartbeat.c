/* Tests of the content of a heartbeat about a worker: each change is sent only once. The facts about a process are
 * values in the test, because a test cannot put a real process into every state. */
#include "node/heartbeat.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct heartbeat_known known;
static cJSON *workers;
static char *text;
static int program;

static void make(void)
{
    known = (struct heartbeat_known){ 0 };
    program = 0;
}

/* Return the heartbeat at second `s`. Process `pid` is in `state`, has used `ticks` clock ticks (100 per second), and
 * sleeps in `where`. */
static const char *at(int s, int pid, char state, uint64_t ticks, const char *where)
{
    struct heartbeat_sample look = { .at_us = (uint64_t)s * 1000000, .state = state, .cpu_ticks = ticks };
    snprintf(look.where, sizeof(look.where), "%s", where);
    cJSON_Delete(workers);
    cJSON_free(text);
    workers = cJSON_CreateArray();
    heartbeat_compare(&known, 3, pid, program, &look, 100, workers);
    return text = cJSON_PrintUnformatted(workers);
}

static void done(void)
{
    cJSON_Delete(workers);
    cJSON_free(text);
}

TestSuite(beat, .init = make, .fini = done);

Test(beat, the_same_is_told_once)
{
    cr_expect_str_eq(at(1, 100, 'S', 5, "futex_wait_queue"), "[[3,\"S\",0,\"futex_wait_queue\"]]");
    cr_expect_str_eq(at(2, 100, 'S', 5, "futex_wait_queue"), "[]");
    cr_expect_str_eq(at(3, 100, 'T', 5, "do_signal_stop"), "[[3,\"T\",0,\"do_signal_stop\"]]");
    cr_expect_str_eq(at(4, 100, 'S', 5, "futex_wait_queue"), "[[3,\"S\",0,\"futex_wait_queue\"]]");
}

/* A script starts Python, and waits for Python. */
Test(beat, the_pid_of_a_program_ends_the_row)
{
    cr_expect_str_eq(at(1, 100, 'S', 0, "do_wait"), "[[3,\"S\",0,\"do_wait\"]]");
    program = 2101;
    cr_expect_str_eq(at(2, 101, 'S', 0, "pipe_read"), "[[3,\"S\",0,\"pipe_read\",2101]]");
    cr_expect_str_eq(at(3, 101, 'S', 0, "pipe_read"), "[]");
    program = 0;
    cr_expect_str_eq(at(4, 100, 'S', 0, "do_wait"), "[[3,\"S\",0,\"do_wait\"]]");
}

/* A process that computes may sleep at the moment of a sample. So its share of CPU time decides whether the heartbeat
 * shows it as running (R). */
Test(beat, who_works_is_told_by_the_share_of_time)
{
    at(1, 100, 'R', 0, "");
    cr_expect_str_eq(at(2, 100, 'S', 98, "pipe_read"), "[[3,\"R\",98,\"\"]]");
    cr_expect_str_eq(at(3, 100, 'S', 188, "futex_wait_queue"), "[]", "90 is as good as 98");
    cr_expect_str_eq(at(4, 100, 'R', 238, ""), "[[3,\"R\",50,\"\"]]");
    cr_expect_str_eq(at(5, 100, 'S', 239, "ep_poll"), "[[3,\"S\",1,\"ep_poll\"]]");
}

Test(beat, several_threads_use_more_than_one_processor)
{
    at(1, 100, 'R', 0, "");
    cr_expect_str_eq(at(2, 100, 'R', 800, ""), "[[3,\"R\",800,\"\"]]");
}

/* The worker of the next attempt has another pid, and has used less CPU time. */
Test(beat, another_process_is_looked_at_anew)
{
    at(1, 100, 'S', 500, "ep_poll");
    cr_expect_str_eq(at(2, 101, 'S', 3, "ep_poll"), "[[3,\"S\",0,\"ep_poll\"]]");
}

Test(beat, of_who_is_gone_nothing_is_told)
{
    at(1, 100, 'S', 5, "ep_poll");
    cr_expect_str_eq(at(2, 100, '\0', 0, ""), "[]");
}

/* --- steps ---------------------------------------------------------------------------------------------- */

static struct heartbeat_step stepped;

/* Return the heartbeat of worker 3 (process `pid`) after `step`. The worker waits in call number `seq`, which has the
 * name `word`. If `word` is "", this call has completed. */
static const char *moved(int pid, uint64_t step, uint64_t seq, const char *word)
{
    struct heartbeat_step_sample look = { .step = step + 1,
                                          .records = 1,
                                          .call = flight_call(
                                              seq, 0, *word != '\0' ? FLIGHT_STARTED : FLIGHT_COMPLETED) };
    snprintf(look.word, sizeof(look.word), "%s", word);
    cJSON_Delete(workers);
    cJSON_free(text);
    workers = cJSON_CreateArray();
    heartbeat_compare_step(&stepped, 3, pid, &look, workers);
    return text = cJSON_PrintUnformatted(workers);
}

Test(beat, who_moves_is_told_where_and_who_stands_still_once)
{
    stepped = (struct heartbeat_step){ 0 };
    cr_expect_str_eq(moved(100, 5, 8, ""), "[[3,5,8,\"\"]]");
    cr_expect_str_eq(moved(100, 5, 8, ""), "[]");
    cr_expect_str_eq(moved(100, 5, 9, "all_reduce"), "[[3,5,9,\"all_reduce\"]]");
    cr_expect_str_eq(moved(100, 5, 9, "all_reduce"), "[]");
    cr_expect_str_eq(moved(100, 5, 9, ""), "[[3,5,9,\"\"]]", "it is in the heartbeat");
    cr_expect_str_eq(moved(101, 5, 9, ""), "[[3,5,9,\"\"]]", "another process");
}

/* A call on a stream is reported until it ends, and the store shows it like a call that blocks. */
Test(beat, the_call_of_a_page_is_told_until_it_ends)
{
    static struct flight page = { .kinds = { "init", "all_reduce" } };
    static const struct {
        enum flight_state state;
        const char *word;
    } cases[] = { { FLIGHT_SCHEDULED, "all_reduce" },
                  { FLIGHT_STARTED, "all_reduce" },
                  { FLIGHT_COMPLETED, "" },
                  { FLIGHT_FAILED, "" } };
    atomic_store(&page.step, 6);
    atomic_store(&page.records, 9);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        atomic_store(&page.call, flight_call(8, 1, cases[i].state));
        const struct heartbeat_step_sample look = beat_read_step(&page);
        cr_expect_str_eq(look.word, cases[i].word, "state %d", (int)cases[i].state);
        cr_expect(look.step == 6 && look.records == 9 && flight_seq(look.call) == 8);
    }
    cr_expect_eq(beat_read_step(NULL).records, 0);
}

/* A worker without libddp has a page, but writes nothing to it. */
Test(beat, who_tells_no_steps_has_none)
{
    const struct heartbeat_step_sample look = { 0 };
    stepped = (struct heartbeat_step){ 0 };
    cJSON *steps = cJSON_CreateArray();
    heartbeat_compare_step(&stepped, 0, 100, &look, steps);
    cr_expect_eq(cJSON_GetArraySize(steps), 0);
    cJSON_Delete(steps);
}
