/* Tests of how a timeline draws event logs as bars. The logs of two nodes are in tests/data. Other logs are made here,
 * some with errors. */
#include "ctl/timeline.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct timeline_events events;
static struct timeline t;
static char complaints[4096];

static void note(void *user, const char *file, size_t line, const char *what)
{
    const size_t len = strlen(complaints);
    (void)user;
    snprintf(complaints + len, sizeof(complaints) - len, "%s:%zu: %s\n", file, line, what);
}

static void set_up(void)
{
    events = (struct timeline_events){ .complain = note };
    complaints[0] = '\0';
}

static void tear_down(void)
{
    timeline_free(&t);
    timeline_events_free(&events);
}

TestSuite(timeline, .init = set_up, .fini = tear_down);

static void read_log(const char *name)
{
    static char text[65536];
    char path[128];
    snprintf(path, sizeof(path), "tests/data/%s", name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        cr_skip_test("skipped, because the test does not run in the top folder of the sources");
    const size_t len = fread(text, 1, sizeof(text), file);
    fclose(file);
    timeline_read(&events, name, slice_of(text, len));
}

static void two_nodes(void)
{
    read_log("events-n0.jsonl");
    read_log("events-n1.jsonl");
    cr_assert(timeline_choose(&events, "demo"));
    cr_assert(timeline_make(&t, &events));
}

static void lines(const char *text)
{
    timeline_read(&events, "log", slice_str(text));
}

static const char *const bar_words[] = {
#define X(name, word, words) word,
    TIMELINE_BARS(X)
#undef X
};

/* Return the first bar of this kind in this row. */
static const struct timeline_bar *bar_of(size_t row, enum timeline_bar_kind kind)
{
    for (size_t i = 0; i < t.n_bars; i++)
        if (t.bars[i].row == row && t.bars[i].kind == kind)
            return &t.bars[i];
    cr_assert_fail("row %zu has no bar '%s'", row, bar_words[kind]);
    return NULL;
}

static void expect_bar(size_t row, enum timeline_bar_kind kind, int64_t from_ms, int64_t to_ms,
                       size_t waited_for)
{
    const struct timeline_bar *bar = bar_of(row, kind);
    cr_expect_eq(bar->from_ms, from_ms, "row %zu, %s: from %lld", row, bar_words[kind],
                 (long long)bar->from_ms);
    cr_expect_eq(bar->to_ms, to_ms, "row %zu, %s: to %lld", row, bar_words[kind], (long long)bar->to_ms);
    cr_expect_eq(bar->waited_for, waited_for, "row %zu, %s: for %zu", row, bar_words[kind], bar->waited_for);
}

enum { NODE0, NODE1, RANK0, RANK1 };

Test(timeline, nodes_stand_before_ranks_by_number)
{
    two_nodes();
    cr_assert_eq(t.n_rows, 4);
    cr_expect_str_eq(t.rows[NODE0].name, "node 0 (n0)");
    cr_expect_str_eq(t.rows[NODE1].name, "node 1 (n1<script>alert(1)</script>)");
    cr_expect_str_eq(t.rows[RANK0].name, "rank 0");
    cr_expect_eq(t.rows[RANK1].node, NODE1);
}

/* The clock of node 1 is 1,000 s ahead. The first line of node 1's log does not show this offset, but later lines do.
 * The offset also applies to the first line. */
Test(timeline, all_stand_by_the_store_s_clock)
{
    two_nodes();
    expect_bar(NODE0, TIMELINE_CONNECTING, 0, 500, TIMELINE_JOB);
    expect_bar(NODE1, TIMELINE_CONNECTING, 2500, 3500, TIMELINE_JOB);
    expect_bar(RANK1, TIMELINE_RUNNING, 3700, 7500, TIMELINE_JOB);
    cr_expect_eq(t.end_ms, 7900);
}

Test(timeline, who_waits_is_shown_with_the_one_who_came_last)
{
    two_nodes();
    expect_bar(NODE0, TIMELINE_WAITING, 500, 3500, NODE1);
    expect_bar(RANK0, TIMELINE_BARRIER, 4500, 7000, RANK1);
    for (size_t i = 0; i < t.n_bars; i++)
        cr_expect(t.bars[i].kind != TIMELINE_BARRIER || t.bars[i].row == RANK0,
                  "the last one has not waited");
}

Test(timeline, a_round_is_a_band_and_its_end_is_marked)
{
    two_nodes();
    cr_assert_eq(t.n_bands, 1);
    cr_expect_eq(t.bands[0].from_ms, 3500);
    cr_expect_eq(t.bands[0].to_ms, 7700);
    expect_bar(NODE0, TIMELINE_RUNNING, 3500, 7500, TIMELINE_JOB);
    expect_bar(NODE0, TIMELINE_STOPPING, 7500, 7700, TIMELINE_JOB);
    expect_bar(NODE1, TIMELINE_STOPPED, 7600, 7700, TIMELINE_JOB);
    int failed = 0;
    for (size_t i = 0; i < t.n_marks; i++)
        failed += t.marks[i].kind == TIMELINE_MARK_FAILED && t.marks[i].row == RANK1;
    cr_expect_eq(failed, 1);
}

/* Both logs contain the join of node 1, which counts only once. One line is about another job, one has an unknown
 * event, and one is cut off. */
Test(timeline, what_is_wrong_is_named_with_its_line)
{
    two_nodes();
    const char *second = strchr(complaints, '\n');
    cr_expect_eq(strncmp(complaints, "events-n1.jsonl:3: ", 19), 0, "%s", complaints);
    cr_expect(second != NULL && strncmp(second, "\nevents-n1.jsonl:7: ", 20) == 0 &&
                  strchr(second + 1, '\n')[1] == '\0',
              "%s", complaints);
    cr_expect_eq(events.other_lives, 1);
    int joins = 0;
    for (size_t i = 0; i < events.n; i++)
        joins += events.list[i].kind == EVENT_JOIN;
    cr_expect_eq(joins, 2);
}

Test(timeline, the_latest_life_of_the_job_is_drawn)
{
    lines("{\"event\":\"round\",\"store_ms\":1,\"job\":\"a\",\"instance\":\"x-1\",\"n\":1,\"round\":1}\n"
          "{\"event\":\"round\",\"store_ms\":5,\"job\":\"a\",\"instance\":\"y-1\",\"n\":1,\"round\":1}\n"
          "{\"event\":\"verdict\",\"store_ms\":9,\"job\":\"a\",\"instance\":\"y-1\",\"n\":2,\"round\":1}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_expect_str_eq(events.instance, "y-1");
    cr_expect_eq(events.n, 2);
    cr_assert(timeline_make(&t, &events));
    cr_expect_eq(t.bands[0].to_ms, 4);
}

/* The logs are given in the order of their names, as a shell sorts them, so the latest log need not be the last.
 * timeline_choose must choose the job of the log that has the latest line. */
Test(timeline, the_latest_life_is_the_one_with_the_latest_line)
{
    lines("{\"event\":\"round\",\"store_ms\":5,\"time\":\"2026-11-21T20:00:05.000000Z\",\"job\":\"a\","
          "\"instance\":\"y\",\"n\":1,\"round\":1}\n");
    lines("{\"event\":\"round\",\"store_ms\":1,\"time\":\"2026-11-21T20:00:01.000000Z\",\"job\":\"b\","
          "\"instance\":\"x\",\"n\":1,\"round\":1}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_expect_str_eq(events.instance, "y");
    cr_expect_str_eq(events.job, "a");
}

/* Draw a log of the store about one node, n0, that has joined at 0 ms. */
static void draw_after_join(const char *text)
{
    lines("{\"event\":\"join\",\"store_ms\":0,\"job\":\"a\",\"instance\":\"i\",\"n\":1,\"node\":1,\"host\":"
          "\"n0\",\"pid\":7}\n");
    lines(text);
    cr_assert(timeline_choose(&events, NULL));
    cr_assert(timeline_make(&t, &events));
}

Test(timeline, a_node_that_connects_again_still_runs)
{
    draw_after_join(
        "{\"event\":\"round\",\"store_ms\":10,\"job\":\"a\",\"instance\":\"i\",\"n\":2,\"round\":1,"
        "\"members\":[[1,0,0,1]]}\n"
        "{\"event\":\"join\",\"store_ms\":50,\"job\":\"a\",\"instance\":\"i\",\"n\":3,\"node\":1,\"host\":"
        "\"n0\",\"pid\":7}\n"
        "{\"event\":\"verdict\",\"store_ms\":100,\"job\":\"a\",\"instance\":\"i\",\"n\":4}\n");
    expect_bar(0, TIMELINE_RUNNING, 10, 100, TIMELINE_JOB);
    cr_expect_eq(t.n_bars, 2, "it waits, and then it runs");
}

Test(timeline, a_spare_that_leaves_waits_no_longer)
{
    lines("{\"event\":\"spare\",\"store_ms\":0,\"job\":\"a\",\"instance\":\"i\",\"n\":1,\"node\":2,\"host\":"
          "\"n1\",\"pid\":8}\n"
          "{\"event\":\"leave\",\"store_ms\":10,\"job\":\"a\",\"instance\":\"i\",\"n\":2,\"node\":2,\"host\":"
          "\"n1\",\"pid\":8}\n"
          "{\"event\":\"verdict\",\"store_ms\":900,\"job\":\"a\",\"instance\":\"i\",\"n\":3}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_assert(timeline_make(&t, &events));
    expect_bar(0, TIMELINE_SPARE, 0, 10, TIMELINE_JOB);
}

Test(timeline, a_member_that_leaves_ends_with_its_workers)
{
    draw_after_join(
        "{\"event\":\"round\",\"store_ms\":10,\"job\":\"a\",\"instance\":\"i\",\"n\":2,\"round\":1,"
        "\"members\":[[1,0,0,1]]}\n"
        "{\"event\":\"leave\",\"store_ms\":50,\"job\":\"a\",\"instance\":\"i\",\"n\":3,\"node\":1,\"host\":"
        "\"n0\",\"pid\":7}\n"
        "{\"event\":\"stop\",\"store_ms\":50,\"job\":\"a\",\"instance\":\"i\",\"n\":4}\n"
        "{\"event\":\"node_stopped\",\"store_ms\":60,\"job\":\"a\",\"instance\":\"i\",\"n\":5,\"node\":1,"
        "\"host\":\"n0\",\"pid\":7}\n"
        "{\"event\":\"verdict\",\"store_ms\":100,\"job\":\"a\",\"instance\":\"i\",\"n\":6}\n"
        "{\"event\":\"finding\",\"store_ms\":900,\"job\":\"a\",\"instance\":\"i\",\"n\":7}\n");
    expect_bar(0, TIMELINE_STOPPING, 50, 60, TIMELINE_JOB);
    cr_expect_eq(t.n_bars, 3, "it waits, runs and stops");
}

Test(timeline, two_processes_of_a_node_have_two_names)
{
    draw_after_join(
        "{\"event\":\"join\",\"store_ms\":50,\"job\":\"a\",\"instance\":\"i\",\"n\":2,\"node\":2,\"host\":"
        "\"n0\",\"pid\":9,\"node_rank\":0}\n"
        "{\"event\":\"lost\",\"store_ms\":60,\"job\":\"a\",\"instance\":\"i\",\"n\":3,\"node\":1,\"host\":"
        "\"n0\",\"pid\":7,\"node_rank\":0}\n");
    cr_assert_eq(t.n_rows, 2);
    cr_expect_str_neq(t.rows[0].name, t.rows[1].name);
    cr_expect_not_null(strstr(t.rows[0].name, "pid 7"), "%s", t.rows[0].name);
}

/* The node never reached a store, so its wall clock gives the times. */
Test(timeline, a_node_that_never_joined_is_drawn_too)
{
    lines("{\"event\":\"launched\",\"ms\":5000,\"time\":\"2026-11-21T20:00:01.000000Z\",\"job\":\"a\","
          "\"agent_host\":\"n0\",\"agent_pid\":7}\n"
          "{\"event\":\"finished\",\"ms\":8000,\"time\":\"2026-11-21T20:00:04.000000Z\",\"job\":\"a\","
          "\"agent_host\":\"n0\",\"agent_pid\":7,\"exit_code\":125}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_assert(timeline_make(&t, &events));
    cr_expect_str_eq(t.rows[0].name, "n0 (pid 7)");
    expect_bar(0, TIMELINE_CONNECTING, 0, 3000, TIMELINE_JOB);
}

/* The node never reached a store, so its wall clock gives the times. An event with an invalid wall-clock time is placed
 * by its monotonic time. */
Test(timeline, impossible_times_are_ignored)
{
    static const struct {
        const char *time;
        int64_t at_ms;
    } cases[] = {
        { "1970-01-01T00:00:00.001000Z", 1 },
        { "2000-01-01T00:00:00.000000Z", 946684800000 },
        { "2024-02-29T23:59:60.999999Z", 1709251200999 },
        { "2026-11-30T20:00:01.000000Z", 1796068801000 },
        { "2026-12-31T00:00:00.000000Z", 1798675200000 },
        { "2026-11-00T20:00:01.000000Z", 5000 },
        { "2026-11-31T20:00:01.000000Z", 5000 },
        { "2025-02-29T20:00:01.000000Z", 5000 },
        { "2026-12-32T20:00:01.000000Z", 5000 },
        { "2026-00-21T20:00:01.000000Z", 5000 },
        { "2026-13-21T20:00:01.000000Z", 5000 },
        { "2026-11-21T24:00:01.000000Z", 5000 },
        { "2026-11-21T20:60:01.000000Z", 5000 },
        { "2026-11-21T20:00:61.000000Z", 5000 },
        { "yesterday", 5000 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[256];
        snprintf(line, sizeof(line),
                 "{\"event\":\"launched\",\"ms\":5000,\"time\":\"%s\",\"job\":\"a\",\"agent_host\":\"n0\","
                 "\"agent_pid\":7}\n",
                 cases[i].time);
        lines(line);
        cr_assert(timeline_choose(&events, NULL));
        cr_expect_eq(events.list[0].at_ms, cases[i].at_ms, "%s: %lld", cases[i].time,
                     (long long)events.list[0].at_ms);
        timeline_events_free(&events);
        set_up();
    }
}

/* The agent of the node has ended, so no event reports the end of the node's worker. */
Test(timeline, the_ranks_of_a_lost_node_are_lost_with_it)
{
    lines("{\"event\":\"join\",\"store_ms\":0,\"job\":\"a\",\"instance\":\"i\",\"n\":1,\"node\":1,\"host\":"
          "\"n0\",\"pid\":7}\n"
          "{\"event\":\"round\",\"store_ms\":10,\"job\":\"a\",\"instance\":\"i\",\"n\":2,\"round\":1,"
          "\"members\":[[1,0,0,1]]}\n"
          "{\"event\":\"worker_started\",\"ms\":20,\"store_ms\":20,\"job\":\"a\",\"instance\":\"i\",\"agent_"
          "host\":\"n0\","
          "\"agent_pid\":7,\"rank\":0,\"node_rank\":0}\n"
          "{\"event\":\"lost\",\"store_ms\":500,\"job\":\"a\",\"instance\":\"i\",\"n\":3,\"node\":1,\"host\":"
          "\"n0\",\"pid\":7,"
          "\"words\":\"node 0 (n0) is lost\"}\n"
          "{\"event\":\"verdict\",\"store_ms\":900,\"job\":\"a\",\"instance\":\"i\",\"n\":4}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_assert(timeline_make(&t, &events));
    expect_bar(1, TIMELINE_RUNNING, 20, 500, TIMELINE_JOB);
    cr_expect_eq(bar_of(1, TIMELINE_RUNNING)->round, 1);
    cr_expect_str_eq(bar_of(1, TIMELINE_RUNNING)->text, "node 0 (n0) is lost");
}

/* The log ends before the barrier is complete, for example because the job was killed. */
Test(timeline, a_barrier_that_never_opened_is_drawn_for_who_came_first)
{
    lines("{\"event\":\"barrier_open\",\"store_ms\":10,\"job\":\"a\",\"instance\":\"i\",\"n\":1,\"barrier\":"
          "\"x\",\"opened_by\":3}\n"
          "{\"event\":\"verdict\",\"store_ms\":900,\"job\":\"a\",\"instance\":\"i\",\"n\":2}\n");
    cr_assert(timeline_choose(&events, NULL));
    cr_assert(timeline_make(&t, &events));
    expect_bar(0, TIMELINE_BARRIER, 0, 890, TIMELINE_JOB);
    cr_expect_eq(strncmp(bar_of(0, TIMELINE_BARRIER)->text, "barrier 'x', ", 13), 0, "%s",
                 bar_of(0, TIMELINE_BARRIER)->text);
}

Test(timeline, nothing_to_draw_is_no_timeline)
{
    cr_expect_not(timeline_choose(&events, NULL));
    lines("\n\n[]\n{}\nnonsense\n{\"event\":\"join\"}\n{\"event\":\"launched\"}\n");
    cr_expect_not(timeline_choose(&events, NULL));
    cr_expect_not_null(strstr(complaints, "log:6: "));
    cr_expect_not_null(strstr(complaints, "log:7: "));
}

Test(timeline, nothing_of_a_log_ends_the_script_element_of_the_page)
{
    struct buf out = { 0 };
    two_nodes();
    cr_assert(timeline_html(&t, "<p>1</p><script>null</script><p>2</p>", &out) && buf_append(&out, "", 1));
    const char *page = (const char *)out.data;
    cr_expect_eq(strncmp(page, "<p>1</p><script>{\"", 18), 0);
    cr_expect_str_eq(strchr(page + 16, '<'), "</script><p>2</p>");
    cr_expect_not_null(strstr(page, "n1\\u003cscript>alert(1)"));
    buf_free(&out);
}

static const cJSON *event_of(const cJSON *list, const char *category, int pid, int tid)
{
    const cJSON *o;
    cJSON_ArrayForEach(o, list)
    {
        const char *cat = cJSON_GetStringValue(cJSON_GetObjectItem(o, "cat"));
        if (cat != NULL && strcmp(cat, category) == 0 && cJSON_GetObjectItem(o, "pid")->valueint == pid &&
            cJSON_GetObjectItem(o, "tid")->valueint == tid)
            return o;
    }
    cr_assert_fail("no '%s'", category);
    return NULL;
}

Test(timeline, the_trace_has_microseconds_and_a_process_for_each_node)
{
    struct buf out = { 0 };
    two_nodes();
    cr_assert(timeline_trace(&t, &out) && buf_append(&out, "", 1));
    cJSON *trace = cJSON_Parse((const char *)out.data);
    cr_assert_not_null(trace);
    const cJSON *list = cJSON_GetObjectItem(trace, "traceEvents");
    const cJSON *barrier = event_of(list, "barrier", 1, 1);
    cr_expect_eq(cJSON_GetObjectItem(barrier, "ts")->valuedouble, 4500000);
    cr_expect_eq(cJSON_GetObjectItem(barrier, "dur")->valuedouble, 2500000);
    cr_expect_str_eq(cJSON_GetObjectItem(cJSON_GetObjectItem(barrier, "args"), "waited_for")->valuestring,
                     "rank 1");
    cr_expect_str_eq(cJSON_GetObjectItem(event_of(list, "failed", 2, 2), "ph")->valuestring, "i");
    cJSON_Delete(trace);
    buf_free(&out);
}
