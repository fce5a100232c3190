/* Tests of the checkpoints of `train` as a user sees them. A run resumes from a checkpoint, rejects it, skips it, or
 * only tests it. In some tests the disk is full, or the job restarts. */
#include "job.h"
#include "procstat.h"
#include "run.h"
#include "training.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(train_resume, .init = test_dir_open, .fini = test_dir_close, .timeout = 240);

/* Wait until a checkpoint exists. A thread writes the checkpoint while the run continues, and a checkpoint with its
 * final name is complete. */
static bool until_there(const char *name)
{
    struct patience p = { 0 };
    while (access(test_path(name), F_OK) != 0 && patience_left(&p))
        continue;
    return access(test_path(name), F_OK) == 0;
}

Test(train_resume, killed_and_resumed_it_ends_where_it_would_have_ended)
{
    char whole[32];
    make_data("data", "1000", NULL);
    train(1, "--data @/data --epochs 4 --summary @/summary.json");
    strcpy(whole, summary().hash);

    struct pace pace;
    pace_open(&pace, test_dir);
    const char *argv[] = { bin("train"),   "--data",          test_path("data"), "--epochs", "4",
                           "--checkpoint", test_path("ckpt"), "--metrics",       pace.path,  NULL };
    struct run_process *p = run_start(argv, NULL);
    cr_assert(pace_until(&pace, "\"epoch\":2,"));
    cr_assert(until_there("ckpt/step-00000010"));
    run_signal(p, SIGKILL);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.signal, SIGKILL, "it is over before it is killed: exit %d\n%s", r.exit_code, r.err);

    struct run_result resumed = run_line(
        4,
        "--data @/data --global_batch 100 --epochs 4 --checkpoint @/ckpt --resume --summary @/summary.json");
    cr_expect_eq(resumed.exit_code, 0, "%s", resumed.err);
    cr_expect(strstr(resumed.out, "continuing after epoch "), "%s", resumed.out);
    cr_expect_str_eq(summary().hash, whole, "four workers went on from one worker's checkpoint");
}

Test(train_resume, resume_without_a_checkpoint_starts_anew_and_says_so)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    struct run_result r = run_line(1, "--data @/data --epochs 1 --checkpoint @/a/b/ckpt --resume");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.out, "no checkpoint") && strstr(r.out, "the beginning"), "%s", r.out);
    r = run_line(1, "--data @/data --epochs 1 --checkpoint @/a/b/ckpt --resume");
    cr_expect(strstr(r.out, "--epochs 1: all"), "%s", r.out);
    train_fails(1, "--data @/data --epochs 1 --checkpoint @/a/b/ckpt", 2, "step-00000005 of");
    train_fails(1, "--data @/data --checkpoint @/none --eval", 2, "--eval: there");
    cr_expect_neq(access(test_path("none"), F_OK), 0, "--eval has made a directory");
    cr_assert_eq(mkdir(test_path("renamed"), 0700), 0);
    cr_assert_eq(mkdir(test_path("renamed/step-00000005.bad"), 0700), 0);
    train(1, "--data @/data --epochs 1 --checkpoint @/renamed");
    cr_assert_eq(mkdir(test_path("old"), 0700), 0);
    fclose(fopen(test_path("old/train.ckpt"), "w"));
    train_fails(1, "--data @/data --checkpoint @/old --resume", 2, "/old/train.ckpt: ");
}

Test(train_resume, a_damaged_or_foreign_checkpoint_is_refused_with_its_path)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 1 --checkpoint @/ckpt");
    train_fails(1, "--data @/data --seed 7 --checkpoint @/ckpt --resume", 1, "--seed was 0");
    train_fails(1, "--data @/data --model seqnet --checkpoint @/ckpt --resume", 1, "--model was");
    train(1, "--data @/data --epochs 1 --optimizer sgd --checkpoint @/sgd");
    train_fails(1, "--data @/data --optimizer sgd --momentum 0.9 --checkpoint @/sgd --resume", 1,
                "--momentum");
    change_file("ckpt/step-00000005/tensors.bin", 5000, 'x');
    train_fails(2, "--data @/data --batch 50 --checkpoint @/ckpt --resume", 1,
                "/ckpt/step-00000005/tensors.bin: ");
}

