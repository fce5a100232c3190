/* Tests of the verdict about hung PyTorch jobs. The stacks of these jobs were recorded with py-spy 0.4.3
 * (tests/data/hangs/record.py). */
#include "record/stacks.h"
#include "diagnosis/spot.h"
#include "diagnosis/text.h"
#include "snapshot_case.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MAX = 20 };

struct hang_case {
    struct stacks samples[2];
    struct snapshot_rank ranks[RANKS_MAX];
    struct snapshot s;
};

static cJSON *read_recorded(const char *way)
{
    char path[128];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "tests/data/hangs/recorded/%s.json", way);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    for (int c = fgetc(f); c != EOF; c = fgetc(f))
        buf_append(&text, &(char){ (char)c }, 1);
    fclose(f);
    cJSON *recorded = cJSON_ParseWithLength((const char *)text.data, text.len);
    cr_assert_not_null(recorded, "%s", path);
    buf_free(&text);
    return recorded;
}

static int number_in(const cJSON *o, const char *name)
{
    return (int)cJSON_GetNumberValue(cJSON_GetObjectItem(o, name));
}

/* Describe a thread as an agent does. */
static void describe(struct stack_thread *t, const cJSON *thread)
{
    static const struct {
        const char *number, *words;
    } calls[] = { { "0", "sleeping in read" },      { "7", "sleeping in poll" },
                  { "45", "sleeping in recvfrom" }, { "202", "sleeping in futex" },
                  { "61", "sleeping in wait4" },    { "230", "sleeping in clock_nanosleep" },
                  { "257", "sleeping in openat" } };
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItem(thread, "state"));
    const char *call = cJSON_GetStringValue(cJSON_GetObjectItem(thread, "syscall"));
    snprintf(t->does, sizeof(t->does), state[0] == 'T' ? "stopped by a signal" : "running");
    for (size_t i = 0; state[0] == 'S' && i < LEN(calls); i++)
        if (strcmp(calls[i].number, call) == 0)
            snprintf(t->does, sizeof(t->does), "%s", calls[i].words);
    if (strcmp(t->does, "sleeping in read") == 0)
        snprintf(t->object, sizeof(t->object), "/data/fifo");
    if (strcmp(t->does, "sleeping in openat") == 0)
        snprintf(t->object, sizeof(t->object), "/data/batches");
    t->cpu_ms = number_in(thread, "cpu_ms");
}

/* Add the main thread of a child process, with its Python frames if py-spy has recorded them. */
static void add_child(struct stacks *stacks, int rank, const cJSON *child)
{
    const cJSON *sample = cJSON_GetObjectItem(child, "sample"),
                *py_spy = cJSON_GetObjectItem(sample, "py_spy");
    struct stack_thread t = { .rank = rank, .pid = number_in(child, "pid"), .is_child = true, .host = "n0" };
    t.tid = t.pid;
    t.is_main = sample != NULL;
    snprintf(t.does, sizeof(t.does), STACKS_ENDED);
    if (sample != NULL) {
        snprintf(t.name, sizeof(t.name), "%s", cJSON_GetStringValue(cJSON_GetObjectItem(child, "name")));
        describe(&t, cJSON_GetArrayItem(cJSON_GetObjectItem(sample, "threads"), 0));
    }
    char *text = cJSON_IsArray(py_spy) ? cJSON_PrintUnformatted(py_spy) : NULL;
    if (text != NULL)
        cr_assert_eq(stacks_add_py_spy(stacks, slice_str(text), &t, 1, NULL), DDP_OK);
    else
        stacks_add_thread(stacks, &t);
    free(text);
}

static void add_sample(struct stacks *stacks, int rank, int tid, const cJSON *sample)
{
    struct stack_thread main = { .rank = rank, .pid = 70 + rank, .tid = tid, .is_main = true, .host = "n0" };
    const cJSON *thread, *child;
    cJSON_ArrayForEach(thread, cJSON_GetObjectItem(sample, "threads"))
    {
        if (number_in(thread, "tid") == tid)
            describe(&main, thread);
    }
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(sample, "py_spy"));
    cr_assert_eq(stacks_add_py_spy(stacks, slice_str(text), &main, 1, NULL), DDP_OK);
    free(text);
    cJSON_ArrayForEach(child, cJSON_GetObjectItem(sample, "children"))
    {
        add_child(stacks, rank, child);
    }
}

/* Rename the functions of PyTorch in a sample, so that no rank is in a collective. */
static void leave_collective(struct hang_case *c, int sample)
{
    const cJSON *row, *frame;
    cJSON_ArrayForEach(row, c->samples[sample].rows)
    {
        cJSON_ArrayForEach(frame, cJSON_GetObjectItem(row, "frames"))
        {
            if (strstr(cJSON_GetStringValue(cJSON_GetObjectItem(frame, "file")), "torch/") != NULL)
                cJSON_SetValuestring(cJSON_GetObjectItem(frame, "file"), "x");
        }
    }
}

/* Load a recorded hang. `way` names the recording of the first sample, and `second` names the recording of the second
 * sample. */
static struct hang_case load(const char *way, const char *second)
{
    struct hang_case c = { .s = { RUNNING } };
    cJSON *recorded[2] = { read_recorded(way), read_recorded(second) };
    const cJSON *rank;
    for (int i = 0; i < 2; i++) {
        cr_assert(stacks_init(&c.samples[i], STACKS_JOB_BYTES));
        cJSON_ArrayForEach(rank, cJSON_GetObjectItem(recorded[i], "ranks"))
        {
            const int n = number_in(rank, "rank");
            add_sample(&c.samples[i], n, number_in(rank, "pid"),
                       cJSON_GetArrayItem(cJSON_GetObjectItem(rank, "samples"), i));
            c.ranks[n] = (struct snapshot_rank)RANK((uint32_t)n, .connected = true, .cpu_percent = 0,
                                                    .proc_state = 'S', .call = "");
        }
    }
    for (int i = 0; i < 2; i++)
        cJSON_Delete(recorded[i]);
    c.s.hang = (struct snapshot_hang){ .apart_ms = 3000, .still_ms = 42000, .has_signals = true };
    c.s.n_ranks = c.s.world_size = 3;
    return c;
}

static struct diagnosis verdict_with(struct hang_case *c, const struct snapshot_node nodes[2])
{
    struct snapshot s = c->s;
    s.n_nodes = 2;
    s.ranks = c->ranks;
    s.nodes = nodes;
    for (int i = 0; i < 2; i++)
        s.hang.rows[i] = c->samples[i].rows;
    return look(s);
}

static struct diagnosis verdict(struct hang_case *c)
{
    static const struct snapshot_node nodes[] = { NODE(0, .first_rank = 0), NODE(1, .first_rank = 2) };
    return verdict_with(c, nodes);
}

static void case_free(struct hang_case *c)
{
    stacks_free(&c->samples[0]);
    stacks_free(&c->samples[1]);
}

static void expect_verdict(struct hang_case *c, const char *code, const char *subject, const char *sentence)
{
    const struct diagnosis d = verdict(c);
    expect_at(&d, 0, code, subject, sentence);
    cr_expect_eq(d.n, 1, "another finding: %s", d.list[1].sentence);
}

static void expect_none(struct hang_case *c)
{
    const struct diagnosis d = verdict(c);
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}

#define WAY(way, ...)                         \
    do {                                      \
        struct hang_case c_ = load(way, way); \
        expect_verdict(&c_, __VA_ARGS__);     \
        case_free(&c_);                       \
    } while (0)
#define OTHERS "; 2 ranks wait in all_reduce (worker.py:97)"

Test(hang, a_rank_that_sleeps_while_others_wait_in_a_collective)
{
    WAY("sleep", "RANK_SLEEPS", "rank 1 (n1, pid 71)",
        "is in load_batch (worker.py:17) and sleeps, without progress for 42.0 s" OTHERS);
}

/* Rank 1 reads a file while it imports torch.distributed. The frame of the import is in a file of torch.distributed,
 * but its function is "<module>" and not a collective. So rank 1 does not wait for other ranks, and the verdict must
 * name rank 1. */
Test(hang, a_rank_that_imports_torch_distributed_is_in_no_collective)
{
    struct hang_case c = load("fifo", "fifo");
    for (int i = 0; i < 2; i++) {
        const cJSON *row;
        cJSON_ArrayForEach(row, c.samples[i].rows)
        {
            const cJSON *thread = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "threads"), 0);
            cJSON *frame = cJSON_CreateObject();
            cJSON_AddStringToObject(frame, "function", "<module>");
            cJSON_AddStringToObject(frame, "file", "torch/distributed/distributed_c10d.py");
            if (number_in(thread, "rank") == 1)
                cJSON_InsertItemInArray(cJSON_GetObjectItem(row, "frames"), 0, frame);
            else
                cJSON_Delete(frame);
        }
    }
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)", "/data/fifo");
    case_free(&c);
}

/* Work.wait() is a C function without a frame, and so is the broadcast of DistributedDataParallel. The recordings
 * "buffers_2" and "async_2" are of torch 2, the others are of torch 1.13. */
Test(hang, ranks_that_wait_in_a_c_function_are_not_the_culprit)
{
    static const char *const ways[][2] = {
        { "buffers", "; rank 0 waits in DistributedDataParallel.forward (worker.py:" },
        { "buffers_2", "; rank 0 waits in DistributedDataParallel.forward (worker.py:" },
        { "async", "; 2 ranks are in wait_for_work (worker.py:" },
        { "async_2", "; 2 ranks are in wait_for_work (worker.py:" }
    };
    for (size_t i = 0; i < LEN(ways); i++) {
        for (uint32_t n = 2; n <= 3; n++) {
            struct hang_case c = load(ways[i][0], ways[i][0]);
            c.s.n_ranks = c.s.world_size = n;
            c.s.hang.has_signals = n == 3; /* a job without output has no signs of progress */
            const struct diagnosis d = verdict(&c);
            expect_at(&d, 0, "RANK_SLEEPS", "rank 1 (n1, pid 71)", "(worker.py:");
            cr_expect(n == 2 || strstr(d.list[0].sentence, ways[i][1]) != NULL, "%s", d.list[0].sentence);
            case_free(&c);
        }
    }
}

/* Set what the main thread of a rank does in both samples. */
static void let(struct hang_case *c, int rank, const char *does)
{
    cJSON *row, *thread;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach(row, c->samples[i].rows)
        {
            cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
            {
                if (number_in(thread, "rank") == rank)
                    cJSON_ReplaceItemInObject(thread, "does", cJSON_CreateString(does));
            }
        }
}

