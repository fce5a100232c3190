/* test_ddprun_plan.c -- what the workers are given: environment, descriptors, GPUs, the store's port; and the dry run. */
#include "run.h"
#include "job.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(ddprun_plan, .timeout = 120);

/* --- environment ------------------------------------------------------------------------------------------------ */

Test(ddprun_plan, workers_get_torchruns_variables)
{
    static const char *const expected[] = { "[1] RANK=1",
                                            "[1] LOCAL_RANK=1",
                                            "[1] WORLD_SIZE=2",
                                            "[1] LOCAL_WORLD_SIZE=2",
                                            "[1] GROUP_RANK=0",
                                            "[1] GROUP_WORLD_SIZE=1",
                                            "[1] ROLE_RANK=1",
                                            "[1] ROLE_WORLD_SIZE=2",
                                            "[1] ROLE_NAME=default",
                                            "[1] MASTER_ADDR=127.0.0.1",
                                            "[1] TORCHELASTIC_RESTART_COUNT=0",
                                            "[1] TORCHELASTIC_MAX_RESTARTS=0",
                                            "[1] TORCHELASTIC_RUN_ID=myjob",
                                            "[1] TORCHELASTIC_USE_AGENT_STORE=True",
                                            "[1] TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                                            "[1] OMP_NUM_THREADS=1",
                                            "[1] DDPRUN_STORE=1",
                                            "[1] MINE=yes",
                                            "[1] DDPRUN_INIT_TIMEOUT_MS=7000" };
    struct run_result r =
        JOB("--nproc_per_node=2", "--rdzv_id=myjob", "--env", "MINE=yes", "--timeout=7", WORKER, "env");
    EXPECT(r, 0);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_eq(job_count(r.out, expected[i]), 1, "%s is not there once:\n%s", expected[i], r.out);
    cr_expect_not_null(strstr(r.out, "[1] MASTER_PORT="));
    run_free(&r);
}

Test(ddprun_plan, omp_num_threads_of_the_user_stays)
{
    const struct run_options options = { .env = (const char *const[]){ "OMP_NUM_THREADS=5", NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", WORKER, "env", NULL }, &options);
    cr_expect_eq(job_count(r.out, "[0] OMP_NUM_THREADS=5"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_plan, visible_devices_are_handed_on_as_they_are)
{
    const struct run_options options = { .env = (const char *const[]){ "CUDA_VISIBLE_DEVICES=3,1", NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", WORKER, "env", NULL }, &options);
    cr_expect_eq(job_count(r.out, "[0] CUDA_VISIBLE_DEVICES=3,1"), 1, "%s%s", r.out, r.err);
    run_free(&r);
}

Test(ddprun_plan, a_worker_starts_clean)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "state");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] blocked=0 ignored=0 fds=0 leader=1"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] blocked=0 ignored=0 fds=0 leader=1"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_plan, inherited_descriptors_stay_with_the_launcher)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --nproc_per_node=1 '%s' state 7</dev/null",
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    cr_expect_not_null(strstr(r.out, "fds=0"), "%s", r.out);
    run_free(&r);
}

Test(ddprun_plan, closed_standard_descriptors_do_no_harm)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --nproc_per_node=2 '%s' say:hello stdin <&- 2>&-",
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] hello"), 1, "%s", r.out);
    run_free(&r);
}

/* --- the store's port ------------------------------------------------------------------------------------------- */

/* Take a port so that nobody else can. Returns the socket, -1 when it is taken already. */
static int take_port(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port) };
    socklen_t len = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* connections of the past do not count */
    if (bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 1) != 0) {
        close(fd);
        return -1;
    }
    getsockname(fd, (struct sockaddr *)&at, &len);
    *port = ntohs(at.sin_port);
    return fd;
}

static struct run_result run_with_port(const char *option)
{
    const char *argv[] = {
        bin("ddprun"), "--nproc_per_node=1", option, bin("tests/prog/worker"), "env", NULL
    };
    return run_command(argv, &(struct run_options){ .env = (const char *const[]){ "MASTER_PORT", NULL } });
}

/* Another program of this machine may hold the default port as well as we; then it may also give it back too early. */
Test(ddprun_plan, a_default_port_that_is_taken_is_replaced_and_said_so)
{
    bool replaced = false;
    for (struct patience p = { 0 }; !replaced && patience_left(&p);) {
        int port = 29500, fd = take_port(&port);
        struct run_result r = run_with_port("--prefix");
        EXPECT(r, 0);
        replaced = job_count(r.out, "[0] MASTER_PORT=29500") == 0;
        cr_expect(replaced || fd < 0, "took a port that is held: %s", r.out);
        cr_expect(!replaced || strstr(r.err, "29500"), "%s", r.err);
        run_free(&r);
        if (fd >= 0)
            close(fd);
    }
    cr_expect(replaced);
}