Test(train_resume, a_damaged_checkpoint_is_passed_over_with_a_warning)
{
    training_skip_same_threads();
    char whole[32];
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 3 --summary @/summary.json");
    strcpy(whole, summary().hash);
    train(1, "--data @/data --epochs 2 --checkpoint @/ckpt");
    change_file("ckpt/step-00000010/tensors.bin", 5000, 'x');
    struct run_result r =
        run_line(1, "--data @/data --epochs 3 --checkpoint @/ckpt --resume --summary @/summary.json");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.err, "step 10 skipped"), "%s", r.err);
    cr_expect(has_parts(r.out, "continuing|epoch 1 of"), "%s", r.out);
    cr_expect_str_eq(summary().hash, whole);
}

Test(train_resume, a_full_disk_stops_it_and_leaves_the_old_checkpoint)
{
    training_skip_same_threads();
    size_t len, len_after;
    char command[512];
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 1 --checkpoint @/ckpt");
    char *before = read_file("ckpt/step-00000005/tensors.bin", &len);
    snprintf(command, sizeof(command),
             "trap '' XFSZ; ulimit -f 64; exec %s --data %s/data --epochs 2 --checkpoint %s/ckpt --resume",
             bin("train"), test_dir, test_dir);
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 1, "signal %d", r.signal);
    cr_expect(strstr(r.err, "10 not written") && strstr(r.err, "File too large"), "%s", r.err);
    char *after = read_file("ckpt/step-00000005/tensors.bin", &len_after);
    cr_expect(len == len_after && memcmp(before, after, len) == 0);
    cr_expect_neq(access(test_path("ckpt/.tmp-step-00000010"), F_OK), 0, "the attempt was left behind");
    cr_expect_neq(access(test_path("ckpt/step-00000010"), F_OK), 0);
    free(before);
    free(after);
}

/* Step 6 sets parameters that are far too large, but the loss of step 6 is still finite. From step 7 on, the loss is
 * not finite. So step 6 is the last step that is saved, and step 5 can be continued with a smaller learning rate. */
Test(train_resume, parameters_that_exploded_do_not_replace_good_checkpoints)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 1 --checkpoint @/ckpt");
    train_fails(1, "--data @/data --epochs 2 --checkpoint @/ckpt --checkpoint_every 1 --resume --lr 1e15", 2,
                "newest checkpoint");
    cr_expect_eq(access(test_path("ckpt/step-00000005"), F_OK), 0);
    const char *argv[] = { "rm", "-rf", test_path("ckpt/step-00000006"), NULL };
    cr_expect_eq(run_command(argv, NULL).exit_code, 0);
    train(1, "--data @/data --epochs 2 --checkpoint @/ckpt --resume --lr 0.001");
}

static void expect_file(const char *name, const char *text)
{
    size_t len;
    char *now = read_file(name, &len);
    cr_expect_str_eq(now, text, "%s", name);
    free(now);
}

/* Run `train` with `line`. Expect exit code `exit_code`, the text `says`, and unchanged metrics and profile of the
 * earlier run. */
static void expect_rejected(const char *line, int exit_code, const char *says, const char *metrics,
                            const char *profile)
{
    train_fails(1, line, exit_code, says);
    expect_file("m", metrics);
    expect_file("p", profile);
}

/* A rejected run and a run with --eval keep the metrics of the earlier run. A run that continues appends to these
 * metrics. */
Test(train_resume, metrics_of_the_earlier_run_are_kept)
{
    training_skip_same_threads();
    size_t len, len_after;
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 1 --checkpoint @/ckpt --metrics @/m --profile @/p");
    char *before = read_file("m", &len), *profile = read_file("p", &len_after);
    cr_expect(len > 0 && len_after > 0);
    expect_rejected("--data @/data --epochs 1 --checkpoint @/ckpt --metrics @/m --profile @/p", 2,
                    "step-00000005 of", before, profile);
    expect_rejected("--data @/data --epochs 1 --metrics @/m --profile @/p --summary @/none/summary.json", 1,
                    "--summary ", before, profile);
    train(1, "--data @/data --checkpoint @/ckpt --metrics @/m --eval");
    expect_file("m", before);
    train(1, "--data @/data --epochs 2 --checkpoint @/ckpt --metrics @/m --resume");
    char *after = read_file("m", &len_after);
    cr_expect(len_after > len && memcmp(after, before, len) == 0, "%s", after);
    cr_expect_not_null(strstr(after, "\"step\":6,"), "%s", after);
    free(before);
    free(profile);
    free(after);
}

