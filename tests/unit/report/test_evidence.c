/* Tests of the evidence about a worker's end: torch's error file in both of its forms, and the limits that applied
 * to the worker. A worker writes this file, so its content may be wrong in any way. */
#include "report/evidence.c"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error_text text;
static struct ddp_err err;

static ddp_status parse(const char *json)
{
    return error_text_parse(slice_str(json), &text, &err);
}

Test(error_text, of_record_has_message_trace_and_time)
{
    cr_assert_eq(parse("{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": {\"py_callstack\": "
                       "\"Traceback\\n\", "
                       "\"timestamp\": \"1700000000\"}, \"errorCode\": 1}}"),
                 DDP_OK);
    cr_expect_str_eq(text.message, "ValueError: no");
    cr_expect_str_eq(text.callstack, "Traceback\n");
    cr_expect_eq(text.unix_ms, UINT64_C(1700000000000));
    error_text_free(&text);
}

Test(error_text, may_be_flat)
{
    cr_assert_eq(parse("{\"message\": \"no\", \"timestamp\": 1700000000.5}"), DDP_OK);
    cr_expect_str_eq(text.message, "no");
    cr_expect_str_eq(text.callstack, "");
    cr_expect_eq(text.unix_ms, UINT64_C(1700000000500));
    error_text_free(&text);
    cr_assert_eq(parse("{\"message\": \"no\"}"), DDP_OK);
    cr_expect_eq(text.unix_ms, 0);
    error_text_free(&text);
}

Test(error_text, believes_no_time_that_cannot_be)
{
    const char *times[] = { "-1", "\"soon\"", "1e300", "\"nan\"", "[]", "null", "1700000000000", "\"\"" };
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        char json[128];
        snprintf(json, sizeof(json), "{\"message\": \"no\", \"timestamp\": %s}", times[i]);
        cr_assert_eq(parse(json), DDP_OK);
        cr_expect_eq(text.unix_ms, 0, "%s", times[i]);
        error_text_free(&text);
    }
}

Test(error_text, refuses_what_is_no_such_object_and_says_why)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "", "empty" },
        { "RuntimeError: boom", "byte 0 of 18)" },
        { "{\"message\": {\"mess", "not JSON" },
        { "[]", "\"message\"" },
        { "\"text\"", "\"message\"" },
        { "null", "\"message\"" },
        { "{\"message\": 7}", "\"message\"" },
        { "{\"message\": {\"message\": [\"x\"]}}", "\"message\"" },
        { "{\"message\": {}}", "\"message\"" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(parse(cases[i].json), DDP_ERR_CORRUPT, "%s", cases[i].json);
        cr_expect(strstr(err.msg, cases[i].says) != NULL, "%s: %s", cases[i].json, err.msg);
    }
}

Test(error_text, survives_hostile_bytes)
{
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP + 1);
    memset(deep, '[', DEEP);
    deep[DEEP] = '\0';
    cr_expect_eq(parse(deep), DDP_ERR_CORRUPT);
    char *large = calloc(1, ERROR_FILE_MAX + 1);
    cr_expect_eq(error_text_parse(slice_of(large, ERROR_FILE_MAX + 1), &text, &err), DDP_ERR_LIMIT);
    cr_expect_eq(error_text_parse(slice_of(large, 100), &text, &err), DDP_ERR_CORRUPT);
    const char nuls[] = "{\"message\": \"a\0b\xff\\u0000c\"}";
    if (error_text_parse(slice_of(nuls, sizeof(nuls) - 1), &text, &err) == DDP_OK)
        cr_expect_eq(text.message[0], 'a');
    error_text_free(&text);
    cr_assert_eq(parse("{\"message\": \"bad \xff byte\"}"), DDP_OK);
    cr_expect_str_eq(text.message, "bad \xef\xbf\xbd byte");
    error_text_free(&text);
    free(deep);
    free(large);
}

/* A worker that is killed while it writes the file leaves only the first part of the file. */
Test(error_text, cut_anywhere_is_refused)
{
    const char *whole = "{\"message\": {\"message\": \"x\", \"extraInfo\": {\"timestamp\": \"1\"}}}";
    for (size_t len = 0; len < strlen(whole); len++)
        cr_expect_eq(error_text_parse(slice_of(whole, len), &text, &err), DDP_ERR_CORRUPT, "%zu", len);
}

/* --- limits ----------------------------------------------------------------------------------------------- */

