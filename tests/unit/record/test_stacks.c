/* Tests of stacks: the output of py-spy about PyTorch's processes (tests/data/stacks) becomes rows, and equal rows are
 * folded. No text of a process or peer is trusted. */
#include "record/stacks.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct stacks stacks;
static struct buf out;

static void start(void)
{
    cr_assert(stacks_init(&stacks, STACKS_AGENT_BYTES));
}

static void stop(void)
{
    stacks_free(&stacks);
    buf_free(&out);
}

TestSuite(stacks, .init = start, .fini = stop);

static struct stack_thread thread_of(int rank, int pid)
{
    return (struct stack_thread){ .rank = rank, .pid = pid, .tid = pid, .is_main = true, .host = "n1" };
}

/* Add a recorded output of py-spy about the process `pid`. */
static void add_recorded(const char *name, int rank, int pid, bool is_child)
{
    char path[256];
    struct buf text = { 0 };
    struct ddp_err err;
    struct stack_thread t = thread_of(rank, pid);
    t.is_child = is_child;
    snprintf(path, sizeof(path), "tests/data/stacks/%s.json", name);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file, "%s", path);
    text.len = fread(buf_reserve(&text, 1 << 16), 1, 1 << 16, file);
    fclose(file);
    cr_assert_eq(stacks_add_py_spy(&stacks, buf_slice(&text), &t, 1, &err), DDP_OK, "%s", err.msg);
    buf_free(&text);
}

static ddp_status add_text(const char *text, const struct stack_thread *t)
{
    struct ddp_err err;
    return stacks_add_py_spy(&stacks, slice_str(text), t, 1, &err);
}

static const char *printed(void)
{
    out.len = 0;
    cr_assert(stacks_text(stacks.rows, &out) && buf_append(&out, "", 1));
    return (const char *)out.data;
}

/* Print at most `most` lines, and expect that `left` rows are left out. */
static const char *brief(int most, int left)
{
    out.len = 0;
    cr_expect_eq(stacks_brief(stacks.rows, most, &out), left);
    cr_assert(buf_append(&out, "", 1));
    return (const char *)out.data;
}

static int row_count(void)
{
    return cJSON_GetArraySize(stacks.rows);
}

Test(stacks, equal_stacks_of_ranks_are_one_row)
{
    add_recorded("waits", 0, 28731, false);
    add_recorded("waits", 2, 28731, false);
    add_recorded("waits", 3, 28731, false);
    cr_assert_eq(row_count(), 1);
    cr_assert_str_eq(printed(), "ranks 0,2-3:\n"
                                "    all_reduce  torch/distributed/distributed_c10d.py:1541\n"
                                "  > main  hang.py:30\n"
                                "  > <module>  hang.py:33\n");
    cr_assert_str_eq(brief(3, 0), "ranks 0,2-3:\n"
                                  "    all_reduce  torch/distributed/distributed_c10d.py:1541\n"
                                  "  > main  hang.py:30\n");
    cr_assert_str_eq(brief(2, 1), "");
}

Test(stacks, the_rare_stack_comes_first)
{
    add_recorded("waits", 0, 28731, false);
    add_recorded("waits", 1, 28731, false);
    struct stack_thread t = thread_of(2, 7);
    strcpy(t.does, "sleeping in read");
    strcpy(t.object, "/data/x.bin");
    t.cpu_ms = 300;
    cr_assert_eq(
        add_text("[{\"thread_name\":\"MainThread\",\"os_thread_id\":7,\"frames\":[{\"name\":\"load\","
                 "\"filename\":\"/home/u/pkg/data.py\",\"short_filename\":\"pkg/data.py\",\"line\":41}]}]",
                 &t),
        DDP_OK);
    cr_assert_eq(strstr(printed(), "rank 2 (n1, pid 7): sleeping in read "), (char *)out.data, "%s",
                 printed());
    cr_assert_not_null(strstr(printed(), " /data/x.bin, 300 ms of "), "%s", printed());
    cr_assert_not_null(strstr(printed(), "\n  > load  pkg/data.py:41\nranks 0-1:\n"), "%s", printed());
    cr_assert_not_null(strstr(brief(4, 1), " time\n  > load  pkg/data.py:41\n"), "%s", (char *)out.data);
}

/* Rank 1 also has a child process and a feeder thread of the data loader. Data loaders run the same code on every rank.
 * So the rows of the child and the feeder thread come after the rows of main threads. */
