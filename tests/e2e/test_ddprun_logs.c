/* test_ddprun_logs.c -- log files: the tree, --tee, --redirects, --json. */
#include "job.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(ddprun_logs, .timeout = 120);

static char *dir;

static void make_dir(void)
{
    dir = job_dir();
}

static void remove_dir(void)
{
    job_dir_remove(dir);
}

/* The one directory of the job below `dir`. Beside it may lie the link `latest`, and which of them a directory names first
 * is the file system's affair. */
static const char *job_root(void)
{
    static char root[512];
    struct stat st;
    int found = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        snprintf(root, sizeof(root), "%s/%s", dir, e->d_name);
        found++;
    }
    if (d != NULL)
        closedir(d);
    cr_assert_eq(found, 1, "%d directories of jobs in %s", found, dir);
    return root;
}

static void expect_file(const char *name, const char *text)
{
    char *found = job_file(job_root(), name);
    cr_assert_not_null(found, "there is no %s in %s", name, job_root());
    cr_expect_str_eq(found, text, "%s holds '%s'", name, found);
    free(found);
}

Test(ddprun_logs, log_dir_keeps_each_stream_in_a_file_and_shows_it, .init = make_dir, .fini = remove_dir)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
    struct run_result r =
        JOB("--rdzv_id=myjob", "--nproc_per_node=2", option, WORKER, "say:out", "bar", "err:err");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] out"), 1, "%s", r.out);
    cr_expect_not_null(strstr(job_root(), "/myjob_"), "%s", job_root());
    expect_file("attempt_0/0/stdout.log", "out\n  1%\r 50%\r100%\n");
    expect_file("attempt_0/1/stdout.log", "out\n  1%\r 50%\r100%\n");
    expect_file("attempt_0/1/stderr.log", "err\n");
    char *report = job_file(job_root(), "report.json");
    cJSON *json = cJSON_Parse(report);
    cr_expect(cJSON_IsObject(json), "%s", report);
    cJSON_Delete(json);
    free(report);
    run_free(&r);
}

Test(ddprun_logs, redirects_go_to_the_file_alone_and_the_report_still_has_the_last_words, .init = make_dir,
     .fini = remove_dir)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
    struct run_result r = JOB("--nproc_per_node=2", option, "--redirects=3", WORKER, "say:out",
                              "err:hidden cause", "only:1", "exit:2");
    EXPECT(r, 2);
    cr_expect_str_eq(r.out, "");
    cr_expect_eq(job_count(r.err, "[1] hidden cause"), 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "hidden cause"), "%s", r.err);
    expect_file("attempt_0/1/stderr.log", "hidden cause\n");
    run_free(&r);
}

Test(ddprun_logs, tee_and_redirects_may_differ_by_rank, .init = make_dir, .fini = remove_dir)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
    struct run_result r =
        JOB("--nproc_per_node=2", option, "--redirects=0:1", "--tee=1:1", WORKER, "say:out");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[1] out\n");
    expect_file("attempt_0/0/stdout.log", "out\n");
    expect_file("attempt_0/1/stdout.log", "out\n");
    run_free(&r);
}

Test(ddprun_logs, without_a_log_dir_a_temporary_one_is_made_and_named, .init = make_dir, .fini = remove_dir)
{
    char tmp[300];
    snprintf(tmp, sizeof(tmp), "TMPDIR=%s", dir);
    const struct run_options options = { .env = (const char *const[]){ tmp, NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", "--tee=3", WORKER, "say:out", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.err, job_root()), "%s", r.err);
    expect_file("attempt_0/0/stdout.log", "out\n");
    run_free(&r);
}

Test(ddprun_logs, a_log_dir_that_cannot_be_made_is_an_error_before_anything_starts)
{
    struct run_result r = JOB("--nproc_per_node=2", "--log_dir=/proc/nowhere", WORKER, "say:never");
    EXPECT(r, 125);
    cr_expect_str_eq(r.out, "");
    cr_expect_not_null(strstr(r.err, "/proc/nowhere"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_logs, a_full_disk_is_told_once_and_the_job_goes_on)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "'%s' --standalone --quiet --nproc_per_node=2 '%s' say:lost err:kept > /dev/full", bin("ddprun"),
             bin("tests/prog/worker"));
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.err, "[1] kept"), 1, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "stdout: No space left on device"), "%s", r.err);
    run_free(&r);
}

/* The events of a job: each line is one object. Returns how many have this "event". */
static int count_events(const char *text, const char *event, const char *part)
{
    int n = 0;
    char *copy = strdup(text), *save = NULL;
    for (char *line = strtok_r(copy, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        cr_expect(cJSON_IsObject(json), "not JSON: %s", line);
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "event");
        n += cJSON_IsString(name) && strcmp(name->valuestring, event) == 0 && strstr(line, part) != NULL;
        cJSON_Delete(json);
    }
    free(copy);
    return n;
}

Test(ddprun_logs, json_tells_everything_as_events_on_stdout)
{
    struct run_result r = JOB("--json", "--nproc_per_node=2", WORKER, "only:1", "say:hello \"you\"", "err:oh",
                              "exit:3", "all", "forever");
    EXPECT(r, 3);
    cr_expect_str_eq(r.err, "");
    cr_expect_eq(count_events(r.out, "started", ""), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "worker_started", ""), 2, "%s", r.out);
    cr_expect_eq(count_events(r.out, "output", "hello \\\"you\\\""), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "output", "oh"), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "worker_ended", ""), 2, "%s", r.out);
    cr_expect_eq(count_events(r.out, "finished", ""), 1, "%s", r.out);
    run_free(&r);
}