static void expect_of_two(const char *way, bool is_connected, const char *rank_0, const char *rank_1,
                          const char *code)
{
    struct hang_case c = load(way, way);
    c.s.n_ranks = c.s.world_size = 2;
    c.ranks[0].connected = is_connected;
    let(&c, 0, rank_0);
    let(&c, 1, rank_1);
    if (code != NULL)
        expect_verdict(&c, code, "rank 1 (n1, pid 71)", "is in wait_for_work (worker.py:");
    else
        expect_none(&c);
    case_free(&c);
}

/* Rank 0 may wait for rank 1, or for a lock of its program. */
Test(hang, a_rank_in_a_lock_is_not_the_culprit_if_another_one_does_something_else)
{
    const char *futex = "sleeping in futex";
    expect_of_two("async", true, futex, "sleeping in read", "RANK_BLOCKED");
    expect_of_two("async", true, futex, "running", NULL); /* "running" may be a wait for the GPU */
    expect_of_two("async", true, futex, futex, NULL);
    expect_of_two("async", true, "running", "sleeping in clock_nanosleep", NULL);
    expect_of_two("async", false, futex, "sleeping in clock_nanosleep", NULL);
}

/* Return the row of a rank's main thread in a sample. */
static cJSON *row_of(struct hang_case *c, int sample, int rank)
{
    cJSON *row, *thread;
    cJSON_ArrayForEach(row, c->samples[sample].rows)
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            if (number_in(thread, "rank") == rank && cJSON_IsTrue(cJSON_GetObjectItem(thread, "main")))
                return row;
        }
    }
    cr_assert_fail("no row of rank %d", rank);
    return NULL;
}

/* Let a rank sleep in futex, in a function of the library `file`. */
static void enter(struct hang_case *c, int rank, const char *file)
{
    for (int i = 0; i < 2; i++) {
        cJSON *frame = cJSON_CreateObject();
        cJSON_AddStringToObject(frame, "function", "f");
        cJSON_AddStringToObject(frame, "file", file);
        cJSON_AddNumberToObject(frame, "line", 9);
        cJSON_AddFalseToObject(frame, "user");
        cJSON_InsertItemInArray(cJSON_GetObjectItem(row_of(c, i, rank), "frames"), 0, frame);
    }
    let(c, rank, "sleeping in futex");
}

static const char *why_not(struct hang_case *c)
{
    struct snapshot s = c->s;
    s.ranks = c->ranks;
    for (int i = 0; i < 2; i++)
        s.hang.rows[i] = c->samples[i].rows;
    return hang_why_not(&s);
}

/* Rank 0 waits for a lock that no thread releases. The other ranks sleep until rank 0 has written a file. */
Test(hang, a_sleeper_is_not_named_if_it_may_wait_for_a_rank_in_a_lock)
{
    struct hang_case c = load("async", "async");
    let(&c, 2, "sleeping in clock_nanosleep");
    c.s.hang.has_signals = false; /* a majority at one place counts only in a job with signs of progress */
    expect_none(&c);
    cr_expect_str_eq(why_not(&c), "no rank waits in a known collective");
    case_free(&c);
}

/* Ranks 0 and 2 wait in Work.wait(). Rank 1 waits in a collective. */
Test(hang, most_ranks_are_not_in_a_lock)
{
    struct hang_case c = load("async", "async");
    enter(&c, 1, "torch/distributed/distributed_c10d.py");
    expect_none(&c);
    cr_expect_str_eq(why_not(&c), "a wait for other ranks and a wait for a lock look alike");
    c.s.n_ranks = c.s.world_size = 2;
    expect_verdict(&c, "RANK_IN_LOCK", "rank 0 (n1, pid 70)", "; rank 1 waits in f (worker.py:");
    case_free(&c);
}

/* Rank 0 uses CPU time: it loops, or it waits for the GPU in a driver that spins. The verdict is a loop, because rank 1
 * waits in a known collective, and the stack of rank 0 shows no collective. */
Test(hang, a_rank_that_computes_beside_a_known_collective)
{
    struct hang_case c = load("async", "async");
    enter(&c, 1, "torch/distributed/distributed_c10d.py");
    let(&c, 0, "running");
    c.s.n_ranks = c.s.world_size = 2;
    expect_verdict(&c, "RANK_LOOPS", "rank 0 (n1, pid 70)", "; rank 1 waits in f (worker.py:");
    case_free(&c);
}

Test(hang, a_file_of_a_library_tells_a_lock_from_a_wait_for_ranks)
{
    static const struct {
        /* Rank 0 sleeps in a function of `file`. `others` is the expected text about rank 0 in the finding. NULL means
         * that this sleep is a wait for a lock, so no finding is expected. */
        const char *file, *others;
    } cases[] = { { "logging/__init__.py", NULL },
                  { "tqdm/std.py", NULL },
                  { "/usr/lib/python3.11/queue.py", NULL },
                  { "<frozen importlib._bootstrap>", NULL },
                  { "my_queue.py", "; rank 0 is in wait_for_work (worker.py:" },
                  { "x/catalogging/a.py", "; rank 0 is in wait_for_work (worker.py:" },
                  { "oslo/torch/distributed/x.py", "; rank 0 is in wait_for_work (worker.py:" },
                  { "oslotorch/distributed/x.py", "; rank 0 is in wait_for_work (worker.py:" },
                  { "torch/distributed/x.py", "; rank 0 waits in f (worker.py:" },
                  { "/opt/torch/distributed/x.py", "; rank 0 waits in f (worker.py:" } };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct hang_case c = load("async", "async");
        c.s.n_ranks = c.s.world_size = 2;
        enter(&c, 0, cases[i].file);
        if (cases[i].others == NULL)
            expect_none(&c);
        else
            expect_verdict(&c, "RANK_SLEEPS", "rank 1 (n1, pid 71)", cases[i].others);
        case_free(&c);
    }
}

/* Add ranks 3 to n - 1. Each rank is at a different line, in a C function. */
static void add_places(struct hang_case *c, int n)
{
    for (int i = 0; i < 2; i++)
        for (int rank = 3; rank < n; rank++) {
            cJSON *row = cJSON_Duplicate(row_of(c, i, 0), true),
                  *threads = cJSON_GetObjectItem(row, "threads");
            while (cJSON_GetArraySize(threads) > 1)
                cJSON_DeleteItemFromArray(threads, 1);
            cJSON_SetNumberValue(cJSON_GetObjectItem(threads->child, "rank"), rank);
            cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(row, "frames")->child, "line"),
                                 1000 + rank);
            cJSON_AddItemToArray(c->samples[i].rows, row);
            c->ranks[rank] = c->ranks[0];
        }
    c->s.n_ranks = c->s.world_size = (uint32_t)n;
}

Test(hang, one_of_two_sleepers_beside_a_majority_is_not_named)
{
    struct hang_case c = load("async", "async");
    add_places(&c, 5);
    for (int i = 0; i < 2; i++)
        cJSON_ReplaceItemInObject(row_of(&c, i, 3), "frames",
                                  cJSON_Duplicate(cJSON_GetObjectItem(row_of(&c, i, 0), "frames"), true));
    let(&c, 4, "sleeping in clock_nanosleep"); /* ranks 0, 2 and 3 are at one line */
    expect_none(&c);
    case_free(&c);
}

Test(hang, too_many_places_give_no_verdict)
{
    struct hang_case c = load("async", "async");
    /* Rank 1 sleeps and does not count. The other 17 ranks are in 16 places, because ranks 0 and 2 share one. */
    add_places(&c, 18);
    expect_verdict(&c, "RANK_SLEEPS", "rank 1 (n1, pid 71)", "is in wait_for_work (worker.py:");
    case_free(&c);
    c = load("async", "async");
    add_places(&c, 19);
    enter(&c, 0, "torch/distributed/x.py");
    expect_none(&c);
    cr_expect_str_eq(why_not(&c), "the ranks wait in more than 16 places");
    case_free(&c);
}

Test(hang, the_reason_for_an_unknown_rank)
{
    struct hang_case c = load("sleep", "sleep");
    c.ranks[1].has_steps = true;
    c.ranks[1].call = "ddp_barrier";
    cr_expect_str_eq(why_not(&c), "a rank is in a collective of libddp");
    c.ranks[1].node_lost = true;
    cr_expect_str_eq(why_not(&c), "a node is lost");
    c.ranks[1].exited = true;
    c.ranks[1].exit_code = 1;
    cr_expect_str_eq(why_not(&c), "a rank has failed");
    case_free(&c);
}

Test(hang, the_reason_for_no_verdict)
{
    static const struct {
        const char *way, *second;
        uint32_t n;
        const char *why;
    } cases[] = {
        { "async", "sleep", 3,
          "a rank moved to another line or computed between the samples, so the job may just be slow" },
        { "all_wait", "all_wait", 4, "the stacks of some ranks cannot be read" },
        { "async", "async", 2, "no rank waits in a known collective" },
        { "sleep", "sleep", 3, "the stacks do not show the cause" }
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct hang_case c = load(cases[i].way, cases[i].second);
        struct snapshot s = c.s;
        s.n_ranks = cases[i].n;
        s.ranks = c.ranks;
        c.ranks[3] = (struct snapshot_rank)RANK(3, .call = "");
        for (int k = 0; k < 2; k++)
            s.hang.rows[k] = c.samples[k].rows;
        cr_expect_str_eq(hang_why_not(&s), cases[i].why);
        case_free(&c);
    }
    cr_expect_str_eq(hang_why_not(&(struct snapshot){ .n_ranks = 2 }), "the stacks cannot be read");
}

Test(hang, an_endless_loop)
{
    WAY("loop", "RANK_LOOPS", "rank 1 (n1, pid 71)", "is in spin (worker.py:");
}

Test(hang, a_deadlock_on_a_lock)
{
    WAY("lock", "RANK_IN_LOCK", "rank 1 (n1, pid 71)",
        "is in take_lock (worker.py:29) and waits for a lock or for another thread, without progress for "
        "42.0 s" OTHERS);
}

Test(hang, a_read_of_a_pipe_that_is_named)
{
    WAY("fifo", "RANK_BLOCKED", "rank 1 (n1, pid 71)",
        "is in read_fifo (worker.py:37), blocked in read of /data/fifo, without progress for 42.0 s" OTHERS);
}

