/* documents.h -- documents that tests read: JSON, which must fit a schema, and recorded environments of schedulers.
 *
 * The schema check supports the keywords that ddprun's schemas use: type, const, enum, properties, required,
 * additionalProperties (false), items. */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* Return the schema of event logs, which the caller frees with cJSON_Delete. Skip the test if the sources are
 * missing. */
struct cJSON *schema_of_events(void);

/* Return true if `value` fits the schema. Otherwise return false, with the wrong member and its error in `why`. */
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
    char file[ENVIRONMENT_MAX]; /* contents of the file whose path is in a variable; "" if none */
};

/* Read the recorded environment `name`. Fail the test if it is missing. */
void environment_read(struct environment *e, const char *name);

#endif
