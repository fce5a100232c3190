/* Two nodes with two ranks each. The agents report progress and take samples of the stacks. The tests check which
 * findings each node gets, and when. */
#include "hub/hang_watch.h"
#include "sim_hub.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N0 = 10, N1, NODES = 2, OPERATOR = 40, S = 1000 };

static struct sim sim;
static int samples[NODES];     /* samples requested from each node */
static int with_records;       /* number of samples that the search for hangs has requested from node 0 */
static bool holds;             /* the nodes do not answer requests for samples */
static int findings[NODES];    /* number of findings pushed to each node */
static char told[NODES][2048]; /* text of the latest finding */
static char stopped[2048];     /* the latest push `stop` to node 0 */
static const char *does;       /* activity of rank 3; NULL = rank 3 waits, too */
static bool has_frames;        /* the nodes can read stacks */
static bool has_calls;         /* the nodes send flight records */
static bool is_late;           /* rank 3 has not written its record yet */
static bool moves;             /* main() of rank 3 is at a later line in each sample */
static int cycle;       /* number of samples until main() of rank 3 is at its first line again; 0 = never */
static int cpu_ms;      /* CPU time that each waiting rank uses between two samples */
static cJSON *recorded; /* tests/data/hangs/recorded/pauses.json; NULL = the samples are made up */
static int second;      /* seconds that the recorded job has run; after its last sample it starts again */
static bool is_held;    /* `second` does not advance: all ranks stay where they are */

static void join(conn_id conn, const char *more)
{
    char json[1024];
    const int n = (int)conn - N0;
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"0.1.0\",\"host\":\"n%d\",\"boot_id\":\"b%d\","
             "\"pid\":%d,"
             "\"mode\":\"static\",\"nnodes_min\":2,\"nnodes_max\":2,\"node_rank\":%d,\"nproc\":2,\"addr\":"
             "\"10.0.0.%d\","
             "\"join_timeout_ms\":60000,\"node_timeout_ms\":3000,\"grace_ms\":1000,\"max_restarts\":1%s}",
             n, n, 100 + n, n, n + 1, more);
    sim_say(&sim, conn, json);
}

static void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.endpoint = "10.0.0.1:29500";
    limits.host = "n0";
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
    memset(samples, 0, sizeof(samples));
    memset(findings, 0, sizeof(findings));
    memset(told, 0, sizeof(told));
    stopped[0] = '\0';
    does = "sleeping in clock_nanosleep";
    moves = has_calls = is_late = holds = is_held = false;
    with_records = cycle = cpu_ms = 0;
    second = 0;
    has_frames = true;
}

static void tear_down(void)
{
    cJSON_Delete(recorded);
    recorded = NULL;
    sim_free(&sim);
}

TestSuite(hang_sim, .init = set_up, .fini = tear_down);

/* --- nodes ------------------------------------------------------------------------------------------------ */

#define WAITS                                                                                                \
    "{\"frames\":[{\"function\":\"all_reduce\",\"file\":\"torch/distributed/"                                \
    "distributed_c10d.py\",\"line\":9,"                                                                      \
    "\"user\":false},{\"function\":\"step\",\"file\":\"train.py\",\"line\":88,\"user\":true}],\"threads\":[" \
    "%s]}"
#define MAIN "{\"rank\":%d,\"pid\":%d,\"host\":\"n1\",\"main\":true,\"does\":\"%s\"}"
#define SLEEPS \
    "{\"rank\":%d,\"pid\":%d,\"host\":\"n1\",\"main\":true,\"does\":\"sleeping in futex\",\"cpu_ms\":%d}"

#define REDUCE(rank, seq) \
    "{\"rank\":" #rank ",\"seq\":" #seq ",\"name\":\"all_reduce\",\"state\":\"scheduled\"}"

/* Return flight records in which rank 3 is one call behind. Node 0 also sends a record of rank 3. The store must ignore
 * this record, because rank 3 runs on node 1. */
