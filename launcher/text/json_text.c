/* json_text.c -- see json_text.h.
 *
 * Everything that a worker or a user wrote passes utf8_clean on its way into an object. A wrong byte is
 * replaced, never dropped: the reader shall see that something was there. Every add function takes care of
 * its own item when it fails, so callers chain them with && and clean up with one cJSON_Delete of the root. */
#include "text/json_text.h"

#include "text/utf8.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* A NUL counts as wrong: it is valid UTF-8, but cJSON's strings would end there. */
static size_t sequence(const uint8_t *p, size_t len)
{
    return p[0] != 0 ? utf8_sequence(p, len) : 0;
}

/* Good bytes are copied in runs; worker output is nearly always good, and each line of --json comes through here. */
bool utf8_clean(struct buf *out, struct slice bytes)
{
    const uint8_t *p = bytes.data, *end = p + bytes.len;
    bool ok = true;
    while (p < end && ok) {
        const uint8_t *good = p;
        size_t n;
        while (p < end && (n = sequence(p, (size_t)(end - p))) > 0)
            p += n;
        ok = buf_append(out, good, (size_t)(p - good));
        if (p < end) {
            ok = ok && buf_append(out, "\xef\xbf\xbd", 3);
            p++;
        }
    }
    return ok;
}

/* The item is taken over in both cases. */
bool json_add(struct cJSON *object, const char *name, struct cJSON *item)
{
    bool ok = item != NULL && cJSON_AddItemToObject(object, name, item);
    if (!ok)
        cJSON_Delete(item);
    return ok;
}

bool json_add_bytes(struct cJSON *object, const char *name, struct slice bytes)
{
    struct buf clean = { 0 };
    bool ok = utf8_clean(&clean, bytes) && buf_append(&clean, "", 1) &&
              json_add(object, name, cJSON_CreateString((const char *)clean.data));
    buf_free(&clean);
    return ok;
}

bool json_add_text(struct cJSON *object, const char *name, const char *text)
{
    return text != NULL ? json_add_bytes(object, name, slice_str(text)) : json_add_null(object, name);
}

bool json_add_number(struct cJSON *object, const char *name, double value)
{
    return json_add(object, name, cJSON_CreateNumber(value));
}

bool json_add_bool(struct cJSON *object, const char *name, bool value)
{
    return json_add(object, name, cJSON_CreateBool(value));
}

bool json_add_null(struct cJSON *object, const char *name)
{
    return json_add(object, name, cJSON_CreateNull());
}

struct cJSON *json_add_object(struct cJSON *array)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && cJSON_AddItemToArray(array, o))
        return o;
    cJSON_Delete(o);
    return NULL;
}

/* The object is gone afterwards, also when memory was short: then `out` is as it was before. */
bool json_print(struct buf *out, struct cJSON *object, bool indented)
{
    char *text = object == NULL ? NULL : indented ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    size_t before = out->len;
    bool ok = text != NULL && buf_append(out, text, strlen(text)) && buf_append(out, "\n", 1);
    if (!ok)
        out->len = before;
    cJSON_free(text);
    cJSON_Delete(object);
    return ok;
}
