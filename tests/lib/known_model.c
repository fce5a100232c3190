/* known_model.c -- see known_model.h. */
#include "known_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { PICTURES = 64, PIXELS = 784, CLASSES = 10 };

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
        if (t->dims == 2)
            value /= sqrt((double)t->shape[1]);
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

struct model *known_model(const char *name)
{
    const struct model_kind *kind = known_kind(name);
    const struct model_spec of_pictures = {
        .rows = KNOWN_ROWS, .channels = 1, .height = 28, .width = 28, .classes = CLASSES
    };
    const struct model_spec of_tokens = { .rows = KNOWN_SEQUENCES, .length = KNOWN_LENGTH };
    struct model *m;
    struct ddp_err err;
    cr_assert_not_null(kind);
    cr_assert_eq(model_create(kind, kind->input == MODEL_TOKENS ? &of_tokens : &of_pictures, &m, &err),
                 DDP_OK, "%s", err.msg);
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

static struct model_batch pictures(int step)
{
    static float picture[KNOWN_ROWS * PIXELS];
    static int32_t label[KNOWN_ROWS];
    for (int row = 0; row < KNOWN_ROWS; row++) {
        int index = (step * KNOWN_ROWS + row) % PICTURES;
        label[row] = index % CLASSES;
        for (int i = 0; i < PIXELS; i++)
            picture[row * PIXELS + i] = (float)(noise(1000, (uint64_t)(index * PIXELS + i)) >> 24) / 255;
    }
    set_weights(KNOWN_ROWS, 1);
    return (struct model_batch){
        .rows = KNOWN_ROWS, .length = 1, .picture = picture, .target = label, .weight = weight
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

struct model_batch known_batch(enum model_input input, int step)
{
    return input == MODEL_TOKENS ? tokens(step) : pictures(step);
}
