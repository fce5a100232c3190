/* Tests of the findings of a node about its own machine, and about the loss of the store. The facts are values in
 * the test, because a test cannot change the limits of the machine. */
#include "report/host_checks.c"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

#define GOOD .nofile = HOST_NO_LIMIT, .nproc = HOST_NO_LIMIT, .memlock = HOST_NO_LIMIT

static void expect(struct host_facts facts, int workers, const char *code, const char *words)
{
    struct finding found[HOST_FINDINGS_MAX];
    const int n = host_findings(&facts, workers, "n1", found);
    if (code == NULL) {
        cr_assert_eq(n, 0, "%s", found[0].sentence);
        return;
    }
    cr_assert_eq(n, 1);
    cr_assert_str_eq(finding_code_name(found[0].code), code);
    cr_assert_str_eq(found[0].subject, "n1");
    cr_assert_not_null(strstr(found[0].sentence, words), "%s", found[0].sentence);
    cr_assert(strstr(found[0].sentence, "${") == NULL && strstr(found[0].advice, "${") == NULL);
}

Test(host_findings, a_good_machine_has_none)
{
    expect((struct host_facts){ GOOD, .shm_size = 1ull << 34, .shm_free = 1ull << 34 }, 8, NULL, NULL);
    expect((struct host_facts){ GOOD, .has_infiniband = true }, 8, NULL, NULL);
}

Test(host_findings, too_few_files)
{
    struct host_facts facts = { GOOD };
    facts.nofile = 40;
    expect(facts, 8, "LIMIT_NOFILE", "n1 allows 40 open files; this job needs about 60 there");
    expect(facts, 3, NULL, NULL);
}

Test(host_findings, too_few_processes)
{
    struct host_facts facts = { GOOD };
    facts.nproc = 10;
    expect(facts, 8, "LIMIT_NPROC", "10 processes and threads; this job needs about 11");
}

Test(host_findings, locked_memory_counts_with_infiniband_only)
{
    struct host_facts facts = { GOOD };
    facts.memlock = 8 << 20;
    expect(facts, 8, NULL, NULL);
    facts.has_infiniband = true;
    expect(facts, 8, "LIMIT_MEMLOCK", "n1 allows 8 MiB of locked memory");
}

Test(host_findings, a_container_s_shared_memory)
{
    const struct host_facts facts = { GOOD, .shm_size = 64 << 20, .shm_free = 61 << 20 };
    expect(facts, 8, "SHM_SMALL", "/dev/shm on n1 has 61 MiB free; 8 workers need about 128 MiB");
    expect(facts, 1, NULL, NULL);
}

static void expect_busy(struct gpu_users users, const char *gpu, const char *ranks, const char *words)
{
    struct finding f;
    cr_assert(gpu_finding(&users, gpu, ranks, "n1", &f));
    cr_assert_eq(f.code, FINDING_GPU_BUSY);
    cr_assert_str_eq(f.sentence, words);
    cr_assert(strstr(f.advice, "${") == NULL);
}

Test(host_findings, a_gpu_with_another_process)
{
    struct finding f;
    expect_busy((struct gpu_users){ .count = 1, .pid = 4242, .bytes = 31ull << 30, .user = "ann" }, "2",
                " (rank 2)", "GPU 2 of n1 (rank 2) is used by pid 4242 (user ann, 31 GiB)");
    expect_busy((struct gpu_users){ .count = 1, .pid = 7 }, "GPU-8932f937", "",
                "GPU-8932f937 of n1 is used by pid 7");
    expect_busy((struct gpu_users){ .count = 3, .pid = 7, .bytes = 1 << 30 }, "0", "",
                "GPU 0 of n1 is used by pid 7 (1 GiB) and 2 more processes");
    cr_assert(!gpu_finding(&(struct gpu_users){ 0 }, "0", "", "n1", &f));
}

