/* json.c -- see json.h. */
#include "base/json.h"

#include <stdio.h>

void json_add_integer(cJSON *o, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    cJSON_AddRawToObject(o, name, text);
}

/* Taken over in any case: cJSON leaves an item with the caller when it cannot be added. */
void json_append(cJSON *array, cJSON *item)
{
    if (!cJSON_AddItemToArray(array, item))
        cJSON_Delete(item);
}
