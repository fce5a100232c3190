/* Test the environment, descriptors, GPUs and Python of workers, the store's port, and the dry run. Also test ddprun in
 * place of torchrun. */
#include "job.h"
#include "run.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(ddprun_plan, .timeout = 120);

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
}

Test(ddprun_plan, omp_num_threads_of_the_user_stays)
{
    const struct run_options options = { .env = (const char *const[]){ "OMP_NUM_THREADS=5", NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", WORKER, "env", NULL }, &options);
    cr_expect_eq(job_count(r.out, "[0] OMP_NUM_THREADS=5"), 1, "%s", r.out);
}

Test(ddprun_plan, visible_devices_are_handed_on_as_they_are)
{
    const struct run_options options = { .env = (const char *const[]){ "CUDA_VISIBLE_DEVICES=3,1", NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", WORKER, "env", NULL }, &options);
    cr_expect_eq(job_count(r.out, "[0] CUDA_VISIBLE_DEVICES=3,1"), 1, "%s%s", r.out, r.err);
}

Test(ddprun_plan, a_worker_starts_clean)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "state");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] blocked=0 ignored=0 fds=0 leader=1"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] blocked=0 ignored=0 fds=0 leader=1"), 1, "%s", r.out);
}

Test(ddprun_plan, inherited_descriptors_stay_with_the_launcher)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --nproc_per_node=1 '%s' state 7</dev/null",
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    PRINTS(r, "fds=0");
}

Test(ddprun_plan, closed_standard_descriptors_do_no_harm)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --nproc_per_node=2 '%s' say:hello stdin <&- 2>&-",
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] hello"), 1, "%s", r.out);
}

/* Listen on a port of 127.0.0.1. Return the socket, or -1 if another process has the port. */
static int take_port(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port) };
    socklen_t len = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    /* with SO_REUSEADDR, old connections in state TIME_WAIT do not block the port */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
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

/* If another program of this machine holds the default port, that program may release the port during the test. The
 * test then tries again. */
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
    SAYS(r, pid);
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
}

Test(ddprun_plan, a_dry_run_prints_the_plan_and_starts_nothing)
{
    struct run_result r = JOB("--dry_run", "--nproc_per_node=2", WORKER, "say:never");
    EXPECT(r, 0);
    PRINTS(r, "LOCAL_RANK");
    PRINTS(r, "say:never");
    cr_expect_eq(job_count(r.out, "never"), 0, "%s", r.out);
}

Test(ddprun_plan, a_dry_run_in_json_is_one_object)
{
    struct run_result r = JOB("--dry_run", "--json", "--nproc_per_node=2", WORKER);
    EXPECT(r, 0);
    cJSON *json = cJSON_Parse(r.out);
    cr_expect(cJSON_IsObject(json), "%s", r.out);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "workers")), 2, "%s", r.out);
    cJSON_Delete(json);
}

/* Start ddprun with a stand-in for the driver of two GPUs (tests/fake/fake_nvml.c), which reads `rows`. */
static struct run_result run_on_gpus(const char *rows, const char *const args[])
{
    char *dir = job_dir(), where[300], users[300], command[600];
    snprintf(where, sizeof(where), "LD_LIBRARY_PATH=%s", bin("tests/fake/nvml"));
    snprintf(users, sizeof(users), "FAKE_NVML=%s/users", dir);
    snprintf(command, sizeof(command), "printf '%s' > %s/users", rows, dir);
    (void)run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    struct run_result r =
        job_run(args, &(struct run_options){ .env = (const char *const[]){ where, users, NULL } });
    job_dir_remove(dir);
    return r;
}

#define ON_GPUS(rows, ...) run_on_gpus(rows, (const char *const[]){ __VA_ARGS__, NULL })

Test(ddprun_plan, without_a_number_there_is_one_worker_per_gpu_and_more_are_refused)
{
    struct run_result r = ON_GPUS("", WORKER, "say:hello");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] hello") + job_count(r.out, "[1] hello"), 2, "%s", r.out);
    r = ON_GPUS("", "--nproc_per_node=3", WORKER);
    EXPECT(r, 2);
    cr_expect(strstr(r.err, "3") != NULL && strstr(r.err, "2") != NULL, "%s", r.err);
}

