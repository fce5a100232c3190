/* schema.h -- does a JSON document fit a JSON schema? Knows the words that our schemas use: type, const,
 * enum, properties, required, additionalProperties (false), items. */
#ifndef TESTS_LIB_SCHEMA_H
#define TESTS_LIB_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* False: `why` names the member and what is wrong with it. */
bool schema_fits(const struct cJSON *schema, const struct cJSON *value, char *why, size_t size);

#endif
