/* report_json.h -- signals as members of a JSON object. False when memory is short.
 *
 * A signal, and who sent it, as members of a JSON object. False when memory is short. */
#ifndef LAUNCHER_REPORT_REPORT_JSON_H
#define LAUNCHER_REPORT_REPORT_JSON_H

#include "tables/signals.h"

struct cJSON;

/* Add "signal", its number, and "signal_name". */
bool json_add_signal(struct cJSON *object, int signal);

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid; null is what is not known, all of them when nobody sent it. `sender`
 * NULL = not known. */
bool json_add_sender(struct cJSON *object, const char *prefix, const struct signal_sender *sender);

#endif
