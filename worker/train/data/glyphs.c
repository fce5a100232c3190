/* glyphs.c -- see glyphs.h.
 *
 * A digit is a few straight strokes on a grid of 4 x 6. Each sample gets a size, a slant, a place and a pen
 * of its own; a pixel is as dark as it is near to a stroke; on top come noise over the whole picture and a
 * scratch that belongs to no digit. Hard enough that a model must learn something, easy enough for 95 % after
 * two short epochs. */
#include "train/data/glyphs.h"

#include <math.h>
#include <string.h>

enum { MAX_STROKES = 7 };

/* One stroke, from (x0, y0) to (x1, y1); a row of equal points ends the list. */
struct stroke {
    float x0, y0, x1, y1;
};

static const struct stroke digit[CLASSES][MAX_STROKES] = {
    { { 0, 1, 1, 0 },
      { 1, 0, 3, 0 },
      { 3, 0, 4, 1 },
      { 4, 1, 4, 5 },
      { 4, 5, 3, 6 },
      { 3, 6, 0, 5 },
      { 0, 5, 0, 1 } },
    { { 1, 1, 2, 0 }, { 2, 0, 2, 6 }, { 1, 6, 3, 6 } },
    { { 0, 1, 2, 0 }, { 2, 0, 4, 1 }, { 4, 1, 4, 2 }, { 4, 2, 0, 6 }, { 0, 6, 4, 6 } },
    { { 0, 0, 4, 0 }, { 4, 0, 2, 2.5f }, { 2, 2.5f, 4, 4 }, { 4, 4, 3, 6 }, { 3, 6, 0, 6 } },
    { { 3, 6, 3, 0 }, { 3, 0, 0, 4 }, { 0, 4, 4, 4 } },
    { { 4, 0, 0, 0 },
      { 0, 0, 0, 2.5f },
      { 0, 2.5f, 3, 2.5f },
      { 3, 2.5f, 4, 4 },
      { 4, 4, 3, 6 },
      { 3, 6, 0, 6 } },
    { { 3, 0, 0, 3 }, { 0, 3, 0, 5 }, { 0, 5, 2, 6 }, { 2, 6, 4, 5 }, { 4, 5, 4, 4 }, { 4, 4, 0, 3.5f } },
    { { 0, 0, 4, 0 }, { 4, 0, 1, 6 }, { 1, 3, 3.5f, 3 } },
    { { 0, 0, 4, 0 }, { 4, 0, 0, 6 }, { 0, 6, 4, 6 }, { 4, 6, 0, 0 } },
    { { 4, 2, 1, 3 }, { 1, 3, 0, 1 }, { 0, 1, 2, 0 }, { 2, 0, 4, 1 }, { 4, 1, 4, 4 }, { 4, 4, 2, 6 } },
};

/* How one sample is held and written. */
struct hand {
    float scale_x, scale_y; /* grid cells to pixels */
    float slant;            /* pixels to the right per pixel up */
    float left, top;        /* place of the grid's corner */
    float pen;              /* half the width of a stroke in pixels */
    float ink;              /* darkness, 0..1 */
};

static float between(ddp_random *luck, float low, float high)
{
    return low + (high - low) * ddp_random_uniform(luck);
}

/* Half a grid from the middle, then up to two pixels off it in both directions. */
static struct hand take_hand(ddp_random *luck)
{
    struct hand h;
    h.scale_x = between(luck, 2.6f, 3.6f);
    h.scale_y = between(luck, 2.6f, 3.4f);
    h.slant = between(luck, -0.2f, 0.2f);
    h.left = 14 - 2 * h.scale_x + between(luck, -2, 2);
    h.top = 14 - 3 * h.scale_y + between(luck, -2, 2);
    h.pen = between(luck, 0.7f, 1.5f);
    h.ink = between(luck, 0.6f, 1.0f);
    return h;
}

/* Put a stroke of the grid onto the paper. */
static struct stroke placed(const struct hand *h, struct stroke s)
{
    struct stroke p = { .y0 = h->top + s.y0 * h->scale_y, .y1 = h->top + s.y1 * h->scale_y };
    p.x0 = h->left + s.x0 * h->scale_x + h->slant * (14 - p.y0);
    p.x1 = h->left + s.x1 * h->scale_x + h->slant * (14 - p.y1);
    return p;
}