/* Set what the main thread of rank 1 does in both samples. */
static void stay(struct hang_case *c, const char *does, const char *object)
{
    cJSON *row, *thread;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach(row, c->samples[i].rows)
        {
            cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
            {
                if (number_in(thread, "rank") != 1 || cJSON_IsTrue(cJSON_GetObjectItem(thread, "child")))
                    continue;
                cJSON_DeleteItemFromObject(thread, "does");
                cJSON_DeleteItemFromObject(thread, "object");
                cJSON_AddStringToObject(thread, "does", does);
                cJSON_AddStringToObject(thread, "object", object);
            }
        }
}

/* Set what the main thread of rank 1 does in both samples, and add a child process that has ended. */
static void stay_beside_child(struct hang_case *c, const char *does, const char *object)
{
    const struct stack_thread ended = {
        .rank = 1, .pid = 900, .is_child = true, .host = "n0", .does = STACKS_ENDED
    };
    stay(c, does, object);
    for (int i = 0; i < 2; i++)
        stacks_add_thread(&c->samples[i], &ended);
}

Test(hang, a_child_that_has_ended)
{
    struct hang_case c = load("child", "child");
    stay(&c, "sleeping in read", "pipe:[12]");
    expect_verdict(&c, "RANK_CHILD_ENDED", "rank 1 (n1, pid 71)",
                   "is in wait_for_child (worker.py:48) and waits for child process ");
    case_free(&c);
}

/* Another child of rank 1 waits for a message and is not named. */
Test(hang, a_living_child_that_opens_a_pipe)
{
    WAY("loader", "RANK_WAITS_FOR_CHILD", "rank 1 (n1, pid 71)",
        "is in wait_for_loader (worker.py:200) and waits for child process 19426, which is in fill "
        "(worker.py:185), blocked in openat of /data/batches; no progress for 42.0 s; 2 ranks wait in ");
}

Test(hang, a_program_that_does_not_end)
{
    WAY("program", "RANK_WAITS_FOR_CHILD", "rank 1 (n1, pid 71)",
        "is in run_program (worker.py:208) and waits for child process 19416 (sleep), which is sleeping in "
        "clock_nanosleep; no progress for 42.0 s; 2 ranks wait in ");
}

/* Remove a process from both samples: move it to a rank that does not exist. */
static void remove_process(struct hang_case *c, int pid)
{
    cJSON *row, *thread;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach(row, c->samples[i].rows)
        {
            cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
            {
                if (number_in(thread, "pid") == pid)
                    cJSON_SetNumberValue(cJSON_GetObjectItem(thread, "rank"), 99);
            }
        }
}

Test(hang, an_idle_child_is_not_named)
{
    struct hang_case c = load("loader", "loader");
    remove_process(&c, 19426);
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)",
                   "is in wait_for_loader (worker.py:200), blocked");
    case_free(&c);
}

/* A child that uses CPU time is slow and does not hang. */
Test(hang, a_child_that_computes_is_not_named)
{
    struct hang_case c = load("loader", "loader");
    cJSON *row, *thread;
    cJSON_ArrayForEach(row, c.samples[1].rows)
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            if (number_in(thread, "pid") != 19426)
                continue;
            cJSON_DeleteItemFromObject(thread, "cpu_ms");
            cJSON_AddNumberToObject(thread, "cpu_ms", 900000);
        }
    }
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)",
                   "is in wait_for_loader (worker.py:200), blocked");
    case_free(&c);
}

/* A child that sleeps in a C function may be in Work.wait() and wait for other ranks. So the child is not named. */
Test(hang, a_child_in_a_c_function_that_may_wait_is_not_named)
{
    struct hang_case c = load("loader", "loader");
    cJSON *row, *thread;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach(row, c.samples[i].rows)
        {
            cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
            {
                if (number_in(thread, "pid") != 19426)
                    continue;
                cJSON_DeleteItemFromObject(thread, "does");
                cJSON_AddStringToObject(thread, "does", "sleeping in futex");
            }
        }
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)",
                   "is in wait_for_loader (worker.py:200), blocked");
    case_free(&c);
}

static void add_program(struct hang_case *c, int pid)
{
    const struct stack_thread t = { .rank = 1,
                                    .pid = pid,
                                    .tid = pid,
                                    .is_main = true,
                                    .is_child = true,
                                    .host = "n0",
                                    .name = "tool",
                                    .does = "sleeping in clock_nanosleep" };
    for (int i = 0; i < 2; i++)
        stacks_add_thread(&c->samples[i], &t);
}

/* A rank that reads a queue does not wait for a child program. If the rank has two child programs, only the system call
 * of the rank shows for which child the rank waits. */
Test(hang, a_child_is_named_only_if_the_rank_waits_for_it)
{
    struct hang_case c = load("loader", "loader");
    add_program(&c, 12);
    expect_verdict(&c, "RANK_WAITS_FOR_CHILD", "rank 1 (n1, pid 71)",
                   "is in wait_for_loader (worker.py:200) and waits for child process 19426,");
    case_free(&c);
    c = load("program", "program");
    add_program(&c, 12);
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)",
                   "is in run_program (worker.py:208), blocked in wait4");
    stay(&c, "sleeping in wait4", "process 12");
    expect_verdict(&c, "RANK_WAITS_FOR_CHILD", "rank 1 (n1, pid 71)",
                   "is in run_program (worker.py:208) and waits for child process 12 (tool),");
    case_free(&c);
    c = load("fifo", "fifo");
    add_program(&c, 12);
    expect_verdict(&c, "RANK_BLOCKED", "rank 1 (n1, pid 71)", "is in read_fifo");
    case_free(&c);
}

/* The rank's system call names a living child, so the rank does not wait for its other child, which has ended. */
Test(hang, of_two_children_the_one_in_the_system_call_is_named)
{
    struct hang_case c = load("program", "program");
    add_program(&c, 12);
    stay_beside_child(&c, "sleeping in wait4", "process 12");
    expect_verdict(&c, "RANK_WAITS_FOR_CHILD", "rank 1 (n1, pid 71)",
                   "is in run_program (worker.py:208) and waits for child process 12 (tool),");
    case_free(&c);
}

static void expect_beside_child(const char *way, const char *does, const char *object, const char *code)
{
    struct hang_case c = load(way, way);
    stay_beside_child(&c, does, object);
    expect_verdict(&c, code, "rank 1 (n1, pid 71)", "is in ");
    case_free(&c);
}

Test(hang, a_rank_may_wait_for_a_child_that_has_ended_in_a_lock_or_for_an_object)
{
    static const char *const may_wait[][2] = {
        { "read", "pipe:[12]" }, { "recvfrom", "" },
        { "poll", "pipe:[12]" }, { "read", "socket:[12]" },
        { "wait4", "" },         { "waitid", "" },
        { "pipe_read", "" },     { "do_epoll_wait", "anon_inode:[eventpoll]" },
    };
    static const char *const sleeps[] = { "nanosleep", "clock_nanosleep", "pause",
                                          "poll",      "select",          "pselect6" };
    char does[40];
    for (size_t i = 0; i < LEN(may_wait); i++) {
        snprintf(does, sizeof(does), "sleeping in %s", may_wait[i][0]);
        expect_beside_child("sleep", does, may_wait[i][1], "RANK_CHILD_ENDED");
    }
    for (size_t i = 0; i < LEN(sleeps); i++) {
        snprintf(does, sizeof(does), "sleeping in %s", sleeps[i]);
        expect_beside_child("sleep", does, "", "RANK_SLEEPS");
    }
    static const char *const others[][2] = {
        { "recvfrom", "the connection to 10.0.0.2:4711" },
        { "poll", "the connection to 10.0.0.2:4711" },
        { "openat", "in.fifo" },
        { "read", "/data/in.fifo" },
        { "write", "pipe:[12]" },
        { "pipe_write", "" },
    };
    for (size_t i = 0; i < LEN(others); i++) {
        snprintf(does, sizeof(does), "sleeping in %s", others[i][0]);
        expect_beside_child("sleep", does, others[i][1], "RANK_BLOCKED");
    }
    expect_beside_child("lock", "sleeping in futex", "", "RANK_IN_LOCK");
    expect_beside_child("loader", "sleeping in futex", "", "RANK_CHILD_ENDED");
    expect_beside_child("sleep", "sleeping", "", "RANK_CHILD_ENDED"); /* the system call could not be read */
    expect_beside_child("sleep", "uninterruptible in read (nfs_wait)", "/mnt/x.bin", "RANK_BLOCKED");
    expect_beside_child("loop", "running", "", "RANK_LOOPS");
}

/* The workers of an executor may be processes. */
Test(hang, a_future_may_need_a_child_that_has_ended)
{
    struct hang_case c = load("sleep", "sleep");
    enter(&c, 1, "concurrent/futures/_base.py");
    stay_beside_child(&c, "sleeping in futex", "");
    expect_verdict(&c, "RANK_CHILD_ENDED", "rank 1 (n1, pid 71)", "is in load_batch (worker.py:");
    case_free(&c);
}

/* In the first case no frame of the program is left, so the exception has ended the program. In the second case the
 * program still runs, and may have handled the exception. */
Test(hang, a_rank_that_ends_after_a_traceback_does_not_wait_for_a_child)
{
    static const char *const cases[][2] = { { "traceback", "RANK_TRACEBACK" },
                                            { "child", "RANK_CHILD_ENDED" } };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct hang_case c = load(cases[i][0], cases[i][0]);
        c.ranks[1].traceback = "ValueError: batch 7 is empty";
        stay_beside_child(&c, "sleeping in read", "pipe:[12]");
        expect_verdict(&c, cases[i][1], "rank 1 (n1, pid 71)", i == 0 ? "has failed" : "is in ");
        case_free(&c);
    }
}

Test(hang, a_process_stopped_by_a_signal_has_its_usual_finding)
{
    WAY("stop", "RANK_STOPPED", "rank 1", "stopped (state T) (n1, pid 71)");
}

Test(hang, a_process_stopped_by_a_debugger)
{
    struct hang_case c = load("stop", "stop");
    let(&c, 1, "stopped by a debugger");
    expect_verdict(&c, "RANK_STOPPED", "rank 1", "stopped (state t) (n1, pid 71)");
    case_free(&c);
}