/* Run a script while the fake driver reports that two processes, pid 1 and this test, compute on GPU 1. The fake driver
 * also reports that GPU 1 has the compute mode Exclusive_Process. */
static struct run_result run_on_busy_gpus(const char *option, const char *script)
{
    char rows[200];
    snprintf(rows, sizeof(rows), "mode 1 3 0\nprocess 1 1 256\nprocess 1 %d 31744\n", (int)getpid());
    struct run_result r = ON_GPUS(rows, "--nproc_per_node=2", "--no_python", option, "sh", "-c", script);
    EXPECT(r, 0);
    return r;
}

Test(ddprun_plan, a_process_on_the_gpu_of_a_worker_is_named_before_the_start)
{
    char pid[40], script[400];
    snprintf(script, sizeof(script), "until %s why | grep 'GPU_BUSY'; do sleep 0.1; done", bin("ddpctl"));
    struct run_result r = run_on_busy_gpus("--grace=1", script);
    cr_expect(strstr(r.out, "GPU 1 of ") != NULL, "ddpctl why in a worker: %s", r.out);
    snprintf(pid, sizeof(pid), "by pid %d (user ", (int)getpid());
    cr_expect(strstr(r.err, "GPU 1 of ") != NULL && strstr(r.err, pid) != NULL, "%s", r.err);
    SAYS(r, ", 31 GiB) and 1 more");
    const char *first = strstr(r.err, "[GPU_BUSY]");
    cr_expect(first != NULL && strstr(first + 1, "[GPU_BUSY]") == NULL, "%s", r.err);
    SAYS(r, " mode Exclusive_Process, ");
    SILENT(r, "GPU 0 of ");
    r = run_on_busy_gpus("--quiet", "true");
    SILENT(r, "GPU_BUSY");
}

/* The call of the driver hangs until rank 0 has removed the row "hang" from the file of the fake driver. */
Test(ddprun_plan, the_workers_start_while_the_driver_hangs)
{
    static const char script[] = "[ $RANK = 1 ] && exit; until [ -e $FAKE_NVML.asked ]; do sleep 0.1; done; "
                                 "[ ! -e $FAKE_NVML.returned ] || exit 7; : > $FAKE_NVML; "
                                 "until [ -e $FAKE_NVML.returned ]; do sleep 0.1; done";
    struct run_result r = ON_GPUS("hang 0 0 0\n", "--nproc_per_node=2", "--no_python", "sh", "-c", script);
    EXPECT(r, 0);
    SILENT(r, "GPU_BUSY");
}

/* Run a job whose rank 1 fails with the line `error`. Before it fails, rank 1 writes its own pid and `row` into the
 * fake driver's list of the processes on GPU 1. */
static struct run_result fail_on_gpus(const char *row, const char *error)
{
    char script[600];
    snprintf(script, sizeof(script),
             "[ $RANK = 0 ] && exec sleep 600; printf 'process 1 %%d 1024\\n%s\\n' $$ > $FAKE_NVML; "
             "echo '%s' >&2; exit 1",
             row, error);
    struct run_result r = ON_GPUS("", "--nproc_per_node=2", "--grace=1", "--no_python", "sh", "-c", script);
    EXPECT(r, 1);
    return r;
}

#define FULL "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"

Test(ddprun_plan, a_process_on_a_full_or_busy_gpu_is_named_in_the_report)
{
    char row[100], words[100];
    snprintf(row, sizeof(row), "process 1 %d 31744", (int)getpid());
    snprintf(words, sizeof(words), "by pid %d (user ", (int)getpid());
    static const char *const errors[] = { FULL, "RuntimeError: CUDA error: all CUDA-capable devices are "
                                                "busy or unavailable" };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct run_result r = fail_on_gpus(row, errors[i]);
        SAYS(r, "\n  gpu      GPU 1 of ");
        SAYS(r, " (rank 1) ");
        SAYS(r, words);
        SAYS(r, ", 31 GiB)  [GPU_BUSY]\n");
    }
}