static const char *calls_of(conn_id conn)
{
    if (conn == N1 && is_late)
        return REDUCE(2, 8);
    return conn == N0 ? REDUCE(0, 8) "," REDUCE(1, 8) "," REDUCE(3, 8) : REDUCE(2, 8) "," REDUCE(3, 7);
}

/* Return the sample of this second: the age of the last line in ms, then for each rank [stack, activity, CPU time]. */
static const cJSON *sample_now(void)
{
    const cJSON *all = cJSON_GetObjectItem(recorded, "samples");
    return cJSON_GetArrayItem(all, second % cJSON_GetArraySize(all));
}

static int number_at(const cJSON *row, int i)
{
    return (int)cJSON_GetNumberValue(cJSON_GetArrayItem(row, i));
}

static const cJSON *recorded_at(const char *list, const cJSON *of_rank, int i)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItem(recorded, list), number_at(of_rank, i));
}

/* Answer with the recorded stacks of all ranks; the store uses only the stacks of the node's own ranks. The recorded
 * job is repeated, so add the CPU time of the earlier repetitions. */
static void answer_recorded(conn_id conn, double id)
{
    const cJSON *samples_of = cJSON_GetObjectItem(recorded, "samples"), *sample = sample_now(), *of_rank;
    const int n = cJSON_GetArraySize(samples_of), last = n - 1;
    cJSON *answer = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(answer, "stacks");
    cJSON_AddStringToObject(answer, "op", "sampled");
    cJSON_AddNumberToObject(answer, "id", id);
    for (int rank = 0; rank < 2 * NODES; rank++) {
        of_rank = cJSON_GetArrayItem(sample, 1 + rank);
        const int total_ms = number_at(cJSON_GetArrayItem(cJSON_GetArrayItem(samples_of, last), 1 + rank), 2);
        cJSON *row = cJSON_CreateObject(), *thread = cJSON_CreateObject();
        cJSON_AddItemToObject(row, "frames", cJSON_Duplicate(recorded_at("stacks", of_rank, 0), true));
        cJSON_AddItemToArray(cJSON_AddArrayToObject(row, "threads"), thread);
        cJSON_AddNumberToObject(thread, "rank", rank);
        cJSON_AddNumberToObject(thread, "pid", 70 + rank);
        cJSON_AddStringToObject(thread, "host", "n0");
        cJSON_AddTrueToObject(thread, "main");
        cJSON_AddStringToObject(thread, "does", cJSON_GetStringValue(recorded_at("does", of_rank, 1)));
        cJSON_AddNumberToObject(thread, "cpu_ms", number_at(of_rank, 2) + second / n * total_ms);
        cJSON_AddItemToArray(rows, row);
    }
    char *text = cJSON_PrintUnformatted(answer);
    sim_say(&sim, conn, text);
    cJSON_free(text);
    cJSON_Delete(answer);
}

static void answer_sample(conn_id conn, double id)
{
    if (recorded != NULL) {
        answer_recorded(conn, id);
        return;
    }
    if (!has_frames) {
        char none[80];
        snprintf(none, sizeof(none), "{\"op\":\"sampled\",\"id\":%.0f,\"stacks\":[]}", id);
        sim_say(&sim, conn, none);
        return;
    }
    char json[2048], waiting[512], culprit[512] = "", rows[1024];
    const int first = (int)(conn - N0) * 2, n = conn == N1 && does != NULL ? 1 : 2;
    const int cpu = cpu_ms * samples[conn - N0], line = cycle > 0 ? samples[1] % cycle : samples[1];
    int used = snprintf(waiting, sizeof(waiting), SLEEPS, first, 70 + first, cpu);
    if (n == 2)
        snprintf(waiting + used, sizeof(waiting) - (size_t)used, "," SLEEPS, first + 1, 71 + first, cpu);
    else
        snprintf(culprit, sizeof(culprit),
                 ",{\"frames\":[{\"function\":\"load_batch\",\"file\":\"data.py\",\"line\":41,\"user\":true},"
                 "{\"function\":"
                 "\"main\",\"file\":\"train.py\",\"line\":%d,\"user\":true}],\"threads\":[" MAIN "]}",
                 moves ? 5 + line : 5, 3, 73, does);
    snprintf(rows, sizeof(rows), WAITS, waiting);
    snprintf(json, sizeof(json), "{\"op\":\"sampled\",\"id\":%.0f,\"stacks\":[%s%s],\"calls\":[%s]}", id,
             rows, culprit, has_calls ? calls_of(conn) : "");
    sim_say(&sim, conn, json);
}