Test(hang, another_collective)
{
    WAY("other", "COLLECTIVES_DIFFER", "rank 1 (n1, pid 71)",
        "rank 1 (n1, pid 71) waits in broadcast (worker.py:57), while 2 ranks wait in all_reduce "
        "(worker.py:97): their "
        "calls differ");
}

Test(hang, all_ranks_in_the_same_collective_name_the_nodes)
{
    WAY("all_wait", "ALL_RANKS_WAIT", "all 3 ranks",
        "wait in all_reduce (worker.py:71), without progress for 42.0 s, and every process is alive; "
        "probable cause: the "
        "network "
        "between the nodes (n0, "
        "n1), or a GPU");
}

Test(hang, a_traceback_without_an_exit)
{
    struct hang_case c = load("traceback", "traceback");
    c.ranks[1].traceback = "ValueError: batch 7 is empty";
    expect_verdict(
        &c, "RANK_TRACEBACK", "rank 1 (n1, pid 71)",
        "has failed and has not exited: ValueError: batch 7 is empty; the main thread is in _shutdown "
        "(threading.py:1583); no progress for 42.0 s" OTHERS);
    case_free(&c);
}

Test(hang, a_key_that_no_rank_has_set)
{
    struct hang_case c = load("key", "key");
    c.ranks[1].waits = (struct rank_wait){ .name = slice_str("epoch/3"), .for_ms = 42000 };
    expect_verdict(&c, "RANK_NEEDS_KEY", "rank 1 (n1, pid 71)",
                   "is in wait_for_key (worker.py:61) and waits for key 'epoch/3', which no rank has set; no "
                   "progress for 42.0 s" OTHERS);
    case_free(&c);
}

/* Rank 0 waits for a key. In the first case rank 1 computes and may still set the key, so there is no finding. In the
 * second case rank 1 sleeps, so a finding names rank 0. */
Test(hang, a_key_may_come_from_a_rank_that_computes)
{
    struct hang_case c = load("loop", "loop");
    c.s.n_ranks = c.s.world_size = 2;
    c.ranks[0].waits = (struct rank_wait){ .name = slice_str("epoch/3"), .for_ms = 42000 };
    for (int i = 0; i < 2; i++)
        leave_collective(&c, i);
    expect_none(&c);
    case_free(&c);
    c = load("sleep", "sleep");
    c.s.n_ranks = c.s.world_size = 2;
    c.ranks[0].waits = (struct rank_wait){ .name = slice_str("epoch/3"), .for_ms = 42000 };
    for (int i = 0; i < 2; i++)
        leave_collective(&c, i);
    expect_verdict(&c, "RANK_NEEDS_KEY", "rank 0 (n1, pid 70)",
                   "which no rank has set; no progress for 42.0 s; possible cause: rank 1 (n1, pid 71) in "
                   "load_batch (worker.py:17)");
    case_free(&c);
}

/* Rank 1 waits for the key "ready/2". Every other rank has set the key with its own number, so rank 2 should have set
 * "ready/2". */
Test(hang, a_key_that_another_rank_sets_by_convention)
{
    struct hang_case c = load("key", "key");
    c.ranks[1].waits = (struct rank_wait){ .name = slice_str("ready/2"), .for_ms = 42000, .setter = 3 };
    expect_verdict(&c, "RANK_NEEDS_KEY", "rank 1 (n1, pid 71)",
                   "which no rank has set; rank 2 should set this key, because every other rank has set its "
                   "own key; no progress for 42.0 s" OTHERS);
    case_free(&c);
}

Test(hang, a_rank_that_has_left_with_0)
{
    struct hang_case c = load("sleep", "sleep");
    c.ranks[1].exited = true;
    expect_verdict(&c, "RANK_EXITED_EARLY", "rank 1 (n1, pid 71)",
                   "exited with code 0, less than 1 ms ago, while 2 ranks waited for it in all_reduce "
                   "(worker.py:97)");
    c.ranks[1].state_ms = 12000;
    expect_verdict(
        &c, "RANK_EXITED_EARLY", "rank 1 (n1, pid 71)",
        "exited with code 0, 12.0 s ago, while 2 ranks waited for it in all_reduce (worker.py:97)");
    case_free(&c);
}

/* --- connections ------------------------------------------------------------------------------------------- */

/* Add to both samples a connection of `rank` on which `peer` acknowledges no data. */
static void cut(struct hang_case *c, int rank, const char *peer)
{
    struct stack_thread t = { .rank = rank, .pid = 70 + rank, .host = "n0", .does = STACKS_UNANSWERED };
    snprintf(t.object, sizeof(t.object), "%s", peer);
    for (int i = 0; i < 2; i++)
        stacks_add_thread(&c->samples[i], &t);
}

Test(hang, a_connection_without_an_answer_names_the_pair_of_nodes)
{
    struct hang_case c = load("all_wait", "all_wait");
    cut(&c, 1, "10.9.0.11:4711");
    expect_verdict(
        &c, "ALL_RANKS_WAIT", "all 3 ranks",
        "probable cause: the connection between n0 and n1 (rank 1 sends to 10.9.0.11:4711 without an "
        "answer)");
    cut(&c, 2, "10.9.0.10:4712"); /* the same connection, seen from its other end */
    expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks", "between n0 and n1 (rank 1 sends to 10.9.0.11:4711");
    case_free(&c);
}

/* Add the result of a probe to sample `i`. The probe has tested the path to `peer`. */
static void lose(struct hang_case *c, int i, int rank, const char *peer, int bytes)
{
    struct stack_thread t = { .rank = rank, .pid = 70 + rank, .host = "n0" };
    snprintf(t.does, sizeof(t.does), STACKS_LOSES_LARGE, bytes);
    snprintf(t.object, sizeof(t.object), "%s", peer);
    stacks_add_thread(&c->samples[i], &t);
}

Test(hang, a_connection_without_an_answer_whose_path_loses_large_packets)
{
    static const char between[] = "between n0 and n1 (rank 1 sends to 10.9.0.11:4711 without an answer";
    for (int i = 0; i < 2; i++) { /* the probe's result is in the first or in the second sample */
        struct hang_case c = load("all_wait", "all_wait");
        char sentence[256];
        cut(&c, 1, "10.9.0.11:4711");
        lose(&c, i, 1, "192.0.2.7:443", 1400);  /* another host */
        lose(&c, i, 1, "10.9.0.11:4713", 9000); /* another connection to the same host */
        snprintf(sentence, sizeof(sentence), "%s; UDP packets of 9000 bytes are lost, small packets arrive)",
                 between);
        expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks", sentence);
        case_free(&c);
    }
}

Test(hang, no_packet_has_such_a_size)
{
    static const int sizes[] = { INT_MIN, -1, 0, UINT16_MAX + 1, INT_MAX };
    struct hang_case c = load("all_wait", "all_wait");
    cut(&c, 1, "10.9.0.11:4711");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        lose(&c, 1, 1, "10.9.0.11:4711", sizes[i]);
    expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks",
                   "between n0 and n1 (rank 1 sends to 10.9.0.11:4711 without an answer)");
    case_free(&c);
}

Test(hang, the_path_of_another_host_is_not_quoted)
{
    struct hang_case c = load("all_wait", "all_wait");
    cut(&c, 1, "10.9.0.11:4711");
    lose(&c, 1, 1, "192.0.2.7:443", 1500);
    lose(&c, 1, 1, "10.9.0.110:4711", 1500);
    expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks",
                   "between n0 and n1 (rank 1 sends to 10.9.0.11:4711 without an answer)");
    case_free(&c);
}

/* As text, 10.9.0.1 is a prefix of the nodes' addresses 10.9.0.10 and 10.9.0.11, but it must not match these
 * addresses. */
Test(hang, a_connection_to_no_other_node_is_only_quoted)
{
    struct hang_case c = load("all_wait", "all_wait");
    cut(&c, 1, "10.9.0.1:4711");
    cut(&c, 0, "10.9.0.10:4712"); /* an address of the rank's own node */
    expect_verdict(
        &c, "ALL_RANKS_WAIT", "all 3 ranks",
        "the network between the nodes (n0, n1), or a GPU; rank 0 sends to 10.9.0.10:4712 without an answer");
    cut(&c, 1, "10.9.0.11:4713");
    expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks",
                   "between n0 and n1 (rank 1 sends to 10.9.0.11:4713 without an answer)");
    case_free(&c);
}

Test(hang, a_connection_to_no_other_node_does_not_hide_a_difference)
{
    struct hang_case c = load("other", "other");
    cut(&c, 0, "192.0.2.7:443");
    expect_verdict(&c, "COLLECTIVES_DIFFER", "rank 1 (n1, pid 71)", "waits in broadcast (worker.py:57)");
    case_free(&c);
}

Test(hang, a_peer_of_one_sample_is_none)
{
    struct hang_case c = load("all_wait", "all_wait");
    struct stack_thread t = { .rank = 1, .pid = 71, .host = "n0", .does = STACKS_UNANSWERED };
    for (int i = 0; i < 2; i++) {
        snprintf(t.object, sizeof(t.object), "10.9.0.11:471%d", i);
        stacks_add_thread(&c.samples[i], &t);
    }
    expect_verdict(&c, "ALL_RANKS_WAIT", "all 3 ranks", "the network between the nodes (n0, n1), or a GPU");
    case_free(&c);
}

Test(hang, a_peer_with_ipv6)
{
    static const struct {
        const char *peer, *sentence;
    } cases[] = {
        { "[fd00::1]:4711", "between n0 and n1 (rank 1 sends to [fd00::1]:4711 without an answer)" },
        { "[fd00::11]:4711", "or a GPU; rank 1 sends to [fd00::11]:4711 without an answer" },
    };
    static const struct snapshot_node nodes[] = { NODE(0, .first_rank = 0),
                                                  NODE(1, .first_rank = 2, .addr = "fd00::1") };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct hang_case c = load("all_wait", "all_wait");
        cut(&c, 1, cases[i].peer);
        const struct diagnosis d = verdict_with(&c, nodes);
        expect_at(&d, 0, "ALL_RANKS_WAIT", "all 3 ranks", cases[i].sentence);
        case_free(&c);
    }
}

Test(hang, ranks_in_different_collectives_blame_a_connection_without_an_answer)
{
    struct hang_case c = load("other", "other");
    cut(&c, 0, "10.9.0.11:4711");
    expect_verdict(
        &c, "ALL_RANKS_WAIT", "all 3 ranks",
        "wait in all_reduce (worker.py:97) and elsewhere, without progress for 42.0 s, and every process "
        "is alive; probable cause: the connection between n0 and n1");
    case_free(&c);
}

