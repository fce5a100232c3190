/* Tests of the flight recorder with real ranks. The tests check when a rank writes the file of its record, and which
 * handler gets SIGUSR1. */
#include "job.h"
#include "run.h"
#include "ranks.h"
#include "core/recorder.c"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;

static void make(void)
{
    dir = job_dir();
    setenv("DDP_FLIGHT_RECORDER", dir, 1);
}

static void done(void)
{
    unsetenv("DDP_FLIGHT_RECORDER");
    job_dir_remove(dir);
}

TestSuite(recorder, .init = make, .fini = done, .timeout = 120);

static ddp_status all_reduce(ddp_ctx *ctx, size_t n)
{
    static float x[64];
    return ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
}

/* Return the record of `rank`, or NULL if it is missing. The caller deletes the record. Expect that no other user may
 * read the file. */
static cJSON *record_of(int rank)
{
    char name[32], path[512];
    struct stat st;
    snprintf(name, sizeof(name), "flight_%d.json", rank);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    cr_expect(stat(path, &st) != 0 || (st.st_mode & 0777) == 0600, "mode %o", st.st_mode);
    char *text = job_file(dir, name);
    cJSON *json = text != NULL ? cJSON_Parse(text) : NULL;
    cr_expect(text == NULL || json != NULL, "%s", text);
    free(text);
    return json;
}

static const cJSON *last_entry(const cJSON *json)
{
    const cJSON *entries = cJSON_GetObjectItem(json, "entries");
    return cJSON_GetArrayItem(entries, cJSON_GetArraySize(entries) - 1);
}

static const char *word(const cJSON *of, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(of, name));
    return text != NULL ? text : "(nothing)";
}

static void expect_last(int rank, const char *why, const char *call, const char *state)
{
    cJSON *json = record_of(rank);
    cr_assert_not_null(json, "rank %d left no record", rank);
    cr_expect_not_null(strstr(word(json, "why"), why), "%s", word(json, "why"));
    cr_expect_str_eq(word(last_entry(json), "profiling_name"), call);
    cr_expect_str_eq(word(last_entry(json), "state"), state);
    cJSON_Delete(json);
}

static void disagree(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_progress(ctx, 4);
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_keep(me, all_reduce(ctx, 8 + (size_t)me->rank));
    ddp_finalize(ctx);
}

Test(recorder, a_mismatch_leaves_the_calls_of_all_ranks)
{
    struct ranks run = ranks_run(2, disagree, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++) {
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH, (const char *const[]){ "all_reduce #3", NULL });
        expect_last(r, "ranks disagree", "cpu:all_reduce", "failed");
    }
    ranks_free(&run);
}

static void give_up(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    if (me->rank == 1)
        ddp_abort(ctx, 1, "bad batch");
    else
        rank_keep(me, ddp_barrier(ddp_world(ctx), 0));
    ddp_finalize(ctx);
}

Test(recorder, an_abort_leaves_them_on_both_sides)
{
    struct ranks run = ranks_run(2, give_up, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&run, 0, DDP_ERR_ABORTED, (const char *const[]){ "bad batch", NULL });
    expect_last(0, "bad batch", "cpu:barrier", "failed");
    cJSON *json = record_of(1);
    cr_assert_not_null(json);
    cr_expect_not_null(strstr(word(json, "why"), "bad batch"));
    cJSON_Delete(json);
    ranks_free(&run);
}

static void fail_in_nccl(struct rank *me)
{
    pretend_gpu();
    void *x;
    ddp_work *work = NULL;
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), 8 * sizeof(float), &x));
    ddp_status status = ddp_all_reduce(ddp_world(ctx), x, x, 8, DDP_F32, DDP_SUM, NULL, &work);
    if (status == DDP_OK)
        status = ddp_work_sync(work, 0);
    rank_keep(me, status);
    ddp_work_free(work);
    ddp_finalize(ctx);
}

Test(recorder, an_error_of_nccl_leaves_the_calls_of_all_ranks)
{
    setenv("FAKE_NCCL_ERROR", "1:1:3", 1);
    struct ranks run = ranks_run(2, fail_in_nccl, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++) {
        ranks_expect_error(&run, r, DDP_ERR_NCCL, (const char *const[]){ "ncclInternalError", NULL });
        cJSON *json = record_of(r);
        cr_assert_not_null(json, "rank %d left no record", r);
        cr_expect_not_null(strstr(word(json, "why"), "ncclInternalError"), "%s", word(json, "why"));
        cJSON_Delete(json);
    }
    ranks_free(&run);
}

static void go_well(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(recorder, a_job_that_goes_well_leaves_nothing)
{
    struct ranks run = ranks_run(2, go_well, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&run);
    cr_expect_null(record_of(0));
    cr_expect_null(record_of(1));
    ranks_free(&run);
}

static void ask_myself(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, all_reduce(ctx, 8));
    raise(SIGUSR1);
    rank_expect_ok(me, all_reduce(ctx, 8));
    rank_expect_ok(me, ddp_finalize(ctx));
    raise(SIGUSR1); /* too late for a record, but the signal must not end the program */
}

