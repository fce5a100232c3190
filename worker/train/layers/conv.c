/* conv.c -- see conv.h.
 *
 * The usual way to let BLAS do it: a matrix whose column is what the kernel sees at one place of y (its row one element of the
 * kernel), so that a convolution is weight x columns. One picture's matrix stays in the cache until it is used. The backward
 * pass makes it anew rather than keep those of all layers: they are nine times as large as the pictures.
 *
 * The gradient of x is a convolution of dy, too, when the stride is 1: with the kernel turned round, and channels in and out
 * exchanged. That writes nine times less than columns of dx that are added up afterwards, which other strides need. */
#include "conv.h"

#include <stdbool.h>
#include <string.h>

size_t conv_side(const struct conv *c)
{
    return (c->side + 2 * c->padding - c->kernel) / c->stride + 1;
}

/* Elements of a kernel, places of y. */
static size_t taps(const struct conv *c)
{
    return c->in * c->kernel * c->kernel;
}

static size_t places(const struct conv *c)
{
    return conv_side(c) * conv_side(c);
}

static size_t weights(const struct conv *c)
{
    return c->out * taps(c);
}

/* The convolution of dy that gives the gradient of x, if there is one. */
static bool turned(const struct conv *c, struct conv *back)
{
    *back = (struct conv){ c->out, c->in, conv_side(c), c->kernel, 1, c->kernel - 1 - c->padding };
    return c->stride == 1 && c->padding < c->kernel;
}

/* A turned one keeps its weights there, behind its columns. */
size_t conv_columns(const struct conv *c)
{
    struct conv back;
    const size_t forward = taps(c) * places(c);
    const size_t backward = turned(c, &back) ? taps(&back) * places(&back) + weights(c) : 0;
    return forward > backward ? forward : backward;
}

double conv_flops(const struct conv *c)
{
    return 2 * (double)c->out * (double)taps(c) * (double)places(c);
}

/* Places of a row of y where tap k of a kernel's row lies inside x: first .. end - 1. */
struct span {
    size_t first, end;
};

static struct span inside(const struct conv *c, size_t k)
{
    const size_t n = conv_side(c);
    struct span s = { k < c->padding ? (c->padding - k + c->stride - 1) / c->stride : 0, 0 };
    /* stride x place + k - padding < side */
    s.end = c->side + c->padding > k ? (c->side + c->padding - k - 1) / c->stride + 1 : 0;
    s.end = s.end < n ? s.end : n;
    s.first = s.first < s.end ? s.first : s.end;
    return s;
}

/* Where in a row of x tap k lies at place `at`, which is inside. */
static size_t position(const struct conv *c, size_t at, size_t k)
{
    return at * c->stride + k - c->padding;
}

static void read_row(const struct conv *c, real *column, const real *x, size_t k)
{
    const struct span s = inside(c, k);
    memset(column, 0, s.first * sizeof(real));
    memset(column + s.end, 0, (conv_side(c) - s.end) * sizeof(real));
    if (c->stride == 1)
        memcpy(column + s.first, x + position(c, s.first, k), (s.end - s.first) * sizeof(real));
    else
        for (size_t at = s.first; at < s.end; at++)
            column[at] = x[position(c, at, k)];
}

static void add_row(const struct conv *c, real *dx, const real *column, size_t k)
{
    const struct span s = inside(c, k);
    if (s.first == s.end)
        return;
    dx += position(c, s.first, k);
    column += s.first;
    if (c->stride == 1) /* a loop of its own: the compiler makes vectors of it */
        for (size_t i = 0; i < s.end - s.first; i++)
            dx[i] += column[i];
    else
        for (size_t i = 0; i < s.end - s.first; i++)
            dx[i * c->stride] += column[i];
}

/* y is as large as x: a plane is the picture, moved. All of it is copied at once, and what has come round the edge to the other
 * end of a line is wiped out. */
static void move_plane(const struct conv *c, real *plane, const real *x, size_t ky, size_t kx)
{
    const size_t n = c->side;
    const struct span lines = inside(c, ky), s = inside(c, kx);
    const size_t first = lines.first * n + s.first, end = lines.end * n - (n - s.end);
    memset(plane, 0, lines.first * n * sizeof(real));
    memset(plane + lines.end * n, 0, (n - lines.end) * n * sizeof(real));
    if (lines.first == lines.end || s.first == s.end) {
        memset(plane, 0, n * n * sizeof(real));
        return;
    }
    memcpy(plane + first, x + first + ky * n + kx - c->padding * n - c->padding,
           (end - first) * sizeof(real));
    for (size_t line = lines.first; line < lines.end; line++) {
        for (size_t i = 0; i < s.first; i++)
            plane[line * n + i] = 0;
        for (size_t i = s.end; i < n; i++)
            plane[line * n + i] = 0;
    }
}

