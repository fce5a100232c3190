/* timer_table.c -- see timer_table.h. A list that is searched from the front: a job has a handful of timers, and each
 * of them means that somebody was about to wait. */
#include "node/timer_table.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void timer_table_free(struct timer_table *t)
{
    free(t->rows);
    *t = (struct timer_table){ 0 };
}

/* --- a request ---------------------------------------------------------------------------------------------- */

/* An integer of the size of a pid. */
static bool take_int(const cJSON *o, const char *name, int *to)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= INT_MIN && item->valuedouble <= INT_MAX))
        return false;
    *to = (int)item->valuedouble;
    return true;
}

/* It is shown to the user, so what a terminal would obey is not kept. */
static bool take_scope(const cJSON *o, char scope[TIMER_SHOWN])
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "scope_id"));
    size_t len = 0;
    if (text == NULL)
        return false;
    for (; text[len] != '\0' && len + 1 < TIMER_SHOWN; len++)
        scope[len] = isprint((unsigned char)text[len]) ? text[len] : '?';
    scope[len] = '\0';
    return true;
}

static bool take_request(const cJSON *o, struct timer_row *row)
{
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(o, "expiration_time");
    if (!take_int(o, "pid", &row->pid) || row->pid <= 0 || !take_int(o, "signal", &row->signal) ||
        !take_scope(o, row->scope) || !cJSON_IsNumber(when))
        return false;
    row->expires = when->valuedouble;
    return true;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

static size_t find(const struct timer_table *t, const struct timer_row *like)
{
    size_t i = 0;
    while (i < t->n && (t->rows[i].pid != like->pid || strcmp(t->rows[i].scope, like->scope) != 0))
        i++;
    return i;
}

static void forget(struct timer_table *t, size_t i)
{
    t->rows[i] = t->rows[--t->n];
}

static bool make_room(struct timer_table *t)
{
    const size_t room = t->room > 0 ? 2 * t->room : 16;
    if (t->n < t->room)
        return true;
    struct timer_row *rows = room <= TIMERS_MAX ? realloc(t->rows, room * sizeof(*rows)) : NULL;
    if (rows == NULL)
        return false;
    t->rows = rows;
    t->room = room;
    return true;
}

/* A release of what was never set is no fault: torchrun's clients may release twice. */
static bool apply(struct timer_table *t, const struct timer_row *row)
{
    const size_t at = find(t, row);
    if (row->expires < 0) {
        if (at < t->n)
            forget(t, at);
        return true;
    }
    if (at == t->n && !make_room(t))
        return false;
    t->rows[at] = *row;
    t->n += at == t->n;
    return true;
}

static bool take_line(struct timer_table *t)
{
    struct timer_row row;
    cJSON *o = t->too_long ? NULL : cJSON_ParseWithLength(t->line, t->len);
    const bool ok = take_request(o, &row) && apply(t, &row);
    cJSON_Delete(o);
    t->len = 0;
    t->too_long = false;
    return ok;
}

size_t timer_table_feed(struct timer_table *t, const char *bytes, size_t n)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n')
            wrong += !take_line(t);
        else if (t->len == sizeof(t->line))
            t->too_long = true;
        else
            t->line[t->len++] = bytes[i];
    }
    return wrong;
}

bool timer_table_next(const struct timer_table *t, double *expires)
{
    for (size_t i = 0; i < t->n; i++)
        if (i == 0 || t->rows[i].expires < *expires)
            *expires = t->rows[i].expires;
    return t->n > 0;
}

/* One with a signal is better than one without, then the earlier is better. */
static bool is_better(const struct timer_row *a, const struct timer_row *b)
{
    if ((a->signal > 0) != (b->signal > 0))
        return a->signal > 0;
    return a->expires < b->expires;
}

bool timer_table_take(struct timer_table *t, double now, struct timer_row *row)
{
    bool found = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct timer_row *r = &t->rows[i];
        if (r->expires > now || (found && (r->pid != row->pid || !is_better(r, row))))
            continue;
        *row = *r;
        found = true;
    }
    for (size_t i = t->n; found && i-- > 0;)
        if (t->rows[i].pid == row->pid)
            forget(t, i);
    return found;
}
