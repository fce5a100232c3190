/* A worker is killed at every phase of a step and of a checkpoint: the others end with an error that names it, nothing is left
 * over, and a restart from the checkpoints ends where the job would have ended. */
#include "run.h"
#include "job.h"
#include "training.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Four steps an epoch; saved after steps 3, 4, 6, 8 ... */
#define RUN "--data @/data --global_batch 60 --epochs 3 --checkpoint_every 3 "
enum { WORKERS = 3 };

/* See tests/prog/train_dies.c: where, rank, step or checkpoint. */
static const struct {
    const char *die;
    int rank;
} phases[] = {
    { "before:1:6", 1 }, { "in:1:6", 1 },     { "after:2:6", 2 },  { "before:0:6", 0 },
    { "in:0:6", 0 },     { "saving:0:3", 0 }, { "naming:0:3", 0 },
};
enum { PHASES_TRIED = sizeof(phases) / sizeof(phases[0]) };

TestSuite(train_dies, .init = training_open, .fini = training_close, .timeout = 240);

static void set_die(const char *die)
{
    setenv("DIE", die, 1);
    setenv("DIE_FILE", in_dir("die"), 1);
    unlink(in_dir("die"));
}

static void remove_checkpoints(void)
{
    const char *argv[] = { "rm", "-rf", in_dir("ckpt"), NULL };
    struct run_result r = run_command(argv, NULL);
    run_free(&r);
}

/* --- the others ------------------------------------------------------------------------------------------ */

/* Words of `line`, @ is the test's directory, into argv behind `program`. */
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

/* No launcher is there to stop them: they find out by themselves, long before any time-out (600 s), and say who. */
static void expect_the_others_told(int phase, int hosts)
{
    char line[512], who[64];
    struct daemon store = daemon_start("127.0.0.1:0", "--quiet");
    struct run_process *p[WORKERS];
    pid_t pid[WORKERS];
    snprintf(line, sizeof(line),
             "--quiet --data %s/data --global_batch 60 --epochs 3 --checkpoint_every 3 --checkpoint %s/ckpt",
             training_dir, training_dir);
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
        run_free(&r);
    }
    daemon_stop(&store);
}

Test(train_dies, the_others_are_told_who_it_was)
{
    make_data("data", "200", NULL);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_the_others_told(i, 1);
}

/* Over TCP: by the end of a connection. */
Test(train_dies, the_others_are_told_on_another_host_too)
{
    make_data("data", "200", NULL);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_the_others_told(i, 2);
}

/* --- the job --------------------------------------------------------------------------------------------- */

/* Three whole checkpoints, and nothing that was begun. */
static void expect_nothing_left(const char *die)
{
    int steps = 0;
    DIR *d = opendir(in_dir("ckpt"));
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
    snprintf(data, sizeof(data), "%s", in_dir("data"));
    snprintf(ckpt, sizeof(ckpt), "%s", in_dir("ckpt"));
    snprintf(file, sizeof(file), "%s", in_dir("summary.json"));
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
    cr_expect(strstr(r.out, "resume: going on "), "%s: %s", die, r.out);
    cr_expect_str_eq(summary().hash, hash, "%s", die);
    cr_expect(job_witness_alone(&w), "%s: somebody is left", die);
    run_free(&r);
    job_witness_close(&w);
    expect_nothing_left(die);
}

Test(train_dies, a_restart_ends_with_the_same_parameters_and_leaves_nothing)
{
    char undisturbed[32];
    make_data("data", "200", NULL);
    train(WORKERS, RUN "--quiet --checkpoint @/ckpt --summary @/summary.json");
    strcpy(undisturbed, summary().hash);
    for (int i = 0; i < PHASES_TRIED; i++)
        expect_same_after_restart(phases[i].die, undisturbed);
}

/* --- a wrong bit ----------------------------------------------------------------------------------------- */

Test(train_dies, a_worker_that_computes_something_else_is_named_before_it_is_saved)
{
    char data[256], ckpt[256];
    make_data("data", "200", NULL);
    snprintf(data, sizeof(data), "%s", in_dir("data"));
    snprintf(ckpt, sizeof(ckpt), "%s", in_dir("ckpt"));
    set_die("flipping:2:5");
    struct run_result r =
        JOB("--nproc_per_node=3", bin("tests/prog/train_dies"), "--data", data, "--global_batch", "60",
            "--epochs", "3", "--check_every", "3", "--checkpoint_every", "3", "--checkpoint", ckpt);
    EXPECT(r, 1);
    cr_expect(strstr(r.err, "after step 6 rank 2 has other parameters than rank 0"), "%s", r.err);
    cr_expect_neq(access(in_dir("ckpt/step-00000006"), F_OK), 0);
    /* That of step 4 may still be in the hands of the thread that writes. */
    cr_expect_eq(access(in_dir("ckpt/step-00000003"), F_OK), 0);
    run_free(&r);
}