Test(stacks, other_threads_and_children_come_behind_main_threads)
{
    add_recorded("loads", 1, 28732, false);
    add_recorded("loader", 1, 30976, true);
    const char *text = printed(), *main = strstr(text, "rank 1 (n1, pid 28732):\n    all_reduce  "),
               *child = strstr(text, "rank 1 (n1, pid 30976, a child"),
               *thread = strstr(text, "rank 1 (2 other threads):\n    Condition.wait  threading.py:320\n");
    cr_assert(main == text && child != NULL && thread != NULL, "%s", text);
    cr_assert_null(strstr(text, "hang.py:26"), "frames of the parent at the fork:\n%s", text);
    cr_assert_eq(strstr(brief(9, row_count() - 2), "rank 1 (n1, pid 28732):\n    all_reduce  "),
                 (char *)out.data, "%s", (char *)out.data);
    cr_assert_not_null(strstr((char *)out.data, "  > main  hang.py:30\nrank 1 (n1, pid 30976, a child"), "%s",
                       (char *)out.data);
    cr_assert_not_null(strstr((char *)out.data, "):\n  > Slow.__getitem__  hang.py:15\n"), "%s",
                       (char *)out.data);
}

/* A worker and its child sleep in the same call. The child must have a separate row, both in the agent's struct stacks
 * and after the store has merged the rows of all agents. */
Test(stacks, a_child_in_the_state_of_its_worker_is_still_shown)
{
    struct stack_thread t = {
        .rank = 1, .pid = 7, .is_main = true, .host = "n1", .does = "sleeping in pause"
    };
    struct stacks merged;
    cr_assert(stacks_init(&merged, STACKS_JOB_BYTES));
    stacks_add_thread(&stacks, &t);
    t.pid = 8;
    t.is_child = true;
    stacks_add_thread(&stacks, &t);
    cr_expect_not_null(strstr(printed(), "pid 8, a child "), "%s", printed());
    stacks_merge(&merged, stacks.rows, 0, 2);
    stacks_free(&stacks);
    stacks = merged;
    cr_expect_not_null(strstr(printed(), "pid 7): "), "%s", printed());
    cr_expect_not_null(strstr(printed(), "pid 8, a child "), "%s", printed());
}

static bool is_user(const char *filename, const char *module)
{
    char text[512];
    stop();
    start();
    const struct stack_thread t = thread_of(0, 1);
    snprintf(
        text, sizeof(text),
        "[{\"os_thread_id\":1,\"frames\":[{\"name\":\"f\",\"filename\":\"%s\",\"module\":%s,\"line\":1}]}]",
        filename, module);
    cr_assert_eq(add_text(text, &t), DDP_OK);
    return strstr(printed(), "  > f") != NULL;
}