Test(train_resume, a_checkpoint_can_be_tested_alone)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 2 --checkpoint @/ckpt --summary @/summary.json");
    struct summary trained = summary();
    struct run_result r =
        run_line(2, "--data @/data --batch 50 --checkpoint @/ckpt --eval --summary @/summary.json");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    PRINTS(r, "test accuracy ");
    PRINTS(r, "after epoch 2");
    cr_expect_null(strstr(r.out, "continuing"), "%s", r.out);
    cr_expect(summary().accuracy == trained.accuracy && strcmp(summary().hash, trained.hash) == 0 &&
              summary().steps == 10);
}

Test(train_resume, a_restarted_job_ends_with_the_same_parameters)
{
    training_skip_same_threads();
    struct pace pace;
    char data[64], checkpoint[64], file[64];
    make_data("data", "2000", NULL);
    train(2, "--data @/data --epochs 8 --summary @/summary.json");
    struct summary undisturbed = summary();
    pace_open(&pace, test_dir);
    snprintf(data, sizeof(data), "%s", test_path("data"));
    snprintf(checkpoint, sizeof(checkpoint), "%s", test_path("checkpoint"));
    snprintf(file, sizeof(file), "%s", test_path("summary.json"));
    struct run_process *p = JOB_START("--nproc_per_node=2", "--max_restarts=1", "--restart_backoff=0",
                                      bin("train"), "--data", data, "--epochs", "8", "--checkpoint",
                                      checkpoint, "--resume", "--metrics", pace.path, "--summary", file);
    cr_assert(pace_until(&pace, "\"epoch\":3,"));
    kill(procstat_child(procstat_child(run_pid(p), 0), 1), SIGKILL);
    pace_go(&pace);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.err, "attempt 0 failed: rank 1: ") && strstr(r.err, "SIGKILL"), "%s", r.err);
    cr_expect_str_eq(summary().hash, undisturbed.hash);
}

/* A worker is killed at every phase of a step and of a checkpoint. The other workers must report the killed rank, and a
 * restart must give the same result as a run without a failure. */

/* Each epoch has four steps. Checkpoints follow steps 3, 4, 6, 8, 9, 12. */
#define RUN "--data @/data --global_batch 60 --epochs 3 --checkpoint_every 3 "
enum { WORKERS = 3 };

/* `die` is WHERE:RANK:N, which tests/prog/train_dies.c describes; `rank` is the same RANK. */
static const struct {
    const char *die;
    int rank;
} phases[] = {
    { "before:1:6", 1 }, { "in:1:6", 1 },     { "after:2:6", 2 },  { "before:0:6", 0 },
    { "in:0:6", 0 },     { "saving:0:3", 0 }, { "naming:0:3", 0 },
};
enum { PHASES_TRIED = sizeof(phases) / sizeof(phases[0]) };

TestSuite(train_dies, .init = test_dir_open, .fini = test_dir_close, .timeout = 240);

static void set_die(const char *die)
{
    setenv("DIE", die, 1);
    setenv("DIE_FILE", test_path("die"), 1);
    unlink(test_path("die"));
}

static void remove_checkpoints(void)
{
    const char *argv[] = { "rm", "-rf", test_path("ckpt"), NULL };
    run_command(argv, NULL);
}

/* Start a rank with the words of `line`, in which @ is the test's directory. */
static struct run_process *start_rank(int rank, int hosts, int port, const char *line)
{
    char script[1024];
    snprintf(script, sizeof(script),
             "DDP_TEST_HOST=h%d RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d "
             "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
             "exec %s %s",
             rank % hosts, rank, WORKERS, rank, WORKERS, port, bin("tests/prog/train_dies"), line);
    const char *argv[] = { "sh", "-c", script, NULL };
    return run_start(argv, NULL);
}

/* Expect that the other ranks detect the death themselves, long before any timeout (600 s), and report the dead rank.
 * No launcher stops these ranks. */
