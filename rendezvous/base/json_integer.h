/* json_integer.h -- a whole number in a JSON object that is to be printed. */
#ifndef RENDEZVOUS_JSON_INTEGER_H
#define RENDEZVOUS_JSON_INTEGER_H

#include <stdint.h>

struct cJSON;

/* Add the member `name` to `o`. cJSON prints every number as a floating one and reads it back to see what was lost, which takes
 * two thirds of the time of a short message; and it would round above 2^53. Such a member is text for the printer: in the object
 * it cannot be read as a number. When memory is short it is left out, as by cJSON. */
void json_add_integer(struct cJSON *o, const char *name, int64_t value);

#endif