static void take_push(conn_id conn, const cJSON *o)
{
    const int n = (int)conn - N0;
    const char *push = cJSON_GetStringValue(cJSON_GetObjectItem(o, "push"));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, "text"));
    if (push == NULL)
        return;
    if (strcmp(push, "sample") == 0) {
        samples[n]++;
        with_records += n == 0 && cJSON_HasObjectItem(o, "still_ms");
        if (!holds)
            answer_sample(conn, cJSON_GetNumberValue(cJSON_GetObjectItem(o, "id")));
    } else if (strcmp(push, "findings") == 0) {
        findings[n]++;
        snprintf(told[n], sizeof(told[n]), "%s", text != NULL ? text : "");
    } else if (strcmp(push, "stop") == 0) {
        char *printed = cJSON_PrintUnformatted(o);
        snprintf(stopped, sizeof(stopped), "%s", printed);
        cJSON_free(printed);
    }
}

/* Handle the pushes. An answer to a push may cause another push. */
static void take_pushes(conn_id conn)
{
    struct buf *out = &sim.conn[conn].out;
    while (out->len >= 8) {
        const struct buf taken = *out;
        *out = (struct buf){ 0 };
        for (size_t at = 0; at + 8 <= taken.len;) {
            const size_t len = get_u64(taken.data + at);
            cJSON *o = cJSON_ParseWithLength((const char *)taken.data + at + 8, len);
            take_push(conn, o);
            cJSON_Delete(o);
            at += 8 + len;
        }
        struct buf old = taken;
        buf_free(&old);
    }
}

/* Let `ms` pass with a heartbeat each second. If `moves_on` is true, each heartbeat reports a new line of output. */
static void live(uint64_t ms, bool moves_on)
{
    for (const uint64_t until = sim.now_ms + ms; sim.now_ms < until;) {
        for (conn_id conn = N0; conn <= N1; conn++)
            sim_say(&sim, conn,
                    moves_on ? "{\"op\":\"heartbeat\",\"moved_ms\":10}" : "{\"op\":\"heartbeat\"}");
        for (conn_id conn = N0; conn <= N1; conn++)
            take_pushes(conn);
        sim_at(&sim, sim.now_ms + S);
    }
    for (conn_id conn = N0; conn <= N1; conn++)
        take_pushes(conn);
}

static void run_job(const char *more)
{
    join(N0, more);
    join(N1, more);
    live(60 * S, true);
    cr_assert_eq(findings[0], 0, "%s", told[0]);
}

static const char *why(void)
{
    return sim_control(&sim, OPERATOR, "{\"op\":\"why\"}");
}

static void expect_told(int n, const char *words)
{
    cr_assert(strstr(told[n], words) != NULL, "'%s' is not in: %s", words, told[n]);
}

/* Expect that all nodes have a report with all `words`, and that the answer to `why` contains `code`. Then expect that
 * no report follows in `later_ms`, and that `n_samples` samples were taken in all. */
static void expect_one_report(const char *const *words, const char *code, uint64_t later_ms, int n_samples)
{
    for (int n = 0; n < NODES; n++)
        for (size_t i = 0; words[i] != NULL; i++)
            expect_told(n, words[i]);
    cr_expect(strstr(why(), code) != NULL, "%s", why());
    live(later_ms, false);
    cr_expect_eq(findings[0], 1);
    cr_expect_eq(samples[0], n_samples);
}

