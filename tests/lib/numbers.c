/* numbers.c -- see numbers.h. */
#include "numbers.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 1 << 20 };

cJSON *numbers_read(const char *name)
{
    char path[256];
    char *text = calloc(1, ROOM);
    snprintf(path, sizeof(path), "tests/data/torch_%s.json", name);
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL && text != NULL, "%s: cannot be read; run from the top of the repository", path);
    size_t len = fread(text, 1, ROOM - 1, file);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    free(text);
    cr_assert(len < ROOM - 1 && json != NULL, "%s: too long, or not JSON", path);
    return json;
}

double numbers_get(const cJSON *row, const char *key, double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    if (cJSON_IsTrue(item))
        return 1;
    return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

size_t numbers_floats(const cJSON *array, float *to, size_t room)
{
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, array)
    {
        cr_assert(n < room, "more than %zu numbers", room);
        to[n++] = cJSON_IsString(item) ? strtof(item->valuestring, NULL) : (float)item->valuedouble;
    }
    return n;
}
