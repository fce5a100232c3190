/* json_integer.c -- see json_integer.h. */
#include "json_integer.h"

#include <cjson/cJSON.h>
#include <stdio.h>

void json_add_integer(struct cJSON *o, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    cJSON_AddRawToObject(o, name, text);
}
