/* grad_check.h -- the gradients of a layer against central differences, in double.
 *
 * A test compiles the layer's source with LAYERS_IN_DOUBLE (real.h) and fills a struct grad_check: the arrays whose gradients
 * the layer computes, and a function that runs it forward and backward. The loss is sum(out x mix), with fixed random
 * numbers as mix, so backward's input is mix itself. */
#ifndef TEST_GRAD_CHECK_H
#define TEST_GRAD_CHECK_H

#include <stddef.h>

enum { GRAD_CHECK_ARRAYS = 4 };

struct grad_check {
    struct {
        const char *name;
        double *value, *grad;
        size_t n;
    } in[GRAD_CHECK_ARRAYS]; /* ends with a row without a name */
    double *out, *mix;
    size_t n;               /* of out and mix */
    void (*forward)(void);  /* in -> out */
    void (*backward)(void); /* mix -> every grad */
    double tolerance,       /* relative and absolute; 0 = 1e-7 */
        step;               /* 0 = 1e-5 */
};

/* The same numbers in every run, in [-1, 1). */
void grad_check_random(double *value, size_t n, unsigned seed);

/* Fills `in` and `mix` with random numbers, compares every element, and fails the test naming the worst. */
void grad_check(const struct grad_check *c);

/* The same, with the values that are there. */
void grad_check_here(const struct grad_check *c);

#endif
