/* Tests of ddprun --events: each line of the log of a job with real processes is checked against the schema.
 * Programs read this log, so an unknown event or member is an error. */
#include "run.h"
#include "job.h"
#include "procstat.h"
#include "documents.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(ddprun_events, .timeout = 120);

static const struct run_options patience = { .timeout_ms = 2 * PATIENCE_MS };

/* Return the number of lines whose event is `kind`. Each line must fit the schema. */
static int count(const char *log, const char *kind)
{
    int n = 0;
    char why[256];
    cJSON *schema = schema_of_events();
    for (const char *line = log; *line != '\0'; line += strcspn(line, "\n") + 1) {
        cJSON *o = cJSON_ParseWithLength(line, strcspn(line, "\n"));
        cr_assert(schema_fits(schema, o, why, sizeof(why)), "%s: %.*s", why, (int)strcspn(line, "\n"), line);
        n += strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(o, "event")), kind) == 0;
        cJSON_Delete(o);
    }
    cJSON_Delete(schema);
    return n;
}

static void expect_counts(const char *log, const char *kinds[], const int counts[])
{
    for (int i = 0; kinds[i] != NULL; i++)
        cr_expect_eq(count(log, kinds[i]), counts[i], "%d of %s, not %d:\n%s", count(log, kinds[i]), kinds[i],
                     counts[i], log);
}

static const char *in(const char *dir, const char *name)
{
    static char option[512];
    snprintf(option, sizeof(option), "--events=%s/%s", dir, name);
    return option;
}

Test(ddprun_events, a_job_with_a_restart_tells_each_thing_once)
{
    const char *kinds[] = { "launched",     "join",    "round",   "worker_started", "worker_ended", "stop",
                            "node_stopped", "verdict", "restart", "node_done",      "finished",     "started",
                            "events_lost",  NULL };
    const int counts[] = { 1, 2, 2, 4, 4, 1, 1, 2, 1, 1, 1, 1, 0 };
    char *dir = job_dir();
    struct run_result r =
        JOB("--nproc_per_node=2", "--max-restarts=1", "--restart-backoff=10ms", in(dir, "sub/%n.jsonl"), "sh",
            "-c", "case $RANK$TORCHELASTIC_RESTART_COUNT in 10) exit 7;; 00) exec sleep 1000;; esac");
    EXPECT(r, 0);
    char *log = job_file(dir, "sub/0.jsonl");
    cr_assert_not_null(log);
    expect_counts(log, kinds, counts);
    free(log);
    job_dir_remove(dir);
}

/* The first attempt failed. The next attempt ends for other reasons, and its event must not repeat the failure. */
Test(ddprun_events, an_end_is_not_told_with_the_words_of_an_earlier_failure)
{
    char *dir = job_dir();
    struct run_process *p =
        JOB_START("--max-restarts=1", "--restart-backoff=10ms", in(dir, "e.jsonl"), "sh", "-c",
                  "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 7; echo up; exec sleep 1000");
    cr_expect(run_until_output(p, "up", PATIENCE_MS));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    char *log = job_file(dir, "e.jsonl");
    cr_assert_not_null(log);
    const char *end = strstr(log, "\"event\":\"finished\"");
    cr_assert_not_null(end, "%s", log);
    cr_expect_null(strstr(end, "exit 7"), "%s", end);
    free(log);
    job_dir_remove(dir);
}

Test(ddprun_events, a_barrier_tells_who_was_waited_for)
{
    char *dir = job_dir();
    struct run_result r =
        JOB("--nproc_per_node=2", in(dir, "log"), bin("tests/prog/worker_probe"), "barrier", "a");
    EXPECT(r, 0);
    char *log = job_file(dir, "log");
    cr_expect_eq(count(log, "barrier_open"), 2 /* one of the two barriers is libddp's own */, "%s", log);
    cr_expect_eq(count(log, "barrier_end"), 2, "%s", log);
    cr_expect_not_null(strstr(log, "\"outcome\":\"released\""));
    free(log);
    job_dir_remove(dir);
}

Test(ddprun_events, a_log_that_cannot_be_written_costs_one_warning)
{
    struct run_result r = JOB("--events=/dev/full", "true");
    EXPECT(r, 0);
    SAYS(r, "--events=/dev/full: ");
    r = JOB("--events=/proc/nowhere/log", "true");
    EXPECT(r, 0);
    SAYS(r, "--events=/proc/nowhere/log: ");
}