Test(ddprun_plan, no_process_is_named_without_one_outside_the_job_or_for_another_error)
{
    char row[100];
    struct run_result r = fail_on_gpus("", FULL);
    SILENT(r, "GPU_BUSY");
    snprintf(row, sizeof(row), "process 1 %d 31744", (int)getpid());
    r = fail_on_gpus(row, "ValueError: batch 7 is empty");
    SILENT(r, "GPU_BUSY");
    r = fail_on_gpus("hang 0 0 0", FULL); /* the report does not wait for the driver */
    SAYS(r, "\n  hint ");
    SILENT(r, "GPU_BUSY");
}

/* If the descriptor table of a process with several threads grows, the kernel stops the process for about 10 ms (an RCU
 * grace period). So the agent's table must have the same size at the start of each worker. */
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
}

/* Tests of ddprun in place of torchrun: with torchrun's options, under the name torchrun, and with torchrun's file
 * timer. */

TestSuite(ddprun_torchrun, .timeout = 60);

/* Run a shell command. $D is ddprun, $T is the same program named torchrun, and the current directory is empty and
 * removed at the end. */
static struct run_result script(const char *text)
{
    char command[4096];
    snprintf(command, sizeof(command),
             "unset VIRTUAL_ENV PYTHON_EXEC; W=$(mktemp -d) && cd \"$W\" || exit 99; trap 'rm -rf \"$W\"' "
             "EXIT; D=%s; ln -s $D torchrun; "
             "T=$W/torchrun\n%s\n",
             bin("ddprun"), text);
    const char *argv[] = { "sh", "-c", command, NULL };
    return run_command(argv, NULL);
}

static void expect(const char *text, int exit_code, const char *out, const char *err)
{
    struct run_result r = script(text);
    cr_assert_eq(r.exit_code, exit_code, "%s\n%s%s", text, r.out, r.err);
    cr_assert(out == NULL || strcmp(r.out, out) == 0, "%s\n%s%s", text, r.out, r.err);
    cr_assert(err == NULL || strstr(r.err, err) != NULL, "%s\n%s", text, r.err);
}

Test(ddprun_torchrun, under_its_name_one_worker_runs_and_nothing_stands_before_its_lines)
{
    expect("$T --no_python sh -c 'echo $WORLD_SIZE ${local_rank} $$'", 0, "1 0 $\n", NULL);
    expect("$T --nproc-per-node=2 --no_python sh -c 'echo line'", 0, "line\nline\n", NULL);
    expect("$T --no_python -t 3 --log-dir=L --role=chief sh -c 'echo line'", 0, "[chief0]:line\n", NULL);
}

Test(ddprun_torchrun, a_stream_that_is_not_teed_has_no_prefix_under_its_name)
{
    static const char lines[] = "$T --nproc-per-node=2 --no_python --tee 0:1,1:2 --log-dir=L sh -c "
                                "'echo out $RANK; echo err $RANK >&2' ";
    char text[512];
    snprintf(text, sizeof(text), "%s2>err | sort; grep rr err | sort", lines);
    expect(text, 0, "[default0]:out 0\nout 1\n[default1]:err 1\nerr 0\n", NULL);
}

/* Tutorials of torchrun use the endpoint localhost:0. Port 0 means any free port. No other node can learn which port
 * was chosen, so ddprun must not wait for another node. */
Test(ddprun_torchrun, an_elastic_job_of_one_node_takes_any_port)
{
    static const char *const names[] = { "$D", "$T --no_python" };
    char text[256];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "%s --nnodes=1:2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --nproc_per_node=1 "
                 "sh -c 'test $MASTER_PORT -gt 0 && echo $WORLD_SIZE'",
                 names[i]);
        expect(text, 0, "1\n", NULL);
    }
}

