/* test_user_messages.c -- tests of the text for a user who asks what the job does. No process runs, so a test can
 * bring the agent into any state. */
#include "report/user_messages.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct plan plan;
static struct agent *agent;
static struct status_facts facts;

static void step(struct agent_event event)
{
    size_t n;
    agent_step(agent, &event, &n);
}

/* Begin a job whose workers were started at 1 s, rank N as pid 100 + N. */
static void begin(int nproc)
{
    plan = (struct plan){ .job = "k3x9",
                          .nproc = nproc,
                          .workers = calloc((size_t)nproc, sizeof(*plan.workers)) };
    agent = agent_new(&(struct agent_options){ .nproc = nproc, .grace_ms = 1000 });
    cr_assert_not_null(agent);
    facts = (struct status_facts){
        .plan = &plan, .agent = agent, .now_ms = 13300, .started_ms = 1000, .states = calloc((size_t)nproc, 1)
    };
    step((struct agent_event){ .type = AGENT_START, .now_ms = 1000 });
    for (int i = 0; i < nproc; i++) {
        plan.workers[i].rank = i;
        step((struct agent_event){ .type = AGENT_SPAWNED, .now_ms = 1000, .local_rank = i, .pid = 100 + i });
    }
}

static void end(void)
{
    agent_free(agent);
    free(plan.workers);
    free((char *)facts.states);
    cJSON_Delete((cJSON *)facts.answer);
}

static void expect_lines(const char *expected)
{
    struct buf text = { 0 };
    for (int i = 0; status_line(&facts, i, &text); i++)
        cr_assert(buf_append(&text, "\n", 1));
    cr_assert(buf_append(&text, "", 1));
    cr_expect_str_eq((const char *)text.data, expected);
    buf_free(&text);
}

Test(status, without_the_store_it_tells_what_the_kernel_knows, .fini = end)
{
    begin(3);
    ((char *)facts.states)[1] = 'T';
    ((char *)facts.states)[2] = 'D';
    expect_lines("12.3 s after the start: job k3x9, 3 of 3 workers run; the store does not answer\n"
                 "rank 0 (pid 100) has run for 12.3 s\n"
                 "rank 1 (pid 101) has run for 12.3 s, is stopped (kill -CONT 101 continues it)\n"
                 "rank 2 (pid 102) has run for 12.3 s, hangs in the kernel (state D; see /proc/102/wchan)\n");
}

Test(status, with_the_store_it_tells_who_waits_for_what, .fini = end)
{
    begin(4);
    step((struct agent_event){ .type = AGENT_EXITED, .now_ms = 4000, .local_rank = 3 });
    facts.answer =
        cJSON_Parse("{\"members\":["
                    "{\"rank\":0,\"state\":\"connected\",\"silent_ms\":10,\"waits_for\":\"barrier 'end'\"},"
                    "{\"rank\":1,\"state\":\"connected\",\"silent_ms\":5000},"
                    "{\"rank\":2,\"state\":\"disconnected\",\"silent_ms\":5000},"
                    "{\"rank\":3,\"state\":\"exited\"}, 7]}");
    expect_lines("12.3 s after the start: job k3x9, 3 of 4 workers run\n"
                 "rank 0 (pid 100) has run for 12.3 s, waits for barrier 'end'\n"
                 "rank 1 (pid 101) has run for 12.3 s, last reached the store 5.0 s ago\n"
                 "rank 2 (pid 102) has run for 12.3 s, has closed its connection to the store\n"
                 "rank 3: exit 0 after 3.0 s\n");
}

Test(status, workers_of_libddp_tell_where_they_are, .fini = end)
{
    begin(2);
    facts.answer = cJSON_Parse("{\"members\":["
                               "{\"rank\":0,\"state\":\"connected\",\"silent_ms\":10,\"call\":\"all_reduce "
                               "#5\",\"step\":3,\"beat_ms\":3700},"
                               "{\"rank\":1,\"state\":\"connected\",\"silent_ms\":5000,\"beat_ms\":4000}]}");
    expect_lines("12.3 s after the start: job k3x9, 2 of 2 workers run\n"
                 "rank 0 (pid 100) has run for 12.3 s, has waited in all_reduce #5 for 3.7 s, after step 3\n"
                 "rank 1 (pid 101) has run for 12.3 s, has not been in a collective for 4.0 s\n");
}

/* 199 of 200 workers wait. Only the other worker gets a line. */
Test(status, in_a_large_job_those_who_wait_are_counted, .fini = end)
{
    begin(200);
    cJSON *answer = cJSON_CreateObject(), *members = cJSON_AddArrayToObject(answer, "members");
    for (int i = 0; i < 200; i++) {
        cJSON *member = cJSON_CreateObject();
        cJSON_AddNumberToObject(member, "rank", i);
        cJSON_AddStringToObject(member, "state", "connected");
        if (i != 150)
            cJSON_AddStringToObject(member, "waits_for", "key 'x'");
        cJSON_AddItemToArray(members, member);
    }
    facts.answer = answer;
    expect_lines("12.3 s after the start: job k3x9, 200 of 200 workers run\n"
                 "rank 150 (pid 250) has run for 12.3 s\n"
                 "199 more ranks, of which 199 wait for other ranks; run ddpctl status to see all\n");
}

Test(status, however_many_there_are_it_fits_two_screens, .fini = end)
{
    struct buf text = { 0 };
    int lines = 0;
    begin(300);
    while (status_line(&facts, lines, &text))
        lines++;
    cr_expect_eq(lines, 1 + STATUS_LINES_MAX + 1);
    buf_free(&text);
}