/* The daemon's store sends its events to one node that requests events. The store also writes these events to its own
 * log. */
Test(ddprun_events, a_daemon_s_store_tells_a_node_and_writes_its_own)
{
    char *dir = job_dir(), own[512], at[128];
    snprintf(own, sizeof(own), "--events=%s/store", dir);
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", "127.0.0.1:0", own, NULL };
    struct run_process *daemon = run_start(argv, &patience);
    cr_assert(run_until_output(daemon, "\n", PATIENCE_MS));
    snprintf(at, sizeof(at), "--rdzv_endpoint=%.*s", (int)strcspn(strstr(run_output(daemon), "127."), "\n"),
             strstr(run_output(daemon), "127."));
    const char *job[] = { bin("ddprun"),   "--nnodes=1:1", "--rdzv_id=j", "--rdzv_backend=c10d", at,
                          in(dir, "node"), "true",         NULL };
    struct run_result r = run_command(job, NULL);
    EXPECT(r, 0);
    run_signal(daemon, 15);
    struct run_result d = run_wait(daemon);
    char *node = job_file(dir, "node"), *store = job_file(dir, "store");
    cr_assert(node != NULL && store != NULL, "%s%s", r.err, d.err);
    cr_expect_eq(count(node, "round"), 1, "%s", node);
    cr_expect_eq(count(store, "round"), 1, "%s", store);
    cr_expect_eq(count(store, "worker_started"), 0, "%s", store);
    free(node);
    free(store);
    job_dir_remove(dir);
}

static struct run_process *node(const char *at, const char *events)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=1:2",
                           "--rdzv_id=j",
                           "--rdzv_backend=c10d",
                           at,
                           "--host_store=no",
                           "--rdzv_conf=last_call_timeout=30",
                           "--nproc_per_node=1",
                           events,
                           "sh",
                           "-c",
                           "echo up; [ $WORLD_SIZE = 1 ] || exec sleep 1000",
                           NULL };
    return run_start(argv, &patience);
}

/* The first node that requests events gets the events. When this node is killed, the log of the other node has all
 * events, including earlier ones. */
Test(ddprun_events, the_log_of_who_survives_is_complete)
{
    char *dir = job_dir(), at[128], first[512], second[512];
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", "127.0.0.1:0", NULL };
    struct run_process *daemon = run_start(argv, &patience);
    cr_assert(run_until_output(daemon, "\n", PATIENCE_MS));
    snprintf(at, sizeof(at), "--rdzv_endpoint=%.*s", (int)strcspn(strstr(run_output(daemon), "127."), "\n"),
             strstr(run_output(daemon), "127."));
    snprintf(first, sizeof(first), "%s", in(dir, "first"));
    snprintf(second, sizeof(second), "%s", in(dir, "second"));
    struct run_process *a = node(at, first);
    struct run_process *b = node(at, second);
    cr_assert(run_until_output(a, "up", PATIENCE_MS) && run_until_output(b, "up", PATIENCE_MS));
    char *log = job_file(dir, "first");
    const bool a_writes = log != NULL && strstr(log, "\"event\":\"round\"") != NULL;
    free(log);
    run_signal(a_writes ? a : b, 9);
    struct run_result ra = run_wait(a), rb = run_wait(b);
    log = job_file(dir, a_writes ? "second" : "first");
    cr_assert_not_null(log);
    EXPECT(a_writes ? rb : ra, 0);
    cr_expect_eq(count(log, "lost"), 1, "%s", log);
    cr_expect_eq(count(log, "join"), 3, "%s", log);
    cr_expect_eq(count(log, "round"), 2, "%s", log);
    free(log);
    run_signal(daemon, 15);
    run_wait(daemon);
    job_dir_remove(dir);
}

/* --- an elastic node ------------------------------------------------------------------------------------ */

/* The name of the log contains the rank of the node (%n). A node learns its rank in the first round. Until then, the
 * node keeps the lines of the log in memory, because it cannot open the file. */