static void expect_the_others_told(int phase, int hosts)
{
    char line[512], who[64];
    struct daemon store = daemon_start("127.0.0.1:0", "--quiet");
    struct run_process *p[WORKERS];
    pid_t pid[WORKERS];
    snprintf(line, sizeof(line),
             "--quiet --data %s/data --global_batch 60 --epochs 3 --checkpoint_every 3 --checkpoint %s/ckpt",
             test_dir, test_dir);
    remove_checkpoints();
    set_die(phases[phase].die);
    for (int rank = 0; rank < WORKERS; rank++) {
        p[rank] = start_rank(rank, hosts, store.port, line);
        pid[rank] = run_pid(p[rank]);
    }
    int victim = phases[phase].rank;
    snprintf(who, sizeof(who), "rank %d (pid %d", victim, (int)pid[victim]);
    for (int rank = 0; rank < WORKERS; rank++) {
        struct run_result r = run_wait(p[rank]);
        if (rank == victim)
            cr_expect_eq(r.signal, 9, "%s: rank %d: exit %d\n%s", phases[phase].die, rank, r.exit_code,
                         r.err);
        else
            cr_expect(r.exit_code == 75 && strstr(r.err, who),
                      "%s: rank %d: exit %d, signal %d, without '%s':\n%s", phases[phase].die, rank,
                      r.exit_code, r.signal, who, r.err);
    }
    daemon_stop(&store);
}

Test(train_dies, the_others_are_told_who_it_was)
{
    make_data("data", "200", NULL);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_the_others_told(i, 1);
}

/* The ranks act as if they ran on two hosts, so they are connected over TCP. The other ranks detect the death by the
 * end of the connection. */
Test(train_dies, the_others_are_told_on_another_host_too)
{
    training_skip_same_threads();
    make_data("data", "200", NULL);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_the_others_told(i, 2);
}

/* Expect three complete checkpoints, and no incomplete checkpoint. */
static void expect_nothing_left(const char *die)
{
    int steps = 0;
    DIR *d = opendir(test_path("ckpt"));
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "step-", 5) == 0)
            steps++;
        else
            cr_expect(strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0, "%s: %s", die, e->d_name);
    }
    closedir(d);
    cr_expect_eq(steps, 3, "%s", die);
}

static void expect_same_after_restart(const char *die, const char *hash)
{
    struct job_witness w;
    char data[256], ckpt[256], file[256], hold[1024];
    snprintf(data, sizeof(data), "%s", test_path("data"));
    snprintf(ckpt, sizeof(ckpt), "%s", test_path("ckpt"));
    snprintf(file, sizeof(file), "%s", test_path("summary.json"));
    remove_checkpoints();
    set_die(die);
    job_witness_open(&w);
    snprintf(hold, sizeof(hold), "exec 0<>%s; exec \"$0\" \"$@\"", w.path);
    struct run_result r =
        JOB("--nproc_per_node=3", "--max_restarts=1", "--restart_backoff=0", "sh", "-c", hold,
            bin("tests/prog/train_dies"), "--data", data, "--global_batch", "60", "--epochs", "3",
            "--checkpoint_every", "3", "--checkpoint", ckpt, "--resume", "--summary", file);
    EXPECT(r, 0);
    cr_expect(strstr(r.err, "attempt 0 failed: ") && strstr(r.err, "SIGKILL"), "%s: %s", die, r.err);
    cr_expect(strstr(r.out, "resume: continuing "), "%s: %s", die, r.out);
    cr_expect_str_eq(summary().hash, hash, "%s", die);
    cr_expect(job_witness_alone(&w), "%s: a process is left", die);
    job_witness_close(&w);
    expect_nothing_left(die);
}

Test(train_dies, a_restart_ends_with_the_same_parameters_and_leaves_nothing)
{
    training_skip_same_threads();
    char undisturbed[32];
    make_data("data", "200", NULL);
    train(WORKERS, RUN "--quiet --checkpoint @/ckpt --summary @/summary.json");
    strcpy(undisturbed, summary().hash);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_same_after_restart(phases[i].die, undisturbed);
}

Test(train_dies, a_worker_that_computes_something_else_is_named_before_it_is_saved)
{
    char data[256], ckpt[256];
    make_data("data", "200", NULL);
    snprintf(data, sizeof(data), "%s", test_path("data"));
    snprintf(ckpt, sizeof(ckpt), "%s", test_path("ckpt"));
    set_die("flipping:2:5");
    struct run_result r =
        JOB("--nproc_per_node=3", bin("tests/prog/train_dies"), "--data", data, "--global_batch", "60",
            "--epochs", "3", "--check_every", "3", "--checkpoint_every", "3", "--checkpoint", ckpt);
    EXPECT(r, 1);
    cr_expect(strstr(r.err, "step 6 ") && strstr(r.err, "rank 2 differ"), "%s", r.err);
    cr_expect_neq(access(test_path("ckpt/step-00000006"), F_OK), 0);
    /* the test checks step 3 and not step 4, because a thread may still be writing the checkpoint of step 4 */
    cr_expect_eq(access(test_path("ckpt/step-00000003"), F_OK), 0);
}
