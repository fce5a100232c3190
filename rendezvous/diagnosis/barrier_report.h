/* barrier_report.h -- why a barrier did not open, in words. */
#ifndef RENDEZVOUS_BARRIER_REPORT_H
#define RENDEZVOUS_BARRIER_REPORT_H

#include "diagnosis/diagnose.h"
#include "store/barrier_roll.h"

/* What is known of a rank of the world. */
typedef void (*barrier_facts)(void *user, uint32_t rank, struct rank_facts *facts);

/* The JSON of an outcome that is not RELEASED, appended to `out`. `because` ends the first line of the
 * message: "barrier 'epoch-3' " + "timed out after 30.0 s". For a misuse `barrier` is NULL. False when memory
 * is short; `out` is as it was. */
bool barrier_report(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

#endif