Test(hang, a_culprit_comes_before_a_connection_without_an_answer)
{
    struct hang_case c = load("sleep", "sleep");
    cut(&c, 0, "10.9.0.11:4711");
    expect_verdict(&c, "RANK_SLEEPS", "rank 1 (n1, pid 71)", OTHERS);
    case_free(&c);
}

/* --- flight records ---------------------------------------------------------------------------------------- */

#define CALL(rank, group, seq, name, state)                                                                 \
    "{\"rank\":" #rank ",\"group\":\"" group "\",\"seq\":" #seq ",\"name\":\"" name "\",\"state\":\"" state \
    "\",\"dtype\":\"Float\",\"n\":4,\"created_ms\":17956480" #seq ",\"at\":\"step (train.py:" #seq ")\"}"
#define REDUCE(rank, seq) CALL(rank, "", seq, "all_reduce", "scheduled")

/* Expect a verdict from two samples of the flight records, `earlier` and `calls`. The stacks of both samples are from
 * the recording `way`; if `readable` is false, both samples have no stacks. */
static void expect_by_both(const char *way, bool readable, const char *earlier, const char *calls,
                           const char *code, const char *subject, const char *sentence)
{
    struct hang_case c = load(way, way);
    cJSON *rows[] = { cJSON_Parse(earlier), cJSON_Parse(calls) };
    for (int i = 0; i < 2; i++) {
        cr_assert_not_null(rows[i], "%s", i == 0 ? earlier : calls);
        c.s.hang.calls[i] = rows[i];
    }
    for (int i = 0; i < 2 && !readable; i++) {
        stacks_free(&c.samples[i]);
        cr_assert(stacks_init(&c.samples[i], STACKS_JOB_BYTES));
    }
    expect_verdict(&c, code, subject, sentence);
    cJSON_Delete(rows[0]);
    cJSON_Delete(rows[1]);
    case_free(&c);
}

static void expect_by_records(const char *way, bool readable, const char *calls, const char *code,
                              const char *subject, const char *sentence)
{
    expect_by_both(way, readable, calls, calls, code, subject, sentence);
}

#define ONE_BEHIND "[" REDUCE(0, 19) "," REDUCE(1, 18) "," REDUCE(2, 19) "]"

Test(hang, records_name_the_rank_that_is_behind_if_stacks_are_equal)
{
    expect_by_records(
        "all_wait", true, ONE_BEHIND, "RANK_BEHIND", "rank 1 (n1, pid 71)",
        "rank 1 (n1, pid 71) has not called all_reduce #19 (Float x 4), in which ranks 0, 2 wait "
        "(train.py:19); its last call is all_reduce #18 (Float x 4) (train.py:18); no progress "
        "for 42.0 s");
}

/* A stack does not distinguish Work.wait() from a lock, so a flight record is better evidence. */
Test(hang, records_decide_if_no_rank_is_in_a_known_collective)
{
    expect_by_records("async", true, ONE_BEHIND, "RANK_BEHIND", "rank 1 (n1, pid 71)",
                      "has not called all_reduce #19 (Float x 4)");
}

Test(hang, records_decide_without_stacks)
{
    expect_by_records("sleep", false, ONE_BEHIND, "RANK_BEHIND", "rank 1 (n1, pid 71)",
                      "has not called all_reduce #19 (Float x 4)");
}

Test(hang, records_with_different_calls_name_the_smaller_group)
{
    expect_by_records(
        "all_wait", true,
        "[" REDUCE(0, 19) "," CALL(1, "", 19, "broadcast", "scheduled") "," REDUCE(2, 19) "]",
        "COLLECTIVES_DIFFER", "rank 1 (n1, pid 71)",
        "called broadcast #19 (Float x 4) (train.py:19), while ranks 0, 2 called all_reduce #19 "
        "(Float x 4) (train.py:19): their calls differ");
}

Test(hang, a_gpu_that_has_not_started_the_call_of_the_others_is_named)
{
#define STARTED(rank, state) CALL(rank, "", 17, "all_reduce", state) "," REDUCE(rank, 19)
    expect_by_records(
        "all_wait", true, "[" STARTED(0, "started") "," STARTED(1, "scheduled") "," STARTED(2, "started") "]",
        "RANK_BEHIND", "rank 1 (n1, pid 71)",
        "has called all_reduce #17 (Float x 4), but the GPU has not started this call, in which ranks 0, 2 "
        "wait (train.py:17)");
}

Test(hang, equal_records_are_quoted)
{
    expect_by_records("all_wait", true, "[" REDUCE(0, 19) "," REDUCE(1, 19) "," REDUCE(2, 19) "]",
                      "ALL_RANKS_WAIT", "all 3 ranks",
                      "or a GPU; flight records: the last call of 3 ranks is all_reduce #19 (Float x 4)");
}

Test(hang, records_are_quoted_if_stacks_name_the_culprit)
{
    expect_by_records(
        "sleep", true, ONE_BEHIND, "RANK_SLEEPS", "rank 1 (n1, pid 71)",
        OTHERS "; the flight records of rank 1 (n1, pid 71) do not contain all_reduce #19 (Float x 4)");
}

/* Only records that are equal in both samples are compared. The records of rank 1 have changed. */
Test(hang, a_record_that_moves_is_not_used)
{
    expect_by_both("all_wait", true, "[" REDUCE(0, 19) "," REDUCE(1, 17) "," REDUCE(2, 19) "]", ONE_BEHIND,
                   "ALL_RANKS_WAIT", "all 3 ranks",
                   "or a GPU; flight records: the last call of 2 ranks is all_reduce #19 (Float x 4)");
    expect_by_both("all_wait", true,
                   "[" REDUCE(0, 19) "," CALL(1, "", 18, "all_reduce", "started") "," REDUCE(2, 19) "]",
                   ONE_BEHIND, "ALL_RANKS_WAIT", "all 3 ranks", "the last call of 2 ranks");
    expect_by_both("all_wait", true, "[]", ONE_BEHIND, "ALL_RANKS_WAIT", "all 3 ranks", ", or a GPU");
}

Test(hang, records_of_some_ranks_are_only_quoted)
{
    expect_by_records("all_wait", true, "[" REDUCE(0, 19) "," REDUCE(1, 18) "]", "ALL_RANKS_WAIT",
                      "all 3 ranks", "or a GPU; the flight records of rank 1");
}

/* The flight record of rank 1 has calls of another group, but no call of the group of all ranks. */
Test(hang, a_rank_without_a_call_in_the_group_is_not_behind)
{
    expect_by_records("all_wait", true,
                      "[" REDUCE(0, 19) "," CALL(1, "7", 3, "all_reduce", "started") "," REDUCE(2, 19) "]",
                      "ALL_RANKS_WAIT", "all 3 ranks", "or a GPU; flight records: the last call of ");
}

Test(hang, no_rank_waits_in_a_completed_call)
{
#define DONE(rank, seq) CALL(rank, "", seq, "all_reduce", "completed")
    expect_by_records("all_wait", true, "[" DONE(0, 19) "," DONE(1, 18) "," DONE(2, 19) "]", "ALL_RANKS_WAIT",
                      "all 3 ranks", "or a GPU");
}

/* Some records have members of wrong types, and there are too many records. */
Test(hang, records_that_make_no_sense_have_no_effect)
{
    struct buf calls = { 0 };
    buf_printf(&calls, "[7,{\"rank\":\"x\",\"seq\":-1},{\"rank\":900,\"seq\":1e300}");
    for (int i = 0; i < 40; i++)
        buf_printf(&calls, "," CALL(1, "g%d", 3, "all_reduce", "started"), i);
    buf_printf(&calls, "]");
    buf_append(&calls, "", 1);
    expect_by_records("sleep", true, (const char *)calls.data, "RANK_SLEEPS", "rank 1 (n1, pid 71)", OTHERS);
    buf_free(&calls);
}

/* --- no verdict ------------------------------------------------------------------------------------------ */

Test(hang, a_rank_that_moves_is_slow)
{
    struct hang_case c = load("sleep", "lock");
    expect_none(&c);
    case_free(&c);
}

Test(hang, ranks_that_wait_elsewhere_than_before_are_slow)
{
    struct hang_case c = load("sleep", "all_wait");
    expect_none(&c);
    case_free(&c);
}

Test(hang, a_rank_without_stacks_may_be_the_culprit_or_not)
{
    struct hang_case c = load("all_wait", "all_wait");
    c.s.n_ranks = c.s.world_size = 4;
    c.ranks[3] = (struct snapshot_rank)RANK(3, .call = "");
    expect_none(&c);
    case_free(&c);
}

Test(hang, a_job_without_a_rank_that_waits)
{
    struct hang_case c = load("loop", "loop");
    c.s.n_ranks = c.s.world_size = 2; /* rank 0 waits and rank 1 loops; then rank 0 exits */
    c.ranks[0].exited = true;
    expect_none(&c);
    case_free(&c);
}

Test(hang, one_sample_is_none)
{
    struct hang_case c = load("sleep", "sleep");
    struct snapshot s = c.s;
    s.ranks = c.ranks;
    s.hang.rows[1] = c.samples[1].rows;
    struct diagnosis d;
    d.n = 0;
    cr_expect_eq(diagnose_hang(&d, &s), -1);
    cr_expect_eq(d.n, 0);
    case_free(&c);
}

/* Let rank 0 use `ms` of CPU time between the samples, while it stays in its all_reduce. */
static void compute(struct hang_case *c, int ms)
{
    const cJSON *row, *thread;
    cJSON_ArrayForEach(row, c->samples[1].rows)
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            cJSON *cpu = cJSON_GetObjectItem(thread, "cpu_ms");
            if (number_in(thread, "rank") == 0)
                cJSON_SetNumberValue(cpu, cpu->valuedouble + ms);
        }
    }
}

/* Set how often the main thread of rank 1 has run. */
static void set_runs(struct hang_case *c, int sample, int runs)
{
    const cJSON *row, *thread;
    cJSON_ArrayForEach(row, c->samples[sample].rows)
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            if (number_in(thread, "rank") == 1 && cJSON_IsTrue(cJSON_GetObjectItem(thread, "main")))
                cJSON_AddNumberToObject((cJSON *)thread, "runs", runs);
        }
    }
}

