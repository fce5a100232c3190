/* conv.c -- see compute.h. Each picture is copied into a frame of zeros (struct frame), because a matrix of inputs
 * (im2col) would be nine times as large as the pictures. */
#include "train/compute.h"

#include "base/buf.h"
#include "train/layers/conv_tile.h"

#include <string.h>

/* Extra elements after a frame, because the loops of conv_tile.h read whole registers. */
enum { SLACK = 2 * CONV_LANES + CONV_KERNEL };

size_t conv_side(const struct conv *c)
{
    return (c->side + 2 * CONV_PADDING - CONV_KERNEL) / c->stride + 1;
}

/* Return the number of pixels in one channel of y. */
static size_t places(const struct conv *c)
{
    return conv_side(c) * conv_side(c);
}

/* Return the number of pixels in one channel of x. */
static size_t pixels(const struct conv *c)
{
    return c->side * c->side;
}

double conv_flops(const struct conv *c)
{
    return 2 * (double)c->out * (double)c->in * (double)CONV_TAPS * (double)places(c);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* --- frames of zeros around pictures ------------------------------------------------------------------ */

/* A frame has the channels of one picture, each surrounded by zeros. A channel is divided into stride x stride planes
 * of `lines` x `pitch` numbers. A plane has every stride-th line and every stride-th column of the channel, so that the
 * inputs of neighbouring outputs are adjacent in the plane. */
struct frame {
    size_t side, stride;
    size_t pitch, lines, plane, channel;
};

/* Compute the layout. With stride 1, the zero after a line is also the zero before the next line. */
static struct frame frame_of(size_t side, size_t stride)
{
    struct frame f = { .side = side, .stride = stride };
    f.lines = (side + 2 * CONV_PADDING + stride - 1) / stride;
    f.pitch = stride == 1 ? CONV_PADDING + side : f.lines;
    f.plane = f.lines * f.pitch;
    f.channel = stride * stride * f.plane;
    return f;
}

static size_t frame_values(const struct frame *f, size_t channels)
{
    return channels * f->channel + SLACK;
}

/* Return the row (or column) of planes that contains line (or column) i of the picture. The planes of a channel form a
 * grid of stride x stride. */
static size_t plane_of(const struct frame *f, size_t i)
{
    return (CONV_PADDING + i) % f->stride;
}

/* Return the index that line (or column) i of the picture has within its plane. */
static size_t position(const struct frame *f, size_t i)
{
    return (CONV_PADDING + i) / f->stride;
}

static void frame_line(const struct frame *f, real *to, const real *x)
{
    if (f->stride == 1) {
        memcpy(to + CONV_PADDING, x, f->side * sizeof(real));
        return;
    }
    for (size_t first = 0; first < f->stride; first++) {
        real *plane = to + plane_of(f, first) * f->plane + position(f, first);
        for (size_t i = first; i < f->side; i += f->stride)
            *plane++ = x[i];
    }
}

/* Copy the channels into the frame. The caller has set the frame to zero. */
static void frame_fill(const struct frame *f, real *to, const real *x, size_t channels)
{
    for (; channels > 0; channels--, to += f->channel) {
        for (size_t i = 0; i < f->side; i++, x += f->side)
            frame_line(f, to + plane_of(f, i) * f->stride * f->plane + position(f, i) * f->pitch, x);
    }
}

/* --- sums over framed pictures ------------------------------------------------------------------------ */

/* conv_tile.h sums a vector of consecutive pixels. Sums beyond the end of a line are not used. */

/* Arguments of sums_make, which computes `lines` x `columns` results for each of `outs` channels. Result (i, j) is
 * written to line first_line + i * step, column first_column + j * step of the result channel. A result channel has
 * `side` lines of `side` numbers. */
struct sums {
    struct conv_sum sum;
    size_t at[CONV_TAPS];
    size_t outs, lines, columns, pitch;    /* pitch: see struct frame */
    size_t first_line, first_column, step; /* place of the first result; distance between results */
    size_t side;
    const real *weight;
};

/* Return how many numbers conv_tile_sum() writes for one channel, rounded up to whole registers. */
static size_t sums_row(const struct sums *s)
{
    return round_up((s->lines - 1) * s->pitch + s->columns, CONV_LANES);
}

static size_t sums_weights(const struct sums *s)
{
    return round_up(s->outs, CONV_OUTS) * s->sum.channels * s->sum.taps;
}

static void copy_line(real *to, const real *from, size_t n, size_t step, int add)
{
    if (step == 1 && !add)
        memcpy(to, from, n * sizeof(real));
    else if (step == 1)
        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    else
        for (size_t i = 0; i < n; i++)
            to[i * step] = from[i] + (add ? to[i * step] : 0);
}

/* Write the results of one picture to y, or add them to y if `add` is set. `row` is scratch with CONV_OUTS *
 * sums_row() numbers. */
static void sums_make(const struct sums *s, real *y, const real *framed, real *row, int add)
{
    const size_t n = sums_row(s), tile = CONV_OUTS * s->sum.channels * s->sum.taps;
    y += s->first_line * s->side + s->first_column;
    for (size_t o = 0; o < s->outs; o++, y += s->side * s->side) {
        if (o % CONV_OUTS == 0)
            conv_tile_sum(&s->sum, row, n, n, framed, s->weight + o / CONV_OUTS * tile);
        for (size_t i = 0; i < s->lines; i++)
            copy_line(y + i * s->step * s->side, row + o % CONV_OUTS * n + i * s->pitch, s->columns, s->step,
                      add);
    }
}

/* Layout of the weights. The weight for result channel o, input channel c and tap t is weight[o * of_out + c *
 * of_channel + tap[t]]. */
struct weights {
    const real *weight;
    size_t of_out, of_channel;
    size_t tap[CONV_TAPS];
};

/* Copy the weights into the order that conv_tile_sum() needs. */
static void pack(const struct sums *s, real *to, const struct weights *w)
{
    const size_t n = s->sum.channels * s->sum.taps * CONV_OUTS;
    for (size_t o = 0; o < round_up(s->outs, CONV_OUTS); o++) {
        real *tile = to + o / CONV_OUTS * n + o % CONV_OUTS;
        for (size_t c = 0; c < s->sum.channels; c++) {
            for (size_t t = 0; t < s->sum.taps; t++, tile += CONV_OUTS)
                *tile = o < s->outs ? w->weight[o * w->of_out + c * w->of_channel + w->tap[t]] : 0;
        }
    }
}

/* --- forward ------------------------------------------------------------------------------------------ */

static void forward_sums(const struct conv *c, const struct frame *f, struct sums *s, struct weights *w)
{
    const size_t n = conv_side(c);
    *s = (struct sums){ .sum = { c->in, f->channel, CONV_TAPS, NULL },
                        .outs = c->out,
                        .lines = n,
                        .columns = n,
                        .pitch = f->pitch,
                        .step = 1,
                        .side = n };
    w->of_out = c->in * CONV_TAPS;
    w->of_channel = CONV_TAPS;
    for (size_t t = 0; t < CONV_TAPS; t++) {
        const size_t ky = t / CONV_KERNEL, kx = t % CONV_KERNEL;
        s->at[t] = (ky % c->stride * c->stride + kx % c->stride) * f->plane + ky / c->stride * f->pitch +
                   kx / c->stride;
        w->tap[t] = t;
    }
    s->sum.at = s->at;
}

static size_t forward_columns(const struct conv *c)
{
    const struct frame f = frame_of(c->side, c->stride);
    struct sums s;
    struct weights w;
    forward_sums(c, &f, &s, &w);
    return frame_values(&f, c->in) + sums_weights(&s) + CONV_OUTS * sums_row(&s);
}

void cpu_conv_forward(ON_CPU, const struct conv *c, void *y, const void *x, const void *weight, size_t rows,
                      real *columns)
{
    const struct frame f = frame_of(c->side, c->stride);
    struct sums s;
    struct weights w;
    real *framed = columns, *packed = framed + frame_values(&f, c->in);
    forward_sums(c, &f, &s, &w);
    w.weight = weight;
    s.weight = packed;
    pack(&s, packed, &w);
    memset(framed, 0, frame_values(&f, c->in) * sizeof(real));
    for (size_t row = 0; row < rows; row++) {
        frame_fill(&f, framed, (const real *)x + row * c->in * pixels(c), c->in);
        sums_make(&s, (real *)y + row * c->out * places(c), framed, packed + sums_weights(&s), 0);
    }
}

/* --- the gradient of x -------------------------------------------------------------------------------- */

/* A phase is the set of lines (or columns) of x that use the same taps. The struct describes phase p as follows:
 *
 *     lines       first + i * stride for i < count
 *     taps        p + u * stride for u < taps
 *     gradient    of line i: sum over u of tap[p + u * stride] * dy[start + i - u] */
struct phase {
    size_t first, count, start, taps;
};

static struct phase phase_of(const struct conv *c, size_t phase)
{
    if (c->stride == 1)
        return (struct phase){ 0, c->side, 1, 3 };
    return phase == 0 ? (struct phase){ 1, c->side / 2, 1, 2 } : (struct phase){ 0, (c->side + 1) / 2, 0, 1 };
}

static void input_sums(const struct conv *c, const struct frame *f, size_t phase, struct sums *s,
                       struct weights *w)
{
    const size_t ay = phase / c->stride, ax = phase % c->stride;
    const struct phase y = phase_of(c, ay), x = phase_of(c, ax);
    *s = (struct sums){ .sum = { c->out, f->channel, y.taps * x.taps, NULL },
                        .outs = c->in,
                        .lines = y.count,
                        .columns = x.count,
                        .pitch = f->pitch,
                        .first_line = y.first,
                        .first_column = x.first,
                        .step = c->stride,
                        .side = c->side };
    w->of_out = CONV_TAPS;
    w->of_channel = c->in * CONV_TAPS;
    for (size_t t = 0; t < s->sum.taps; t++) {
        const size_t v = t / x.taps, u = t % x.taps;
        s->at[t] = (CONV_PADDING + y.start - v) * f->pitch + CONV_PADDING + x.start - u;
        w->tap[t] = (ay + v * c->stride) * CONV_KERNEL + ax + u * c->stride;
    }
    s->sum.at = s->at;
}

/* Return the number of scratch elements for the gradient of x. The last phase (struct phase) needs the most elements,
 * because it has the most lines and columns. */
static size_t input_columns(const struct conv *c)
{
    const struct frame f = frame_of(conv_side(c), 1);
    struct sums s;
    struct weights w;
    input_sums(c, &f, c->stride * c->stride - 1, &s, &w);
    return frame_values(&f, c->out) + round_up(c->in, CONV_OUTS) * c->out * CONV_TAPS +
           CONV_OUTS * sums_row(&s);
}

/* Compute the gradient of x in the same way as the forward pass, with dy as the input. With a stride of s, the pixels
 * of x are divided into s x s phases. All pixels of a phase use the same taps. */
void cpu_conv_backward_input(ON_CPU, const struct conv *c, void *dx, const void *dy, const void *weight,
                             size_t rows, bool add, real *columns)
{
    const struct frame f = frame_of(conv_side(c), 1);
    real *framed = columns, *packed = framed + frame_values(&f, c->out);
    memset(framed, 0, frame_values(&f, c->out) * sizeof(real));
    for (size_t phase = 0; phase < c->stride * c->stride; phase++) {
        struct sums s;
        struct weights w;
        input_sums(c, &f, phase, &s, &w);
        w.weight = weight;
        s.weight = packed;
        pack(&s, packed, &w);
        for (size_t row = 0; row < rows; row++) {
            frame_fill(&f, framed, (const real *)dy + row * c->out * places(c), c->out);
            sums_make(&s, (real *)dx + row * c->in * pixels(c), framed, packed + sums_weights(&s), add);
        }
    }
}

/* --- the gradient of the weight ----------------------------------------------------------------------- */

/* Return the side of a picture with its padding. */
static size_t framed_side(const struct conv *c)
{
    return c->side + 2 * CONV_PADDING;
}

static size_t mixed_values(const struct conv *c)
{
    return framed_side(c) * framed_side(c) * c->in + SLACK;
}

/* Copy x so that the channels of a pixel are adjacent. One line of the kernel then reads consecutive numbers. Copy line
 * by line, so that the written memory stays in the cache. */
static void mix_channels(const struct conv *c, real *to, const real *x)
{
    const size_t n = framed_side(c);
    for (size_t line = 0; line < c->side; line++, x += c->side) {
        real *first = to + ((line + CONV_PADDING) * n + CONV_PADDING) * c->in;
        for (size_t channel = 0; channel < c->in; channel++) {
            for (size_t i = 0; i < c->side; i++)
                first[i * c->in + channel] = x[channel * pixels(c) + i];
        }
    }
}

/* Return how many numbers one line of the kernel reads, rounded up to whole registers. */
static size_t line_width(const struct conv *c)
{
    return round_up(CONV_KERNEL * c->in, CONV_LANES);
}

static size_t weight_columns(const struct conv *c)
{
    return mixed_values(c) + c->out * CONV_KERNEL * line_width(c);
}

/* Copy the values of `sum` to `dweight` in another order. `sum` is ordered by output channel, kernel line, kernel
 * column and input channel. `dweight` is ordered by output channel, input channel, kernel line and kernel column. */
static void unmix(const struct conv *c, real *dweight, const real *sum)
{
    for (size_t o = 0; o < c->out; o++) {
        for (size_t t = 0; t < CONV_TAPS; t++) {
            const real *from =
                sum + (o * CONV_KERNEL + t / CONV_KERNEL) * line_width(c) + t % CONV_KERNEL * c->in;
            for (size_t i = 0; i < c->in; i++)
                dweight[(o * c->in + i) * CONV_TAPS + t] = from[i];
        }
    }
}

void cpu_conv_backward_params(ON_CPU, const struct conv *c, real *dweight, const void *dy, const void *x,
                              size_t rows, real *columns)
{
    const size_t n = framed_side(c) * c->in, width = line_width(c);
    const struct conv_product p = { conv_side(c), c->stride * n, c->stride * c->in,
                                    c->out,       width,         CONV_KERNEL * width };
    real *mixed = columns, *sum = mixed + mixed_values(c);
    memset(columns, 0, weight_columns(c) * sizeof(real));
    for (size_t row = 0; row < rows; row++) {
        mix_channels(c, mixed, (const real *)x + row * c->in * pixels(c));
        for (size_t line = 0; line < CONV_KERNEL; line++)
            conv_tile_product(&p, sum + line * width, (const real *)dy + row * c->out * places(c),
                              mixed + line * n);
    }
    unmix(c, dweight, sum);
}

size_t conv_columns(const struct conv *c)
{
    return larger(larger(forward_columns(c), input_columns(c)), weight_columns(c));
}

/* --- pool --------------------------------------------------------------------------------------------- */

void cpu_pool_forward(ON_CPU, void *y, const void *x, size_t planes, size_t n)
{
    const real *from = x;
    for (size_t plane = 0; plane < planes; plane++, from += n) {
        real sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += from[i];
        ((real *)y)[plane] = sum / (real)n;
    }
}

void cpu_pool_backward(ON_CPU, void *dx, const void *dy, size_t planes, size_t n)
{
    real *to = dx;
    for (size_t plane = 0; plane < planes; plane++, to += n) {
        const real each = ((const real *)dy)[plane] / (real)n;
        for (size_t i = 0; i < n; i++)
            to[i] = each;
    }
}
