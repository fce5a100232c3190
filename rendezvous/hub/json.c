/* json.c -- see json.h.
 *
 * cJSON parses; what a field may be is checked here, in one place for each kind, so that every refusal
 * names the field and what it should have been. */
#include "hub/json.h"

cJSON *json_object(struct slice text, struct ddp_err *err)
{
    const char *end = NULL;
    cJSON *o = text.len ? cJSON_ParseWithLengthOpts(text.data, text.len, &end, false) : NULL;
    if (cJSON_IsObject(o))
        return o;
    cJSON_Delete(o);
    ddp_fail(err, DDP_ERR_CORRUPT, "the request is not a JSON object");
    return NULL;
}

/* Taken over in any case: cJSON leaves an item with the caller when it cannot be added. */
void json_append(cJSON *array, cJSON *item)
{
    if (!cJSON_AddItemToArray(array, item))
        cJSON_Delete(item);
}

/* null says the same as nothing. */
static const cJSON *field(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool missing(const char *name, struct ddp_err *err)
{
    ddp_fail(err, DDP_ERR_ARG, "\"%s\" is missing", name);
    return false;
}

/* cJSON keeps numbers as double: compared with the limits before the cast, which would be undefined past
 * them. */
bool json_integer_or(const cJSON *o, const char *name, int64_t min, int64_t max, int64_t *value,
                     struct ddp_err *err)
{
    const cJSON *item = field(o, name);
    if (item == NULL)
        return true;
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!cJSON_IsNumber(item) || !(number >= (double)min && number <= (double)max) ||
        (double)(int64_t)number != number) {
        ddp_fail(err, DDP_ERR_ARG, "\"%s\" must be a whole number from %lld to %lld", name, (long long)min,
                 (long long)max);
        return false;
    }
    *value = (int64_t)number;
    return true;
}

bool json_integer(const cJSON *o, const char *name, int64_t min, int64_t max, int64_t *value,
                  struct ddp_err *err)
{
    return field(o, name) ? json_integer_or(o, name, min, max, value, err) : missing(name, err);
}

bool json_text_or(const cJSON *o, const char *name, size_t max, const char **value, struct ddp_err *err)
{
    const cJSON *item = field(o, name);
    if (item == NULL)
        return true;
    if (!cJSON_IsString(item) || strlen(item->valuestring) > max) {
        ddp_fail(err, DDP_ERR_ARG, "\"%s\" must be a text of at most %zu bytes", name, max);
        return false;
    }
    *value = item->valuestring;
    return true;
}

bool json_text(const cJSON *o, const char *name, size_t max, const char **value, struct ddp_err *err)
{
    return field(o, name) ? json_text_or(o, name, max, value, err) : missing(name, err);
}
