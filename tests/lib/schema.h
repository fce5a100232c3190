/* schema.h -- does a JSON document fit a JSON schema? Knows the words that our schemas use: type, const,
 * enum, properties, required, additionalProperties (false), items. */
#ifndef TESTS_LIB_SCHEMA_H
#define TESTS_LIB_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* The schema of event logs; yours (cJSON_Delete). Skips the test where the sources are not. */
struct cJSON *schema_of_events(void);

/* False: `why` names the member and what is wrong with it. */
bool schema_fits(const struct cJSON *schema, const struct cJSON *value, char *why, size_t size);

#endif
