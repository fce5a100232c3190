/* Tests of the text about a job, which lists nodes and findings, and of the findings as JSON. This is the golden
 * file of `ddpctl why`, so texts are compared word by word. */
#include "diagnosis/text.c"
#include "snapshot_case.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static char *screen(struct snapshot s)
{
    struct diagnosis d = look(s);
    struct buf out = { 0 };
    cr_assert(screen_append(&s, &d, &out) && buf_append(&out, "", 1));
    return (char *)out.data;
}

Test(screen, a_node_is_missing)
{
    char *text = screen(CASE(GATHERING, NODES(NODE(0))));
    cr_assert_str_eq(
        text, "  error    node 1 has not joined within 62.0 s  "
              "[NODE_MISSING]\n"
              "    try    check that ddprun runs on each missing node, with its --node_rank and with "
              "10.9.0.10:29500 as the master; if so, the output of ddprun on that node shows why the node "
              "has not joined\n"
              "job 'k3': 1 of 2 nodes has joined after 62.0 s; giving up in 13 min (--timeout is 900 s)\n"
              "  NODE  HOST             ADDRESS              PID  WORKERS     SINCE  STATE\n"
              "     0  n0               10.9.0.10            400        2    60.0 s  waits\n"
              "     1  -                -                      -        -         -  missing");
    free(text);
}

Test(screen, a_node_has_left)
{
    char *text =
        screen(CASE(GATHERING, NODES(NODE(0)),
                    LIST(gone, snapshot_gone, { .host = "n1", .how = "w", .node_rank = 1, .pid = 77 })));
    cr_expect_not_null(
        strstr(text, "\n     1  n1               -                     77        -         -  has left"),
        "%s", text);
    free(text);
}

/* The workers start after a pause before the next attempt, or after a last call for more nodes. These two durations are
 * no time limits, so the text must not name --timeout. */
Test(screen, a_pause_is_no_limit)
{
    char *text = screen(CASE(GATHERING, .pause_ms = 161, NODES(NODE(0), NODE(1))));
    cr_assert_not_null(strstr(text, " after 62.0 s; the workers start in 161 ms\n"), "%s", text);
    cr_assert_null(strstr(text, "--timeout"), "%s", text);
    free(text);
}

static void expect_last_line(struct snapshot s, const char *line)
{
    char *text = screen(s), *last = strrchr(text, '\n');
    cr_expect_str_eq(last + 1, line, "%s", text);
    free(text);
}

Test(screen, says_from_the_first_moment_who_is_waited_for)
{
#define GOOD "the store has found no problem"
#define ELSE "the store has found no other problem"
    expect_last_line(CASE(GATHERING, .waited_ms = 1000, NODES(NODE(0))), "  waiting for node 1; " ELSE);
    expect_last_line(CASE(GATHERING, .waited_ms = 1000, .max = 4, NODES(NODE(1))),
                     "  waiting for nodes 0, 2-3; " ELSE);
    expect_last_line(CASE(GATHERING, .waited_ms = 1000, .elastic = true, .max = 4, NODES(NODE(0))),
                     "  waiting for at least 1 more node; " ELSE);
    expect_last_line(CASE(GATHERING, .waited_ms = 1000, .elastic = true, .max = 4, NODES(NODE(0), NODE(1))),
                     "  " GOOD);
    expect_last_line(CASE(RUNNING), "  " GOOD);
}

Test(screen, says_why_stacks_gave_no_verdict)
{
    expect_last_line(
        CASE(RUNNING, .hang = { .still_ms = 80000, .due_ms = 90000, .in_vain = 2, .why_not = "w" }),
        "  " GOOD " yet, but has seen no progress for 80.0 s; the store has compared the stacks 2 times, "
        "without a result: w; after 90.0 s without progress, the store compares the stacks of all "
        "ranks again ('ddpctl stacks' prints the stacks now)");
}

/* Workers without agents have no rendezvous, so there is no round. */
Test(screen, a_job_without_a_round_has_no_attempt)
{
    const struct snapshot job = CASE(RUNNING, .round = 0, THREE_WAIT, RANKS(THREE, RANK(3)));
    char *text = screen(job);
    cr_expect_not_null(strstr(text, "\njob 'k3': 4 ranks without ddprun; "), "%s", text);
    cr_expect_null(strstr(text, "attempt"), "%s", text);
    free(text);
}

