/* std_map.c -- the values of --tee and --redirects: "3" for all workers, or "0:3,1:1" by local rank, where
 * workers that the map does not name have 0. torchrun reads only ranks of one digit; here any rank goes. */
#include "cli/cli_table.h"

#include <stdlib.h>
#include <string.h>

static const char right_form[] = "0, 1, 2 or 3, or a map RANK:0-3,RANK:0-3 that names each rank once";

static int by_rank(const void *a, const void *b)
{
    const struct std_map_item *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* One "RANK:STREAMS", moved behind it and the comma that follows. */
static bool read_item(const char **at, struct std_map_item *item)
{
    const char *p = *at;
    if (!rank_read(&p, CLI_RANK_MAX + 1, &item->rank) || p[0] != ':' || p[1] < '0' || p[1] > '3')
        return false;
    item->streams = p[1] - '0';
    p += 2;
    if (*p == ',' && p[1] != '\0')
        p++;
    else if (*p != '\0')
        return false;
    *at = p;
    return true;
}

/* "1:1,1:2" could mean either; it is refused rather than guessed. Items are sorted. */
static bool has_twins(const struct std_map_item *items, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (items[i].rank == items[i - 1].rank)
            return true;
    return false;
}

/* Upper bound by the commas, so that the array is allocated once and its limit checked before. */
static size_t count_items(const char *text)
{
    size_t n = 1;
    for (; *text != '\0'; text++)
        n += *text == ',';
    return n;
}

/* Sorted, so that a lookup among 4096 workers' ranks stays cheap. */
static bool read_items(const char *text, struct std_map_item *items, size_t *n)
{
    for (*n = 0; *text != '\0'; (*n)++)
        if (!read_item(&text, &items[*n]))
            return false;
    qsort(items, *n, sizeof(*items), by_rank);
    return !has_twins(items, *n);
}

/* The whole map or nothing: after an error the array is still in the struct, and cli_free takes it. */
ddp_status cli_value_STD_MAP(const char *text, void *to, struct ddp_err *err)
{
    struct std_map *map = to;
    free(map->items); /* the command line replaces what the environment said */
    *map = (struct std_map){ 0 };
    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0') {
        map->all = text[0] - '0';
        return DDP_OK;
    }
    size_t most = count_items(text);
    if (text[0] == '\0' || most > CLI_STDMAP_ITEMS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "%s", right_form);
    map->items = calloc(most, sizeof(*map->items));
    if (map->items == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (!read_items(text, map->items, &map->n))
        return ddp_fail(err, DDP_ERR_ARG, "%s", right_form);
    return DDP_OK;
}

/* Who is not named has `all`, which is 0 when a map was given. */
int std_map_get(const struct std_map *map, int local_rank)
{
    struct std_map_item key = { .rank = local_rank };
    const struct std_map_item *found =
        map->n > 0 ? bsearch(&key, map->items, map->n, sizeof(key), by_rank) : NULL;
    return found != NULL ? found->streams : map->all;
}

int std_map_highest(const struct std_map *map)
{
    return map->n > 0 ? map->items[map->n - 1].rank : -1;
}