/* Set what the main thread of rank 1 does. */
static void set_does(struct hang_case *c, int sample, const char *does)
{
    cJSON *row, *thread;
    cJSON_ArrayForEach(row, c->samples[sample].rows)
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            if (number_in(thread, "rank") == 1 && cJSON_IsTrue(cJSON_GetObjectItem(thread, "main")))
                cJSON_ReplaceItemInObject(thread, "does", cJSON_CreateString(does));
        }
    }
}

Test(hang, a_rank_wakes_if_it_has_run_several_times_between_the_samples)
{
    static const struct {
        int earlier, later;
        bool wakes;
    } rows[] = { { 900, 900, false }, { 900, 901, false }, { 900, 902, true }, { 0, 902, false } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hang_case c = load("sleep", "sleep");
        c.s.hang.rows[0] = c.samples[0].rows;
        c.s.hang.rows[1] = c.samples[1].rows;
        set_runs(&c, 0, rows[i].earlier);
        set_runs(&c, 1, rows[i].later);
        cr_expect_eq(hang_wakes(&c.s, 1), rows[i].wakes, "%zu", i);
        set_does(&c, 1, "uninterruptible in read");
        cr_expect_not(hang_wakes(&c.s, 1));
        cr_expect_not(hang_wakes(&c.s, 0));
        cr_expect_not(hang_wakes(&c.s, 99));
        case_free(&c);
    }
}

/* A GPU driver spins while it waits, so a rank that uses a whole CPU may wait in a collective. Such a rank counts as
 * waiting only if the job has shown signs of progress before. */
Test(hang, waiting_ranks_that_spin_need_a_job_with_signs_of_progress)
{
    struct hang_case c = load("sleep", "sleep");
    compute(&c, 2900);
    c.s.hang.has_signals = false;
    expect_none(&c);
    c.s.hang.has_signals = true;
    expect_verdict(&c, "RANK_SLEEPS", "rank 1 (n1, pid 71)", OTHERS);
    case_free(&c);
}

Test(hang, a_waiting_rank_that_ran_for_a_moment_is_in_another_collective)
{
    struct hang_case c = load("sleep", "sleep");
    compute(&c, 3);
    expect_none(&c);
    case_free(&c);
}

Test(hang, stacks_that_cannot_be_read_are_a_note)
{
    struct hang_case c = load("sleep", "sleep");
    for (int i = 0; i < 2; i++) {
        const struct stack_thread main = {
            .rank = 1, .pid = 71, .tid = 71, .is_main = true, .does = "running"
        };
        stacks_free(&c.samples[i]);
        cr_assert(stacks_init(&c.samples[i], STACKS_JOB_BYTES));
        stacks_add_thread(&c.samples[i], &main);
        stacks_add_note(&c.samples[i], &main,
                        "no Python stacks: py-spy is not installed; pip install py-spy");
    }
    const struct diagnosis d = verdict(&c);
    expect_at(&d, 0, "STACKS_UNREADABLE", "3 ranks",
              "cannot be read: py-spy is not installed; pip install py-spy");
    case_free(&c);
}

#define STATE(rank, does, cpu)                                                \
    "{\"does\":\"" does "\",\"threads\":[{\"rank\":" #rank ",\"pid\":7" #rank \
    ",\"main\":true,\"cpu_ms\":" #cpu "}]}"
#define NO_PY_SPY                                  \
    "{\"note\":\"no Python stacks: py-spy is not " \
    "installed\",\"threads\":[{\"rank\":0,\"pid\":70,\"main\":true}]}"
#define GLOO "sleeping in futex"

static struct diagnosis judge_rows(const char *first, const char *second, bool has_signals);

Test(hang, states_without_stacks_that_differ)
{
    const char *rows = "[" STATE(0, GLOO, 9) "," STATE(1, "sleeping in clock_nanosleep", 9) "," STATE(
        2, GLOO, 9) "," STATE(3, GLOO, 9) "," NO_PY_SPY "]";
    struct diagnosis d = judge_rows(rows, rows, true);
    expect_at(
        &d, 0, "RANK_STATE_DIFFERS", "rank 1 (n1, pid 71)",
        "is sleeping in clock_nanosleep, while 3 ranks are sleeping in futex; no progress for 43.0 s; the "
        "stacks cannot be read: py-spy is not installed");
    cr_expect_eq(d.n, 1);
}

/* If a file system does not answer, a process that reads from it stays in state D. */
Test(hang, a_state_without_a_stack_may_be_uninterruptible)
{
    const char *rows = "[" STATE(0, GLOO, 9) "," STATE(1, "uninterruptible in read (nfs_wait)", 9) "," STATE(
        2, GLOO, 9) "," STATE(3, GLOO, 9) "," NO_PY_SPY "]";
    struct diagnosis d = judge_rows(rows, rows, true);
    expect_at(
        &d, 0, "RANK_STATE_DIFFERS", "rank 1 (n1, pid 71)",
        "is uninterruptible in read (nfs_wait), while 3 ranks are sleeping in futex; no progress for 43.0 s");
}

/* Rank 0 sleeps in futex, as in a collective of Gloo. The other ranks are in another state, so they may be the
 * culprits. */
Test(hang, most_states_without_stacks_differ_from_a_wait)
{
    const char *rows = "[" STATE(0, GLOO, 9) "," STATE(1, "sleeping in read", 9) "," STATE(
        2, "sleeping in read", 9) "," STATE(3, "sleeping in read", 9) "," NO_PY_SPY "]";
    struct diagnosis d = judge_rows(rows, rows, true);
    expect_at(&d, 0, "RANK_STATE_DIFFERS", "ranks 1-3",
              "are sleeping in read, while rank 0 is sleeping in futex");
}

Test(hang, states_without_stacks_that_may_be_progress_are_a_note)
{
    const char *equal =
        "[" STATE(0, GLOO, 9) "," STATE(1, GLOO, 9) "," STATE(2, GLOO, 9) "," STATE(3, GLOO, 9) "," NO_PY_SPY
                                                                                                "]";
    const char *other = "[" STATE(0, GLOO, 9) "," STATE(1, "sleeping in read", 9) "," STATE(
        2, GLOO, 9) "," STATE(3, GLOO, 9) "," NO_PY_SPY "]";
    const char *runs = "[" STATE(0, GLOO, 9) "," STATE(1, "running", 9) "," STATE(2, GLOO, 9) "," STATE(
        3, GLOO, 9) "," NO_PY_SPY "]";
    const char *later = "[" STATE(0, GLOO, 9) "," STATE(1, "sleeping in read", 6000) "," STATE(
        2, GLOO, 9) "," STATE(3, GLOO, 9) "," NO_PY_SPY "]";
    const char *pairs[][2] = { { equal, equal }, { equal, other }, { other, later }, { runs, runs } };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct diagnosis d = judge_rows(pairs[i][0], pairs[i][1], true);
        expect_at(&d, 0, "STACKS_UNREADABLE", "4 ranks", "py-spy is not installed");
        cr_expect_eq(d.n, 1);
    }
}

/* A node has no py-spy. The rank on this node sleeps, and the ranks of the other node wait in a collective. */
Test(hang, a_state_without_a_stack_differs_from_waiting_ranks)
{
    struct hang_case c = load("sleep", "sleep");
    for (int i = 0; i < 2; i++) {
        const struct stack_thread main = { .rank = 1,
                                           .pid = 71,
                                           .tid = 71,
                                           .is_main = true,
                                           .does = "sleeping in read",
                                           .object = "/mnt/x.bin" };
        cJSON *row, *next;
        for (row = c.samples[i].rows->child; row != NULL; row = next) {
            next = row->next;
            if (number_in(cJSON_GetObjectItem(row, "threads")->child, "rank") == 1)
                cJSON_Delete(cJSON_DetachItemViaPointer(c.samples[i].rows, row));
        }
        stacks_add_thread(&c.samples[i], &main);
        stacks_add_note(&c.samples[i], &main, "no Python stacks: ptrace is forbidden");
    }
    c.ranks[1].connected = false; /* rank 1 may be an independent program */
    expect_none(&c);
    c.ranks[1].connected = true;
    const struct diagnosis d = verdict(&c);
    expect_at(
        &d, 0, "RANK_STATE_DIFFERS", "rank 1 (n1, pid 71)",
        "is sleeping in read of /mnt/x.bin, while 2 ranks wait in all_reduce (worker.py:97); no progress for "
        "42.0 s; the stacks cannot be read: ptrace is forbidden");
    case_free(&c);
}

/* --- ranks that have failed ---------------------------------------------------------------------------------- */

#define LOST \
    "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [10.0.0.1]:4711: Connection reset by peer"

/* Give the main thread of a rank the stack of another rank, or no frames if `from` < 0. */
static void replace_stack(struct hang_case *c, int rank, int from, const char *does, const char *note)
{
    for (int i = 0; i < 2; i++) {
        struct stack_thread main = { .rank = rank, .pid = 70 + rank, .tid = 70 + rank, .is_main = true };
        cJSON *old = row_of(c, i, rank), *threads = cJSON_GetObjectItem(old, "threads"), *thread, *next;
        cJSON *row = from < 0 ? NULL : cJSON_Duplicate(row_of(c, i, from), true);
        for (thread = threads->child; thread != NULL; thread = next) {
            next = thread->next;
            if (number_in(thread, "rank") == rank)
                cJSON_SetNumberValue(cJSON_GetObjectItem(thread, "rank"), 99);
        }
        snprintf(main.does, sizeof(main.does), "%s", does);
        if (row != NULL) {
            cJSON_ReplaceItemInObject(row, "threads", cJSON_Parse("[{}]"));
            thread = cJSON_GetObjectItem(row, "threads")->child;
            cJSON_AddNumberToObject(thread, "rank", rank);
            cJSON_AddNumberToObject(thread, "pid", 70 + rank);
            cJSON_AddTrueToObject(thread, "main");
            cJSON_AddStringToObject(thread, "does", does);
            cJSON_AddItemToArray(c->samples[i].rows, row);
        } else {
            stacks_add_thread(&c->samples[i], &main);
            stacks_add_note(&c->samples[i], &main, note);
        }
    }
}

/* Let all ranks fail with the traceback `error`, and then hang while they exit. Their main threads wait for a thread
 * that is not a daemon. */
static struct hang_case load_failed(const char *error)
{
    struct hang_case c = load("traceback", "traceback");
    replace_stack(&c, 0, 1, "sleeping in futex", NULL);
    replace_stack(&c, 2, 1, "sleeping in futex", NULL);
    for (int i = 0; i < 3; i++)
        c.ranks[i].traceback = error;
    return c;
}

