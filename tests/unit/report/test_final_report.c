/* Tests of the output for programs: the report as JSON, and the events of a job. Programs read both, so the tests
 * compare the members and not the sentences. */
#include "report/final_report.c"
#include "output/event_log.h"
#include "report/report.h"
#include "report/user_messages.c"
#include "report_case.h"

static const char *member(const cJSON *o, const char *name)
{
    const cJSON *m = cJSON_GetObjectItem(o, name);
    cr_assert(cJSON_IsString(m), "%s", name);
    return m->valuestring;
}

static double number(const cJSON *o, const char *name)
{
    const cJSON *m = cJSON_GetObjectItem(o, name);
    cr_assert(cJSON_IsNumber(m), "%s", name);
    return m->valuedouble;
}

Test(report_json, has_the_same_facts, .fini = tear_down)
{
    start(2, "logs");
    run_all(2);
    tail_add(&err_tails[1], slice_str("bad \xff byte\n"));
    report.evidence = &(struct worker_evidence){ .peak_rss = 4096 };
    step(AGENT_EXITED, 3500, 1, -SIGABRT);
    step(AGENT_EXITED, 3600, 0, -SIGTERM);
    cJSON *o = report_json(&report);
    cr_assert_not_null(o);
    cr_assert_str_eq(member(o, "outcome"), "failed");
    cr_assert_eq(number(o, "exit_code"), 134);
    cr_assert_eq(number(o, "duration_s"), 8.5);
    cr_assert_str_eq(member(o, "log_dir"), "logs/k3x9");
    const cJSON *first = cJSON_GetObjectItem(o, "first_failure");
    cr_assert_eq(number(first, "rank"), 1);
    cr_assert_eq(number(first, "ended_s"), 3.0);
    cr_assert_eq(number(first, "peak_rss"), 4096);
    cr_assert_str_eq(member(first, "signal_name"), "SIGABRT");
    cr_assert_str_eq(member(first, "last_lines"), "bad \xef\xbf\xbd byte\n");
    const cJSON *other = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "workers"), 0);
    cr_assert_str_eq(member(other, "verdict"), "consequence");
    cJSON_Delete(o);
}

/* Expect that `text` is one line with the event `name`. Clear `text`, and return the line as an object. */
static cJSON *event(bool complete, const char *name)
{
    cr_assert(complete);
    cr_assert_eq(text.data[text.len - 1], '\n');
    cr_assert_eq(memchr(text.data, '\n', text.len), text.data + text.len - 1, "one line");
    cJSON *o = cJSON_ParseWithLength((char *)text.data, text.len);
    cr_assert_not_null(o);
    cr_assert_str_eq(member(o, "event"), name);
    text.len = 0;
    return o;
}

Test(event_json, each_event_is_one_line, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 2000, 1, 3);
    step(AGENT_EXITED, 2000, 0, -SIGTERM);
    const struct plan_worker *w = &plan.workers[1];
    cJSON *o = event(event_started(&text, 0, &plan), "started");
    cr_assert_eq(number(o, "world_size"), 2);
    cJSON_Delete(o);
    o = event(event_worker_started(&text, 250, w, 77), "worker_started");
    cr_assert_eq(number(o, "t"), 0.25);
    cr_assert_eq(number(o, "pid"), 77);
    cJSON_Delete(o);
    const struct line_time at = { .unix_us = 1795278240000042, .since_us = 1500001 };
    o = event(event_output(&text, at, w, STD_ERR, slice_of("a\0b\"\n\xc3", 6), LINE_UPDATE), "output");
    cr_assert_str_eq(member(o, "text"), "a\xef\xbf\xbd"
                                        "b\"\n\xef\xbf\xbd");
    cr_assert_str_eq(member(o, "time"), "2026-11-21T16:24:00.000042Z");
    cr_assert_eq(number(o, "t"), 1.500001);
    cr_assert_str_eq(member(o, "stream"), "stderr");
    cr_assert_str_eq(member(o, "kind"), "update");
    cJSON_Delete(o);
    o = event(event_worker_ended(&text, 0, w, agent_worker(agent, 1)), "worker_ended");
    cr_assert_str_eq(member(o, "ending"), "exit 3");
    cr_assert_str_eq(member(o, "verdict"), "failed");
    cJSON_Delete(o);
    const struct received_signal heard = { .signal = SIGINT,
                                           .sender = { .pid = 9, .uid = 1000, .name = "bash" } };
    o = event(event_stop(&text, 0, &heard), "stop_requested");
    cr_assert_str_eq(member(o, "signal_name"), "SIGINT");
    cr_assert_str_eq(member(o, "sender_name"), "bash");
    cr_assert_eq(number(o, "sender_pid"), 9);
    cr_assert_eq(number(o, "sender_uid"), 1000);
    cJSON_Delete(o);
    const struct received_signal key = { .signal = SIGWINCH, .sender = { .kernel = true } };
    o = event(event_signal_passed(&text, 0, &key, 2), "signal_passed");
    cr_assert_eq(number(o, "workers"), 2);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(o, "sender_pid")));
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(o, "sender_uid")));
    cJSON_Delete(o);
    o = event(event_worker_stopped(&text, 0, w, 77, SIGSTOP), "worker_stopped");
    cr_assert_str_eq(member(o, "signal_name"), "SIGSTOP");
    cr_assert_eq(number(o, "pid"), 77);
    cJSON_Delete(o);
    o = event(event_note(&text, 0, "a \"note\""), "note");
    cr_assert_str_eq(member(o, "text"), "a \"note\"");
    cJSON_Delete(o);
    o = event(event_finished(&text, &report), "finished");
    cr_assert_eq(number(cJSON_GetObjectItem(o, "report"), "exit_code"), 3);
    cJSON_Delete(o);
}
