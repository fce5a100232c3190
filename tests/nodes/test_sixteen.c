/* Training on sixteen hosts gives the same bits as training on one host with sixteen ranks. If one of the hosts is
 * lost, the bits are those of one host that continues with fifteen ranks. */
#include "run.h"
#include "scene.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(sixteen, .timeout = 240);

enum { BITS_MAX = 64, TRAINING_MS = 90000 };

/* Each test has a separate directory on the disk that all hosts share. 240 samples in a step divide evenly among
 * sixteen and among fifteen ranks. */
#define TRAIN(test) TRAIN_DATA(test) "--global_batch=240 "
#define BITS        "parameters "
#define ELASTIC     "--nproc_per_node=1 --nnodes=2:16 --rdzv_id=el --rdzv_endpoint=10.9.0.1 "

/* Find the hash of the parameters in `text`, the output of rank 0. Set `bits` to this part of the output, such as
 * "parameters 1bcc2d4d349e9ea1 after 50 steps". */
static void bits_in(const char *text, char bits[BITS_MAX])
{
    const char *at = strstr(text, BITS);
    cr_assert_not_null(at, "no '" BITS "' in: %s", text);
    snprintf(bits, BITS_MAX, "%.*s", (int)strcspn(at, ","), at);
}

/* Train on this machine only, with `ranks` ranks and `options`. Set `bits` to the hash of the parameters, as text. */
static void bits_of_one_host(struct play *play, int ranks, const char *options, char bits[BITS_MAX])
{
    char command[1024];
    snprintf(command, sizeof(command),
             "cd " TRAIN_PLACE
             "%s; OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= %s --quiet --nproc_per_node=%d %s --data . "
             "--global_batch=240 %s",
             play->scene->name, bin("ddprun"), ranks, bin("train"), options);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = TRAINING_MS });
    cr_assert_eq(r.exit_code, 0, "%s ends with %d: %s", command, r.exit_code, r.err);
    bits_in(r.out, bits);
}

static void expect_bits(struct play *play, const char *expected)
{
    char bits[BITS_MAX] = "";
    if (run_until_output(play->node[0], " of training", TRAINING_MS))
        bits_in(run_output(play->node[0]), bits);
    cr_expect_str_eq(bits, expected, "'%s' and not '%s' at the end of: %s", bits, expected,
                     run_output(play->node[0]));
    train_remove_data(play);
}

static void compare_with_16(struct play *play)
{
    char expected[BITS_MAX];
    bits_of_one_host(play, 16, "--limit_steps=10", expected);
    expect_bits(play, expected);
}

SCENE(sixteen, as_a_static_job, .hosts = 16, .options = "--nproc_per_node=1", .before = train_make_data,
      .program = TRAIN(as_a_static_job) "--limit_steps=10", .after = compare_with_16, .never = "lost")

SCENE(sixteen, as_an_elastic_job, .hosts = 16, .elastic = true,
      .options = ELASTIC "--rdzv_conf=last_call_timeout=60", .before = train_make_data,
      .program = TRAIN(as_an_elastic_job) "--limit_steps=10", .after = compare_with_16, .never = "lost")

/* Kill a node after the checkpoint of the first epoch. The other fifteen nodes compute the second epoch. */
static void lose_one_of_16(struct play *play)
{
    char path[128];
    snprintf(path, sizeof(path), TRAIN_PLACE "%s/all/step-00000042", play->scene->name);
    for (struct patience p = { 0 }; access(path, R_OK) != 0 && patience_left(&p);)
        continue;
    play->fault_ms = clock_ms();
    fault_kill_launcher(play);
}

static void compare_with_15(struct play *play)
{
    char expected[BITS_MAX];
    bits_of_one_host(play, 16, "--epochs=1 --checkpoint one", expected);
    bits_of_one_host(play, 15, "--epochs=2 --checkpoint one --resume", expected);
    expect_bits(play, expected);
}

SCENE(sixteen, and_one_is_lost, .hosts = 16, .elastic = true,
      .options = ELASTIC "--rdzv_conf=last_call_timeout=2 --restart_backoff=200ms", .before = train_make_data,
      .program = TRAIN(and_one_is_lost) "--epochs=2 --checkpoint " TRAIN_PLACE "and_one_is_lost/all --resume",
      .fault = lose_one_of_16, .victim = 7, .says = "node 7 (node7) is lost", .within_ms = EXITS,
      .after = compare_with_15, .node = { [7] = { .exit = KILLED } })
