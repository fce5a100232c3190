/* colours.c -- see colours.h.
 *
 * Ink of any colour on a ground of any other: one is dark and the other is light, but which is chance, so brightness says
 * nothing about the class. Over it lies a light that grows from one side to the other, and some pixels are off. */
#include "train/data/colours.h"

#include "train/data/cifar.h"
#include "train/data/glyphs.h"

struct scene {
    float ground[CIFAR_CHANNELS], ink[CIFAR_CHANNELS];
    float right, down; /* how much lighter it is at the other end */
    int x, y;          /* of the glyph's paper */
};

static float between(ddp_random *luck, float low, float high)
{
    return low + (high - low) * ddp_random_uniform(luck);
}

static struct scene take_scene(ddp_random *luck)
{
    struct scene s;
    const int room = CIFAR_SIDE - PICTURE_SIDE + 1;
    int dark_ground = ddp_random_uniform(luck) < 0.5f;
    for (int c = 0; c < CIFAR_CHANNELS; c++) {
        float dark = between(luck, 0, 0.4f), light = between(luck, 0.6f, 1);
        s.ground[c] = dark_ground ? dark : light;
        s.ink[c] = dark_ground ? light : dark;
    }
    s.right = between(luck, -0.2f, 0.2f);
    s.down = between(luck, -0.2f, 0.2f);
    s.x = (int)(ddp_random_next(luck) % (unsigned)room);
    s.y = (int)(ddp_random_next(luck) % (unsigned)room);
    return s;
}

/* Outside the paper there is ground. */
static float ink_at(const struct scene *s, const float *paper, int x, int y)
{
    x -= s->x;
    y -= s->y;
    return x < 0 || y < 0 || x >= PICTURE_SIDE || y >= PICTURE_SIDE ? 0 : paper[y * PICTURE_SIDE + x];
}

static uint8_t shade(float value)
{
    return (uint8_t)(255 * (value < 0 ? 0 : value > 1 ? 1 : value) + 0.5f);
}

static void draw(ddp_random *luck, int label, uint8_t *pixels)
{
    float paper[PICTURE_PIXELS];
    struct scene s = take_scene(luck);
    glyph_draw(luck, label, paper);
    for (int i = 0; i < CIFAR_PIXELS; i++) {
        const int c = i / (CIFAR_SIDE * CIFAR_SIDE), y = i / CIFAR_SIDE % CIFAR_SIDE, x = i % CIFAR_SIDE;
        float value = s.ground[c] + (s.ink[c] - s.ground[c]) * ink_at(&s, paper, x, y);
        value += s.right * ((float)x / CIFAR_SIDE - 0.5f) + s.down * ((float)y / CIFAR_SIDE - 0.5f);
        pixels[i] = shade(value + between(luck, -0.05f, 0.05f));
    }
}

void colour_fill(ddp_random *luck, size_t n, uint8_t *records)
{
    glyph_labels(luck, n, records, CIFAR_RECORD);
    for (size_t i = 0; i < n; i++)
        draw(luck, records[i * CIFAR_RECORD], records + i * CIFAR_RECORD + 1);
}