#define SENTENCE "load_batch (data.py:41) and sleeps"

/* --- cases ------------------------------------------------------------------------------------------------ */

Test(hang_sim, a_hang_is_reported_on_all_nodes_once_and_by_why)
{
    run_job("");
    live(41 * S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    live(5 * S, false);
    expect_one_report(
        (const char *const[]){ SENTENCE, "progress for 42", "all_reduce (train.py:88)  [RANK_SLEEPS]", NULL },
        "RANK_SLEEPS", 600 * S, 3);
}

Test(hang_sim, why_says_how_often_stacks_gave_no_verdict_since_the_last_progress)
{
    moves = true;
    run_job("");
    live(50 * S, false);
    cr_expect(strstr(why(), "stacks 1 time,") != NULL && strstr(why(), "another line") != NULL, "%s", why());
    live(S, true);
    live(15 * S, false);
    cr_expect(strstr(why(), "progress for") != NULL && strstr(why(), "stacks 1 time") == NULL, "%s", why());
}

/* The search for hangs does not use the stacks that an operator has requested, for two reasons: these stacks contain no
 * flight records, and may have been read before the search began to suspect a hang. */
Test(hang_sim, an_open_request_of_an_operator_is_no_sample_of_the_search)
{
    run_job("");
    live(28 * S, false);
    cr_assert_eq(samples[0], 0);
    holds = true;
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\",\"job\":\"demo\"}");
    live(3 * S, false);
    cr_assert_eq(samples[0], 1, "%d", samples[0]);
    cr_assert_eq(with_records, 0);
    holds = false;
    live(30 * S, false);
    expect_told(0, "[RANK_SLEEPS]");
    cr_expect_eq(with_records, 3);
    cr_expect_eq(samples[0], 4);
}

Test(hang_sim, a_job_that_goes_on_again_has_no_finding)
{
    run_job("");
    live(50 * S, false);
    cr_expect_eq(findings[0], 1);
    live(5 * S, true);
    cr_expect(strstr(why(), "RANK_SLEEPS") == NULL, "%s", why());
    cr_expect_eq(findings[0], 1, "the last lines of a rank that fails are no end of the hang");
    live(100 * S, true);
    cr_expect_eq(findings[0], 2);
    cr_expect_str_eq(told[0], "", "the hang is over");
}

Test(hang_sim, a_job_that_moves_on_in_time_is_left_alone)
{
    run_job("");
    for (int i = 0; i < 20; i++) {
        live(41 * S, false);
        live(3 * S, true);
    }
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 0);
}

/* --- a recorded job --------------------------------------------------------------------------------------- */

/* Read the stacks of a healthy job with uneven steps (tests/data/hangs/worker.py), recorded once a second for 9 minutes
 * by record.py. After each minute, rank 0 makes an evaluation of 20 s or a checkpoint of 40 s. */
static void read_recorded(void)
{
    static char text[1 << 20];
    FILE *f = fopen("tests/data/hangs/recorded/pauses.json", "r");
    cr_assert_not_null(f);
    const size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    recorded = cJSON_ParseWithLength(text, n);
    cr_assert_not_null(recorded);
}

/* Let the recorded job run for `seconds`, with a heartbeat each second. If `has_lines` is true, a heartbeat after a new
 * line also has the age of this line. */
static void replay(int seconds, bool has_lines)
{
    char beat[80];
    for (int i = 0; i < seconds; i++) {
        const int moved_ms = number_at(sample_now(), 0);
        snprintf(beat, sizeof(beat), "{\"op\":\"heartbeat\",\"moved_ms\":%d}", moved_ms);
        for (conn_id conn = N0; conn <= N1; conn++)
            sim_say(&sim, conn, has_lines && !is_held && moved_ms < S ? beat : "{\"op\":\"heartbeat\"}");
        for (conn_id conn = N0; conn <= N1; conn++)
            take_pushes(conn);
        second += !is_held;
        sim_at(&sim, sim.now_ms + S);
    }
}

