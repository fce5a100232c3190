/* training.h -- the programs train and make-data as a user runs them, for end-to-end tests.
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

/* Skip the test under ThreadSanitizer, because another test runs the same threads. The two tests differ in the model,
 * the number of workers or the single-threaded part. */
void training_skip_same_threads(void);

/* Skip the test under any sanitizer, because another test runs the same code. The two tests differ only in numbers, and
 * these numbers are compared when the tests run without a sanitizer. */
void training_skip_same_code(void);

/* Words in front of `train` if there are several workers. NULL ends the list. */
extern const char *const *training_prefix;

/* Run `train` with the words of `line`, under ddprun if `workers` is above 1. */
struct run_result run_line(int workers, const char *line);

/* Run `train` as run_line does, and expect success. */
void train(int workers, const char *line);

/* Run `train` as run_line does, and expect exit code `exit_code` and the parts `says` (has_parts). */
void train_fails(int workers, const char *line, int exit_code, const char *says);

/* Make data files in test_dir/NAME, with `samples` samples for training and 1000 samples for testing. `extra` has
 * more options for make-data, or is NULL. */
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

/* Return the hash of the parameters after each step, from the file of metrics. A resumed run appends to this file, so
 * the result includes the hashes of the earlier steps. The result is one text, which the caller frees. Each hash has
 * HASH letters and a blank. The run needs the options --hash_steps --metrics @/metrics. */
enum { HASH = 16 };
char *step_hashes(void);

/* Return the number at `key` of a JSON object. Fail the test if there is no such number. */
double json_number(const cJSON *json, const char *key);

/* --- pace ------------------------------------------------------------------------------------------------- */

/* A training run whose steps wait for the test. The metrics go into a FIFO that holds one page, so a step blocks if
 * its line does not fit.
 *
 *     struct pace pace;
 *     pace_open(&pace, dir);
 *     ... start `train --metrics PACE.PATH` ...
 *     cr_assert(pace_until(&pace, "\"epoch\":2,"));       (the run is in epoch 2)
 *     pace_go(&pace);                                     (the run does not wait any more) */

struct pace {
    char path[256];
    int fd; /* open for reading and writing, so that the FIFO always has a reader */
};

/* Make the FIFO dir/metrics. The test removes the FIFO with the directory. */
void pace_open(struct pace *p, const char *dir);

/* Let the run continue until its metrics contain `text`. The next call searches the metrics after this text. Return
 * false if the run ends first. */
bool pace_until(struct pace *p, const char *text);

/* Start a thread that reads the remaining metrics. The thread lives as long as the test. */
void pace_go(struct pace *p);

#endif