/* No node has joined, or all nodes have left. No wait has begun, so the text contains no duration. */
Test(screen, a_store_without_anybody)
{
    struct snapshot s = { .job = "", .knob = "--timeout", .left_ms = UINT64_MAX };
    const struct snapshot_gone gone = {
        .host = "n0", .how = "closed by the peer", .node_rank = -1, .pid = 7, .lost = true
    };
    char *text = screen(s);
    cr_expect_str_eq(text, "no job yet: no node has joined\n  " GOOD);
    free(text);
    s.job = "k3";
    s.gone = &gone;
    s.n_gone = 1;
    text = screen(s);
    cr_expect(strstr(text, "  error    n0 (pid 7) had joined, ") == text, "%s", text);
    cr_expect(strstr(text, "\njob 'k3': all nodes have left") != NULL, "%s", text);
    free(text);
}

Test(screen, a_name_cannot_command_a_terminal)
{
    char *text = screen(CASE(GATHERING, NODES(NODE(0, .host = "n\033[2J0"), NODE(1))));
    cr_assert_null(strchr(text, '\033'));
    cr_assert_not_null(strstr(text, "n?[2J0"), "%s", text);
    free(text);
}

Test(screen, the_time_is_up)
{
    struct snapshot s = CASE(GATHERING, .is_final = true, NODES(NODE(0)));
    char *text = screen(s);
    cr_assert(
        strstr(text, "\njob 'k3': given up: 1 of 2 nodes has joined after 62.0 s (--timeout is 900 s)\n") !=
            NULL,
        "%s", text);
    free(text);
}

Test(screen, it_fits_whatever_happens)
{
    static struct snapshot_node nodes[200];
    static struct snapshot_refused refused[40];
    static struct snapshot_stranger strangers[60];
    for (int i = 0; i < 200; i++)
        nodes[i] = (struct snapshot_node)NODE(0, .node_rank = 2 * i, .nproc = (uint32_t)i + 1);
    for (int i = 0; i < 40; i++)
        refused[i] = (struct snapshot_refused)REFUSED(i % 2 ? "JOB_FULL" : "VERSION_DIFFERS", 3, .pid = i);
    for (int i = 0; i < 60; i++)
        strangers[i] = (struct snapshot_stranger){ .kind = (enum reject_kind)(i % REJECT_KINDS_N),
                                                   .address = "10.8.0.1",
                                                   .bytes = "x",
                                                   .job = "y",
                                                   .times = 2 };
    struct snapshot s = CASE(GATHERING, .nodes = nodes, .n_nodes = 200, .refused = refused, .n_refused = 40,
                             .strangers = strangers, .n_strangers = 60);
    s.max = s.min = 1000;
    char *text = screen(s);
    int lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    cr_assert_leq(lines, 48, "%d lines:\n%s", lines, text);
    free(text);
}

Test(screen, findings_as_json)
{
    struct diagnosis d = look(CASE(GATHERING, NODES(NODE(0))));
    cJSON *o = cJSON_CreateObject();
    cr_assert(diagnosis_add_findings(o, &d));
    const cJSON *array = cJSON_GetObjectItem(o, "findings");
    cr_assert_eq(cJSON_GetArraySize(array), 1);
    const cJSON *row = cJSON_GetArrayItem(array, 0);
    cr_assert_str_eq(cJSON_GetObjectItem(row, "code")->valuestring, "NODE_MISSING");
    cr_assert_str_eq(cJSON_GetObjectItem(row, "grade")->valuestring, "error");
    cr_assert_str_eq(cJSON_GetObjectItem(row, "subject")->valuestring, "node 1");
    cJSON_Delete(o);
}

/* A new finding in a full list drops the last finding. `left_out` then grows by 1 for the dropped finding, and by the
 * value of its field `more`. */
Test(slots, a_dropped_finding_is_counted_with_its_further_ones)
{
    static struct diagnosis d;
    for (int code = FINDING_NONE + 1; d.n < DIAGNOSIS_MAX; code++) {
        struct finding *f = diagnosis_slot(&d, (enum finding_code)code);
        cr_assert_not_null(f);
        *f = (struct finding){ .code = (enum finding_code)code };
    }
    d.list[DIAGNOSIS_MAX - 1].more = 3;
    cr_assert_not_null(diagnosis_slot(&d, d.list[0].code));
    cr_expect_eq(d.left_out, 4);
}