/* Ranks 2 and 3 have GPUs 0 and 1. answer.gpu and answer.users are only about the GPU of the failed worker. */
Test(host_findings, the_answer_for_a_failed_worker)
{
    static struct plan_worker workers[] = { { .rank = 2, .gpu = "0" },
                                            { .rank = 3, .gpu = "1" },
                                            { .rank = 4 } };
    static struct plan_facts facts = { .host = "n1" };
    static const struct gpu_query query = { .runs = true,
                                            .n = 2,
                                            .names = { "0", "1" },
                                            .users = { { .count = 0 },
                                                       { .count = 2, .pid = 7, .user = "ann" } } };
    const struct plan plan = { .facts = &facts, .workers = workers, .nproc = 3 };
    static struct gpu_answer answer;
    gpu_query_answer(&query, &plan, 1, &answer);
    cr_assert_eq(answer.n, 1);
    cr_assert_str_eq(answer.found[0].sentence,
                     "GPU 1 of n1 (rank 3) is used by pid 7 (user ann) and 1 more process");
    cr_assert_str_eq(answer.gpu, "1");
    cr_assert_str_eq(answer.users, "pid 7 (user ann) and 1 more process");
    for (int i = 0; i < 3; i += 2) {
        gpu_query_answer(&query, &plan, i, &answer);
        cr_assert(answer.n == 1 && answer.gpu[0] == '\0' && answer.users[0] == '\0');
    }
}

static void expect_mode(int mode, int workers, int others, const char *words)
{
    const struct gpu_users users = { .mode = mode, .count = others };
    struct finding f;
    cr_assert_eq(gpu_mode_finding(&users, "2", workers, "n1", &f), words != NULL);
    if (words == NULL)
        return;
    cr_expect_eq(f.code, FINDING_GPU_MODE);
    cr_expect_str_eq(f.sentence, words);
}

Test(host_findings, a_gpu_whose_compute_mode_does_not_admit_its_workers)
{
    expect_mode(0, 4, 2, NULL);
    expect_mode(3, 1, 0, NULL);
    expect_mode(3, 2, 0,
                "GPU 2 of n1 is in compute mode Exclusive_Process, which admits one process; 2 workers need "
                "this GPU");
    expect_mode(3, 1, 1,
                "GPU 2 of n1 is in compute mode Exclusive_Process, which admits one process; 1 worker needs "
                "this GPU");
    expect_mode(
        2, 1, 0,
        "GPU 2 of n1 is in compute mode Prohibited, which admits no process; 1 worker needs this GPU");
}

Test(host_findings, an_answer_with_an_unknown_gpu_is_not_complete)
{
    struct gpu_query query = { .n = 2 };
    cr_expect(gpu_query_is_complete(&query));
    query.users[1].unknown = 1;
    cr_expect_not(gpu_query_is_complete(&query));
}

/* Write the pid of this process to `fd`. Then become a process of rank `rank` of the job `job` by exec, which closes
 * `fd`. */
static void become_rank(int fd, const char *job, const char *rank)
{
    const pid_t pid = getpid();
    setenv("DDPRUN_JOB", job, 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("RANK", rank, 1);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && write(fd, &pid, sizeof(pid)) == (ssize_t)sizeof(pid))
        execlp("sleep", "sleep", "600", (char *)NULL);
    _exit(1);
}

/* Start a process of rank `rank` and return its pid. If `has_agent` is true, the agent of the rank is the calling
 * process. Otherwise the agent has ended. */
static pid_t start_rank(const char *job, const char *rank, bool has_agent)
{
    int pipes[2];
    pid_t pid = 0, end;
    cr_assert_eq(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0 && (has_agent || fork() == 0))
        become_rank(pipes[1], job, rank);
    if (child == 0)
        _exit(0);
    close(pipes[1]);
    cr_assert_eq(read(pipes[0], &pid, sizeof(pid)), (ssize_t)sizeof(pid));
    cr_assert_eq(read(pipes[0], &end, sizeof(end)), 0, "exec has failed");
    close(pipes[0]);
    cr_assert(has_agent || waitpid(child, NULL, 0) == child);
    return pid;
}

/* Start a process of rank `rank` of job `job`. Fork an agent that has ranks 0 and 1 of the 4 ranks of job "j". Return
 * what this agent reports about the owner of the process (enum gpu_owner). See start_rank for `has_agent`. */