/* One tap of one channel: a plane of the matrix. */
static void read_tap(const struct conv *c, real *plane, const real *x, size_t ky, size_t kx)
{
    if (c->stride == 1 && conv_side(c) == c->side) {
        move_plane(c, plane, x, ky, kx);
        return;
    }
    const size_t n = conv_side(c);
    const struct span s = inside(c, ky);
    memset(plane, 0, s.first * n * sizeof(real));
    memset(plane + s.end * n, 0, (n - s.end) * n * sizeof(real));
    for (size_t row = s.first; row < s.end; row++)
        read_row(c, plane + row * n, x + position(c, row, ky) * c->side, kx);
}

static void add_tap(const struct conv *c, real *dx, const real *plane, size_t ky, size_t kx)
{
    const size_t n = conv_side(c);
    const struct span s = inside(c, ky);
    for (size_t row = s.first; row < s.end; row++)
        add_row(c, dx + position(c, row, ky) * c->side, plane + row * n, kx);
}

static void to_columns(const struct conv *c, real *columns, const real *x)
{
    for (size_t tap = 0; tap < taps(c); tap++, columns += places(c)) {
        const size_t kx = tap % c->kernel, ky = tap / c->kernel % c->kernel;
        read_tap(c, columns, x + tap / c->kernel / c->kernel * c->side * c->side, ky, kx);
    }
}

static void add_columns(const struct conv *c, real *dx, const real *columns)
{
    for (size_t tap = 0; tap < taps(c); tap++, columns += places(c)) {
        const size_t kx = tap % c->kernel, ky = tap / c->kernel % c->kernel;
        add_tap(c, dx + tap / c->kernel / c->kernel * c->side * c->side, columns, ky, kx);
    }
}

void conv_forward(const struct conv *c, real *y, const real *x, const real *weight, size_t rows,
                  real *columns)
{
    const size_t in = c->in * c->side * c->side, out = c->out * places(c);
    for (size_t row = 0; row < rows; row++) {
        to_columns(c, columns, x + row * in);
        real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)c->out, (int)places(c), (int)taps(c), 1,
                  weight, (int)taps(c), columns, (int)places(c), 0, y + row * out, (int)places(c));
    }
}

void conv_backward_weight(const struct conv *c, real *dweight, const real *dy, const real *x, size_t rows,
                          real *columns)
{
    const size_t in = c->in * c->side * c->side, out = c->out * places(c);
    if (rows == 0)
        memset(dweight, 0, c->out * taps(c) * sizeof(real));
    for (size_t row = 0; row < rows; row++) {
        to_columns(c, columns, x + row * in);
        real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)c->out, (int)taps(c), (int)places(c), 1,
                  dy + row * out, (int)places(c), columns, (int)places(c), row > 0, dweight, (int)taps(c));
    }
}

/* Every kernel turned by half a circle, channels in and out exchanged. */
static void turn(const struct conv *c, real *to, const real *weight)
{
    const size_t k = c->kernel * c->kernel;
    for (size_t out = 0; out < c->out; out++) {
        for (size_t i = 0; i < c->in * k; i++)
            to[(i / k * c->out + out) * k + k - 1 - i % k] = weight[out * c->in * k + i];
    }
}

static void input_as_convolution(const struct conv *c, const struct conv *back, real *dx, const real *dy,
                                 const real *weight, size_t rows, int add, real *columns)
{
    const size_t in = c->in * c->side * c->side, out = c->out * places(c);
    real *kernels = columns + taps(back) * places(back);
    turn(c, kernels, weight);
    for (size_t row = 0; row < rows; row++) {
        to_columns(back, columns, dy + row * out);
        real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)back->out, (int)places(back),
                  (int)taps(back), 1, kernels, (int)taps(back), columns, (int)places(back), (real)add,
                  dx + row * in, (int)places(back));
    }
}

void conv_backward_input(const struct conv *c, real *dx, const real *dy, const real *weight, size_t rows,
                         int add, real *columns)
{
    const size_t in = c->in * c->side * c->side, out = c->out * places(c);
    struct conv back;
    if (turned(c, &back)) {
        input_as_convolution(c, &back, dx, dy, weight, rows, add, columns);
        return;
    }
    if (!add)
        memset(dx, 0, rows * in * sizeof(real));
    for (size_t row = 0; row < rows; row++) {
        real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)taps(c), (int)places(c), (int)c->out, 1,
                  weight, (int)taps(c), dy + row * out, (int)places(c), 0, columns, (int)places(c));
        add_columns(c, dx + row * in, columns);
    }
}