static char root[] = "/tmp/ddp-evidence-XXXXXX";

/* Return root/NAME; valid until the next call. */
static const char *under_root(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static void put(const char *name, const char *content)
{
    FILE *f = fopen(under_root(name), "w");
    cr_assert(f != NULL && fputs(content, f) >= 0 && fclose(f) == 0);
}

/* Expect this limit of processes. The outer group has the limit `outer` in pids.max, and the inner group has no limit.
 * `groups` is the text of /proc/self/cgroup. No group has a memory controller. */
static void expect_limits(const char *type, const char *groups, const char *outer, uint64_t pids_max)
{
    char mounts[300];
    const struct rusage usage = { 0 };
    cr_assert_not_null(mkdtemp(root));
    cr_assert(mkdir(under_root("job"), 0700) == 0);
    put("pids.max", outer);
    put("job/pids.max", "max\n");
    snprintf(mounts, sizeof(mounts), "30 1 0:26 / %s rw - %s\n", root, type);
    struct evidence *e = evidence_new(mounts, groups, 20);
    cr_assert_not_null(e);
    evidence_attempt(e, -1);
    evidence_ended(e, 0, 1234, 1 << 8, &usage);
    const struct worker_evidence *facts = evidence_of(e, 0);
    cr_assert_not_null(facts);
    cr_expect_eq(facts->pids_max, pids_max, "%s%s: %" PRIu64, groups, outer, facts->pids_max);
    cr_expect_eq(facts->open_files, 20);
    evidence_free(e);
    unlink(under_root("job/pids.max"));
    unlink(under_root("pids.max"));
    rmdir(under_root("job"));
    rmdir(root);
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
}

Test(evidence, has_the_limits_of_a_worker_that_failed)
{
    expect_limits("cgroup2 cgroup2 rw", "0::/job\n", "77\n", 77);
    expect_limits("cgroup2 cgroup2 rw", "0::/job\n", "max\n", UINT64_MAX);
}

/* The group begins with "/..", so a container hides the group, which may have a limit. */
Test(evidence, does_not_know_the_limit_of_a_hidden_group)
{
    expect_limits("cgroup2 cgroup2 rw", "0::/../job\n", "77\n", 77);
    expect_limits("cgroup2 cgroup2 rw", "0::/../job\n", "max\n", 0);
}

Test(evidence, has_the_memory_of_the_group_with_the_least_left)
{
    char mounts[300];
    const struct rusage usage = { 0 };
    static const char *const files[][2] = {
        { "job/memory.events", "oom_kill 0\n" },
        { "job/memory.max", "1000\n" },
        { "job/memory.current", "100\n" },
        { "memory.events", "oom_kill 0\n" },
        { "memory.max", "800\n" },
        { "memory.current", "300\n" },
    };
    cr_assert_not_null(mkdtemp(root));
    cr_assert(mkdir(under_root("job"), 0700) == 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        put(files[i][0], files[i][1]);
    snprintf(mounts, sizeof(mounts), "30 1 0:26 / %s rw - cgroup2 cgroup2 rw\n", root);
    struct evidence *e = evidence_new(mounts, "0::/job\n", 20);
    cr_assert_not_null(e);
    evidence_attempt(e, -1);
    evidence_ended(e, 0, 1234, 1 << 8, &usage);
    const struct worker_evidence *facts = evidence_of(e, 0);
    cr_assert_not_null(facts);
    cr_expect_eq(facts->group_limit, 800);
    cr_expect_eq(facts->group_used, 300);
    cr_expect_gt(facts->address_space, 0);
    evidence_free(e);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(under_root(files[i][0]));
    rmdir(under_root("job"));
    rmdir(root);
}

/* The known mount is `job`, and the group of the job is `job2`. Both paths begin with "job", but `job2` is not below
 * `job`. */
Test(evidence, watches_no_group_of_another_mount)
{
    char mounts[300];
    cr_assert_not_null(mkdtemp(root));
    cr_assert(mkdir(under_root("job"), 0700) == 0 && mkdir(under_root("job2"), 0700) == 0);
    put("job2/memory.events", "oom_kill 0\n");
    const int fd = open(under_root("job2"), O_RDONLY | O_DIRECTORY);
    snprintf(mounts, sizeof(mounts), "30 1 0:26 / %s/job rw - cgroup2 cgroup2 rw\n", root);
    struct evidence *e = evidence_new(mounts, "", 20);
    cr_assert(e != NULL && fd >= 0);
    evidence_attempt(e, fd);
    cr_expect_eq(e->n_watches, 0);
    evidence_free(e);
    close(fd);
    unlink(under_root("job2/memory.events"));
    rmdir(under_root("job2"));
    rmdir(under_root("job"));
    rmdir(root);
}

/* A container sees only its own part of the hierarchy. /proc/PID/cgroup and the kernel's log have the whole name. */
Test(evidence, a_group_has_the_same_name_as_in_proc)
{
    char mounts[300];
    cr_assert_not_null(mkdtemp(root));
    cr_assert(mkdir(under_root("job"), 0700) == 0);
    put("memory.events", "oom_kill 0\n");
    put("job/memory.events", "oom_kill 0\n");
    snprintf(mounts, sizeof(mounts), "30 1 0:26 /docker/7 %s rw - cgroup2 cgroup2 rw\n", root);
    struct evidence *e = evidence_new(mounts, "0::/docker/7/job\n", 20);
    cr_assert_not_null(e);
    evidence_attempt(e, -1);
    cr_assert_eq(e->n_watches, 2);
    cr_expect_str_eq(e->watches[0].name, "/docker/7/job");
    cr_expect_str_eq(e->watches[1].name, "/docker/7");
    evidence_free(e);
    unlink(under_root("job/memory.events"));
    unlink(under_root("memory.events"));
    rmdir(under_root("job"));
    rmdir(root);
}

Test(evidence, has_the_first_timer_that_expired)
{
    const struct rusage usage = { 0 };
    struct evidence *e = evidence_new("", "", 20);
    cr_assert_not_null(e);
    evidence_attempt(e, -1);
    evidence_timer(e, 0, "step");
    evidence_timer(e, 1, "later");
    for (int rank = 0; rank < 2; rank++) {
        evidence_ended(e, rank, 1234, SIGKILL, &usage);
        const struct worker_evidence *facts = evidence_of(e, rank);
        cr_assert_not_null(facts);
        cr_expect_str_eq(facts->timer, rank == 0 ? "step" : "");
    }
    evidence_free(e);
}

Test(evidence, a_link_to_a_missing_file_is_not_near)
{
    static struct program_file file;
    cr_assert_not_null(mkdtemp(root));
    cr_assert(symlink("missing", under_root("train")) == 0);
    cr_assert(program_examine_failed(under_root("train"), NULL, &file));
    cr_expect_eq(file.kind, PATH_MISSING);
    cr_expect_str_eq(file.near, "");
    put("trains", "");
    cr_assert(program_examine_failed(under_root("train"), NULL, &file));
    cr_expect_str_eq(file.near, under_root("trains"));
    unlink(under_root("trains"));
    unlink(under_root("train"));
    rmdir(root);
}

/* ddprun's own limits explain why a worker could not be started. */
Test(evidence, has_the_limits_of_a_worker_that_did_not_start)
{
    struct rlimit limit;
    cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    struct evidence *e = evidence_new("", "", 20);
    cr_assert_not_null(e);
    evidence_attempt(e, -1);
    evidence_not_started(e, 3);
    const struct worker_evidence *facts = evidence_of(e, 3);
    cr_assert_not_null(facts);
    cr_expect_eq(facts->open_files, limit.rlim_cur);
    cr_expect_gt(facts->stack, 0);
    cr_expect_gt(facts->processes, 0);
    cr_expect_eq(facts->pids_max, 0, "no group is known");
    evidence_free(e);
}

/* Root is exempt from RLIMIT_NPROC in the first user namespace. */
Test(evidence, knows_who_is_exempt_from_the_limit_of_processes)
{
    struct worker_evidence facts = { 0 };
    const struct evidence none = { 0 };
    struct rlimit limit;
    cr_assert(getrlimit(RLIMIT_NPROC, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 50000 ? limit.rlim_max : 50000;
    cr_assert(setrlimit(RLIMIT_NPROC, &limit) == 0);
    check_limits(&none, &facts);
    cr_expect_eq(facts.processes, has_free_processes() ? UINT64_MAX : limit.rlim_cur);
    if (procfs_in_first_namespace(FIRST_USER) && getuid() == 0)
        cr_expect(has_free_processes());
}

Test(evidence, has_the_limits_of_version_1)
{
    expect_limits("cgroup cgroup rw,pids", "8:pids:/job\n0::/\n", "77\n", 77);
}