static int owner_of_rank(const char *job, const char *rank, bool has_agent)
{
    const struct gpu_query query = { .job = "j", .world_size = 4, .first_rank = 0, .nproc = 2 };
    const pid_t pid = start_rank(job, rank, has_agent), agent = fork();
    int status = -1;
    if (agent == 0)
        _exit((int)gpu_owner(&query, pid));
    cr_expect_eq(waitpid(agent, &status, 0), agent);
    kill(pid, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(host_findings, a_rank_of_another_agent_belongs_to_the_job)
{
    const struct gpu_query query = { .job = "j", .world_size = 4, .nproc = 2 };
    cr_expect_eq(gpu_owner(&query, getpid()), GPU_OWNER_JOB);
    cr_expect_eq(gpu_owner(&query, INT_MAX), GPU_OWNER_UNKNOWN);
    cr_expect_eq(gpu_owner(&query, getppid()), GPU_OWNER_OTHER);
    cr_expect_eq(owner_of_rank("j", "2", true), (int)GPU_OWNER_JOB);
    cr_expect_eq(owner_of_rank("k", "2", true), (int)GPU_OWNER_OTHER, "another job");
    cr_expect_eq(owner_of_rank("j", "1", true), (int)GPU_OWNER_OTHER, "a job of the same name and host");
    cr_expect_eq(owner_of_rank("j", "2", false), (int)GPU_OWNER_OTHER, "an earlier job of the same name");
}

/* --- loss of the store ---------------------------------------------------------------------------------------- */

/* Tests of the finding of a node that has lost the store. The finding names the reason: the node was frozen,
 * unreachable, or slow to stop. */

static struct finding found;

static const struct store_loss loss = { .host = "n1",
                                        .node_rank = 1,
                                        .pid = 77,
                                        .how = "the store closed the connection",
                                        .dropped = "",
                                        .node_timeout_ms = 3000 };

static void loss_expect(const char *code, const char *sentence)
{
    cr_expect_str_eq(finding_code_name(found.code), code);
    cr_expect_str_eq(found.sentence, sentence);
    cr_expect_null(strstr(found.advice, "${"), "%s", found.advice);
}

Test(store_words, a_store_that_goes_away_is_no_affair_of_ours)
{
    cr_expect_not(store_loss_finding(&loss, &found));
}

Test(store_words, who_was_frozen_and_given_up_says_both)
{
    struct store_loss l = loss;
    l.dropped = "silent for 3.0 s";
    l.stood_ms = 12300;
    cr_assert(store_loss_finding(&l, &found));
    loss_expect("NODE_FROZEN", "this ddprun (node 1, n1, pid 77) was frozen for at least 12.3 s and lost the "
                               "store: the store dropped this node with the reason 'silent for 3.0 s' "
                               "(--node_timeout is 3.0 s)");
}

/* A suspended machine is frozen for hours. */
Test(store_words, long_times_are_in_minutes)
{
    struct store_loss l = loss;
    l.dropped = "silent";
    l.stood_ms = 7200000;
    l.node_timeout_ms = 1200000;
    cr_assert(store_loss_finding(&l, &found));
    cr_expect(strstr(found.sentence, " 120 min") != NULL && strstr(found.sentence, " 20 min") != NULL, "%s",
              found.sentence);
}

/* While this node was frozen, the job and its store ended. */
Test(store_words, who_was_frozen_and_heard_no_last_word)
{
    struct store_loss l = loss;
    l.node_rank = -1;
    l.stood_ms = 60000;
    cr_assert(store_loss_finding(&l, &found));
    loss_expect("NODE_FROZEN", "this ddprun (n1, pid 77) was frozen for at least 60.0 s and lost the "
                               "store: the store closed the connection");
}

Test(store_words, who_ran_all_the_time_was_not_heard)
{
    struct store_loss l = loss;
    l.dropped = "silent for 3.0 s";
    cr_assert(store_loss_finding(&l, &found));
    loss_expect("NODE_UNREACHABLE",
                "the store dropped this ddprun (node 1, n1, pid 77) with the reason 'silent for 3.0 s' "
                "(--node_timeout is 3.0 s), although ddprun was running all the time");
}

/* The network is not the cause if the store has dropped this node because its workers did not stop. */
Test(store_words, whose_workers_do_not_stop_in_time_is_slow_to_stop)
{
    struct store_loss l = loss;
    l.dropped = DROPPED_STOP_SLOW;
    l.asked_ms = 40000;
    cr_assert(store_loss_finding(&l, &found));
    loss_expect("NODE_STOP_SLOW",
                "this ddprun (node 1, n1, pid 77) was asked to stop 40.0 s ago and has not stopped");
}
