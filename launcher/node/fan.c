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

/* Also one who was only expected, and could not be started: to wait for him would hold up the others for ever. Who
 * does not read at all stays as he is. */
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

/* One who lags behind, or is still to come, holds up all: the chunk in memory is the only copy of what he has not
 * got. And with nobody left to read, what is typed is left to whoever comes after us. */
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

/* Not before the last byte: who sees the end of a file stops to read. */
bool fan_is_over(const struct fan *fan, int reader)
{
    const struct fan_reader *r = &fan->readers[reader];
    return fan->ended && r->state == FAN_OPEN && r->done == fan->len;
}

/* To inherit is best where it can be had: isatty(), line editing, seeking in a file work as without ddprun. With
 * two readers each would get some of the bytes, nobody all. */
enum input_way input_way(int n_readers, bool terminal, bool background)
{
    if (n_readers == 0)
        return INPUT_NONE;
    return n_readers == 1 && !(terminal && background) ? INPUT_DIRECT : INPUT_COPIED;
}
