/* known_model.c -- see known_model.h. */
#include "known_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { PICTURES = 64, PIXELS = 784, COLOURED = 3 * 32 * 32, CLASSES = 10 };

/* Number k of a stream. */
static uint32_t noise(uint64_t stream, uint64_t k)
{
    uint32_t h = (uint32_t)(k * 2654435761u + stream * 40503u + 1);
    h = (h ^ (h >> 15)) * 73244475u;
    h = (h ^ (h >> 13)) * 295559667u;
    return h ^ (h >> 16);
}

static bool ends_with_weight(const char *name)
{
    return strcmp(name + strlen(name) - strlen("weight"), "weight") == 0;
}

static void set_values(struct model_tensor *t, uint64_t stream)
{
    for (size_t k = 0; k < t->count; k++) {
        double value = noise(stream, k) / 4294967296.0 - 0.5;
        if (t->dims >= 2)
            value /= sqrt((double)(t->count / t->shape[0]));
        else
            value = value * 0.1 + ends_with_weight(t->name);
        t->value[k] = (float)value;
    }
}

const struct model_kind *known_kind(const char *name)
{
    for (const struct model_kind *kind = models; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0)
            return kind;
    }
    return NULL;
}

/* A model of convolutions has colours, and few of them, as it takes its time. */
static bool is_coloured(const struct model_kind *kind)
{
    return strncmp(kind->name, "resnet", 6) == 0;
}

static struct model_spec spec_of(const struct model_kind *kind)
{
    static const struct model_spec
        of_pictures = { .rows = KNOWN_ROWS, .channels = 1, .height = 28, .width = 28, .classes = CLASSES },
        of_colours = { .rows = KNOWN_COLOURED, .channels = 3, .height = 32, .width = 32, .classes = CLASSES },
        of_tokens = { .rows = KNOWN_SEQUENCES, .length = KNOWN_LENGTH };
    return kind->input == MODEL_TOKENS ? of_tokens : is_coloured(kind) ? of_colours : of_pictures;
}

struct model *known_model(const char *name)
{
    return known_model_on(name, NULL);
}

struct model *known_model_on(const char *name, struct compute *on)
{
    const struct model_kind *kind = known_kind(name);
    struct model *m;
    struct ddp_err err;
    cr_assert_not_null(kind);
    struct model_spec spec = spec_of(kind);
    spec.compute = on;
    cr_assert_eq(model_create(kind, &spec, &m, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < m->params.n; i++)
        set_values(&m->params.each[i], i);
    return m;
}

static float weight[KNOWN_ROWS];

static void set_weights(size_t rows, size_t length)
{
    for (size_t i = 0; i < rows; i++)
        weight[i] = 1 / (float)(rows * length);
}

static struct model_batch pictures(int step, int rows, int pixels)
{
    static float picture[KNOWN_ROWS * PIXELS > KNOWN_COLOURED * COLOURED ? KNOWN_ROWS * PIXELS
                                                                         : KNOWN_COLOURED * COLOURED];
    static int32_t label[KNOWN_ROWS];
    for (int row = 0; row < rows; row++) {
        int index = (step * rows + row) % PICTURES;
        label[row] = index % CLASSES;
        for (int i = 0; i < pixels; i++)
            picture[row * pixels + i] = (float)(noise(1000, (uint64_t)(index * pixels + i)) >> 24) / 255;
    }
    set_weights((size_t)rows, 1);
    return (struct model_batch){
        .rows = (size_t)rows, .length = 1, .picture = picture, .target = label, .weight = weight
    };
}

/* Small bytes are frequent, so there is something to learn. */
static int32_t known_token(int step, int row, int at)
{
    uint32_t byte = noise((uint64_t)(2000 + step), (uint64_t)(row * (KNOWN_LENGTH + 1) + at)) >> 24;
    return (int32_t)(byte * byte * byte >> 16);
}

static struct model_batch tokens(int step)
{
    static int32_t token[KNOWN_SEQUENCES * KNOWN_LENGTH], target[KNOWN_SEQUENCES * KNOWN_LENGTH];
    for (int i = 0; i < KNOWN_SEQUENCES * KNOWN_LENGTH; i++) {
        token[i] = known_token(step, i / KNOWN_LENGTH, i % KNOWN_LENGTH);
        target[i] = known_token(step, i / KNOWN_LENGTH, i % KNOWN_LENGTH + 1);
    }
    set_weights(KNOWN_SEQUENCES, KNOWN_LENGTH);
    return (struct model_batch){
        .rows = KNOWN_SEQUENCES, .length = KNOWN_LENGTH, .token = token, .target = target, .weight = weight
    };
}

struct model_batch known_batch(const struct model_kind *kind, int step)
{
    if (kind->input == MODEL_TOKENS)
        return tokens(step);
    return is_coloured(kind) ? pictures(step, KNOWN_COLOURED, COLOURED) : pictures(step, KNOWN_ROWS, PIXELS);
}