/* Let the job stay in a checkpoint. Return the longest pause of the job before this checkpoint, in s. */
static int hang_in_checkpoint(void)
{
    int longest_ms = 0;
    const cJSON *sample, *all = cJSON_GetObjectItem(recorded, "samples");
    cJSON_ArrayForEach(sample, all)
    {
        longest_ms = number_at(sample, 0) > longest_ms ? number_at(sample, 0) : longest_ms;
    }
    for (const char *function = ""; strcmp(function, "save") != 0;) {
        replay(1, true);
        const cJSON *frame = recorded_at("stacks", cJSON_GetArrayItem(sample_now(), 1), 0)->child;
        function = cJSON_GetStringValue(cJSON_GetObjectItem(frame, "function"));
    }
    is_held = true;
    return longest_ms / S + 2;
}

enum { DAY_S = 24 * 60 * 60, DEADLINE_S = 15 };

Test(hang_sim, a_recorded_day_has_no_finding_and_the_hang_at_its_end_has_one)
{
    read_recorded();
    run_job("");
    replay(DAY_S, true);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 0, "the first checkpoint is longer than the least limit");
    replay(HANG_FACTOR * hang_in_checkpoint() + DEADLINE_S, true);
    for (int n = 0; n < NODES; n++) {
        expect_told(n, "rank 0 is in save (worker.py:");
        cr_expect_eq(findings[n], 1);
    }
}

/* A job that prints nothing has no sign of progress, so samples are taken all day. */
Test(hang_sim, a_recorded_day_without_output_has_no_finding_and_the_hang_at_its_end_has_one)
{
    read_recorded();
    join(N0, "");
    join(N1, "");
    replay(DAY_S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 200);
    (void)hang_in_checkpoint();
    replay(HANG_AGAIN_MAX_MS / S + 60, false);
    for (int n = 0; n < NODES; n++)
        expect_told(n, "rank 0 is in save (worker.py:");
}

/* --- other cases ------------------------------------------------------------------------------------------- */

Test(hang_sim, a_slow_job_is_left_alone)
{
    run_job("");
    moves = true;
    live(3600 * S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 10);
    cr_expect_lt(samples[0], 60);
}

/* Rank 3 calls load_batch from three lines in turn. This loop may be slow and not endless, so it is reported only after
 * four suspicions. */
Test(hang_sim, an_endless_loop_of_several_calls_is_reported_after_several_suspicions)
{
    run_job(",\"hang_ms\":30000");
    does = "running";
    moves = true;
    cycle = 3;
    live(240 * S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    live(60 * S, false);
    expect_one_report(
        (const char *const[]){ " main (train.py:", " all_reduce (train.py:88)  [RANK_LOOPS]", NULL },
        "RANK_LOOPS", 3600 * S, 9);
}

/* Without --hang_timeout, such a loop is not reported, because it may be a long evaluation of one rank. */
Test(hang_sim, a_loop_of_several_calls_is_left_alone_without_a_limit_of_the_user)
{
    run_job("");
    does = "running";
    moves = true;
    cycle = 3;
    live(3600 * S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 8);
}

/* A long evaluation in a loop prints a line every 90 s, so each suspicion ends before the eighth sample. */
Test(hang_sim, a_loop_of_several_calls_with_signs_of_progress_is_left_alone)
{
    run_job(",\"hang_ms\":10000");
    does = "running";
    moves = true;
    cycle = 3;
    for (int i = 0; i < 40; i++) {
        live(90 * S, false);
        live(1 * S, true);
    }
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 40 * 5);
}

/* The waiting ranks use CPU time between the samples, so they have left one collective and entered the next. */
Test(hang_sim, a_loop_of_a_slow_rank_whose_collectives_complete_is_left_alone)
{
    run_job(",\"hang_ms\":30000");
    does = "running";
    moves = true;
    cycle = 3;
    cpu_ms = 2;
    live(3600 * S, false);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
}