/* From a pixel to the nearest point of a stroke: project onto its line, then stay between its ends. */
static float distance(float x, float y, const struct stroke *s)
{
    float dx = s->x1 - s->x0, dy = s->y1 - s->y0;
    float along = ((x - s->x0) * dx + (y - s->y0) * dy) / (dx * dx + dy * dy);
    along = along < 0 ? 0 : along > 1 ? 1 : along;
    float ex = x - (s->x0 + along * dx), ey = y - (s->y0 + along * dy);
    return sqrtf(ex * ex + ey * ey);
}

/* Darken every pixel by how much of the pen covers it, with a soft rim of one pixel. */
static void draw_stroke(float *paper, const struct stroke *s, float pen, float ink)
{
    for (int i = 0; i < PICTURE_PIXELS; i++) {
        float cover = pen + 0.5f - distance((float)(i % PICTURE_SIDE), (float)(i / PICTURE_SIDE), s);
        float dark = cover <= 0 ? 0 : cover >= 1 ? ink : cover * ink;
        if (dark > paper[i])
            paper[i] = dark;
    }
}

/* A short stroke anywhere: "dark here" alone must not be proof of a class. */
static void scratch(ddp_random *luck, float *paper)
{
    struct stroke s = { between(luck, 0, 27), between(luck, 0, 27), 0, 0 };
    s.x1 = s.x0 + between(luck, 1, 6);
    s.y1 = s.y0 + between(luck, -6, 6);
    draw_stroke(paper, &s, 0.6f, between(luck, 0.3f, 0.9f));
}

/* Few pixels, but those much too dark or too light. Many faint ones would be no harder to see through, but
 * they lift the mean of all pixels, and one step of Adam at 0.01 then drives a sigmoid with 784 inputs into
 * its flat ends. */
static float speck(ddp_random *luck)
{
    return ddp_random_uniform(luck) < 0.02f ? between(luck, -1, 1) : 0;
}

void glyph_draw(ddp_random *luck, int label, float *paper)
{
    struct hand hand = take_hand(luck);
    memset(paper, 0, PICTURE_PIXELS * sizeof(*paper));
    for (int i = 0; i < MAX_STROKES; i++) {
        struct stroke s = digit[label][i];
        if (s.x0 == s.x1 && s.y0 == s.y1)
            break;
        s = placed(&hand, s);
        draw_stroke(paper, &s, hand.pen, hand.ink);
    }
    scratch(luck, paper);
}

/* One sample of class `label` (0..9) into PICTURE_PIXELS bytes, 0 = paper, 255 = ink. */
static void draw(ddp_random *luck, int label, uint8_t *pixels)
{
    float paper[PICTURE_PIXELS];
    glyph_draw(luck, label, paper);
    for (int i = 0; i < PICTURE_PIXELS; i++) {
        float value = paper[i] + speck(luck);
        pixels[i] = (uint8_t)(255 * (value < 0 ? 0 : value > 1 ? 1 : value) + 0.5f);
    }
}

void glyph_labels(ddp_random *luck, size_t n, uint8_t *labels, size_t apart)
{
    for (size_t i = 0; i < n; i++)
        labels[i * apart] = (uint8_t)(i % CLASSES);
    for (size_t i = n; i > 1; i--) { /* Fisher and Yates */
        size_t other = ddp_random_next(luck) % i;
        uint8_t held = labels[(i - 1) * apart];
        labels[(i - 1) * apart] = labels[other * apart];
        labels[other * apart] = held;
    }
}

/* Labels first, so that order and pictures are drawn from the same luck without depending on each other's
 * number. */
void glyph_fill(ddp_random *luck, size_t n, uint8_t *pixels, uint8_t *labels)
{
    glyph_labels(luck, n, labels, 1);
    for (size_t i = 0; i < n; i++)
        draw(luck, labels[i], pixels + i * PICTURE_PIXELS);
}