Test(ddprun_torchrun, a_job_of_one_node_keeps_its_id)
{
    expect("$T --standalone --rdzv-id=zz --no_python sh -c 'echo $TORCHELASTIC_RUN_ID'", 0, "zz\n", NULL);
}

Test(ddprun_torchrun, under_its_name_a_program_is_pythons)
{
    expect("echo 'import sys; print(sys.argv[1:])' >script; $T script --lr 1", 0, "['--lr', '1']\n", NULL);
}

Test(ddprun_torchrun, log_files_lie_where_it_puts_them)
{
    expect("$T --nproc_per_node=2 --rdzv_id=j --max_restarts=1 -r 3 --log_dir=L --no_python sh -c "
           "'test $TORCHELASTIC_RESTART_COUNT = 1' 2>/dev/null; find L -mindepth 2 -name '*.log' | sed "
           "s/j_[a-z0-9]*/j_X/ | sort",
           0,
           "L/j_X/attempt_0/0/stderr.log\nL/j_X/attempt_0/0/stdout.log\nL/j_X/attempt_0/1/stderr.log\n"
           "L/j_X/attempt_0/1/stdout.log\nL/j_X/attempt_1/0/stderr.log\nL/j_X/attempt_1/0/stdout.log\n"
           "L/j_X/attempt_1/1/stderr.log\nL/j_X/attempt_1/1/stdout.log\n",
           NULL);
}

Test(ddprun_torchrun, run_path_is_a_script_in_a_python_of_its_own)
{
    expect("cat >s.py <<'EOS'\nimport sys\nprint(__name__, sys.argv)\nEOS\n$D --nproc_per_node=1 --run-path "
           "s.py a "
           "-b",
           0, "__main__ ['s.py', 'a', '-b']\n", NULL);
}

Test(ddprun_torchrun, lines_with_chosen_words_go_to_one_more_file)
{
    expect("$D --nproc_per_node=2 --log_dir=L --tee=3 --duplicate-stdout-filters=loss,a,,b sh -c 'echo loss "
           "1; echo "
           "none; echo a,b; echo loss >&2' >/dev/null 2>&1; sort L/latest/attempt_0/filtered_stdout.log; ls "
           "L/latest/attempt_0 | tr '\\n' ' '",
           0, "[0] a,b\n[0] loss 1\n[1] a,b\n[1] loss 1\n0 1 filtered_stdout.log ", NULL);
}

Test(ddprun_torchrun, chosen_lines_tell_when_they_were_read)
{
    expect(
        "$D --prefix --timestamps --nproc_per_node=1 --log_dir=L --tee=3 --duplicate-stdout-filters=loss "
        "printf 'loss\nloss' >out; cmp out L/latest/attempt_0/filtered_stdout.log && grep -c $(date +%Y) out",
        0, "2\n", NULL);
}

Test(ddprun_torchrun, its_event_handler_is_ignored_with_a_note)
{
    expect("$D --nproc_per_node=1 --event-log-handler=console true", 0, "",
           "without effect: --event_log_handler");
}

/* A shell command that acts as a client of the file timer. The command writes one line in one piece. */
#define ASK                                                                                               \
    "printf '{\"version\": 1, \"pid\": %d, \"scope_id\": \"step\", \"expiration_time\": %s, \"signal\": " \
    "%d}\\n'"

Test(ddprun_torchrun, a_timer_that_runs_out_kills_its_worker_and_is_the_cause)
{
    struct run_result r = script("export TORCHELASTIC_ENABLE_FILE_TIMER=1; cat >w "
                                 "<<'EOS'\nF=$TORCHELASTIC_TIMER_FILE\n[ -p $F ] || exit 9\n"
                                 "[ $RANK = 0 ] || " ASK " $$ 1.5 9 >$F\nexec sleep 60\nEOS\n"
                                 "$D --nproc_per_node=2 sh w");
    cr_assert_eq(r.exit_code, 137, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "timer \"step\" "), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "sending signal 9"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "expired, so"), "%s", r.err);
}