Test(hang_sim, stop_ends_an_endless_loop_of_several_calls)
{
    run_job(",\"on_hang\":\"stop\",\"hang_ms\":5000");
    moves = true;
    cycle = 2;
    live(100 * S, false);
    cr_expect(strstr(stopped, "\"code\":\"RANK_LOOPS\"") != NULL, "%s", stopped);
}

Test(hang_sim, an_agent_that_does_not_answer_does_not_hold_the_others_up)
{
    run_job("");
    does = NULL;
    sim.conn[N1].out.len = 0;
    for (int i = 0; i < 120; i++) { /* the pushes to N1 are never read */
        sim_say(&sim, N0, "{\"op\":\"heartbeat\"}");
        sim_say(&sim, N1, "{\"op\":\"heartbeat\"}");
        take_pushes(N0);
        sim.conn[N1].out.len = 0;
        sim_at(&sim, sim.now_ms + S);
    }
    cr_expect_gt(samples[0], 2);
    cr_expect_eq(findings[0], 0, "two ranks are not known: %s", told[0]);
}

Test(hang_sim, ranks_that_all_wait_name_the_network)
{
    run_job("");
    does = NULL;
    live(50 * S, false);
    expect_told(0, "all 4 ranks");
    expect_told(0, "(n0, n1)");
}

/* Each rank sets a key that ends with its number, and one key is missing. The report names the rank that should have
 * set the missing key. If the missing number is the highest, the report names no rank, because the keys may be numbered
 * by step. */
Test(hang_sim, the_rank_that_sets_a_key_by_convention_is_named_unless_it_is_the_last)
{
    run_job("");
    for (int rank = 0; rank < 4; rank++)
        sim_worker(&sim, rank, 0, 4);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            sim_set_key(&sim, rank, rank == 0 ? "ready/0" : rank == 1 ? "ready/1" : "ready/3");
    sim_wait_key(&sim, 3, "ready/2");
    live(50 * S, false);
    expect_told(0, "rank 2 should");
    expect_told(0, "42.0 s; 3 ranks");
    tear_down();
    set_up();
    run_job("");
    for (int rank = 0; rank < 4; rank++)
        sim_worker(&sim, rank, 0, 4);
    for (int rank = 0; rank < 3; rank++)
        sim_set_key(&sim, rank, rank == 0 ? "epoch/0" : rank == 1 ? "epoch/1" : "epoch/2");
    sim_wait_key(&sim, 3, "epoch/3");
    live(50 * S, false);
    expect_told(0, "42.0 s; 3 ranks");
    cr_expect_null(strstr(told[0], "rank 3 has"), "%s", told[0]);
}

Test(hang_sim, flight_records_of_all_nodes_decide_if_stacks_do_not)
{
    run_job("");
    does = NULL;
    has_calls = true;
    live(50 * S, false);
    for (int n = 0; n < NODES; n++) {
        expect_told(n, "all_reduce #8, in");
        expect_told(n, "ranks 0-2 ");
        expect_told(n, "all_reduce #7");
    }
}

/* The record of rank 3 arrives after the report. */
Test(hang_sim, a_late_flight_record_refines_the_report)
{
    run_job("");
    does = NULL;
    has_calls = is_late = true;
    live(50 * S, false);
    expect_told(0, "all 4 ranks");
    live(200 * S, false);
    cr_expect_eq(findings[0], 1, "%s", told[0]);
    is_late = false;
    live(300 * S, false);
    for (int n = 0; n < NODES; n++) {
        cr_expect_eq(findings[n], 2);
        expect_told(n, "rank 3");
        expect_told(n, "[RANK_BEHIND]");
    }
    cr_expect(strstr(why(), "RANK_BEHIND") != NULL && strstr(why(), "ALL_RANKS_WAIT") == NULL, "%s", why());
    const int taken = samples[0];
    live(3600 * S, false);
    cr_expect_eq(findings[0], 2);
    cr_expect_eq(samples[0], taken, "the verdict is final");
}