Test(stacks, frames_of_the_user_are_marked)
{
    cr_expect(is_user("/home/u/train.py", "null"));
    cr_expect(is_user("train.py", "null"));
    cr_expect(is_user("<string>", "null"));
    cr_expect(is_user("/home/u/torch/train.py", "null"));
    cr_expect(is_user("/opt/lib/model.py", "null"));
    cr_expect_not(is_user("/usr/lib/python3.11/threading.py", "null"));
    cr_expect_not(is_user("/home/u/.pyenv/versions/3.14.0/lib/python3.14/queue.py", "null"));
    cr_expect_not(is_user("/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "null"));
    cr_expect_not(is_user("/usr/lib/python3/dist-packages/numpy/core.py", "null"));
    cr_expect_not(is_user("<frozen runpy>", "null"));
    cr_expect_not(is_user("/usr/lib/x86_64-linux-gnu/libc.so.6", "\"/usr/lib/x86_64-linux-gnu/libc.so.6\""));
}

Test(stacks, a_process_without_python_shows_the_state_of_its_threads)
{
    struct stack_thread t = thread_of(1, 40);
    strcpy(t.does, "sleeping in read");
    stacks_add_thread(&stacks, &t);
    t.rank = 0;
    stacks_add_thread(&stacks, &t);
    stacks_add_note(&stacks, &t, "no py-spy");
    t.tid = 41;
    t.is_main = false;
    strcpy(t.name, "poller");
    strcpy(t.object, "pipe:[12]");
    stacks_add_thread(&stacks, &t);
    t.does[0] = '\0';
    stacks_add_thread(&stacks, &t);
    cr_assert_eq(strstr(printed(), "ranks 0-1: sleeping in read\nrank 0 (n1, pid 40, thread poller): "),
                 (char *)out.data, "%s", printed());
    cr_assert_not_null(strstr(printed(), " pipe:[12]\nrank 0: no py-spy\n"), "%s", printed());
    cr_assert_str_eq(brief(2, row_count() - 2), "ranks 0-1: sleeping in read\nrank 0: no py-spy\n");
    cr_assert_str_eq(brief(1, row_count() - 1), "rank 0: no py-spy\n");
}

/* --- invalid input ---------------------------------------------------------------------------------------- */

Test(stacks, other_texts_are_refused)
{
    static const char *const texts[] = {
        "", "{}", "[]", "[1]", "[{\"frames\":1}]", "Error: no", "[{\"frames\":[]", "null"
    };
    const struct stack_thread t = thread_of(0, 1);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        cr_expect_eq(add_text(texts[i], &t), DDP_ERR_CORRUPT, "%s", texts[i]);
    cr_expect_eq(row_count(), 0);
    char *long_text = malloc(STACKS_INPUT_MAX + 2);
    memset(long_text, ' ', STACKS_INPUT_MAX + 1);
    long_text[STACKS_INPUT_MAX + 1] = '\0';
    cr_expect_eq(add_text(long_text, &t), DDP_ERR_LIMIT);
    free(long_text);
}

Test(stacks, wrong_members_of_a_frame_are_left_out)
{
    const struct stack_thread t = thread_of(0, 1);
    cr_assert_eq(
        add_text("[{\"os_thread_id\":\"x\",\"thread_name\":7,\"frames\":[{\"name\":{},\"line\":-3},7,"
                 "{\"name\":\"a\\u001b[31mb\\nc\",\"filename\":\"/x.py\",\"line\":1e300}]}]",
                 &t),
        DDP_OK);
    cr_assert_str_eq(printed(), "rank 0 (n1, pid 1):\n  >   \n  >   \n  > a?[31mb?c  /x.py\n");
}

Test(stacks, depth_threads_and_bytes_have_limits)
{
    struct buf text = { 0 };
    const struct stack_thread t = thread_of(0, 1);
    buf_printf(&text, "[");
    for (int i = 0; i < STACKS_PROCESS_MAX + 5; i++) {
        buf_printf(&text, "%s{\"os_thread_id\":%d,\"frames\":[", i > 0 ? "," : "", i + 1);
        for (int k = 0; k < STACKS_FRAMES_MAX + 9; k++)
            buf_printf(&text, "%s{\"name\":\"f%d\",\"filename\":\"/a.py\",\"line\":%d}", k > 0 ? "," : "", k,
                       i + 1);
        buf_printf(&text, "]}");
    }
    buf_printf(&text, "]%c", '\0');
    stop();
    cr_assert(stacks_init(&stacks, STACKS_JOB_BYTES));
    cr_assert_eq(add_text((const char *)text.data, &t), DDP_OK);
    cr_expect_eq(row_count(), STACKS_PROCESS_MAX);
    cr_expect(stacks.is_cut);
    const cJSON *frames = cJSON_GetObjectItem(cJSON_GetArrayItem(stacks.rows, 0), "frames");
    cr_expect_eq(cJSON_GetArraySize(frames), STACKS_FRAMES_MAX);
    stop();
    cr_assert(stacks_init(&stacks, 20000));
    cr_assert_eq(add_text((const char *)text.data, &t), DDP_OK);
    char *json = cJSON_PrintUnformatted(stacks.rows);
    cr_expect_leq(strlen(json), 20000);
    cr_expect_gt(row_count(), 0);
    cr_expect(stacks.is_cut);
    free(json);
    buf_free(&text);
}

/* A row must contain no byte that JSON prints as two bytes, such as a quote, and no byte that a terminal would
 * execute. */
Test(stacks, the_size_of_a_row_is_that_of_its_texts)
{
    char text[400], quotes[100];
    const struct stack_thread t = thread_of(0, 1);
    for (size_t i = 0; i + 1 < sizeof(quotes); i += 2)
        memcpy(quotes + i, i % 4 == 0 ? "\\\"" : "\\\\", 2);
    quotes[98] = '\0';
    snprintf(text, sizeof(text), "[{\"os_thread_id\":1,\"frames\":[{\"name\":\"%s\"}]}]", quotes);
    cr_assert_eq(add_text(text, &t), DDP_OK);
    char *json = cJSON_PrintUnformatted(stacks.rows);
    cr_expect_leq(strlen(json), STACKS_AGENT_BYTES - stacks.room);
    free(json);
}

/* The path is cut at its beginning, because its end names the file. */
Test(stacks, long_texts_are_cut)
{
    char text[2000], path[1000];
    const struct stack_thread t = thread_of(0, 1);
    memset(path, 'd', sizeof(path));
    strcpy(path + sizeof(path) - 10, "/train.py");
    snprintf(text, sizeof(text),
             "[{\"os_thread_id\":1,\"frames\":[{\"name\":\"%.300s\",\"filename\":\"%s\",\"line\":7}]}]", path,
             path);
    cr_assert_eq(add_text(text, &t), DDP_OK);
    cr_expect_not_null(strstr(printed(), "/train.py:7\n"));
    cr_expect_lt(strlen(printed()), STACK_NAME_MAX + STACK_FILE_MAX + 60);
}

Test(stacks, a_path_is_not_cut_inside_a_character)
{
    char text[1000], path[401] = "";
    const struct stack_thread t = thread_of(0, 1);
    for (size_t i = 0; i + 2 < sizeof(path); i += 2)
        memcpy(path + i, "\u00e9", 3);
    for (int extra = 0; extra < 2; extra++) {
        snprintf(text, sizeof(text), "[{\"frames\":[{\"name\":\"f\",\"filename\":\"%s%.*s/a.py\"}]}]", path,
                 extra, "b");
        cr_assert_eq(add_text(text, &t), DDP_OK);
        cr_expect_not_null(strstr(printed(), "f  \u00e9"), "%s", printed());
        stacks_free(&stacks);
        start();
    }
}

/* --- merging ---------------------------------------------------------------------------------------------- */

/* Equal rows of two nodes are folded. */
Test(stacks, rows_of_agents_are_merged)
{
    struct stacks job;
    cr_assert(stacks_init(&job, STACKS_JOB_BYTES));
    add_recorded("waits", 0, 28731, false);
    add_recorded("loader", 0, 30976, true);
    char *json = cJSON_PrintUnformatted(stacks.rows);
    cJSON *received = cJSON_Parse(json);
    stacks_merge(&job, received, 0, INT_MAX);
    stop();
    start();
    add_recorded("waits", 1, 28731, false);
    struct stack_thread t = thread_of(1, 50);
    strcpy(t.does, "running");
    stacks_add_thread(&stacks, &t);
    stacks_add_note(&stacks, &t, "no py-spy");
    stacks_merge(&job, stacks.rows, 0, INT_MAX);
    stop();
    stacks = job;
    cr_expect_eq(row_count(), 6, "%s", printed());
    cr_expect_not_null(strstr(printed(), "ranks 0-1:\n    all_reduce"), "%s", printed());
    cr_expect_not_null(strstr(printed(), "rank 1 (n1, pid 50): running\n"), "%s", printed());
    cr_expect_not_null(strstr(printed(), ", thread Thread-1 (_serve)):\n"), "%s", printed());
    cJSON_Delete(received);
    free(json);
}

Test(stacks, of_a_peer_only_what_is_known_is_taken)
{
    cJSON *rows = cJSON_Parse(
        "[7, {\"threads\":[{\"rank\":-1},{\"rank\":\"x\"},3]}, {\"does\":\"runs\",\"threads\":{\"rank\":1}},"
        "{\"does\":\"runs\\u001b]0;x\",\"evil\":1,\"threads\":[{\"rank\":3,\"pid\":1e99,\"more\":[]}]}]");
    stacks_merge(&stacks, rows, 0, INT_MAX);
    cr_expect_eq(row_count(), 1);
    char *json = cJSON_PrintUnformatted(stacks.rows);
    cr_expect_str_eq(json, "[{\"does\":\"runs?]0;x\",\"threads\":[{\"rank\":3,\"pid\":-1}]}]");
    free(json);
    cJSON_Delete(rows);
    stacks_merge(&stacks, NULL, 0, INT_MAX);
    cr_expect_eq(row_count(), 1);
}

Test(stacks, of_an_agent_only_its_own_ranks_are_taken)
{
    cJSON *rows =
        cJSON_Parse("[{\"does\":\"a\",\"threads\":[{\"rank\":1},{\"rank\":2},{\"rank\":3},{\"rank\":4}]},"
                    "{\"does\":\"b\",\"threads\":[{\"rank\":4},{\"rank\":0}]}]");
    stacks_merge(&stacks, rows, 2, 2);
    char *json = cJSON_PrintUnformatted(stacks.rows);
    cr_expect_str_eq(json,
                     "[{\"does\":\"a\",\"threads\":[{\"rank\":2,\"pid\":-1},{\"rank\":3,\"pid\":-1}]}]");
    free(json);
    cJSON_Delete(rows);
}

Test(stacks, rows_of_a_peer_have_a_limit)
{
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < STACKS_ROWS_MAX + 3; i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"does\":\"%d\",\"threads\":[{\"rank\":%d}]}", i, i);
        cJSON_AddItemToArray(rows, cJSON_Parse(text));
    }
    stacks_merge(&stacks, rows, 0, INT_MAX);
    cr_expect_eq(row_count(), STACKS_ROWS_MAX);
    cr_expect(stacks.is_cut);
    cJSON_Delete(rows);
}
