/* signal_json.h -- who sent a signal, as members of a JSON object. */
#ifndef LAUNCHER_SIGNAL_JSON_H
#define LAUNCHER_SIGNAL_JSON_H

#include "tables/signals.h"

struct cJSON;

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid; null is what is not known, all of them when nobody sent it. False when
 * memory is short. `sender` NULL = not known. */
bool json_add_sender(struct cJSON *object, const char *prefix, const struct signal_sender *sender);

#endif
