/* json.h -- pieces of a JSON object that is to be printed. */
#ifndef RENDEZVOUS_JSON_H
#define RENDEZVOUS_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

/* Add the member `name` to `o`. cJSON prints every number as a floating one and reads it back to find what was lost, which takes
 * two thirds of the time of a short message; and it would round above 2^53. Such a member is text for the printer: in the object
 * it cannot be read as a number. When memory is short it is left out, as by cJSON. */
void json_add_integer(cJSON *o, const char *name, int64_t value);

/* Hand `item` over to the array; it is freed when that fails. NULL is allowed for both. */
void json_append(cJSON *array, cJSON *item);

#endif
