/* numbers.h -- what PyTorch has computed: tests/data/torch_NAME.json, made by tests/data/torch_numbers.py. */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H

#include <cjson/cJSON.h>
#include <stddef.h>

/* The file "tests/data/torch_NAME.json", or the end of the test. Yours: cJSON_Delete. */
cJSON *numbers_read(const char *name);

/* One number; `fallback` when `row` has no such key. */
double numbers_get(const cJSON *row, const char *key, double fallback);

/* An array of numbers (words as "inf" count as one) into `to`; returns how many. More than `room` end the
 * test. */
size_t numbers_floats(const cJSON *array, float *to, size_t room);

#endif