Test(ddprun_plan, a_port_that_was_asked_for_and_is_taken_is_an_error_with_its_holder)
{
    char option[64], pid[32];
    int port = 0, fd = take_port(&port);
    snprintf(option, sizeof(option), "--master_port=%d", port);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    struct run_result r = run_with_port(option);
    EXPECT(r, 125);
    cr_expect_str_eq(r.out, "");
    cr_expect_not_null(strstr(r.err, pid), "%s", r.err);
    run_free(&r);
    close(fd);
}

Test(ddprun_plan, the_port_that_was_asked_for_is_used)
{
    char option[64], line[64];
    const int port = free_port();
    snprintf(option, sizeof(option), "--master_port=%d", port);
    snprintf(line, sizeof(line), "MASTER_PORT=%d", port);
    struct run_result r = run_with_port(option);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, line), 1, "%s", r.out);
    run_free(&r);
}

/* --- dry run ---------------------------------------------------------------------------------------------------- */

Test(ddprun_plan, a_dry_run_prints_the_plan_and_starts_nothing)
{
    struct run_result r = JOB("--dry_run", "--nproc_per_node=2", WORKER, "say:never");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "LOCAL_RANK"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "say:never"), "%s", r.out);
    cr_expect_eq(job_count(r.out, "never"), 0, "%s", r.out);
    run_free(&r);
}

Test(ddprun_plan, a_dry_run_in_json_is_one_object)
{
    struct run_result r = JOB("--dry_run", "--json", "--nproc_per_node=2", WORKER);
    EXPECT(r, 0);
    cJSON *json = cJSON_Parse(r.out);
    cr_expect(cJSON_IsObject(json), "%s", r.out);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "workers")), 2, "%s", r.out);
    cJSON_Delete(json);
    run_free(&r);
}

/* --- GPUs ------------------------------------------------------------------------------------------------------- */

/* A stand-in for the driver's library that knows two GPUs, made by the C compiler. False when there is none. */
static bool make_nvml(const char *dir)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "printf '%%s' 'int nvmlInit_v2(void) { return 0; } int nvmlShutdown(void) { return 0; } "
             "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }' > %s/nvml.c && "
             "cc -shared -fPIC -o %s/libnvidia-ml.so.1 %s/nvml.c",
             dir, dir, dir);
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    bool made = r.exit_code == 0;
    run_free(&r);
    return made;
}

Test(ddprun_plan, without_a_number_there_is_one_worker_per_gpu_and_more_are_refused)
{
    char *dir = job_dir(), where[300];
    snprintf(where, sizeof(where), "LD_LIBRARY_PATH=%s", dir);
    const struct run_options options = { .env = (const char *const[]){ where, NULL } };
    if (!make_nvml(dir)) {
        job_dir_remove(dir);
        cr_skip_test("skipped, because there is no C compiler to make a stand-in for libnvidia-ml");
    }
    struct run_result r = job_run((const char *const[]){ WORKER, "say:hello", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] hello") + job_count(r.out, "[1] hello"), 2, "%s", r.out);
    run_free(&r);
    r = job_run((const char *const[]){ "--nproc_per_node=3", WORKER, NULL }, &options);
    EXPECT(r, 2);
    cr_expect(strstr(r.err, "3") != NULL && strstr(r.err, "2") != NULL, "%s", r.err);
    run_free(&r);
    job_dir_remove(dir);
}

/* A table that grows behind a running thread stops the agent for an RCU grace period, about 10 ms. Each worker reads the size of
 * the agent's table at its own start. */
Test(ddprun_plan, the_agent_grows_its_descriptor_table_before_the_first_worker)
{
    struct run_result r =
        JOB("--nproc_per_node=24", "--no_python", "sh", "-c", "grep FDSize: /proc/$PPID/status");
    EXPECT(r, 0);
    int sizes = 0, first = 0;
    for (const char *at = r.out; (at = strstr(at, "FDSize:")) != NULL; sizes++) {
        at += strlen("FDSize:");
        first = sizes == 0 ? atoi(at) : first;
        cr_expect_eq(atoi(at), first, "the table has grown from %d to %d descriptors", first, atoi(at));
    }
    cr_expect_eq(sizes, 24, "%s", r.out);
    cr_expect_geq(first, 24 * 9, "%d descriptors for 24 workers", first);
    run_free(&r);
}
