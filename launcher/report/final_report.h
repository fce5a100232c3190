/* final_report.h -- collect what the report needs, print it, and write it to the log directory. */
#ifndef LAUNCHER_REPORT_FINAL_REPORT_H
#define LAUNCHER_REPORT_FINAL_REPORT_H

#include "output/output.h"
#include "report/evidence.h"
#include "report/report.h"

/* Complete `r` (times, colours, last lines, files) when everything in `output` is written. Then print the report on
 * stderr (a failure; with --verbose a success too), or the last event on stdout with --json, and write report.json in
 * the log directory. `program`: the one that could not be started, as found or as named; NULL = all were started. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program);

struct cJSON;

/* Return the same facts as one object; its schema is report.schema.json. The caller frees it with cJSON_Delete. NULL
 * when memory is short. */
struct cJSON *report_json(const struct report *r);

/* Append the last event of --json, which carries the report. */
bool event_finished(struct buf *out, const struct report *report);

#endif