Test(recorder, a_signal_asks_and_the_program_goes_on)
{
    struct ranks run = ranks_run(2, ask_myself, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&run);
    expect_last(0, "SIGUSR1", "cpu:all_reduce", "completed");
    ranks_free(&run);
}

static volatile sig_atomic_t heard;

static void hear(int sig)
{
    (void)sig;
    heard++;
}

/* Set a signal handler: on rank 0 before rank_init, and on rank 1 after rank_init. */
static void have_own(struct rank *me)
{
    const struct sigaction own = { .sa_handler = hear };
    if (me->rank == 0)
        sigaction(SIGUSR1, &own, NULL);
    ddp_ctx *ctx = rank_init(me, NULL);
    if (me->rank == 1)
        sigaction(SIGUSR1, &own, NULL);
    raise(SIGUSR1);
    rank_expect(me, heard == 1, "the program's handler heard %d signals", (int)heard);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(recorder, the_programs_own_handler_stays)
{
    struct ranks run = ranks_run(2, have_own, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&run);
    cr_expect_null(record_of(0));
    cr_expect_null(record_of(1));
    ranks_free(&run);
}

/* A signal handler that simulates a slow disk: it posts `begun`, and returns when the test posts `go_on`. */
struct slow_disk {
    struct sigusr1 sigusr1;
    sem_t begun, go_on;
};

static void wait_for_disk(struct sigusr1 *sigusr1)
{
    struct slow_disk *disk = (struct slow_disk *)sigusr1;
    sem_post(&disk->begun);
    while (sem_wait(&disk->go_on) != 0)
        continue;
}

static void *hear_it(void *unused)
{
    pthread_kill(pthread_self(), SIGUSR1);
    return unused;
}

Test(recorder, what_a_handler_still_uses_is_not_given_back)
{
    struct slow_disk disk = { .sigusr1.received = wait_for_disk };
    pthread_t thread;
    sem_init(&disk.begun, 0, 0);
    sem_init(&disk.go_on, 0, 0);
    signal(SIGUSR1, SIG_DFL); /* the library would otherwise keep the program's own handler */
    sigusr1_listen(&disk.sigusr1);
    cr_assert_eq(pthread_create(&thread, NULL, hear_it, NULL), 0);
    while (sem_wait(&disk.begun) != 0)
        continue;
    cr_expect_not(sigusr1_leave(&disk.sigusr1));
    sem_post(&disk.go_on);
    pthread_join(thread, NULL);
    cr_expect(sigusr1_leave(&disk.sigusr1));
}

/* Expect the default handler, because the library sets no handler without DDP_FLIGHT_RECORDER. */
static void expect_default(struct rank *me)
{
    struct sigaction now;
    unsetenv("DDP_FLIGHT_RECORDER");
    ddp_ctx *ctx = rank_init(me, NULL);
    sigaction(SIGUSR1, NULL, &now);
    rank_expect(me, now.sa_handler == SIG_DFL, "there is a handler");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(recorder, without_a_file_no_signal_is_taken)
{
    struct ranks run = ranks_run(1, expect_default, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&run);
    ranks_free(&run);
}

/* --- calls on a stream ------------------------------------------------------------------------------------------- */

/* Return the state of the call `ticket`, which returned `status`. */
static enum flight_state state_after(struct recorder *r, ddp_status status, uint64_t ticket)
{
    const struct call call = { .kind = CALL_ALL_REDUCE, .n = 8, .dtype = DDP_F32, .op = DDP_SUM };
    recorder_begin(r, &call, 1, 1000, false);
    recorder_end(r, status, ticket);
    return flight_state(atomic_load(&r->op->call));
}

Test(recorder, a_call_on_a_stream_ends_when_its_ticket_is_done)
{
    static struct recorder r;
    const struct recorder_setup setup = {
        .world_size = 1, .job = "", .backend = "", .page = "", .pattern = dir
    };
    recorder_open(&r, &setup);
    cr_assert_not_null(r.flight);
    cr_expect_eq(state_after(&r, DDP_OK, 0), FLIGHT_COMPLETED, "without a ticket the call is over");
    cr_expect_eq(state_after(&r, DDP_OK, 1), FLIGHT_SCHEDULED);
    recorder_complete(&r, 2);
    cr_expect_eq(flight_state(atomic_load(&r.op->call)), FLIGHT_COMPLETED);
    cr_expect_eq(state_after(&r, DDP_OK, 2), FLIGHT_COMPLETED, "done before the call returned");
    cr_expect_eq(state_after(&r, DDP_ERR_IO, 3), FLIGHT_FAILED);
    cr_assert(recorder_close(&r));
}
