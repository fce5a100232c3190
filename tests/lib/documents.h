/* documents.h -- documents that tests read: JSON, which must fit a schema, and recorded environments of schedulers.
 *
 * Of a schema it knows the words that our schemas use: type, const,
 * enum, properties, required, additionalProperties (false), items. */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* The schema of event logs; yours (cJSON_Delete). Skips the test where the sources are not. */
struct cJSON *schema_of_events(void);

/* Return false with the member and its fault in `why`. */
bool schema_fits(const struct cJSON *schema, const struct cJSON *value, char *why, size_t size);

/* --- environment ------------------------------------------------------------------------------------------ */

/* Recorded environments of schedulers: tests/data/environments/NAME.env.
 *
 * A line "#host NAME" is the machine's name, "#file TEXT" a line of the file that the variables point at, any other "#" a
 * comment; the rest are variables. */

enum { ENVIRONMENT_MAX = 8192, ENVIRONMENT_VARIABLES_MAX = 64 };

struct environment {
    char text[ENVIRONMENT_MAX]; /* what the others point into */
    char *block[ENVIRONMENT_VARIABLES_MAX + 1];
    const char *host;
    char file[ENVIRONMENT_MAX]; /* "" = none */
};

/* Fails the test when there is no such file. */
void environment_read(struct environment *e, const char *name);

#endif
