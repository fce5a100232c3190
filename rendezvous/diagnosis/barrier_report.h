/* barrier_report.h -- why a barrier did not open, in words. */
#ifndef RENDEZVOUS_BARRIER_REPORT_H
#define RENDEZVOUS_BARRIER_REPORT_H

#include "store/barrier_roll.h"

/* The JSON of an outcome that is not RELEASED, appended to `out`. `because` ends the first line of the
 * message: "barrier 'epoch-3' " + "timed out after 30.0 s". For a misuse `barrier` is NULL. False when memory
 * is short; `out` is as it was. */
bool barrier_report(const struct barrier *barrier, struct slice name, const struct barrier_env *env,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

#endif
