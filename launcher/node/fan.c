/* fan.c -- see fan.h. */
#include "node/fan.h"

#include <stdlib.h>

bool fan_init(struct fan *fan, int n)
{
    *fan = (struct fan){ .readers = calloc((size_t)n, sizeof(*fan->readers)), .n = n };
    if (fan->readers == NULL)
        fan->n = 0;
    return fan->readers != NULL;
}

void fan_free(struct fan *fan)
{
    free(fan->readers);
    *fan = (struct fan){ 0 };
}

void fan_expect(struct fan *fan, int reader)
{
    fan->readers[reader] = (struct fan_reader){ .state = FAN_EXPECTED };
}

/* A chunk that was taken for readers who are gone by now is the first of those who come. */
void fan_open(struct fan *fan, int reader)
{
    fan->readers[reader] = (struct fan_reader){ .state = FAN_OPEN };
}

void fan_close(struct fan *fan, int reader)
{
    if (fan->readers[reader].state != FAN_ABSENT)
        fan->readers[reader].state = FAN_CLOSED;
}

void fan_forget(struct fan *fan)
{
    fan->len = 0;
    for (int i = 0; i < fan->n; i++)
        fan->readers[i].done = 0;
}

bool fan_wants(const struct fan *fan)
{
    bool somebody = false;
    for (int i = 0; i < fan->n; i++) {
        const struct fan_reader *r = &fan->readers[i];
        if (r->state == FAN_EXPECTED || (r->state == FAN_OPEN && r->done < fan->len))
            return false;
        somebody |= r->state == FAN_OPEN;
    }
    return somebody && !fan->ended;
}

void fan_fill(struct fan *fan, size_t len)
{
    fan_forget(fan);
    fan->len = len;
    fan->ended = len == 0;
}

size_t fan_due(const struct fan *fan, int reader, size_t *at)
{
    const struct fan_reader *r = &fan->readers[reader];
    *at = r->done;
    return r->state == FAN_OPEN ? fan->len - r->done : 0;
}

void fan_gave(struct fan *fan, int reader, size_t len)
{
    fan->readers[reader].done += len;
}

bool fan_is_over(const struct fan *fan, int reader)
{
    const struct fan_reader *r = &fan->readers[reader];
    return fan->ended && r->state == FAN_OPEN && r->done == fan->len;
}

enum input_way input_way(int n_readers, bool terminal, bool background)
{
    if (n_readers == 0)
        return INPUT_NONE;
    return n_readers == 1 && !(terminal && background) ? INPUT_DIRECT : INPUT_COPIED;
}
