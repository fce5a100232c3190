/* grad_check.c -- see grad_check.h. */
#include "grad_check.h"

#include <criterion/criterion.h>
#include <math.h>

/* A linear congruential generator: no state that another test could have moved. */
void grad_check_random(double *value, size_t n, unsigned seed)
{
    unsigned long long x = seed * 2654435761ULL + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        value[i] = (double)(x >> 33) / (double)(1ULL << 30) - 1;
    }
}

static double loss(const struct grad_check *c)
{
    double sum = 0;
    c->forward();
    for (size_t i = 0; i < c->n; i++)
        sum += c->out[i] * c->mix[i];
    return sum;
}

static double difference(const struct grad_check *c, double *value)
{
    const double h = c->step > 0 ? c->step : 1e-5, kept = *value;
    *value = kept + h;
    double above = loss(c);
    *value = kept - h;
    double below = loss(c);
    *value = kept;
    return (above - below) / (2 * h);
}

void grad_check_here(const struct grad_check *c)
{
    const double tolerance = c->tolerance > 0 ? c->tolerance : 1e-7;
    loss(c);
    c->backward();
    for (int a = 0; a < GRAD_CHECK_ARRAYS && c->in[a].name != NULL; a++) {
        for (size_t i = 0; i < c->in[a].n; i++) {
            double computed = c->in[a].grad[i], expected = difference(c, &c->in[a].value[i]);
            cr_assert(fabs(computed - expected) <= tolerance * (1 + fabs(expected)),
                      "d%s[%zu] is %.12g, differences say %.12g", c->in[a].name, i, computed, expected);
        }
    }
}

void grad_check(const struct grad_check *c)
{
    for (int a = 0; a < GRAD_CHECK_ARRAYS && c->in[a].name != NULL; a++)
        grad_check_random(c->in[a].value, c->in[a].n, (unsigned)a + 1);
    grad_check_random(c->mix, c->n, 77);
    grad_check_here(c);
}
