/* json_text.h -- any bytes as a JSON string, and finished objects as lines. cJSON copies bytes as they are,
 * and what workers write need not be UTF-8. */
#ifndef LAUNCHER_JSON_TEXT_H
#define LAUNCHER_JSON_TEXT_H

#include "base/buf.h"

struct cJSON;

/* Append `bytes` as UTF-8: each byte that is not part of a valid sequence, and each NUL, becomes U+FFFD.
 * False when memory is short. */
bool utf8_clean(struct buf *out, struct slice bytes);

/* Add the member `name` to `object`; false when memory is short. A NULL text adds null. */
bool json_add_bytes(struct cJSON *object, const char *name, struct slice bytes);
bool json_add_text(struct cJSON *object, const char *name, const char *text);
bool json_add_number(struct cJSON *object, const char *name, double value);
bool json_add_bool(struct cJSON *object, const char *name, bool value);
bool json_add_null(struct cJSON *object, const char *name);

/* Add `item` (taken over, freed when it cannot be added; NULL = memory was short already). */
bool json_add(struct cJSON *object, const char *name, struct cJSON *item);

/* A new object at the end of `array`, which owns it from the start: whatever fails later, the root's
 * cJSON_Delete finds it. NULL when memory is short. */
struct cJSON *json_add_object(struct cJSON *array);

/* Append `object` on one line, or indented, with a newline at the end. Frees `object` in any case; NULL is
 * allowed and gives false. */
bool json_print(struct buf *out, struct cJSON *object, bool indented);

#endif