Test(ddprun_torchrun, a_timer_that_is_released_and_one_of_a_stranger_hurt_nobody)
{
    struct run_result r = script(
        "export TORCHELASTIC_ENABLE_FILE_TIMER=1 TORCHELASTIC_TIMER_FILE=$W/fifo; mkfifo fifo; sleep 50 & "
        "S=$!\n"
        "cat >w <<'EOS'\nF=$TORCHELASTIC_TIMER_FILE\n" ASK " $$ 99999999999 9 >$F\n" ASK " $$ -1 0 >$F\n" ASK
        " $1 1.5 9 >$F\necho nonsense >$F\nsleep 0.5\necho fine\nEOS\n"
        "$D --nproc_per_node=1 sh w $S; E=$?; kill -0 $S && echo alive; kill $S; [ ! -e fifo ] && exit $E");
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "fine\nalive\n");
    cr_assert_not_null(strstr(r.err, "not belong"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "of torch.distributed.elastic.timer"), "%s", r.err);
}

/* The worker requests a timer with an invalid signal. The worker ends when ddprun has printed a message about this
 * request. */
Test(ddprun_torchrun, a_timer_without_a_valid_signal_stops_no_worker)
{
    struct run_result r =
        script("export TORCHELASTIC_ENABLE_FILE_TIMER=1; cat >w <<'EOS'\n" ASK " $$ 1.5 $1 "
               ">$TORCHELASTIC_TIMER_FILE\nuntil grep -q \"invalid signal $1\" err; do sleep "
               "0.02; done\necho fine\nEOS\n"
               "for s in 0 -1 99; do $D --nproc_per_node=1 sh w $s 2>>err || exit; done");
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "fine\nfine\nfine\n");
}

Test(ddprun_torchrun, what_lies_in_the_place_of_the_fifo_is_left_alone)
{
    expect("export TORCHELASTIC_ENABLE_FILE_TIMER=1 TORCHELASTIC_TIMER_FILE=$W/f; echo mine >f; $D true; "
           "E=$?; cat f; "
           "exit $E",
           125, "mine\n", "the FIFO");
}

Test(ddprun_torchrun, the_first_error_goes_to_the_file_that_it_was_given_itself)
{
    expect("cat >w <<'EOS'\n[ $RANK = 0 ] || exec sleep 60\nprintf '{\"message\": {\"message\": \"E: no\"}}' "
           ">$TORCHELASTIC_ERROR_FILE\nexit 3\nEOS\n"
           "TORCHELASTIC_ERROR_FILE=$W/mine $D --nproc_per_node=2 sh w; E=$?; cat mine; exit $E",
           3, "{\"message\":{\"message\":\"E: no\",\"errorCode\":3}}\n", "E: no");
    expect("TORCHELASTIC_ERROR_FILE=$W/mine $D --nproc_per_node=1 false; ls", 0, "torchrun\n", NULL);
}

Test(ddprun_torchrun, a_shim_is_a_command_in_the_directory)
{
    expect("mkdir 'my bin' && cp $D 'my bin' && D=\"$W/my bin/ddprun\"; eval \"$(\"$D\" shim 'a b')\"; "
           "command -v torchrun | sed \"s:$W:W:\"; "
           "torchrun --no_python echo hi; \"$D\" shim 'a b'; \"$D\" shim --remove 'a b'; ls -A 'a b'; "
           "\"$D\" shim 'my bin' >/dev/null; readlink 'my bin/torchrun'",
           0, "W/a b/torchrun\nhi\nddprun\n", "torchrun first");
    expect("mkdir d && ln -s /no/more/ddprun d/torchrun && $D shim d >/dev/null && d/torchrun --no_python "
           "echo hi",
           0, "hi\n", NULL);
    expect("cp $D ddprun-1.2 && D=./ddprun-1.2; mkdir d && $D shim d >/dev/null && $D shim d >/dev/null && "
           "readlink d/torchrun | sed 's:.*/::' && $D shim --remove d && ls d",
           0, "ddprun-1.2\n", NULL);
}