Test(ddprun_events, the_rank_in_the_name_is_that_of_the_first_round)
{
    char *dir = job_dir(), events[512], endpoint[64];
    struct run_process *nodes[2];
    snprintf(events, sizeof(events), "%s", in(dir, "node%n"));
    snprintf(endpoint, sizeof(endpoint), "%s", free_port_option("--rdzv_endpoint=127.0.0.1:"));
    const char *argv[] = {
        bin("ddprun"), "--nnodes=2", "--rdzv_backend=c10d", endpoint, events, "true", NULL
    };
    for (int i = 0; i < 2; i++)
        nodes[i] = run_start(argv, &patience);
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_wait(nodes[i]);
        EXPECT(r, 0);
    }
    for (int i = 0; i < 2; i++) {
        char *log = job_file(dir, i == 0 ? "node0" : "node1");
        cr_assert_not_null(log, "no file of node %d", i);
        cr_expect_eq(count(log, "launched"), 1, "%s", log);
        cr_expect(strncmp(log, "{\"event\":\"launched\"", 19) == 0, "%s", log);
        cr_expect_eq(count(log, "finished"), 1, "%s", log);
        free(log);
    }
    cr_expect_null(job_file(dir, "node-1"), "a name without a rank");
    job_dir_remove(dir);
}

struct held {
    int fds, logs, threads;
};

/* Count the agent's open descriptors, its threads, and its descriptors of files in `dir`. */
static struct held held_by(pid_t agent, const char *dir)
{
    struct held held = { .fds = procstat_fds(agent) };
    char path[512], target[512];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)agent);
    DIR *fds = opendir(path);
    for (struct dirent *e; fds != NULL && (e = readdir(fds)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)agent, e->d_name);
        const ssize_t len = readlink(path, target, sizeof(target) - 1);
        held.logs += len > 0 && strncmp(target, dir, strlen(dir)) == 0;
    }
    if (fds != NULL)
        closedir(fds);
    snprintf(path, sizeof(path), "/proc/%d/task", (int)agent);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks != NULL && (e = readdir(tasks)) != NULL;)
        held.threads += e->d_name[0] != '.';
    if (tasks != NULL)
        closedir(tasks);
    return held;
}

Test(ddprun_events, a_log_is_opened_once_and_has_one_thread)
{
    char *dir = job_dir(), events[512], endpoint[64], script[512], go[256];
    snprintf(events, sizeof(events), "%s", in(dir, "node%n"));
    snprintf(endpoint, sizeof(endpoint), "%s", free_port_option("--rdzv_endpoint=127.0.0.1:"));
    snprintf(script, sizeof(script),
             "n=$TORCHELASTIC_RESTART_COUNT; echo up$n; until [ -e %s/go$n ]; do sleep 0.01; done; [ $n = 4 "
             "] || exit 7",
             dir);
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=1:1",
                           "--rdzv_backend=c10d",
                           endpoint,
                           events,
                           "--max_restarts=4",
                           "--restart_backoff=1ms",
                           "sh",
                           "-c",
                           script,
                           NULL };
    struct run_process *process = run_start(argv, &patience);
    struct held first = { 0 }, held = { 0 };
    for (int n = 0; n <= 4; n++) {
        char up[16];
        snprintf(up, sizeof(up), "up%d\n", n);
        cr_assert(run_until_output(process, up, PATIENCE_MS), "%s", up);
        for (struct patience p = { 0 };
             patience_left(&p);) { /* pipes of the previous attempt may still be open for a moment */
            held = held_by(procstat_child(run_pid(process), 0), dir);
            if (n <= 1 ? held.logs == 1 : held.fds == first.fds && held.threads == first.threads)
                break;
        }
        first = n <= 1 ? held : first; /* from attempt 2 on, compare with attempt 1 and not with attempt 0,
                                        * because in attempt 0 the thread for stderr may still be missing */
        cr_assert_eq(held.logs, 1, "attempt %d: the log is open %d times", n, held.logs);
        cr_assert_eq(held.fds, first.fds, "attempt %d: %d descriptors, not %d", n, held.fds, first.fds);
        cr_assert_eq(held.threads, first.threads, "attempt %d: %d threads, not %d", n, held.threads,
                     first.threads);
        snprintf(go, sizeof(go), "%s/go%d", dir, n);
        fclose(fopen(go, "we"));
    }
    struct run_result r = run_wait(process);
    EXPECT(r, 0);
    job_dir_remove(dir);
}
