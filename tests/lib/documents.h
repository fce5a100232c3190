/* documents.h -- JSON that must fit a schema, and recorded environments of schedulers.
 *
 * Supported keywords: type, const, enum, properties, required, additionalProperties (false), items. */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* Return the schema of event logs, which the caller frees with cJSON_Delete. Skip the test without sources. */
struct cJSON *schema_of_events(void);

/* Return true if `value` fits the schema. Otherwise write the error to `why`. */
bool schema_fits(const struct cJSON *schema, const struct cJSON *value, char *why, size_t size);

/* --- environment ------------------------------------------------------------------------------------------ */

/* A recorded environment: tests/data/environments/NAME.env.
 *
 * - "#host NAME": the machine's name
 * - "#file TEXT": a line of the file whose path is in a variable
 * - other line with "#": a comment
 * - any other line: a variable */

enum { ENVIRONMENT_MAX = 8192, ENVIRONMENT_VARIABLES_MAX = 64 };

struct environment {
    char text[ENVIRONMENT_MAX]; /* memory that the other members point into */
    char *block[ENVIRONMENT_VARIABLES_MAX + 1];
    const char *host;
    char file[ENVIRONMENT_MAX]; /* content of the file whose path is in a variable, or "" */
};

/* Read the environment `name`. Fail the test if missing. */
void environment_read(struct environment *e, const char *name);

#endif
