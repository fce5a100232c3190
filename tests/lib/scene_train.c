/* scene_train.c -- see scene_train.h. */
#include "scene_train.h"

void train_make_data(struct play *play)
{
    const char *name = play->scene->name;
    cr_assert(host_sh(NULL,
                      "rm -rf " TRAIN_PLACE "%s; %s --out " TRAIN_PLACE
                      "%s --samples 10000 --test_samples 100 >/dev/null",
                      name, bin("make-data"), name));
}

void train_remove_data(struct play *play)
{
    host_sh(NULL, "rm -rf " TRAIN_PLACE "%s", play->scene->name);
}

void train_expect_one_hosts_bits(struct play *play)
{
    const char *name = play->scene->name;
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_wait(play->node[i]);
        play->node[i] = NULL;
        cr_expect_eq(r.exit_code, 0, "node %d ends with %d: %s", i, r.exit_code, r.err);
        run_free(&r);
    }
    cr_expect(host_sh(NULL,
                      "cd " TRAIN_PLACE "%s && mv bits two && %s --nproc_per_node=2 %s --data . --batch=50 "
                      "--limit_steps=10 --quiet --dump_gradients bits 2>&1 && cmp bits two",
                      name, bin("ddprun"), bin("train")),
              "the gradients differ");
    train_remove_data(play);
}