Test(hang, all_ranks_have_failed)
{
    struct hang_case c = load_failed("ValueError: bad data");
    expect_verdict(&c, "RANK_TRACEBACK", "ranks 0-2",
                   "have failed and have not exited: ValueError: bad data; the main thread is in _shutdown "
                   "(threading.py:1583) of rank 0; no progress for 42.0 s; no rank waits in a collective");
    c.s.n_ranks = c.s.world_size = 1;
    expect_verdict(&c, "RANK_TRACEBACK", "rank 0 (n1, pid 70)", "has failed and has not exited: ValueError");
    case_free(&c);
}

/* The other ranks have lost their connections to the rank that has left. */
Test(hang, a_rank_that_has_left_comes_before_its_victims)
{
    struct hang_case c = load_failed(LOST);
    expect_verdict(&c, "RANK_TRACEBACK", "ranks 0-2", "have failed and have not exited: " LOST);
    c.ranks[1].exited = true;
    expect_verdict(&c, "RANK_EXITED_EARLY", "rank 1 (n1, pid 71)",
                   "exited with code 0, less than 1 ms ago, while 2 ranks waited for it and failed: " LOST);
    c.ranks[0].traceback = c.ranks[2].traceback =
        "BrokenPipeError: [Errno 32] Broken pipe"; /* an error of the program itself */
    expect_verdict(&c, "RANK_TRACEBACK", "ranks 0, 2", "have failed and have not exited: BrokenPipeError");
    c.ranks[0].traceback = c.ranks[2].traceback = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:9, "
                                                  "remote process exited or there was a network error";
    expect_verdict(&c, "RANK_EXITED_EARLY", "rank 1 (n1, pid 71)", "failed: DistBackendError");
    c.ranks[0].traceback = c.ranks[2].traceback = LOST;
    c.ranks[1].exited = false;
    c.ranks[1].traceback = "ValueError: bad data";
    expect_verdict(&c, "RANK_TRACEBACK", "rank 1 (n1, pid 71)", "has failed and has not exited: ValueError");
    case_free(&c);
    c = load_failed(LOST);
    enter(&c, 2, "torch/distributed/distributed_c10d.py"); /* rank 2 has not noticed the end of rank 1 yet */
    c.ranks[2].traceback = NULL;
    c.ranks[1].exited = true;
    expect_verdict(&c, "RANK_EXITED_EARLY", "rank 1 (n1, pid 71)",
                   "exited with code 0, less than 1 ms ago, while rank 2 waited for");
    case_free(&c);
}

/* A server that waits for requests may have printed the traceback of an exception that it has handled. */
Test(hang, a_rank_that_still_runs_its_script_may_have_handled_the_error)
{
    struct hang_case c = load("sleep", "sleep");
    c.s.n_ranks = c.s.world_size = 2;
    c.ranks[0].exited = true;
    c.ranks[1].traceback = "ValueError: bad request";
    expect_none(&c);
    case_free(&c);
    c = load_failed("ValueError: bad data");
    c.ranks[2].traceback = NULL;
    expect_none(&c);
    c.ranks[2].traceback = "ValueError: bad data";
    let(&c, 2, "running"); /* an exit handler computes */
    expect_none(&c);
    case_free(&c);
}

Test(hang, a_rank_without_a_frame_has_ended_its_script)
{
    struct hang_case c = load("sleep", "sleep");
    for (int i = 0; i < 2; i++)
        cJSON_ReplaceItemInObject(row_of(&c, i, 1), "frames", cJSON_CreateArray());
    expect_verdict(&c, "RANK_SLEEPS", "rank 1 (n1, pid 71)",
                   "is in the exit of Python, after the end of the script (sleeping in clock_nanosleep) and "
                   "sleeps, without progress for 42.0 s" OTHERS);
    case_free(&c);
}

#define NO_INTERPRETER                                                           \
    "no Python stacks: py-spy failed with exit code 1: Error: Failed to find a " \
    "python version from target process"

static int64_t rank_of_hang(struct hang_case *c)
{
    struct snapshot s = c->s;
    struct diagnosis d = { 0 };
    s.ranks = c->ranks;
    for (int i = 0; i < 2; i++)
        s.hang.rows[i] = c->samples[i].rows;
    return diagnose_hang(&d, &s);
}

/* The error may have ended the program, or the program may have handled the error. Only the Python frames would show
 * which of the two is true. So without frames, the finding is only a hint. */
Test(hang, a_traceback_without_frames_is_a_hint)
{
    static const char *const notes[] = { NO_INTERPRETER, "no Python stacks: ptrace is forbidden" };
    for (size_t i = 0; i < LEN(notes); i++) {
        struct hang_case c = load("sleep", "sleep");
        replace_stack(&c, 1, -1, "sleeping in pause", notes[i]);
        c.ranks[1].traceback = "ValueError: bad data";
        expect_verdict(&c, "RANK_STATE_DIFFERS", "rank 1 (n1, pid 71)",
                       "has printed a traceback (ValueError: bad data) and now sleeps, while 2 ranks wait in "
                       "all_reduce (worker.py:97); no progress for 42.0 s; the stacks cannot be read: ");
        cr_expect_eq(rank_of_hang(&c), -1);
        case_free(&c);
    }
}

/* py-spy cannot read the interpreter of these ranks. These ranks may be servers that wait for requests. */
Test(hang, tracebacks_without_any_frames_are_a_hint)
{
    struct hang_case c = load("sleep", "sleep");
    for (int i = 0; i < 3; i++) {
        replace_stack(&c, i, -1, "sleeping in futex", NO_INTERPRETER);
        c.ranks[i].traceback = i == 2 ? LOST : "ValueError: bad request";
    }
    expect_verdict(&c, "RANK_STATE_DIFFERS", "ranks 0-1",
                   "have printed tracebacks (ValueError: bad request) and now sleep, while no rank waits in "
                   "a collective");
    cr_expect_eq(rank_of_hang(&c), -1);
    c.ranks[0].traceback = c.ranks[1].traceback = NULL;
    expect_verdict(
        &c, "RANK_STATE_DIFFERS", "rank 2 (n1, pid 72)",
        ", while 2 ranks are sleeping in futex; no progress for 42.0 s; the stacks cannot be read: py-spy");
    replace_stack(&c, 1, -1, "running", NO_INTERPRETER);
    const struct diagnosis d = verdict(&c);
    expect_at(&d, 0, "STACKS_UNREADABLE", "3 ranks", "py-spy failed");
    case_free(&c);
}

/* In the samples both processes still sleep. A later heartbeat reports that they are stopped. */
Test(hang, stopped_processes_without_frames)
{
    struct hang_case c = load("sleep", "sleep");
    for (int i = 0; i < 2; i++) {
        replace_stack(&c, i, -1, "sleeping in futex", NO_INTERPRETER);
        c.ranks[i].traceback = "ValueError: bad data";
        c.ranks[i].proc_state = 'T';
    }
    cr_expect_eq(rank_of_hang(&c), -1);
    case_free(&c);
}

/* --- ranks that wait for a GPU ------------------------------------------------------------------------------- */

#define MAIN_OF(rank, does, cpu)                                                            \
    "{\"rank\":" #rank ",\"pid\":7" #rank ",\"host\":\"n1\",\"main\":true,\"does\":\"" does \
    "\",\"cpu_ms\":" #cpu "}"
#define AT(function, file, line, threads)                                               \
    "{\"frames\":[{\"function\":\"" function "\",\"file\":\"" file "\",\"line\":" #line \
    ",\"user\":true}],\"threads\":[" threads "]}"
#define SPINS(cpu)             \
    AT("step", "train.py", 90, \
       MAIN_OF(0, "running", cpu) "," MAIN_OF(2, "running", cpu) "," MAIN_OF(3, "running", cpu))

static struct diagnosis judge_rows(const char *first, const char *second, bool has_signals)
{
    struct snapshot_rank ranks[4];
    static const struct snapshot_node nodes[] = { NODE(0), NODE(1) };
    cJSON *rows[2] = { cJSON_Parse(first), cJSON_Parse(second) };
    cr_assert(rows[0] != NULL && rows[1] != NULL);
    for (uint32_t i = 0; i < 4; i++)
        ranks[i] = (struct snapshot_rank)RANK(i, .call = "", .connected = true);
    struct snapshot s = { RUNNING, .ranks = ranks, .n_ranks = 4 };
    s.nodes = nodes;
    s.hang = (struct snapshot_hang){
        .rows = { rows[0], rows[1] }, .apart_ms = 6500, .still_ms = 43000, .has_signals = has_signals
    };
    const struct diagnosis d = look(s);
    cJSON_Delete(rows[0]);
    cJSON_Delete(rows[1]);
    return d;
}

#define SLEEPER AT("load_batch", "data.py", 41, MAIN_OF(1, "sleeping in clock_nanosleep", 5))

Test(hang, most_ranks_spin_in_one_line_and_wait_for_the_others)
{
    const char *first = "[" SPINS(1000) "," SLEEPER "]", *second = "[" SPINS(7400) "," SLEEPER "]";
    struct diagnosis d = judge_rows(first, second, true);
    expect_at(&d, 0, "RANK_SLEEPS", "rank 1 (n1, pid 71)",
              "is in load_batch (data.py:41) and sleeps, without progress for 43.0 s; 3 ranks are in step "
              "(train.py:90)");
    d = judge_rows(first, second, false);
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}

Test(hang, a_collective_of_one_rank_differs_from_the_line_of_the_others)
{
    const char *barrier =
        "{\"frames\":[{\"function\":\"barrier\",\"file\":\"torch/distributed/"
        "distributed_c10d.py\",\"line\":1,"
        "\"user\":false},{\"function\":\"save\",\"file\":\"train.py\",\"line\":120,\"user\":true}],"
        "\"threads\":[" MAIN_OF(1, "sleeping in futex", 5) "]}";
    char first[2048], second[2048];
    snprintf(first, sizeof(first), "[%s,%s]", SPINS(1000), barrier);
    snprintf(second, sizeof(second), "[%s,%s]", SPINS(7400), barrier);
    const struct diagnosis d = judge_rows(first, second, true);
    expect_at(&d, 0, "COLLECTIVES_DIFFER", "rank 1 (n1, pid 71)",
              "waits in barrier (train.py:120), while 3 ranks are in step (train.py:90)");
}