Test(ddprun_torchrun, a_shim_replaces_and_removes_no_other_program)
{
    expect("mkdir d && echo theirs >d/torchrun && $D shim d; E=$?; cat d/torchrun; exit $E", 125, "theirs\n",
           "shim d: ");
    expect("mkdir d && ln -s /no/more/python d/torchrun && $D shim --remove d; E=$?; readlink d/torchrun; "
           "exit $E",
           125, "/no/more/python\n", "shim d: ");
    expect("$D shim a/b", 125, "", "No such file or directory; mkdir -p");
    expect("$D shim torchrun", 125, "", "Not a directory");
    expect("$D shim --remove .. || $D shim --remove gone", 125, "", "shim gone: ");
    expect("$D shim a b", 2, "", "shim: expected");
    if (geteuid() == 0)
        expect("mkdir -m 700 closed && S='setpriv --reuid=65534 --clear-groups'; chmod 755 .; "
               "$S $D shim --remove closed || $S $D shim closed",
               125, "", "shim closed: ");
}

Test(ddprun_torchrun, a_program_that_has_the_name_of_a_command_is_started_with_its_path)
{
    expect("printf '#!/bin/sh\necho mine\n' >shim; chmod +x shim; $D --nproc_per_node=1 ./shim; PATH=.:$PATH "
           "$D -- shim",
           0, "mine\nmine\n", NULL);
    expect("$D shim --help | head -n 1; $D explain -h | head -n 1", 0,
           "Usage: ddprun shim [--remove] DIR\nUsage: ddprun explain [--json] [CODE]\n", NULL);
}

Test(ddprun_torchrun, an_ipv6_address_may_have_brackets)
{
    expect("$D --nproc_per_node=1 --master_addr=[::1] --dry_run true | grep MASTER_ADDR", 0,
           "        MASTER_ADDR=::1\n", NULL);
}

Test(ddprun_torchrun, what_cannot_be_is_exit_2_and_a_way_out)
{
    expect("$D --rdzv-backend=etcd-v2 true", 2, "", "own store");
    expect("$D --event-log-handler=mine true", 2, "", "--events=FILE");
    expect("$D --logs-specs=mine true", 2, "", "--log_file=PATTERN");
    expect("$D --nproc-per-node=xpu true", 2, "", "a number");
    expect("CUDA_VISIBLE_DEVICES= $D --numa-binding=node true", 2, "", "taskset");
}

Test(ddprun_torchrun, what_does_nothing_is_said)
{
    expect("$D --standalone --rdzv-endpoint=localhost:0 --nproc_per_node=1 --monitor-interval=5 echo ran", 0,
           "ran\n", "--rdzv_endpoint has no");
    expect("$D --duplicate-stdout-filters=a --nproc_per_node=1 echo ran", 0, "ran\n",
           "lines that --tee writes");
}

