/* ranks.h -- why a barrier did not open, for its members; diagnosis.h has the other questions about ranks. */
#ifndef RENDEZVOUS_DIAGNOSIS_RANKS_H
#define RENDEZVOUS_DIAGNOSIS_RANKS_H

#include "diagnosis/diagnosis.h"
#include "store/barrier.h"

/* What is known of a rank of the world. */
typedef void (*barrier_facts)(void *user, uint32_t rank, struct rank_facts *facts);

/* The JSON of an outcome that is not RELEASED, appended to `out`. `because` ends the first line of the
 * message: "barrier 'epoch-3' " + "timed out after 30.0 s". For a misuse `barrier` is NULL. False when memory
 * is short; `out` is as it was. */
bool barrier_report(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

#endif
