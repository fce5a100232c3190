/* training.h -- train and make-data as a user runs them, for end-to-end tests.
 *
 *     TestSuite(x, .init = test_dir_open, .fini = test_dir_close);
 *     make_data("data", "2000", NULL);
 *     train(4, "--data @/data --epochs 1 --summary @/summary.json");        @ is the test's directory
 *     cr_expect_str_eq(summary().hash, other); */
#ifndef TRAINING_H
#define TRAINING_H

#include "run.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* Skip the test under ThreadSanitizer, because another test runs the same threads. */
void training_skip_same_threads(void);

/* Skip the test under any sanitizer, because another test runs the same code with other numbers. */
void training_skip_same_code(void);

/* Words before `train` for several workers, ending with NULL. */
extern const char *const *training_prefix;

/* Run `train` with the words of `line`, under ddprun for several workers. */
struct run_result run_line(int workers, const char *line);

/* Run `train` as run_line does, and expect success. */
void train(int workers, const char *line);

/* Run `train`, and expect `exit_code` and the text `says`. */
void train_fails(int workers, const char *line, int exit_code, const char *says);

/* Make data in test_dir/NAME: `samples` for training and 1000 for testing. `extra`: more options, or NULL. */
void make_data(const char *name, const char *samples, const char *extra);
void make_cifar(const char *dir, int samples,
                int test_samples); /* noise in CIFAR-10's format, in a new `dir` */

/* Return a file of test_dir as a string, which the caller frees. */
char *read_file(const char *name, size_t *len);
void change_file(const char *name, long offset, int byte);

/* The content of summary.json. */
struct summary {
    int world_size, epochs, steps;
    double accuracy, loss, samples_per_s;
    char hash[32];
};
struct summary summary(void);

/* Return the parameters' hash after each step, as one text of HASH letters and a blank for each. The caller frees it. A
 * resumed run includes earlier steps. Needs --hash_steps --metrics @/metrics. */
enum { HASH = 16 };
char *step_hashes(void);

/* Return the number at `key`, or fail the test. */
double json_number(const cJSON *json, const char *key);

/* --- pace ------------------------------------------------------------------------------------------------- */

/* A training run whose steps wait for the test, because the FIFO of its metrics holds one page.
 *
 *     struct pace pace;
 *     pace_open(&pace, dir);
 *     ... start `train --metrics PACE.PATH` ...
 *     cr_assert(pace_until(&pace, "\"epoch\":2,"));       (the run is in epoch 2)
 *     pace_go(&pace);                                     (the run does not wait any more) */

struct pace {
    char path[256];
    int fd; /* open for both, so that there is always a reader */
};

/* Make the FIFO dir/metrics. It is removed with the directory. */
void pace_open(struct pace *p, const char *dir);

/* Let the run continue until its metrics contain `text` after the last found text. Return false if the run ends. */
bool pace_until(struct pace *p, const char *text);

/* Start a thread that reads the remaining metrics. */
void pace_go(struct pace *p);

#endif
