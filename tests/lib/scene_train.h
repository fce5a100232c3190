/* scene_train.h -- scenes that train: data of their own on the disk that all hosts see, and what one host makes of the same.
 *
 *     SCENE(waits, two_hosts, .options = "--nproc_per_node=1", .before = train_make_data, .program = TRAIN_TEN_STEPS(two_hosts),
 *           .after = train_expect_one_hosts_bits, ...) */
#ifndef TESTS_LIB_SCENE_TRAIN_H
#define TESTS_LIB_SCENE_TRAIN_H

#include "scene.h"

/* Each scene has a place of its own, by its name. */
#define TRAIN_PLACE       "/tmp/ddprun-test-train-"
#define TRAIN_DATA(scene) "train --data " TRAIN_PLACE #scene " "
/* Ten steps of two ranks, whose gradients are kept. */
#define TRAIN_TEN_STEPS(scene) \
    TRAIN_DATA(scene) "--batch=50 --limit_steps=10 --quiet --dump_gradients " TRAIN_PLACE #scene "/bits"

void train_make_data(struct play *play);
void train_remove_data(struct play *play);

/* Both nodes end well, with the gradients that two ranks of one host compute. */
void train_expect_one_hosts_bits(struct play *play);

#endif