Test(hang_sim, stop_does_not_wait_for_a_late_flight_record)
{
    run_job(",\"on_hang\":\"stop\"");
    does = NULL;
    has_calls = is_late = true;
    live(50 * S, false);
    cr_expect(strstr(stopped, "\"code\":\"ALL_RANKS_WAIT\"") != NULL, "%s", stopped);
}

Test(hang_sim, a_limit_and_a_switch_of_the_first_node)
{
    run_job(",\"hang_ms\":5000");
    live(20 * S, false);
    expect_told(0, "progress for 1");
}

Test(hang_sim, off_takes_no_samples)
{
    run_job(",\"hang_ms\":0");
    live(600 * S, false);
    cr_expect_eq(findings[0], 0);
    cr_expect_eq(samples[0], 0);
}

Test(hang_sim, stop_ends_the_round_and_allows_no_other)
{
    run_job(",\"on_hang\":\"stop\"");
    live(50 * S, false);
    cr_expect(strstr(stopped, "\"why\":\"hangs\"") != NULL && strstr(stopped, SENTENCE) != NULL &&
                  strstr(stopped, "\"code\":\"RANK_SLEEPS\"") != NULL,
              "%s", stopped);
}

Test(hang_sim, report_leaves_the_round_alone)
{
    run_job(",\"on_hang\":\"report\"");
    live(100 * S, false);
    cr_expect_str_empty(stopped);
    cr_expect_eq(findings[0], 1);
}

Test(hang_sim, a_stopped_rank_is_reported_at_once_and_not_again)
{
    run_job("");
    does = "stopped";
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,\"do_signal_stop\"]]}");
    live(5 * S, false);
    cr_expect_eq(findings[0], 1);
    expect_told(0, "rank 3: stopped (");
    cr_expect_eq(findings[1], 1, "the report of this node contains the finding, too");
    cr_expect_str_eq(told[1], "", "its own agent has printed the stop");
    live(100 * S, false);
    cr_expect_eq(findings[0], 1, "%s", told[0]);
    cr_expect(strstr(why(), "RANK_STOPPED") != NULL, "%s", why());
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"S\",0,\"\"]]}");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"t\",0,\"ptrace_stop\"]]}");
    live(5 * S, true);
    cr_expect_eq(findings[0], 2);
    expect_told(1, "rank 3: stopped"); /* node 1 gets this line from the store, because its own agent does not
                                        * print a stop by a debugger */
}

/* Other ranks may make progress while a rank is stopped. */
Test(hang_sim, a_stop_is_over_as_soon_as_the_rank_continues)
{
    run_job("");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,\"do_signal_stop\"]]}");
    live(40 * S, true);
    cr_expect_eq(findings[0], 1, "%s", told[0]);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"S\",0,\"\"]]}");
    live(2 * S, false);
    for (int n = 0; n < NODES; n++) {
        cr_expect_eq(findings[n], 2);
        cr_expect_str_eq(told[n], "");
    }
}

Test(hang_sim, a_hang_goes_on_after_a_stopped_rank_continues)
{
    run_job("");
    live(50 * S, false);
    cr_expect_eq(findings[0], 1, "%s", told[0]);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,\"do_signal_stop\"]]}");
    live(5 * S, false);
    cr_expect_eq(findings[0], 2, "%s", told[0]);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"S\",0,\"\"]]}");
    live(5 * S, false);
    cr_expect_eq(findings[0], 2, "%s", told[0]);
}

/* The steps of libddp show the hang earlier than the stacks, so the stacks cause no second report. */
Test(hang_sim, a_rank_that_stands_still_is_not_reported_twice)
{
    run_job("");
    sim_say(&sim, N0, "{\"op\":\"heartbeat\",\"steps\":[[0,5,9,\"all_reduce\"],[1,5,9,\"all_reduce\"]]}");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"steps\":[[0,5,9,\"all_reduce\"],[1,5,8,\"\"]]}");
    live(100 * S, false);
    expect_told(0, "[RANK_STALLED]");
    cr_expect_eq(findings[0], 1, "%s", told[0]);
}

