/* In run n, the n-th allocation of the launcher's pure modules fails. The module must report the failure, stay
 * consistent, and free its memory. To make an allocation fail, this program replaces malloc, calloc and realloc. */
#include "report/final_report.c"
#include "command_line.h"
#include "output/event_log.h"
#include "report/user_messages.c"
#include "output/lines.h"
#include "report/report.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACED 0 /* a sanitizer has replaced malloc already */
#else
#define REPLACED 1
#endif

static bool counting;
static long calls, fail_at, live;

#if REPLACED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

static bool fails(void)
{
    return counting && ++calls == fail_at;
}

static void *counted(void *p)
{
    live += counting && p != NULL;
    return p;
}

/* Export malloc, calloc, realloc and free, because the C library and cJSON must call them, too. */
#pragma GCC visibility push(default)
void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (fails())
        return NULL;
    return p == NULL ? counted(__libc_realloc(p, size)) : __libc_realloc(p, size);
}

void free(void *p)
{
    live -= counting && p != NULL;
    __libc_free(p);
}
#pragma GCC visibility pop
#endif

static char *environment[] = { "PATH=/bin", "PET_TEE=0:1", "PET_STRATEGY=ddp",
                               "TORCHELASTIC_ENABLE_FILE_TIMER=1", NULL };
static char *argv[] = { "ddprun",
                        "--nproc_per_node=3",
                        "--log_dir=logs",
                        "--tee=0:3,2:1",
                        "--virtual_local_rank",
                        "--duplicate_stdout_filters=a,b",
                        "--env=A=1",
                        "--env=B=2",
                        "prog.py",
                        "x",
                        NULL };

static const struct plan_facts facts = { .environ_block = environment,
                                         .physical_gpus = 4,
                                         .cpus = 4,
                                         .host = "n1",
                                         .nonce = "k3x9",
                                         .tmp_dir = "/tmp" };

static void step(struct agent *a, enum agent_event_type type, int r, int code)
{
    size_t n;
    struct agent_event e = { .type = type, .now_ms = 1000, .local_rank = r, .pid = 9, .exit_code = code };
    agent_step(a, &e, &n);
}

/* Let one worker fail, and make every report about the failure. Return true if no step ran out of memory. */
static bool tell_everything(const struct plan *plan, struct agent *a, struct buf *out)
{
    struct tail tails[3] = { 0 };
    struct report report = { .plan = plan, .agent = a, .stderr_tails = tails };
    step(a, AGENT_START, 0, 0);
    for (int r = 0; r < 3; r++)
        step(a, AGENT_SPAWNED, r, 0);
    tail_add(&tails[1], slice_str("last lines\n"));
    step(a, AGENT_EXITED, 1, 7);
    struct cJSON *json = report_json(&report);
    bool ok = json != NULL;
    cJSON_Delete(json);
    ok = report_text(&report, out) && ok;
    ok = event_started(out, 0, plan) && ok;
    ok = event_output(out, (struct line_time){ 0 }, &plan->workers[1], STD_OUT, slice_str("text"),
                      LINE_WHOLE) &&
         ok;
    ok = event_worker_ended(out, 0, &plan->workers[1], agent_worker(a, 1)) && ok;
    ok = event_finished(out, &report) && ok;
    for (int r = 0; r < 3; r++)
        tail_free(&tails[r]);
    return ok;
}

/* Count the ranks of a printed line. No rank may be missing, because a line is printed at once if no memory is left to
 * keep it. */
static void count_line(void *user, const struct fold_line *line)
{
    int *ranks = user;
    for (int r = 0; r < 3; r++)
        *ranks += line->ranks != NULL ? rank_set_has(line->ranks, r) : line->rank == r;
}

static bool show_folded(const struct plan *plan, struct buf *out)
{
    int ranks = 0;
    struct fold *fold = fold_new(4, count_line, &ranks);
    for (int r = 0; fold != NULL && r < 3; r++)
        fold_add(fold, &(struct fold_line){ .text = slice_str("line"), .rank = r });
    if (fold != NULL) {
        fold_finish(fold);
        cr_assert_eq(ranks, 3);
    }
    fold_free(fold);
    struct line_row row = { .escape = true };
    return fold != NULL && line_prefix(plan, &(struct line_origin){ .local_rank = 1 }, true, out) &&
           line_show(out, &row, slice_str("[1] "), slice_str("\033[31mred\007"), LINE_WHOLE);
}

static bool with_plan(const struct plan *plan)
{
    struct buf out = { 0 };
    struct worker_env env;
    struct ddp_err err;
    struct agent *a = agent_new(&(struct agent_options){ .nproc = 3, .grace_ms = 1 });
    bool ok = plan_print(plan, &out);
    ok = plan_print_json(plan, &out) && ok;
    ok = show_folded(plan, &out) && ok;
    ok = a != NULL && tell_everything(plan, a, &out) && ok;
    if (plan_env(plan, 1, &env, &err) == DDP_OK)
        worker_env_free(&env);
    else
        ok = false;
    agent_free(a);
    buf_free(&out);
    return ok;
}

/* Run all steps from the command line to the report. */
static bool scenario(void)
{
    struct cli cli;
    struct plan plan;
    struct ddp_err err = { 0 };
    ddp_status status = cli_parse(&cli, 8, argv, environment, &err);
    bool ok = false;
    if (status == DDP_OK) {
        status = plan_make(&plan, &cli, &facts, &err);
        if (status == DDP_OK) {
            ok = with_plan(&plan);
            plan_free(&plan);
        }
        cli_free(&cli);
    }
    counting = false;
    cr_assert(status == DDP_OK || (status == DDP_ERR_NOMEM && err.msg[0] != '\0'), "%s", err.msg);
    return ok;
}

Test(launcher_memory, every_shortage_is_survived)
{
    if (!REPLACED)
        cr_skip_test("skipped, because a sanitizer has its own malloc");
    int refused = 0;
    for (fail_at = 1;; fail_at++) {
        calls = live = 0;
        counting = true;
        bool ok = scenario();
        cr_assert_eq(live, 0, "%ld blocks are lost when call %ld fails", live, fail_at);
        if (calls < fail_at) {
            cr_assert(ok, "enough memory, and still no success");
            break;
        }
        refused += !ok;
    }
    cr_assert_gt(refused, 100, "only %d of %ld shortages were noticed", refused, fail_at);
}

static void note(void *user, struct slice text, enum line_kind kind)
{
    size_t *bytes = user;
    (void)kind;
    *bytes += text.len;
}

Test(launcher_memory, lines_come_in_pieces_when_there_is_no_room_for_them)
{
    if (!REPLACED)
        cr_skip_test("skipped, because a sanitizer has its own malloc");
    for (fail_at = 1; fail_at < 4; fail_at++) {
        struct lines l;
        size_t bytes = 0;
        lines_init(&l, note, &bytes, LINES_LIMIT);
        calls = 0;
        counting = true;
        lines_append(&l, slice_str("begin, "));
        lines_append(&l, slice_str("more, "));
        lines_append(&l, slice_str("end\n"));
        lines_free(&l);
        counting = false;
        cr_assert_eq(bytes, strlen("begin, more, end"));
    }
}
