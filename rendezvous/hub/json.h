/* json.h -- fields of a peer's JSON object, believed only after a look. */
#ifndef RENDEZVOUS_JSON_H
#define RENDEZVOUS_JSON_H

#include "base/slice.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* One JSON object and nothing behind it; yours (cJSON_Delete). NULL: err says what is wrong. */
cJSON *json_object(struct slice text, struct ddp_err *err);

/* Hand `item` over to the array; it is freed when that fails, and NULL is allowed for both. */
void json_append(cJSON *array, cJSON *item);

/* A whole number in min..max. json_integer_or: `*value` stays when the field is missing; a wrong one
 * still fails. */
bool json_integer(const cJSON *o, const char *name, int64_t min, int64_t max, int64_t *value,
                  struct ddp_err *err);
bool json_integer_or(const cJSON *o, const char *name, int64_t min, int64_t max, int64_t *value,
                     struct ddp_err *err);

/* A text of at most `max` bytes, borrowed from `o`. json_text_or: `*value` stays when the field is
 * missing. */
bool json_text(const cJSON *o, const char *name, size_t max, const char **value, struct ddp_err *err);
bool json_text_or(const cJSON *o, const char *name, size_t max, const char **value, struct ddp_err *err);

#endif