Test(hang_sim, stop_needs_no_stacks_where_steps_show_the_rank)
{
    run_job(",\"on_hang\":\"stop\"");
    does = NULL;
    sim_say(&sim, N0, "{\"op\":\"heartbeat\",\"steps\":[[0,5,9,\"all_reduce\"],[1,5,9,\"all_reduce\"]]}");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"steps\":[[0,5,9,\"all_reduce\"],[1,5,8,\"\"]]}");
    has_frames = false;
    live(50 * S, false);
    cr_expect(strstr(stopped, "\"why\":\"hangs\"") != NULL &&
                  strstr(stopped, "\"code\":\"RANK_STALLED\"") != NULL,
              "%s", stopped);
    cr_expect_eq(findings[0], 1, "%s", told[0]);
}

/* Add `delta` to PyTorch's counter of the ranks that have reached the barrier of init_process_group. */
static void count_at_start(conn_id conn, int64_t delta)
{
    struct buf bytes = { 0 };
    cr_assert(append_u8(&bytes, 4) &&
              append_blob(&bytes, slice_str("/default_pg/store_based_barrier_key:1")) &&
              append_i64(&bytes, delta));
    sim_feed_bytes(&sim, conn, buf_slice(&bytes));
    buf_free(&bytes);
}

/* Three ranks wait in init_process_group, and the store reports this wait. The next check is scheduled 30 s after the
 * report. Then the last rank arrives, and later the job hangs. The hang must be reported before the next scheduled
 * check. */
Test(hang_sim, a_hang_after_a_slow_start_that_was_reported_is_reported_in_time)
{
    enum { RANK0 = 20, RANK3 = 23 };
    join(N0, ",\"hang_ms\":5000");
    join(N1, ",\"hang_ms\":5000");
    for (conn_id conn = RANK0; conn <= RANK3; conn++)
        sim_client(&sim, conn);
    for (conn_id conn = RANK0; conn < RANK3; conn++) {
        count_at_start(conn, 1);
        count_at_start(conn, 0);
    }
    live(12 * S, true);
    cr_expect_eq(findings[0], 1);
    expect_told(0, "[INIT_INCOMPLETE]");
    count_at_start(RANK3, 1);
    live(3 * S, true);
    live(20 * S, false);
    cr_expect_eq(findings[0], 2);
    expect_told(0, "[RANK_SLEEPS]");
}

Test(hang_sim, a_traceback_is_named_until_the_rank_moves)
{
    run_job("");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"errors\":[[1,\"ValueError: empty\"],[7,\"x\"],[\"a\"],5]}");
    live(50 * S, false);
    expect_told(0, ": ValueError: empty; ");
    live(5 * S, true);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"errors\":[[1,\"\"]]}");
    live(500 * S, false);
    expect_told(0, "[RANK_SLEEPS]");
}

/* The job makes progress, but in every sample rank 3 works while the other ranks wait. */
Test(hang_sim, a_slow_rank_of_a_job_with_a_profile_is_reported_on_all_nodes_once)
{
    join(N0, ",\"profile\":true");
    join(N1, ",\"profile\":true");
    live(60 * S, true);
    for (int n = 0; n < NODES; n++) {
        cr_expect_eq(findings[n], 1, "%s", told[n]);
        expect_told(n, "rank 3 is");
        expect_told(n, "only 0 %");
        expect_told(n, "waited 100 % of");
        expect_told(n, "load_batch (data.py:41)  [RANK_SLOW]");
    }
    cr_expect(strstr(why(), "RANK_SLOW") != NULL, "%s", why());
}

Test(hang_sim, equal_ranks_of_a_job_with_a_profile_are_sampled_and_not_reported)
{
    does = NULL;
    join(N0, ",\"profile\":true");
    join(N1, ",\"profile\":true");
    live(60 * S, true);
    cr_expect_eq(findings[0], 0, "%s", told[0]);
    cr_expect_gt(samples[0], 50);
}
