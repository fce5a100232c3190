/* training.h -- the programs train and make-data as a user runs them, for end-to-end tests.
 *
 *     TestSuite(x, .init = training_open, .fini = training_close);
 *     make_data("data", "2000", NULL);
 *     train(4, "--data @/data --epochs 1 --summary @/summary.json");        @ is the test's directory
 *     cr_expect_str_eq(summary().hash, other); */
#ifndef TRAINING_H
#define TRAINING_H

#include "run.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* A new directory, which goes with all that is in it. */
extern char training_dir[];
void training_open(void);
void training_close(void);

/* Words put in front of `train` when there are several workers, until NULL. */
extern const char *const *training_prefix;

/* training_dir/NAME; four of them may be in use at once. */
const char *in_dir(const char *name);

/* Run `train` with the words of `line`, under ddprun when `workers` is more than 1. */
struct run_result run_line(int workers, const char *line);

/* The same, and it must end well. */
void train(int workers, const char *line);

/* The same, and it must fail with `exit_code` and say `says`. */
void train_fails(int workers, const char *line, int exit_code, const char *says);

/* Files in training_dir/NAME, 1000 samples for the test; `extra` words may say otherwise, or be NULL. */
void make_data(const char *name, const char *samples, const char *extra);
void make_cifar(const char *dir, int samples,
                int test_samples); /* noise in CIFAR-10's files; `dir` is made */

/* All of a file of the directory, NUL behind; yours. */
char *read_file(const char *name, size_t *len);
void change_file(const char *name, long offset, int byte);

/* The content of summary.json. */
struct summary {
    int world_size, epochs, steps;
    double accuracy, loss, samples_per_s;
    char hash[32];
};
struct summary summary(void);

/* With --hash_steps --metrics @/metrics: the parameters' hash after each step of the last run, HASH letters and a blank each, in one
 * text; yours. */
enum { HASH = 16 };
char *step_hashes(void);

/* A number of a JSON object, which must have it. */
double json_number(const cJSON *json, const char *key);

/* --- pace ------------------------------------------------------------------------------------------------- */

/* A training run whose steps wait for the test: its metrics go into a FIFO that holds a page, and a step whose line
 * finds no room there waits.
 *
 *     struct pace pace;
 *     pace_open(&pace, dir);
 *     ... start `train --metrics PACE.PATH` ...
 *     cr_assert(pace_until(&pace, "\"epoch\":2,"));       (the run is in epoch 2, and not some 30 steps further)
 *     pace_go(&pace);                                     (from here on it waits no more) */

struct pace {
    char path[256];
    int fd; /* both ends, so that no writer meets a FIFO without a reader */
};

/* The FIFO is dir/metrics, and goes with the directory. */
void pace_open(struct pace *p, const char *dir);

/* Let it go on until its metrics say `text`, which the next call does not see again. False when it does not get there. */
bool pace_until(struct pace *p, const char *text);

/* A thread reads the rest. It lives as long as the test. */
void pace_go(struct pace *p);

#endif