#define COLLECTIVE(function, rank)                                                             \
    "{\"frames\":[{\"function\":\"" function                                                   \
    "\",\"file\":\"torch/distributed/distributed_c10d.py\",\"line\":1,"                        \
    "\"user\":false},{\"function\":\"step\",\"file\":\"train.py\",\"line\":9,\"user\":true}]," \
    "\"threads\":[" MAIN_OF(rank, "sleeping in futex", 5) "]}"

/* A sentence names at most two groups of waiting ranks (GROUPS_SHOWN), and calls all further groups "others". */
Test(hang, of_many_places_the_first_two_are_named)
{
    const char *rows =
        "[" SLEEPER
        "," COLLECTIVE("all_reduce", 0) "," COLLECTIVE("broadcast", 2) "," COLLECTIVE("all_gather", 3) "]";
    const struct diagnosis d = judge_rows(rows, rows, true);
    expect_at(&d, 0, "RANK_SLEEPS", "rank 1 (n1, pid 71)",
              "; rank 0 waits in all_reduce (train.py:9), rank 2 waits in broadcast (train.py:9) and others "
              "elsewhere");
}

Test(hang, ranks_that_all_compute_in_one_line_are_at_work)
{
    const char *all = AT("step", "train.py", 90,
                         MAIN_OF(0, "running", 9) "," MAIN_OF(1, "running", 9) "," MAIN_OF(
                             2, "running", 9) "," MAIN_OF(3, "running", 9));
    char rows[1024];
    snprintf(rows, sizeof(rows), "[%s]", all);
    const struct diagnosis d = judge_rows(rows, rows, true);
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}

/* --- loops ------------------------------------------------------------------------------------------------- */

/* Convert a text such as "main:50 train:12 f:3" to a list of frames. The text has the function and the line of each
 * frame, and the outermost frame is first. A function whose name begins with a capital letter belongs to a library. */
static cJSON *frames_of(const char *text)
{
    cJSON *frames = cJSON_CreateArray();
    char function[16];
    int line, used;
    for (; sscanf(text, " %15[^:]:%d%n", function, &line, &used) == 2; text += used) {
        cJSON *frame = cJSON_CreateObject();
        cJSON_AddStringToObject(frame, "function", function);
        cJSON_AddStringToObject(frame, "file", "train.py");
        cJSON_AddNumberToObject(frame, "line", line);
        cJSON_AddBoolToObject(frame, "user", function[0] >= 'a');
        cJSON_InsertItemInArray(frames, 0, frame);
    }
    return frames;
}

/* Add `n` samples to a trail. After the last of `samples`, begin again with the first. Return the function and line of
 * the loop that is found, such as "train:12". Return "" if no loop is found. */
static const char *loop_of(const char *const *samples, int n)
{
    static char found[40];
    struct trail t = { 0 };
    for (int i = 0, k = 0; i < n; i++, k = samples[k + 1] == NULL ? 0 : k + 1) {
        cJSON *frames = frames_of(samples[k]);
        trail_add(&t, frames);
        cJSON_Delete(frames);
    }
    const cJSON *loop = trail_loop(&t);
    found[0] = '\0';
    if (loop != NULL)
        snprintf(found, sizeof(found), "%s:%d", spot_text(loop, "function"), spot_number(loop, "line"));
    trail_free(&t);
    return found;
}

#define SAMPLES(...)      \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

Test(hang_loops, a_loop_is_the_outermost_function_whose_lines_return)
{
    cr_expect_str_eq(loop_of(SAMPLES("main:9 spin:1 f:7", "main:9 spin:2 g:8", "main:9 spin:3 h:9"), 9),
                     "spin:3");
    cr_expect_str_eq(loop_of(SAMPLES("main:9 spin:1 f:7", "main:9 spin:2 g:8", "main:9 spin:3 h:9"), 7), "",
                     "too few samples");
    cr_expect_str_eq(loop_of(SAMPLES("main:9 spin:1 f:7", "main:9 spin:1 g:8", "main:9 spin:1 h:9"), 9),
                     "spin:1", "a loop in one line");
    cr_expect_str_eq(loop_of(SAMPLES("main:9 spin:1", "main:9 spin:1 g:8"), 9), "spin:1",
                     "a loop that calls one function");
    cr_expect_str_eq(loop_of(SAMPLES("main:9 Fit:1 f:7", "main:9 Fit:2 g:8"), 9), "main:9",
                     "the loop of a library");
    cr_expect_str_eq(loop_of(SAMPLES("Run:1 f:1", "Run:2 f:1"), 9), "", "no frame of the program");
    cr_expect_str_eq(loop_of(SAMPLES("main:1 f:1", "other:1 f:1"), 9), "", "two programs");
}

Test(hang_loops, a_program_that_goes_forward_has_no_loop)
{
    cr_expect_str_eq(loop_of(SAMPLES("main:1 f:1", "main:1 f:2", "main:2 g:1", "main:3 f:2", "main:4 h:1",
                                     "main:5 h:1", "main:6 h:1", "main:7 h:1", "main:8 h:1"),
                             9),
                     "");
    cr_expect_str_eq(loop_of(SAMPLES("main:5", "main:5", "main:5"), 20), "", "the same line");
    cr_expect_str_eq(loop_of(SAMPLES("main:6 f:1", "main:7 g:1", "main:5 h:1", "main:5 h:1", "main:5 h:1",
                                     "main:5 h:1", "main:5 h:1", "main:5 h:1", "main:5 h:1"),
                             9),
                     "", "a statement of several lines returns once");
}

/* `main` calls `work` on line 1 and then on line 2. The second call does not continue the loop of the first call. */
Test(hang_loops, a_caller_that_goes_forward_begins_again)
{
    const char *all[] = { "main:1 work:1", "main:1 work:2", "main:1 work:1", "main:1 work:2", "main:1 work:1",
                          "main:1 work:2", "main:1 work:1", "main:1 work:2", "main:2 work:1", NULL };
    cr_expect_str_eq(loop_of(all, 8), "work:2");
    cr_expect_str_eq(loop_of(all, 9), "");
}

/* A stack with too many frames was cut, so its outermost frames are missing. */
Test(hang_loops, a_stack_that_is_cut_has_no_loop)
{
    char deep[STACKS_FRAMES_MAX * 8] = "main:1";
    for (int i = 1; i < STACKS_FRAMES_MAX; i++)
        strcat(deep, i % 2 ? " f:1" : " g:1");
    cr_expect_str_eq(loop_of(SAMPLES(deep, "main:2"), 20), "");
}

/* Diagnose `n` samples of four ranks, and compare each sample with the previous sample. Use the entries of `rows` in a
 * cycle. */
static struct diagnosis diagnose_all(const char *const *rows, int n)
{
    static struct diagnosis d;
    struct snapshot_rank ranks[4];
    static const struct snapshot_node nodes[] = { NODE(0), NODE(1) };
    struct hang_history *history = NULL;
    cJSON *last = NULL;
    for (uint32_t i = 0; i < 4; i++)
        ranks[i] = (struct snapshot_rank)RANK(i, .call = "", .connected = true);
    for (int i = 0, k = 0; i < n; i++, k = rows[k + 1] == NULL ? 0 : k + 1) {
        struct snapshot s = { RUNNING, .ranks = ranks, .n_ranks = 4 };
        cJSON *now = cJSON_Parse(rows[k]);
        cr_assert_not_null(now, "%s", rows[k]);
        s.nodes = nodes;
        s.hang = (struct snapshot_hang){
            .rows = { last, now }, .apart_ms = 6000, .still_ms = 43000, .has_signals = true
        };
        hang_history_add(&history, &s);
        s.hang.history = history;
        d = look(s);
        cJSON_Delete(last);
        last = now;
    }
    cJSON_Delete(last);
    hang_history_free(history);
    return d;
}

#define WAITERS COLLECTIVE("all_reduce", 0) "," COLLECTIVE("all_reduce", 2)
#define CALLS(rank, function, line)                                              \
    "{\"frames\":[{\"function\":\"" function                                     \
    "\",\"file\":\"data.py\",\"line\":1,\"user\":true},{\"function\":\"serve\"," \
    "\"file\":\"data.py\",\"line\":" #line ",\"user\":true}],\"threads\":[" MAIN_OF(rank, "running", 9) "]}"

Test(hang_loops, ranks_that_repeat_their_calls_are_named_with_the_function_of_the_loop)
{
    struct diagnosis d =
        diagnose_all(SAMPLES("[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "f", 5) "]",
                             "[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "g", 6) "]"),
                     8);
    expect_at(&d, 0, "RANK_LOOPS", "rank 1 (n1, pid 71)",
              "is in serve (data.py:6) and repeats the same calls (0 % CPU), without progress for 43.0 s; 3 "
              "ranks wait "
              "in all_reduce (train.py:9)");
    cr_expect_eq(d.n, 1);
    d = diagnose_all(SAMPLES("[" WAITERS "," CALLS(1, "f", 5) "," CALLS(3, "g", 6) "]",
                             "[" WAITERS "," CALLS(1, "g", 6) "," CALLS(3, "f", 5) "]"),
                     8);
    expect_at(&d, 0, "RANK_LOOPS", "ranks 1, 3", "are in serve (data.py:6) and repeat the same calls");
}

#define SPINS_AT(cpu) AT("step", "train.py", 90, MAIN_OF(3, "running", cpu))

/* Rank 1 repeats its calls, but rank 3 uses CPU time at one line. Rank 3 may only be slow, because it may wait for the
 * GPU at this line in each step. So there is no finding. */
Test(hang_loops, a_rank_that_computes_elsewhere_may_be_slow_too)
{
    struct diagnosis d = diagnose_all(SAMPLES("[" WAITERS "," CALLS(1, "f", 5) "," SPINS_AT(100) "]",
                                              "[" WAITERS "," CALLS(1, "g", 6) "," SPINS_AT(6000) "]"),
                                      10);
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}

Test(hang_loops, a_rank_that_completes_a_collective_is_slow)
{
    struct diagnosis d =
        diagnose_all(SAMPLES("[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "f", 5) "]",
                             "[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "g", 6) "]",
                             "[" WAITERS "," COLLECTIVE("all_reduce", 3) "," COLLECTIVE("all_reduce", 1) "]",
                             "[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "f", 5) "]",
                             "[" WAITERS "," COLLECTIVE("all_reduce", 3) "," CALLS(1, "g", 6) "]"),
                     40);
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}