Test(ddprun_torchrun, bash_completes_its_options)
{
    const char *argv[] = { "bash", "-c",
                           ". <(\"$0\" --print-completion=bash); COMP_WORDS=(ddprun --rdzv_e); COMP_CWORD=1\n"
                           "_ddprun 2>/dev/null; echo \"${COMPREPLY[@]}\"",
                           bin("ddprun"), NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_str_eq(r.out, "--rdzv_endpoint=\n", "%s", r.err);
}

/* --- the Python of the workers ------------------------------------------------------------------------------ */

TestSuite(ddprun_python, .timeout = 60);

/* ddprun ($D) is in w/bin. v/bin, w/bin and p/bin each have a Python that prints its own path. So `run` prints the path
 * of the Python that ddprun chooses. The line "Python:" of --dry_run contains the chosen Python and the reason. `why`
 * prints only the variables and paths of this line. */
#define PYTHONS                                                                                           \
    "W=$(pwd -P); for d in v w p; do mkdir -p $d/bin; printf '#!/bin/sh\necho $0\n' >$d/bin/python3.99; " \
    "chmod +x $d/bin/*; ln -s python3.99 $d/bin/python; done; ln -s python3.99 p/bin/python3; "           \
    "cp \"$D\" w/bin/ddprun; D=$W/w/bin/ddprun; PATH=$W/p/bin:$PATH; touch t.py; "                        \
    "run() { \"$@\" --nproc_per_node=1 t.py | sed \"s:$W/::\"; }; "                                       \
    "why() { \"$@\" --dry_run t.py | sed -n \"s:$W/::g; s/^Python: //p\" | "                              \
    "grep -oE \"[A-Z_]{4,}|[a-z]+/[a-z0-9/]+\" | xargs; }\n"

Test(ddprun_python, is_that_of_the_active_environment)
{
    expect(PYTHONS "export VIRTUAL_ENV=$W/v PYTHON_EXEC=$W/p/bin/python; run $D; why $D; run $T; why $T", 0,
           "v/bin/python\n"
           "v/bin/python VIRTUAL_ENV PYTHON_EXEC p/bin/python\n"
           "v/bin/python\n"
           "v/bin/python VIRTUAL_ENV PYTHON_EXEC p/bin/python\n",
           NULL);
    expect(PYTHONS "export VIRTUAL_ENV=$W/gone; run $D; why $D; VIRTUAL_ENV= why $D", 0,
           "p/bin/python3\n"
           "PATH p/bin/python3 VIRTUAL_ENV bin/python\n"
           "PATH p/bin/python3\n",
           NULL);
    expect(PYTHONS "run $D --env=VIRTUAL_ENV=$W/v; $D --env=VIRTUAL_ENV=$W/v --explain | sed -n \"s:$W/::; "
                   "s/  */ /g; /^python/p\"",
           0, "v/bin/python\npython v/bin/python VIRTUAL_ENV is set\n", NULL);
}

/* A python in ddprun's directory does not always belong to ddprun's environment, because ddprun and this python may
 * both be in /usr/bin. So ddprun looks for pyvenv.cfg or for its own package. */
Test(ddprun_python, is_that_of_the_environment_that_ddprun_is_installed_in)
{
    expect(PYTHONS
           "PYTHON_EXEC=$W/v/bin/python why $D; touch w/pyvenv.cfg; export PYTHON_EXEC=$W/v/bin/python; "
           "run $D; why $D; ln -sf $D torchrun; run $T",
           0,
           "v/bin/python PYTHON_EXEC\n"
           "w/bin/python\n"
           "w/bin/python PYTHON_EXEC v/bin/python\n"
           "w/bin/python\n",
           NULL);
    expect(PYTHONS "S=w/lib/python3.99/site-packages; mkdir -p $S/ddprun_other-1.dist-info; why $D; "
                   "mkdir $S/ddprun-1.2.dist-info; why $D; rm w/bin/python; why $D",
           0,
           "PATH p/bin/python3\n"
           "w/bin/python\n"
           "PATH p/bin/python3\n",
           NULL);
}

Test(ddprun_python, a_program_that_is_none_of_its_has_none)
{
    expect(PYTHONS
           "export VIRTUAL_ENV=$W/v; $D --nproc_per_node=1 echo yes; $D --dry_run echo | grep Python:; "
           "$D --dry_run --json echo | grep -c '\"python\":.null'; $D --explain echo | grep ^python",
           1, "yes\n1\n", NULL);
}

Test(ddprun_python, prefix_is_where_ddprun_is_installed)
{
    expect(PYTHONS
           "$D --print_prefix | sed \"s:$W/::\"; ln -sf $D torchrun; $T --print_prefix | sed \"s:$W/::\"",
           0, "w\nw\n", NULL);
    expect("$D --print_prefix", 125, "", "no prefix");
}

Test(ddprun_plan, make_secret_writes_a_file_that_only_its_user_reads)
{
    expect("cd $W && $D --make_secret key; echo $?; stat -c '%a %s' key; grep -cE '^[0-9a-f]{64}$' key", 0,
           "0\n600 65\n1\n", NULL);
    expect("cd $W && $D --make_secret key && $D --make_secret key", 125, "", "key: cannot create");
}
