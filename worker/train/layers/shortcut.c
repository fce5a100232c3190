/* shortcut.c -- see shortcut.h. */
#include "train/layers/shortcut.h"

#include <string.h>

static size_t side_of_y(const struct shortcut *s)
{
    return (s->side + s->stride - 1) / s->stride;
}

/* Plane `plane` of all rows' x: where the plane of y begins that it goes to. */
static size_t target(const struct shortcut *s, size_t plane)
{
    const size_t row = plane / s->in, channel = plane % s->in + (s->out - s->in) / 2;
    return (row * s->out + channel) * side_of_y(s) * side_of_y(s);
}

void shortcut_forward(const struct shortcut *s, real *y, const real *x, size_t rows)
{
    const size_t n = side_of_y(s);
    for (size_t plane = 0; plane < rows * s->in; plane++) {
        real *to = y + target(s, plane);
        const real *from = x + plane * s->side * s->side;
        for (size_t line = 0; line < n; line++, to += n) {
            for (size_t i = 0; i < n; i++)
                to[i] += from[line * s->stride * s->side + i * s->stride];
        }
    }
}

void shortcut_backward(const struct shortcut *s, real *dx, const real *dy, size_t rows)
{
    const size_t n = side_of_y(s), values = rows * s->in * s->side * s->side;
    if (s->stride == 1 && s->in == s->out) {
        memcpy(dx, dy, values * sizeof(real));
        return;
    }
    memset(dx, 0, values * sizeof(real));
    for (size_t plane = 0; plane < rows * s->in; plane++) {
        real *to = dx + plane * s->side * s->side;
        const real *from = dy + target(s, plane);
        for (size_t line = 0; line < n; line++, from += n) {
            for (size_t i = 0; i < n; i++)
                to[line * s->stride * s->side + i * s->stride] = from[i];
        }
    }
}
