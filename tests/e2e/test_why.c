/* test_why.c -- ddprun and the variables around it: what it prints, what it refuses, and the one file that it reads. How
 * each scheduler is understood is told in tests/unit/test_scheduler.c. */
#include "job.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(why, .timeout = 120);

static struct run_result end;

static void tear_down(void)
{
    run_free(&end);
}

#define DDPRUN(env, ...) \
    ddprun((const char *const[]){ env, NULL }, (const char *const[]){ bin("ddprun"), __VA_ARGS__, NULL })
#define ENV(...) __VA_ARGS__

static void ddprun(const char *const env[], const char *const argv[])
{
    const struct run_options options = { .env = env };
    end = run_command(argv, &options);
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fprintf(stderr, "no '%s' in:\n%s\n", words, text);
    return strstr(text, words) != NULL;
}

#define STEP_OF_TWO                                                                          \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=n0", \
        "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_NODEID=0"

Test(why, needs_no_program_and_starts_nothing, .fini = tear_down)
{
    DDPRUN(ENV("SLURM_JOB_ID"), "--why");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "no scheduler: no variables of a scheduler are set"));
    cr_expect(says(end.out, "default"));
}

Test(why, json_is_one_object, .fini = tear_down)
{
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=0", "SLURM_LOCALID=0"), "--why", "--json");
    cr_assert_eq(end.exit_code, 2);
    cJSON *why = cJSON_Parse(end.out);
    cr_assert_not_null(why, "%s", end.out);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(why, "scheduler")), "slurm");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(why, "values")), 6);
    const cJSON *finding = cJSON_GetObjectItem(why, "finding");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(finding, "code")), "WRONG_TASK_LAYOUT");
    cr_expect(cJSON_IsTrue(cJSON_GetObjectItem(finding, "fatal")));
    cJSON_Delete(why);
}

Test(why, what_does_not_fit_is_shown_before_it_is_refused, .fini = tear_down)
{
    DDPRUN(ENV("SLURM_JOB_ID"), "--why", "--nnodes=2");
    cr_assert_eq(end.exit_code, 2);
    cr_expect(says(end.out, "command line (--nnodes)"));
    cr_expect(says(end.err, "needs the address where the nodes meet"));
}

Test(why, a_wrong_layout_is_told_by_the_first_task_of_a_node)
{
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=0", "SLURM_LOCALID=0"), "true");
    cr_assert_eq(end.exit_code, 2);
    cr_expect(says(end.err, "  finding  WRONG_TASK_LAYOUT\n"));
    run_free(&end);
    DDPRUN(ENV(STEP_OF_TWO, "SLURM_PROCID=1", "SLURM_LOCALID=1"), "true");
    cr_assert_eq(end.exit_code, 2);
    cr_expect_str_empty(end.err);
    run_free(&end);
}

Test(why, a_worker_that_starts_ddprun_does_not_speak_for_the_job_around_it, .fini = tear_down)
{
    DDPRUN(ENV("SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=2", "SLURM_JOB_NODELIST=n[0-1]"), "--nnodes=1",
           "--no_prefix", bin("ddprun"), "--why");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "DDPRUN_JOB is set"));
}

Test(why, verbose_says_it_beside_the_job, .fini = tear_down)
{
    DDPRUN(ENV("SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=1", "SLURM_JOB_NODELIST=n0"), "--verbose", "true");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.err, "scheduler       Slurm: SLURM_JOB_ID is set\n"));
}

/* --- PBS_NODEFILE --------------------------------------------------------------------------------------- */

static char path[] = "/tmp/ddp-nodefile-XXXXXX";
static char variable[64];

static void write_hosts(const char *text, int times)
{
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    cr_assert_not_null(f);
    for (int i = 0; i < times; i++)
        fputs(text, f);
    fclose(f);
    snprintf(variable, sizeof(variable), "PBS_NODEFILE=%s", path);
}

static void remove_hosts(void)
{
    unlink(path);
    run_free(&end);
}

Test(why, a_file_of_hosts_is_read, .fini = remove_hosts)
{
    write_hosts("first.cluster\nsecond.cluster\n", 1);
    DDPRUN(ENV("PBS_JOBID=12.head", variable, "PBS_TASKNUM=2", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK"),
           "--why", "--node_rank=1");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "nnodes          2 "));
    cr_expect(says(end.out, "master_addr     first.cluster "));
    cr_expect(says(end.out, "is not in PBS_NODEFILE; say --node_rank"));
}

Test(why, half_a_file_is_none, .fini = remove_hosts)
{
    write_hosts("a-host-with-a-name-of-thirty-two\n", 32000);
    DDPRUN(ENV("PBS_JOBID=12.head", variable, "PBS_TASKNUM=2"), "--why");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "cannot be read on this host"));
}

Test(why, what_is_no_file_is_not_waited_for, .fini = tear_down)
{
    DDPRUN(ENV("PBS_JOBID=12.head", "PBS_NODEFILE=/dev/zero", "PBS_TASKNUM=2"), "--why");
    cr_assert_eq(end.exit_code, 0, "%s", end.err);
    cr_expect(says(end.out, "cannot be read on this host"));
}
